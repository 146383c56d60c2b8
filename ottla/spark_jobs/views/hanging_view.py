"""View `hanging`: the open transactions that block their readers for too long, as they are now. shell"""

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ottla.scan import schemas
from ottla.spark_jobs.views.base import ViewReader
from ottla.spark_jobs.views.directories import address_of
from ottla.spark_jobs.views.planning import selected_logs
from ottla.spark_jobs.views.query_tasks import Task
from ottla.verdict import SOME_BROKERS
from ottla.wire import SCHEME, is_kafka_address

if TYPE_CHECKING:
    from ottla.audit.checks.hanging import OpenFinding


class HangingReader(ViewReader):
    """Reader with a single task: it needs all partitions and the coordinators' log, and reads little of either."""

    view = schemas.HANGING

    def plan(self) -> list[Task]:
        return [Task()]

    def rows_or_batches(self, task: Task) -> Iterator[Any]:
        from ottla.spark_jobs.stream.alert_rows import BEGAN, alert

        now_ms = time.time_ns() // 1_000_000
        is_cluster = is_kafka_address(self.options.paths[0])
        found = self._ask(now_ms) if is_cluster else self._read(now_ms)
        brokers = self.options.paths[0].removeprefix(SCHEME) if is_cluster else SOME_BROKERS
        rows = ({**alert(one, now_ms), "event": BEGAN} for one in found)
        return self.to_arrow(row | {"action": row["action"].replace(SOME_BROKERS, brokers)} for row in rows)

    def _read(self, now_ms: int) -> "list[OpenFinding]":
        from ottla.spark_jobs.stream.watch import Watch

        return Watch(self.options).find_hanging(now_ms)

    def _ask(self, now_ms: int) -> "list[OpenFinding]":
        """Return what the brokers of a cluster answer. No record is read."""
        from ottla.audit.pipeline import audit
        from ottla.audit.request import Request
        from ottla.audit.runner import ThreadRunner

        options = self.options
        places = {(log.topic, log.partition) for log in selected_logs(options, self.bounds)}
        topics = tuple({topic for topic, _ in places})
        request = Request(options.paths, topics, now_ms, ("hanging",), address=address_of(options))
        opened = audit(ThreadRunner(1), request).open_transactions if topics else []
        return [one for one in opened if one.is_hanging and (one.topic, one.partition) in places]
