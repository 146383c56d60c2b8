"""Visibility of batches, determined by each task itself if that would take the driver too long. shell

Spark requests the tasks in one Python process of the driver, which cannot run tasks itself. Fates that are not in the
indexes need a walk over headers in this process. If that takes longer than some seconds, each task gets the end of its
partition and finds the fates. Tasks of a partition find the same fates: they list it again only up to that end.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from ottla.scan import storage
from ottla.scan.damage_log import REPORT
from ottla.scan.listing import PartitionLog, are_remote, list_again
from ottla.spark_jobs.options import Options
from ottla.spark_jobs.views.planned_range import PlannedRange

if TYPE_CHECKING:
    from ottla.scan.fates import PartitionFates

# The driver reads the headers of at most this many bytes, in a few seconds; above that, tasks read them.
DRIVER_BYTES = 4 * 1024 * 1024 * 1024
REMOTE_DRIVER_BYTES = 256 * 1024 * 1024
# If a partition must be walked from its start, each of its tasks walks it. So it gets few tasks.
TASKS_OF_A_WALK = 4
# A worker gets its tasks in the order of their partitions, so a few results suffice.
_KEPT_FATES = 4


class DeferredFates(NamedTuple):
    """A partition whose fates its tasks find. `known_end`: the partition as listed, without the segments in between.

    `query` is different for each query, so that no query uses the fates of another: the files may have changed.
    """

    query: str
    known_end: PartitionLog
    on_damage: str
    verify: bool
    to_log_end: bool

    def resolve(self, one: PlannedRange) -> PlannedRange:
        """Return a range of the partition with its visibility. Raises DamagedSegment in mode `fail`, OSError."""
        log, fates = _found(self.query, self.known_end, self.on_damage, self.verify)
        return one.with_fates(log, fates, to_log_end=self.to_log_end)


def defer_fates(query: str, log: PartitionLog, options: Options, *, to_log_end: bool) -> DeferredFates:
    """Return the deferred fates of a partition. `log` is the whole partition."""
    end = log._replace(segments=log.segments[-1:], snapshots=log.snapshots[-1:])
    return DeferredFates(query, end, options.on_damage, options.verify, to_log_end)


def is_walked_whole(log: PartitionLog, options: Options) -> bool:
    """Return whether the listing shows that the indexes cannot determine the fates."""
    return options.verify or options.on_damage == REPORT or _indexed_below(log) is None


def are_for_tasks(logs: Sequence[PartitionLog], options: Options) -> bool:
    """Return whether the fates of all `logs` need a longer walk than the driver should make."""
    least = REMOTE_DRIVER_BYTES if are_remote(logs) else DRIVER_BYTES
    return sum(_walked_bytes(log, options) for log in logs) > least


def _walked_bytes(log: PartitionLog, options: Options) -> int:
    below = None if is_walked_whole(log, options) else _indexed_below(log)
    ends = [segment.base_offset for segment in log.segments[1:]] + [2**63 - 1]
    return sum(one.size_bytes for one, end in zip(log.segments, ends, strict=True) if below is None or end > below)


def _indexed_below(log: PartitionLog) -> int | None:
    """Return the offset of the newest snapshot that a broker would use, as `indexes` does; None without one."""
    offsets = [int(storage.stem_of(path)) for path in log.snapshots]
    first = log.segments[0].base_offset if log.segments else 0
    return max((offset for offset in offsets if first < offset <= log.recovery_point), default=None)


@lru_cache(maxsize=_KEPT_FATES)
def _found(query: str, known_end: PartitionLog, on_damage: str, verify: bool) -> "tuple[PartitionLog, PartitionFates]":
    from ottla.scan.partitions import visible_partitions

    del query
    log = list_again(known_end)
    (fates,) = visible_partitions([log], on_damage=on_damage, verify=verify, threads=1)
    return log, fates
