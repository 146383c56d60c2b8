"""Ranges of whole segments of a large partition. A task walks one range, from the states of a snapshot. shell

A broker writes a producer snapshot when it rolls a segment (`ProducerStateManager.takeSnapshot`). It has the open
transactions at a segment's start, so no walk over lower segments is needed. It has their first offsets and no counts:
to count a transaction that began before the range and ends in it, the task reads back to its first offset. Each walk
checks its final states against the snapshot that the next walk begins with, so that all walks together equal one.
"""

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ottla.scan import states, storage
from ottla.scan.compiled.kernels import Longs
from ottla.scan.damage_log import REPORT, DamagedSegment, DamageLog
from ottla.scan.indexed_fates import read_snapshot, snapshot_offset
from ottla.scan.listing import PartitionLog, SegmentFile, list_again
from ottla.scan.narrowing import NO_OFFSET, narrowed_range
from ottla.scan.partitions import entering
from ottla.scan.ranges import cut_partition
from ottla.scan.records import ReadFilter
from ottla.scan.states import States
from ottla.scan.walk import Step, Walk

_KEY = [states.PRODUCER_ID, states.FIRST_OFFSET]


class SnapshotRange(NamedTuple):
    """Consecutive segments of a partition. `log` has only these; `following` is the segment after them or None.

    A pickled task with all segments of a large partition would be large, so a task that needs them lists them again.
    """

    log: PartitionLog
    following: SegmentFile | None = None
    begins_the_log: bool = True

    def load_partition(self) -> PartitionLog:
        """Return the partition up to the range's end, without segments that retention deleted since. Raises OSError."""
        below = () if self.begins_the_log else self.below().segments
        return self.log._replace(segments=below + self.log.segments)

    def below(self) -> PartitionLog:
        """Return the partition below the range. Raises OSError."""
        listed = list_again(self.log._replace(segments=self.log.segments[:1]))
        return listed._replace(segments=listed.segments[:-1])


def cut_at_snapshots(log: PartitionLog, target_bytes: int) -> list[SnapshotRange]:
    """Cut into ranges of up to `target_bytes`, or of one segment. Each range but the first begins at a snapshot.

    A snapshot above the recovery point is not used, because a broker does not rely on it either.
    """
    known = {offset for path in log.snapshots if (offset := snapshot_offset(path)) <= log.recovery_point}
    cuts = [0]
    size = 0
    for index, segment in enumerate(log.segments):
        if size and size + segment.size_bytes > target_bytes and segment.base_offset in known:
            cuts.append(index)
            size = 0
        size += segment.size_bytes
    ranges = []
    for first, end in pairwise([*cuts, len(log.segments)]):
        own = log._replace(segments=log.segments[first:end], snapshots=log.snapshots[-1:] if first else log.snapshots)
        following = log.segments[end] if end < len(log.segments) else None
        ranges.append(SnapshotRange(own, following, begins_the_log=first == 0))
    return ranges


class SnapshotRangeWalk:
    """Iterable of the steps of a range, to iterate once. Afterwards `leaving` has the states at its end.

    If the range does not begin the log, the states are only the open transactions. If not `counted`, transactions that
    began before the range have only their first offsets. In mode `report` CRCs are checked, because results must not
    depend on batches that other readers skip. Raises DamagedSegment in mode `fail`, OSError if a file cannot be read.
    """

    def __init__(self, one: SnapshotRange, damage: DamageLog, *, counted: bool = True) -> None:
        self._range = one
        self._damage = damage
        self.leaving: States = entering_range(one, damage, counted=counted)

    def __iter__(self) -> Iterator[Step]:
        log = self._range.log
        for part in cut_partition(0, log, log.size_bytes + 1):
            walked = Walk(part, self.leaving, self._damage, check_crc=self._damage.mode == REPORT)
            yield from walked
            self.leaving = walked.leaving
        check_leaving(self._range, self.leaving)


class PartitionWalk(SnapshotRangeWalk):
    """A walk over a whole partition, whose `leaving` has every producer."""

    def __init__(self, log: PartitionLog, damage: DamageLog) -> None:
        super().__init__(SnapshotRange(log), damage)

    def finish(self) -> "PartitionWalk":
        """Take all steps."""
        for _ in self:
            pass
        return self


def segment_of(log: PartitionLog, offsets: Longs) -> Longs:
    """Return the base offset of the segment of each offset; -1 for an offset below the first segment."""
    bases = np.array([-1, *(segment.base_offset for segment in log.segments)], dtype=np.int64)
    found: Longs = bases[np.searchsorted(bases[1:], offsets, side="right")]
    return found


def entering_range(one: SnapshotRange, damage: DamageLog, *, counted: bool) -> States:
    """Return the states at a range's start. Without a sound snapshot, walk the log up to there.

    A snapshot gives only open transactions. With `counted`, those that end in the range are counted.
    """
    if one.begins_the_log:
        return entering(one.log)
    first = one.log.segments[0]
    opened = _opened_at(first)
    if opened is None:
        below = one.below()
        return _walk(below, entering(below), damage)
    if counted:
        later = None if one.following is None else _opened_at(one.following)
        ending = np.ones(len(opened), dtype=bool) if later is None else ~_among(opened, later)
        if ending.any():
            opened[ending] = _counted_back(one, opened[ending], damage)
    return States(opened, next_offset=first.base_offset)


def check_leaving(one: SnapshotRange, leaving: States) -> None:
    """Raise DamagedSegment if the open transactions at the end differ from those that the next range begins with."""
    if one.following is None:
        return
    opened = _opened_at(one.following)
    found = leaving.open_rows
    if opened is not None and not (len(opened) == len(found) and _among(opened, found).all()):
        raise _disagrees(one.following)


def _disagrees(segment: SegmentFile) -> DamagedSegment:
    path = storage.with_suffix(segment.path, ".snapshot")
    return DamagedSegment(
        f"{path}: the open transactions in it are not those of the earlier segments; "
        'option("verify", "true") reads without it, ottla audit --checks index shows the differences'
    )


def _opened_at(segment: SegmentFile) -> Longs | None:
    """Return the open transactions below a segment from its snapshot, by first offset; None without a sound one."""
    rows = read_snapshot(storage.with_suffix(segment.path, ".snapshot"))
    if rows is None or (rows[:, [states.LAST_OFFSET, states.FIRST_OFFSET]] >= segment.base_offset).any():
        return None
    return states.from_snapshot(rows, segment.base_offset).open_rows


def _among(rows: Longs, others: Longs) -> npt.NDArray[np.bool_]:
    """Return for each transaction of `rows` whether it is in `others`."""
    known = set(map(tuple, others[:, _KEY].tolist()))
    return np.fromiter((tuple(key) in known for key in rows[:, _KEY].tolist()), dtype=bool, count=len(rows))


def _counted_back(one: SnapshotRange, rows: Longs, damage: DamageLog) -> Longs:
    """Return `rows`, by first offset, with the counts of their transactions in the log below the range."""
    counted = rows.copy()
    log = one.below()
    bases = np.array([segment.base_offset for segment in log.segments], dtype=np.int64)
    for members, begin, following in _spans(bases, rows):
        at, end = (int(place) for place in np.searchsorted(bases, (begin, following - 1), side="right"))
        start = states.empty() if at else entering(log)
        part = log._replace(segments=log.segments[max(at - 1, 0) : end])
        left = _walk(part, start, damage, begin, following).open_rows
        left = left[np.argsort(left[:, states.PRODUCER_ID], kind="stable")]
        found = left[np.isin(left[:, states.PRODUCER_ID], rows[members, states.PRODUCER_ID])]
        order = np.argsort(rows[members, states.PRODUCER_ID], kind="stable")
        if not np.array_equal(found[:, _KEY], rows[members[order]][:, _KEY]):
            raise _disagrees(one.log.segments[0])
        counted[members[order], states.FIRST_OFFSET : states.OPEN_EPOCH + 1] = found[
            :, states.FIRST_OFFSET : states.OPEN_EPOCH + 1
        ]
    return counted


def _spans(bases: Longs, rows: Longs) -> Iterator[tuple[Longs, int, int]]:
    """Yield (indexes of rows, first offset, offset after the last) to read. Near or overlapping transactions are one.

    A hanging producer has stopped writing, so the log after its last batch is not read.
    """
    begins = rows[:, states.FIRST_OFFSET]
    following = np.maximum.accumulate(rows[:, states.LAST_OFFSET] + 1)
    segments = np.searchsorted(bases, begins, side="right")
    reached = np.searchsorted(bases, following - 1, side="right")
    apart = (begins[1:] >= following[:-1]) & (segments[1:] > reached[:-1])
    for members in np.split(np.arange(len(rows)), np.flatnonzero(apart) + 1):
        yield members, int(begins[members[0]]), int(following[members[-1]])


def _walk(log: PartitionLog, start: States, damage: DamageLog, begin: int = 0, following: int = NO_OFFSET) -> States:
    """Return the states after the batches of [begin, following)."""
    for part in cut_partition(0, log, log.size_bytes + 1):
        narrowed = narrowed_range(part, ReadFilter(begin, following))
        start = Walk(narrowed, start, damage, check_crc=False, limit=following).finish().leaving
    return start
