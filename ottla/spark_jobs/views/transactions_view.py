"""View `transactions`: a row for every marker and for every transaction without one, per partition. shell"""

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from ottla.scan import schemas
from ottla.scan.damage_log import DamageLog
from ottla.scan.transaction_rows import Place, columns_of_ended_rows, of_open, to_arrow
from ottla.spark_jobs.views.base import ViewReader
from ottla.spark_jobs.views.internal import transactional_ids
from ottla.spark_jobs.views.planning import log_damage

if TYPE_CHECKING:
    from ottla.spark_jobs.views.query_tasks import WalkTask

# Columns that no snapshot has for a transaction that began before a snapshot range.
_COUNTED = ("lastOffset", "records", "batches", "size", "startTime", "durationMs")


class TransactionReader(ViewReader):
    """Reader of transactions. It walks large partitions in ranges, whose open transactions come from snapshots.

    The task with the marker of a transaction returns it. The last task returns open transactions.
    """

    view = schemas.TRANSACTIONS

    def plan(self) -> "list[WalkTask]":
        from ottla.spark_jobs.views.planning import plan_walks

        return plan_walks(self.options, self.bounds)

    def rows_or_batches(self, task: "WalkTask") -> Iterator[Any]:
        from ottla.scan import events
        from ottla.scan.snapshot_ranges import SnapshotRangeWalk, segment_of

        damage = DamageLog(self.options.on_damage)
        names = {}
        if self.wants("transactionalId"):
            names = transactional_ids(self.options)
        for one in task.ranges:
            log = one.log
            place = Place(log.topic, log.partition, names)
            walked = SnapshotRangeWalk(one, damage, counted=self.wants(*_COUNTED))
            for step in walked:
                ended = step.ended[step.ended[:, events.ENDED_MARKER_OFFSET] >= log.log_start]
                if len(ended):
                    columns = columns_of_ended_rows(ended, of_files=log.window is None)
                    yield to_arrow(self.arrow_schema(), place, columns)
            opened = walked.leaving.open_rows
            if len(opened) and one.following is None:
                yield to_arrow(self.arrow_schema(), place, of_open(opened, partial(segment_of, one.load_partition())))
        log_damage(damage)
