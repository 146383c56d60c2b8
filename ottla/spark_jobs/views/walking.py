"""Ordered walks over partitions, for the views that follow producers through them, and the tasks of these. shell"""

from collections.abc import Iterator

import numpy as np
from pyspark.sql.datasource import InputPartition

from ottla.scan import storage
from ottla.scan.damage_log import FAIL, REPORT, DamageLog
from ottla.scan.kernels import Longs
from ottla.scan.listing import CLEANER_CHECKPOINT, PartitionLog, read_checkpoint, storage_path
from ottla.scan.plan import cut_partition
from ottla.scan.states import States
from ottla.scan.walk import Step, Walk
from ottla.spark_jobs.options import Options
from ottla.spark_jobs.views.bounds import Bounds
from ottla.spark_jobs.views.planning import Task, selected_logs
from ottla.spark_jobs.views.stretches import Stretch, check_leaving, cut_at_snapshots, entering_stretch

STRETCH_BYTES = 256 * 1024 * 1024
SMALL_TASK_BYTES = 64 * 1024 * 1024
STRETCHES_PER_TASK = 200


class StretchTask(Task):
    """What one task walks."""

    def __init__(self, stretches: list[Stretch]) -> None:
        super().__init__()
        self.stretches = tuple(stretches)


def plan_walks(options: Options, bounds: Bounds) -> list[InputPartition]:
    """Tasks of stretches, small ones together.

    In one stretch stay: partitions that were compacted, for a snapshot tells more than is left; all of them where
    damage is skipped, or with `verify`, which relies on nothing but the batches.
    """
    logs = selected_logs(options, bounds)
    stretches = [Stretch(log) for log in logs]
    if options.on_damage == FAIL and not options.verify:
        cleaned = read_checkpoint(storage.join(storage_path(options.path), CLEANER_CHECKPOINT))
        stretches = []
        for log in logs:
            is_cleaned = (log.topic, log.partition) in cleaned
            stretches += [Stretch(log)] if is_cleaned else cut_at_snapshots(log, STRETCH_BYTES)
    tasks: list[InputPartition] = []
    together: list[Stretch] = []
    size = 0
    for stretch in stretches:
        together.append(stretch)
        size += stretch.log.size_bytes
        if size >= SMALL_TASK_BYTES or len(together) >= STRETCHES_PER_TASK:
            tasks.append(StretchTask(together))
            together, size = [], 0
    return [*tasks, StretchTask(together)] if together else tasks


class StretchWalk:
    """Iterate it once for the steps; afterwards `leaving` has the states behind the last.

    Of a stretch that does not begin the log it has the open transactions alone; unless they are `counted`, those that
    were carried in have their first offsets and nothing else. CRCs are checked where damage is reported: what is told
    must not rest on batches that are skipped elsewhere. Raises DamagedSegment in mode `fail`, OSError if a file cannot
    be read.
    """

    def __init__(self, stretch: Stretch, damage: DamageLog, *, counted: bool = True) -> None:
        self._stretch = stretch
        self._damage = damage
        self.leaving: States = entering_stretch(stretch, damage, counted=counted)

    def __iter__(self) -> Iterator[Step]:
        log = self._stretch.log
        for part in cut_partition(0, log, log.size_bytes + 1):
            walked = Walk(part, self.leaving, self._damage, check_crc=self._damage.mode == REPORT)
            yield from walked
            self.leaving = walked.leaving
        check_leaving(self._stretch, self.leaving)


class PartitionWalk(StretchWalk):
    """A walk over a whole partition, whose `leaving` has every producer."""

    def __init__(self, log: PartitionLog, damage: DamageLog) -> None:
        super().__init__(Stretch(log), damage)

    def finish(self) -> "PartitionWalk":
        """Take all steps."""
        for _ in self:
            pass
        return self


def segment_of(log: PartitionLog, offsets: Longs) -> Longs:
    """Base offset of the segment of each offset; -1 for one below the first segment."""
    bases = np.array([-1, *(segment.base_offset for segment in log.segments)], dtype=np.int64)
    found: Longs = bases[np.searchsorted(bases[1:], offsets, side="right")]
    return found
