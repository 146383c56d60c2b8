"""One ordered walk over a whole partition, for the views that follow producers through it. shell"""

from collections.abc import Iterator

import numpy as np

from ottla.spark_jobs.scan.damage import REPORT, DamageLog
from ottla.spark_jobs.scan.kernels import Longs
from ottla.spark_jobs.scan.listing import PartitionLog
from ottla.spark_jobs.scan.partitions import entering
from ottla.spark_jobs.scan.plan import cut_partition
from ottla.spark_jobs.scan.states import States
from ottla.spark_jobs.scan.walk import Step, Walk


class PartitionWalk:
    """Iterate it once for the steps; afterwards `leaving` has every producer's state at the log's end.

    CRCs are checked where damage is reported: what is told must not rest on batches that are skipped elsewhere. Raises
    DamagedSegment in mode `fail`, OSError if a file cannot be read.
    """

    def __init__(self, log: PartitionLog, damage: DamageLog) -> None:
        self._log = log
        self._damage = damage
        self.leaving: States = entering(log)

    def __iter__(self) -> Iterator[Step]:
        for part in cut_partition(0, self._log, self._log.size_bytes + 1):
            walked = Walk(part, self.leaving, self._damage, check_crc=self._damage.mode == REPORT)
            yield from walked
            self.leaving = walked.leaving

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
