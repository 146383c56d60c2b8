"""View `transactions`: a row for every marker and for every transaction without one, per partition. shell"""

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import InputPartition

from ottla.scan import schemas
from ottla.scan.damage_log import DamageLog
from ottla.scan.transaction_rows import Place, of_ended, of_open, to_arrow
from ottla.spark_jobs.views.base import ViewReader
from ottla.spark_jobs.views.internal import transactional_ids
from ottla.spark_jobs.views.planning import told_damage

if TYPE_CHECKING:
    from ottla.spark_jobs.views.walking import StretchTask

# What no snapshot tells of a transaction that began before a stretch.
_COUNTED = ("lastOffset", "records", "batches", "size", "startTime", "durationMs")


class TransactionReader(ViewReader):
    """Large partitions are walked in stretches, whose tasks know from snapshots what is open where they begin.

    A transaction is told by the task that has its marker, an open one by the last.
    """

    view = schemas.TRANSACTIONS

    def plan(self) -> list[InputPartition]:
        from ottla.spark_jobs.views.walking import plan_walks

        return plan_walks(self.options, self.bounds)

    def rows_or_batches(self, task: "StretchTask") -> Iterator[Any]:
        from ottla.scan import events
        from ottla.spark_jobs.views.walking import StretchWalk, segment_of

        damage = DamageLog(self.options.on_damage)
        names = {}
        if self.wants("transactionalId"):
            names = transactional_ids(self.options.path, self.options.on_damage)
        for stretch in task.stretches:
            log = stretch.log
            place = Place(log.topic, log.partition, names)
            walked = StretchWalk(stretch, damage, counted=self.wants(*_COUNTED))
            for step in walked:
                ended = step.ended[step.ended[:, events.ENDED_MARKER_OFFSET] >= log.log_start]
                if len(ended):
                    yield to_arrow(self.arrow_schema(), place, of_ended(ended))
            opened = walked.leaving.open_rows
            if len(opened) and stretch.behind is None:
                yield to_arrow(self.arrow_schema(), place, of_open(opened, partial(segment_of, stretch.up_to_here())))
        told_damage(damage)
