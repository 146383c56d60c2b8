"""View `producers`: the state of every producer at the end of the log, as a broker would hold it. shell"""

from collections.abc import Iterator
from typing import Any

from pyspark.sql.datasource import InputPartition

from ottla.spark_jobs import schemas
from ottla.spark_jobs.scan.damage import DamageLog
from ottla.spark_jobs.views.base import ViewReader, numbers, record_batch, times
from ottla.spark_jobs.views.internal import transactional_ids
from ottla.spark_jobs.views.planning import Task, plan_partitions, told_damage


class ProducerReader(ViewReader):
    """Each partition is walked from its start in one task; a broker would forget those idle for a day."""

    view = schemas.PRODUCERS

    def plan(self) -> list[InputPartition]:
        return plan_partitions(self.options, self.bounds)

    def rows_or_batches(self, task: Task) -> Iterator[Any]:
        import numpy as np
        import pyarrow as pa

        from ottla.spark_jobs.scan import states
        from ottla.spark_jobs.views.walking import PartitionWalk, segment_of

        schema = self.arrow_schema()
        damage = DamageLog(self.options.on_damage)
        names = transactional_ids(self.options.path, self.options.on_damage) if self.wants("transactionalId") else {}
        for log in task.logs:
            rows = PartitionWalk(log, damage).finish().leaving.rows
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
        told_damage(damage)
