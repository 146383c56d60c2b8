"""View `hanging`: the open transactions that block their readers for too long, as they are now. shell"""

import time
from collections.abc import Iterator
from typing import Any

from ottla.scan import schemas
from ottla.spark_jobs.views.base import ViewReader
from ottla.spark_jobs.views.query_tasks import Task


class HangingReader(ViewReader):
    """Reader with a single task: it needs all partitions and the coordinators' log, and reads little of either."""

    view = schemas.HANGING

    def plan(self) -> list[Task]:
        return [Task()]

    def rows_or_batches(self, task: Task) -> Iterator[Any]:
        from ottla.spark_jobs.stream.alert_rows import BEGAN, alert
        from ottla.spark_jobs.stream.watch import Watch

        now_ms = time.time_ns() // 1_000_000
        found = Watch(self.options).find_hanging(now_ms)
        return self.to_arrow({**alert(one, now_ms), "event": BEGAN} for one in found)
