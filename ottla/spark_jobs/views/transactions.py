"""View `transactions`: a row for every marker and for every transaction without one, per partition. shell"""

from collections.abc import Iterator
from functools import partial
from typing import Any

from pyspark.sql.datasource import InputPartition

from ottla.spark_jobs import schemas
from ottla.spark_jobs.scan.damage import DamageLog
from ottla.spark_jobs.transaction_rows import Place, of_ended, of_open, to_arrow
from ottla.spark_jobs.views.base import ViewReader
from ottla.spark_jobs.views.internal import transactional_ids
from ottla.spark_jobs.views.planning import Task, plan_partitions, told_damage


class TransactionReader(ViewReader):
    """Each partition is walked from its start in one task: a transaction may span any number of segments."""

    view = schemas.TRANSACTIONS

    def plan(self) -> list[InputPartition]:
        return plan_partitions(self.options, self.bounds)

    def rows_or_batches(self, task: Task) -> Iterator[Any]:
        from ottla.spark_jobs.scan import events
        from ottla.spark_jobs.views.walking import PartitionWalk, segment_of

        damage = DamageLog(self.options.on_damage)
        names = {}
        if self.wants("transactionalId"):
            names = transactional_ids(self.options.path, self.options.on_damage)
        for log in task.logs:
            place = Place(log.topic, log.partition, names)
            walked = PartitionWalk(log, damage)
            for step in walked:
                ended = step.ended[step.ended[:, events.ENDED_MARKER_OFFSET] >= log.log_start]
                if len(ended):
                    yield to_arrow(self.arrow_schema(), place, of_ended(ended))
            opened = walked.leaving.open_rows
            if len(opened):
                yield to_arrow(self.arrow_schema(), place, of_open(opened, partial(segment_of, log)))
        told_damage(damage)
