"""A large partition in stretches of segments that tasks walk on their own, each entered as a snapshot tells. shell

A broker writes a producer snapshot when it rolls a segment, so the open transactions at a segment's start are known
without a walk over what lies below (`ProducerStateManager.takeSnapshot`). It has their first offsets and no counts: a
transaction that was carried in and ends in the stretch is counted by reading back to where it began. At its end every
walk is held against the snapshot there, with which the next one began, so that all together tell what one would.
"""

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ottla.scan import states, storage
from ottla.scan.damage_log import DamagedSegment, DamageLog
from ottla.scan.indexed_fates import read_snapshot, snapshot_offset
from ottla.scan.kernels import Longs
from ottla.scan.listing import PartitionLog, SegmentFile, list_again
from ottla.scan.partitions import entering
from ottla.scan.plan import cut_partition
from ottla.scan.records import Wanted
from ottla.scan.states import States
from ottla.scan.walk import Walk
from ottla.spark_jobs.views.planning import NO_OFFSET, narrowed_range

_KEY = [states.PRODUCER_ID, states.FIRST_OFFSET]


class Stretch(NamedTuple):
    """Consecutive segments of a partition: `log` has these alone, `behind` is the segment that follows, if one does.

    Tasks of a partition of many segments would be large if each were told of all; who needs them lists them again.
    """

    log: PartitionLog
    behind: SegmentFile | None = None
    begins_the_log: bool = True

    def up_to_here(self) -> PartitionLog:
        """The partition up to the end of the stretch, without what retention has taken since. Raises OSError."""
        below = () if self.begins_the_log else self.below().segments
        return self.log._replace(segments=below + self.log.segments)

    def below(self) -> PartitionLog:
        """The partition below the stretch. Raises OSError."""
        listed = list_again(self.log._replace(segments=self.log.segments[:1]))
        return listed._replace(segments=listed.segments[:-1])


def cut_at_snapshots(log: PartitionLog, target_bytes: int) -> list[Stretch]:
    """Stretches of up to `target_bytes`, or of one segment; each but the first begins where there is a snapshot.

    Only where a broker would rely on it, too: not above the recovery point.
    """
    known = {offset for path in log.snapshots if (offset := snapshot_offset(path)) <= log.recovery_point}
    cuts = [0]
    size = 0
    for index, segment in enumerate(log.segments):
        if size and size + segment.size_bytes > target_bytes and segment.base_offset in known:
            cuts.append(index)
            size = 0
        size += segment.size_bytes
    stretches = []
    for first, end in pairwise([*cuts, len(log.segments)]):
        own = log._replace(segments=log.segments[first:end], snapshots=log.snapshots[-1:] if first else log.snapshots)
        behind = log.segments[end] if end < len(log.segments) else None
        stretches.append(Stretch(own, behind, begins_the_log=first == 0))
    return stretches


def entering_stretch(stretch: Stretch, damage: DamageLog, *, counted: bool) -> States:
    """The states with which it is entered: without its snapshot, those that a walk up to there leaves.

    With a snapshot only those of open transactions; if they are to be `counted`, those that end in the stretch are.
    """
    if stretch.begins_the_log:
        return entering(stretch.log)
    first = stretch.log.segments[0]
    opened = _opened_at(first)
    if opened is None:
        below = stretch.below()
        return _walk(below, entering(below), damage)
    if counted:
        later = None if stretch.behind is None else _opened_at(stretch.behind)
        ending = np.ones(len(opened), dtype=bool) if later is None else ~_among(opened, later)
        if ending.any():
            opened[ending] = _counted_back(stretch, opened[ending], damage)
    return States(opened, next_offset=first.base_offset)


def check_leaving(stretch: Stretch, leaving: States) -> None:
    """Raises DamagedSegment if what is open at the end is not what the next stretch is entered with."""
    if stretch.behind is None:
        return
    told = _opened_at(stretch.behind)
    found = leaving.open_rows
    if told is not None and not (len(told) == len(found) and _among(told, found).all()):
        raise _disagrees(stretch.behind)


def _disagrees(segment: SegmentFile) -> DamagedSegment:
    path = storage.beside(segment.path, ".snapshot")
    return DamagedSegment(
        f"{path}: the open transactions in it are not those of the segments below; "
        'option("verify", "true") reads without it, ottla audit --checks index tells what differs'
    )


def _opened_at(segment: SegmentFile) -> Longs | None:
    """The states of what is open below a segment as its snapshot tells, by first offset; None without a sound one."""
    rows = read_snapshot(storage.beside(segment.path, ".snapshot"))
    if rows is None or (rows[:, [states.LAST_OFFSET, states.FIRST_OFFSET]] >= segment.base_offset).any():
        return None
    return states.from_snapshot(rows, segment.base_offset).open_rows


def _among(rows: Longs, others: Longs) -> npt.NDArray[np.bool_]:
    """Which of the transactions of `rows` are among those of `others`."""
    known = set(map(tuple, others[:, _KEY].tolist()))
    return np.fromiter((tuple(key) in known for key in rows[:, _KEY].tolist()), dtype=bool, count=len(rows))


def _counted_back(stretch: Stretch, rows: Longs, damage: DamageLog) -> Longs:
    """`rows`, by first offset, with what the log below the stretch has of their transactions."""
    counted = rows.copy()
    log = stretch.below()
    bases = np.array([segment.base_offset for segment in log.segments], dtype=np.int64)
    for members, begin, behind in _spans(bases, rows):
        at, end = (int(place) for place in np.searchsorted(bases, (begin, behind - 1), side="right"))
        start = states.empty() if at else entering(log)
        part = log._replace(segments=log.segments[max(at - 1, 0) : end])
        left = _walk(part, start, damage, begin, behind).open_rows
        left = left[np.argsort(left[:, states.PRODUCER_ID], kind="stable")]
        found = left[np.isin(left[:, states.PRODUCER_ID], rows[members, states.PRODUCER_ID])]
        order = np.argsort(rows[members, states.PRODUCER_ID], kind="stable")
        if not np.array_equal(found[:, _KEY], rows[members[order]][:, _KEY]):
            raise _disagrees(stretch.log.segments[0])
        counted[members[order], states.FIRST_OFFSET : states.OPEN_EPOCH + 1] = found[
            :, states.FIRST_OFFSET : states.OPEN_EPOCH + 1
        ]
    return counted


def _spans(bases: Longs, rows: Longs) -> Iterator[tuple[Longs, int, int]]:
    """(indexes of rows, first offset, behind the last) of what has to be read: those that overlap, or nearly, together.

    A producer that hangs wrote for a while and then no more, so what lies behind its last batch is not read.
    """
    begins = rows[:, states.FIRST_OFFSET]
    behind = np.maximum.accumulate(rows[:, states.LAST_OFFSET] + 1)
    segments = np.searchsorted(bases, begins, side="right")
    reached = np.searchsorted(bases, behind - 1, side="right")
    apart = (begins[1:] >= behind[:-1]) & (segments[1:] > reached[:-1])
    for members in np.split(np.arange(len(rows)), np.flatnonzero(apart) + 1):
        yield members, int(begins[members[0]]), int(behind[members[-1]])


def _walk(log: PartitionLog, start: States, damage: DamageLog, begin: int = 0, behind: int = NO_OFFSET) -> States:
    """The states behind the batches of [begin, behind)."""
    for part in cut_partition(0, log, log.size_bytes + 1):
        narrowed = narrowed_range(part, Wanted(begin, behind))
        start = Walk(narrowed, start, damage, check_crc=False, limit=behind).finish().leaving
    return start
