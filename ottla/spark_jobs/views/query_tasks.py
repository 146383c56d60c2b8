"""Tasks of a query: ranges, whole partitions, or ranges to walk. Spark gets each as an InputPartition. pure"""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from ottla.scan.listing import PartitionLog
from ottla.spark_jobs.views.deferred_fates import DeferredFates
from ottla.spark_jobs.views.planned_range import PlannedRange

if TYPE_CHECKING:
    from ottla.scan.snapshot_ranges import SnapshotRange


class Task:
    """Part of a query that one task of Spark, or one thread, reads."""


class RangeTask(Task):
    """A task that reads ranges."""

    def __init__(self, ranges: Sequence[PlannedRange], deferred: Mapping[int, DeferredFates] | None = None) -> None:
        """Create the task. `deferred`: by `part.partition`, the fates to find before the task reads ranges there."""
        self._ranges = tuple(ranges)
        self._deferred = deferred or {}

    @property
    def ranges(self) -> Iterator[PlannedRange]:
        """Yield each range with its fates. Raises DamagedSegment in mode `fail`, OSError."""
        for one in self._ranges:
            fates = self._deferred.get(one.part.partition)
            yield one if fates is None else fates.resolve(one)


class PartitionTask(Task):
    """A task that reads whole partitions."""

    def __init__(self, logs: Sequence[PartitionLog]) -> None:
        self.logs = tuple(logs)


class WalkTask(Task):
    """A task that follows producers through ranges, separately in each range."""

    def __init__(self, ranges: "Sequence[SnapshotRange]") -> None:
        self.ranges = tuple(ranges)
