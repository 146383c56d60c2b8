"""Fates without a scan: `.txnindex` files, a producer snapshot, and a walk over the batches after it. shell

Ottla relies on the files that a starting broker relies on (`LogLoader`): those of flushed segments, below the recovery
point, and a snapshot there. A machine's crash may cut only the batches after the snapshot, and these are walked.
"""

from contextlib import closing

import numpy as np

from ottla.scan import headers, states, storage
from ottla.scan.chunks import SegmentReader
from ottla.scan.compiled.kernels import Longs
from ottla.scan.damage_log import REPORT, DamageLog
from ottla.scan.fates import ABORTED_COLUMNS, PartitionFates, RangeFates, merge_ranges
from ottla.scan.index_files import aborted_entries, batch_positions, snapshot_entries
from ottla.scan.listing import PartitionLog, SegmentFile
from ottla.scan.ranges import LogRange, cut_segment, is_batch_start
from ottla.scan.states import States
from ottla.scan.walk import range_fates


def fates_from_indexes(log: PartitionLog, *, on_damage: str) -> PartitionFates | None:
    """Return the fates of a partition, not counted; None if its files are not reliable: then scan the partition.

    Raises DamagedSegment in mode `fail` if the tail is damaged, OSError if a file cannot be read.
    """
    start = _newest_states(log)
    if start is None:
        return None
    aborted = _aborted_below(log, start.next_offset)
    tail = None if aborted is None else _walk_tail(log, start, on_damage=on_damage)
    if aborted is None or tail is None:
        return None
    whole = tail._replace(aborted=np.concatenate([aborted, tail.aborted]))
    fates = merge_ranges([whole], tail.leaving, log.log_start, log.segments[-1].base_offset)
    fates.is_counted = False
    return fates


def leaving_from_indexes(log: PartitionLog, *, on_damage: str) -> States | None:
    """Return the states at the end of a partition as a broker loads them; None if no snapshot is reliable.

    Raises DamagedSegment in mode `fail` if the tail is damaged, OSError if a file cannot be read.
    """
    start = _newest_states(log)
    tail = None if start is None else _walk_tail(log, start, on_damage=on_damage)
    return None if tail is None else tail.leaving


def snapshot_offset(path: str) -> int:
    """Return the offset of a snapshot, which has the producers' states of the batches below it."""
    return int(storage.stem_of(path))


def read_snapshot(path: str) -> Longs | None:
    """Return a snapshot's entries for `states.from_snapshot`; None if it is damaged, or retention has deleted it."""
    content = storage.read_if_there(path)
    found = None if content is None else snapshot_entries(content)
    return None if found is None or found.fault else found.rows


def _newest_states(log: PartitionLog) -> States | None:
    """Return the states at the newest sound snapshot after the first segment's start, up to the recovery point."""
    if not log.segments:
        return None
    for path in reversed(log.snapshots):
        offset = snapshot_offset(path)
        if not log.segments[0].base_offset < offset <= log.recovery_point:
            continue
        entries = read_snapshot(path)
        if entries is not None and (entries[:, [states.LAST_OFFSET, states.FIRST_OFFSET]] < offset).all():
            return states.from_snapshot(entries, offset)
    return None


def _aborted_below(log: PartitionLog, offset: int) -> Longs | None:
    """Return the aborted transactions whose marker is below `offset`; None if an index is unsound."""
    segments = [segment for segment in log.segments if segment.base_offset < offset]
    if any(not has_index(segment) for segment in segments):
        return None
    # A broker writes a `.txnindex` only with the first aborted transaction.
    with_aborted = [segment for segment in segments if not segment.lacks(".txnindex")]
    contents = storage.each(storage.read_if_there, [storage.with_suffix(one.path, ".txnindex") for one in with_aborted])
    ends = dict(zip(log.segments, log.segments[1:], strict=False))
    found: list[Longs] = [np.empty((0, ABORTED_COLUMNS), dtype=np.int64)]
    for segment, content in zip(with_aborted, contents, strict=True):
        entries = aborted_entries(content or b"")
        markers = entries.rows[:, 0]
        end = ends[segment].base_offset if segment in ends else 2**63 - 1
        if entries.fault or (markers < segment.base_offset).any() or (markers >= end).any():
            return None
        found.append(entries.rows[markers < offset][:, [1, 2, 0]])
    return np.concatenate(found)


def has_index(segment: SegmentFile) -> bool:
    """Return whether a segment has an `.index`. Without it a broker rebuilds all indexes of the segment."""
    if segment.suffixes is not None:
        return not segment.lacks(".index")
    return storage.exists(storage.with_suffix(segment.path, ".index"))


def _walk_tail(log: PartitionLog, start: States, *, on_damage: str) -> RangeFates | None:
    """Walk the batches from the snapshot on; return None if no batch ends at its offset."""
    offset = start.next_offset
    index = sum(segment.base_offset <= offset for segment in log.segments) - 1
    segment = log.segments[index]
    position = 0 if segment.base_offset == offset else _position_of(segment, offset, log.recovery_point)
    if position is None:
        return None
    pieces = []
    for one in log.segments[index:]:
        pieces += cut_segment(one, one.size_bytes + 1, log.recovery_point)
    pieces = [piece._replace(start=position) if piece.base_offset == segment.base_offset else piece for piece in pieces]
    tail = LogRange(0, 0, log.topic, log.partition, log.log_start, tuple(pieces))
    return range_fates(tail, start, on_damage=on_damage, check_crc=False)


def _position_of(segment: SegmentFile, offset: int, recovery_point: int) -> int | None:
    """Return the position at which the batch at `offset` starts or will start; None if no batch ends there."""
    entries = batch_positions(segment.path, segment.base_offset, segment.size_bytes)
    entries = entries[: np.searchsorted(entries[:, 0], offset)]
    position = 0
    if len(entries):
        last_offset, named = map(int, entries[-1])
        with closing(storage.open_file(segment.path)) as file:
            if is_batch_start(file, named, last_offset):
                position = named
    pieces = cut_segment(segment, segment.size_bytes + 1, recovery_point)
    for piece in pieces:
        for chunk in SegmentReader(DamageLog(REPORT), check_crc=False).chunks(piece._replace(start=position)):
            rows = chunk.rows
            found = np.flatnonzero(rows[:, headers.LAST_OFFSET] >= offset - 1)
            if len(found):
                row = rows[found[0]]
                is_edge = row[headers.LAST_OFFSET] == offset - 1
                return chunk.file_position + int(row[headers.POSITION] + row[headers.SIZE]) if is_edge else None
    return None
