"""Exclusion of segments, and parts of them, that cannot hold records of a read filter. shell

The last entry of a `.timeindex` excludes a segment. A broker completes the file when it rolls the segment
(`LogSegment.onBecomeInactiveSegment`). Inside a segment, reading starts and ends at positions of its `.index`, each
checked against the batch at that position. This module imports little, because the driver of a query loads it.
"""

from collections.abc import Iterator, Sequence
from contextlib import closing
from itertools import pairwise
from typing import TYPE_CHECKING

from ottla.scan import storage
from ottla.scan.damage_log import FAIL, REPORT, DamageLog
from ottla.scan.listing import PartitionLog, SegmentFile
from ottla.scan.needs import check_worker

if TYPE_CHECKING:
    from ottla.scan.chunks import SegmentPiece
    from ottla.scan.ranges import LogRange
    from ottla.scan.records import ReadFilter

# After all offsets.
NO_OFFSET = 2**63 - 1


def narrowed_range(part: "LogRange", read_filter: "ReadFilter") -> "LogRange":
    """Return `part` with its pieces cut to the positions that contain the offsets of the filter."""
    return part._replace(pieces=tuple(_narrowed_piece(piece, read_filter) for piece in part.segment_pieces))


def _narrowed_piece(piece: "SegmentPiece", read_filter: "ReadFilter") -> "SegmentPiece":
    """Cut a piece at index entries. A wrong entry leaves the piece unchanged: the index only saves reading."""
    import numpy as np

    from ottla.scan.index_files import batch_positions
    from ottla.scan.ranges import is_batch_start

    if read_filter.first_offset <= piece.base_offset and read_filter.end_offset >= piece.offset_limit:
        return piece
    try:
        entries = batch_positions(piece.path, piece.base_offset, piece.file_bytes)
        file = storage.open_file(piece.path)
    except FileNotFoundError:
        return piece
    with closing(file):
        last_offsets = entries[:, 0]

        def position(index: int, otherwise: int) -> int:
            at = int(entries[index, 1])
            sound = piece.start <= at <= piece.end and is_batch_start(file, at, int(last_offsets[index]))
            return at if sound else otherwise

        before = int(np.searchsorted(last_offsets, read_filter.first_offset)) - 1
        # The batch of the first entry at or above the end may begin below it, that of the next entry cannot.
        after = int(np.searchsorted(last_offsets, read_filter.end_offset)) + 1
        start = position(before, piece.start) if before >= 0 else piece.start
        end = position(after, piece.end) if after < len(entries) else piece.end
        return piece._replace(start=start, end=max(start, end))


def not_before(segments: Sequence[SegmentFile], time_ms: int) -> list[SegmentFile]:
    """Return the segments without the rolled ones whose `.timeindex` ends before `time_ms`."""
    if time_ms <= 0:
        return list(segments)
    rolled = [segment for segment in segments if not (segment.is_last or segment.lacks(".timeindex"))]
    found = storage.each(_largest_timestamp, [storage.with_suffix(segment.path, ".timeindex") for segment in rolled])
    largest = dict(zip(rolled, found, strict=True))
    return [segment for segment in segments if (latest := largest.get(segment)) is None or latest >= time_ms]


def _largest_timestamp(path: str) -> int | None:
    """Return the timestamp of the last entry of a `.timeindex` in ms; None without entries."""
    from ottla.scan.index_files import time_entries

    entries = time_entries(storage.read_if_there(path) or b"", 0).rows
    return int(entries[-1, 1]) if len(entries) else None


def offset_for_time(log: PartitionLog, time_ms: int) -> int:
    """Return the first offset with a timestamp of at least `time_ms`, as ListOffsets does; NO_OFFSET without one.

    Source: `FileRecords.searchForTimestamp`: batches with a late enough timestamp are searched record by record.
    """
    check_worker()
    if log.window is not None:
        from ottla.scan.cluster.listing import find_offset  # and the connection, which files do not need

        found = find_offset(log.window, time_ms)
        return NO_OFFSET if found is None else found
    from ottla.scan import headers
    from ottla.scan.chunks import SegmentReader
    from ottla.scan.ranges import cut_segment

    reader = SegmentReader(DamageLog(REPORT), check_crc=False)
    for segment in not_before(log.segments, time_ms):
        for piece in cut_segment(segment, segment.size_bytes + 1, log.recovery_point):
            for chunk in reader.chunks(piece):
                for row in chunk.rows[chunk.rows[:, headers.MAX_TIMESTAMP] >= time_ms]:
                    if row[headers.LAST_OFFSET] < log.log_start:
                        continue
                    if row[headers.CONTROL_TYPE] != headers.NOT_CONTROL:
                        return int(row[headers.BASE_OFFSET])
                    start = chunk.file_position + int(row[headers.POSITION])
                    batch = piece._replace(start=start, end=start + int(row[headers.SIZE]))
                    if (offset := _offset_in(log, batch, time_ms)) is not None:
                        return offset
    return NO_OFFSET


def _offset_in(log: PartitionLog, batch: "SegmentPiece", time_ms: int) -> int | None:
    """Return the first offset in `batch` whose record has a timestamp of at least `time_ms`; None without one."""
    from ottla.scan import schemas
    from ottla.scan.ranges import LogRange
    from ottla.scan.records import RecordScan, uncommitted_visibility

    scan = RecordScan(schemas.arrow_schema(schemas.RECORDS, [("offset", True), ("timestamp", True)]), DamageLog(FAIL))
    part = LogRange(0, 0, log.topic, log.partition, log.log_start, (batch,))
    for table in scan.read(part, uncommitted_visibility(log.log_start)):
        for offset, moment in zip(table.column(0).to_pylist(), table.column(1).cast("int64").to_pylist(), strict=True):
            if moment >= time_ms * 1000:
                return int(offset)
    return None


def with_ends(log: PartitionLog) -> Iterator[tuple[SegmentFile, int]]:
    """Yield each segment with the base offset of the next segment; 2^63-1 for the last."""
    for segment, following in pairwise([*log.segments, None]):
        assert segment is not None
        yield segment, following.base_offset if following else NO_OFFSET
