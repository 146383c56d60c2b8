"""Exclusion of segments, and parts of them, that cannot hold records of a read filter. shell

Segments are left out by the last entry of their `.timeindex`, which a broker completes when it rolls the segment
(`LogSegment.onBecomeInactiveSegment`). Inside a segment reading starts and ends at positions of its `.index`, each
checked against the batch at that position. This module imports little, because the driver of a query loads it.
"""

from collections.abc import Iterator, Sequence
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
    """`part` with pieces cut to the positions between which the wanted offsets lie."""
    return part._replace(pieces=tuple(_narrowed_piece(piece, read_filter) for piece in part.pieces))


def _narrowed_piece(piece: "SegmentPiece", read_filter: "ReadFilter") -> "SegmentPiece":
    """An entry that does not hold leaves the piece as it is: the index spares reading, it decides nothing."""
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
    try:
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
    finally:
        file.close()


def not_before(segments: Sequence[SegmentFile], time_ms: int) -> list[SegmentFile]:
    """Without the rolled segments whose `.timeindex` says that nothing in them is as late as `time_ms`."""
    if time_ms <= 0:
        return list(segments)
    rolled = [segment for segment in segments if not (segment.is_last or segment.lacks(".timeindex"))]
    found = storage.each(_largest_timestamp, [storage.with_suffix(segment.path, ".timeindex") for segment in rolled])
    largest = dict(zip(rolled, found, strict=True))
    return [segment for segment in segments if (latest := largest.get(segment)) is None or latest >= time_ms]


def _largest_timestamp(path: str) -> int | None:
    """The last entry of a `.timeindex` in ms; None if there is none."""
    from ottla.scan.index_files import time_entries

    entries = time_entries(storage.read_if_there(path) or b"", 0).rows
    return int(entries[-1, 1]) if len(entries) else None


def offset_for_time(log: PartitionLog, time_ms: int) -> int:
    """The first offset with a timestamp of at least `time_ms`, as ListOffsets finds it; NO_OFFSET if there is none.

    Source: `FileRecords.searchForTimestamp`: batches that are late enough are searched record by record.
    """
    check_worker()
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
    """The first offset in `batch` whose record is as late."""
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
    """Each segment with the base offset of the one behind it; 2^63-1 for the last."""
    for segment, following in pairwise([*log.segments, None]):
        assert segment is not None
        yield segment, following.base_offset if following else NO_OFFSET
