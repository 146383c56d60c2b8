"""View `records`: the records that a consumer would get, decoded in the tasks. shell"""

from collections.abc import Iterator
from typing import Any

from ottla.scan import schemas
from ottla.scan.damage_log import DamageLog
from ottla.spark_jobs.options import READ_COMMITTED
from ottla.spark_jobs.views.base import ViewReader
from ottla.spark_jobs.views.planning import log_damage, plan_ranges
from ottla.spark_jobs.views.query_tasks import RangeTask


class RecordReader(ViewReader):
    """Reader of records. read_committed plans with the fates of every partition; read_uncommitted needs none."""

    view = schemas.RECORDS

    def plan(self) -> list[RangeTask]:
        return plan_ranges(self.options, self.bounds, with_fates=self.options.isolation_level == READ_COMMITTED)

    def rows_or_batches(self, task: RangeTask) -> Iterator[Any]:
        from ottla.scan.records import RecordScan, uncommitted_visibility

        log = DamageLog(self.options.on_damage)
        scan = RecordScan(self.arrow_schema(), log)
        for part, read_filter, visible, _ in task.ranges:
            yield from scan.read(part, visible or uncommitted_visibility(part.log_start), read_filter)
        log_damage(log)
