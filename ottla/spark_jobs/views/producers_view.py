"""View `producers`: the state of every producer at the end of the log, as a broker would hold it. shell"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ottla.scan import schemas
from ottla.scan.arrow import numbers, record_batch, times
from ottla.scan.damage_log import FAIL, DamageLog
from ottla.scan.listing import PartitionLog
from ottla.spark_jobs.views.base import ViewReader
from ottla.spark_jobs.views.internal import transactional_ids
from ottla.spark_jobs.views.planning import log_damage, plan_partitions
from ottla.spark_jobs.views.query_tasks import PartitionTask

if TYPE_CHECKING:
    from ottla.scan.compiled.kernels import Longs


class ProducerReader(ViewReader):
    """Reader of the newest snapshot and the log after it, as when a broker starts; `verify` walks the whole log.

    A snapshot lacks producers that the broker had forgotten, although the log may still have their batches.
    """

    view = schemas.PRODUCERS

    def plan(self) -> list[PartitionTask]:
        return plan_partitions(self.options, self.bounds)

    def rows_or_batches(self, task: PartitionTask) -> Iterator[Any]:
        import numpy as np
        import pyarrow as pa

        from ottla.scan import states
        from ottla.scan.snapshot_ranges import segment_of

        schema = self.arrow_schema()
        damage = DamageLog(self.options.on_damage)
        names = transactional_ids(self.options) if self.wants("transactionalId") else {}
        for log in task.logs:
            rows = self._rows(log, damage)
            if not len(rows):
                continue
            rows = rows[np.argsort(rows[:, states.PRODUCER_ID], kind="stable")]
            columns: dict[str, Any] = {
                "topic": pa.repeat(pa.scalar(log.topic, pa.string()), len(rows)),
                "partition": np.full(len(rows), log.partition, dtype=np.int32),
                "segment": numbers(segment_of(log, rows[:, states.LAST_OFFSET])),
                "producerId": rows[:, states.PRODUCER_ID],
                "producerEpoch": rows[:, states.EPOCH],
                "transactionalId": [names.get(producer_id) for producer_id in rows[:, states.PRODUCER_ID].tolist()],
                "lastSequence": numbers(rows[:, states.LAST_SEQUENCE]),
                "lastOffset": numbers(rows[:, states.LAST_OFFSET]),
                "lastTimestamp": times(rows[:, states.LAST_TIMESTAMP]),
                "coordinatorEpoch": numbers(rows[:, states.COORDINATOR_EPOCH]),
                "openFirstOffset": numbers(rows[:, states.FIRST_OFFSET]),
            }
            yield record_batch(schema, columns)
        log_damage(damage)

    def _rows(self, log: PartitionLog, damage: DamageLog) -> "Longs":
        from ottla.scan.indexed_fates import leaving_from_indexes
        from ottla.scan.snapshot_ranges import PartitionWalk

        if not self.options.verify and damage.mode == FAIL and log.window is None:
            leaving = leaving_from_indexes(log, on_damage=damage.mode)
            if leaving is not None:
                return leaving.rows
        return PartitionWalk(log, damage).finish().leaving.rows
