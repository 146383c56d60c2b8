"""The stream of alerts: a row when a transaction begins to hang, and one when it no longer hangs. shell

Its position is the list of hanging transactions, so two positions determine a micro-batch, with each alert once.
"""

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow

from ottla.scan import schemas
from ottla.scan.needs import check_worker
from ottla.spark_jobs.brief import without_traceback
from ottla.spark_jobs.stream.alert_rows import Alert, alert, changes, keep_first_seen
from ottla.spark_jobs.stream.stream_options import StreamOptions
from ottla.spark_jobs.views.base import rename_columns

if TYPE_CHECKING:
    from ottla.spark_jobs.stream.watch import Watch


class AlertStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Stream reader that checks the directory once a micro-batch: choose a trigger of some seconds."""

    def __init__(self, options: StreamOptions, fields: list[tuple[str, bool]]) -> None:
        self._options = options
        self._fields = fields
        self._watch: Watch | None = None
        self._only_one: list[Alert] | None = None
        self.written: list[str] | None = None

    def initialOffset(self) -> dict[str, Any]:
        """Return a position without alerts: the first micro-batch reports the transactions that hang already."""
        return {"hanging": []}

    @without_traceback()
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return the transactions that hang now, each as first reported. Return `start` itself if nothing changed."""
        now = self._look() if self._only_one is None else self._only_one
        return {"hanging": keep_first_seen(start["hanging"], now)}

    @without_traceback()
    def prepareForTriggerAvailableNow(self) -> None:
        self._only_one = self._look()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        rows = changes(start["hanging"], end["hanging"])
        return [InputPartition(rows)] if rows else []

    def read(self, partition: InputPartition) -> Iterator[Any]:
        check_worker()
        from ottla.scan.arrow import record_batch

        if partition.value:
            schema = schemas.arrow_schema(schemas.HANGING, self._fields)
            batch = record_batch(schema, {name: [row[name] for row in partition.value] for name in schema.names})
            yield from rename_columns(iter((batch,)), self.written)

    def _look(self) -> list[Alert]:
        check_worker()
        from ottla.spark_jobs.stream.watch import Watch

        if self._watch is None:
            self._watch = Watch(self._options.read)
        now_ms = time.time_ns() // 1_000_000
        return [alert(one, now_ms) for one in self._watch.find_hanging(now_ms)]
