"""Base of the views' readers: options, columns, bounds; conversion of Python rows to Arrow. shell"""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from pyspark.sql.datasource import DataSourceReader, InputPartition

from ottla.scan import schemas
from ottla.scan.arrow import record_batch
from ottla.scan.needs import check_worker
from ottla.spark_jobs.brief import without_traceback
from ottla.spark_jobs.options import Options
from ottla.spark_jobs.views.bounds import UNBOUNDED, Bounds, narrow
from ottla.spark_jobs.views.query_tasks import Task

if TYPE_CHECKING:
    import pyarrow as pa

ROWS_PER_BATCH = 16_384


class ViewReader(DataSourceReader):
    """Reader of one view. `fields`: (name, nullable) of the requested columns, any subset in any order.

    pushFilters is not overridden: with Spark's default settings a reader that overrides it fails every query, and with
    filter push-down on, Spark reuses its plan for every other use of the DataFrame (docs/decisions/filters.md).
    """

    view: ClassVar[str]

    def __init__(self, options: Options, fields: list[tuple[str, bool]]) -> None:
        self.options = options
        self.fields = fields
        self.bounds: Bounds = UNBOUNDED
        # Column names of the query, if they differ from the view's names.
        self.written: list[str] | None = None

    def wants(self, *columns: str) -> bool:
        """Return whether any of the columns is requested."""
        return any(name in columns for name, _ in self.fields)

    def arrow_schema(self) -> "pa.Schema":
        return schemas.arrow_schema(self.view, self.fields)

    def plan(self) -> Sequence[Task]:
        """Return the tasks. Runs on the driver, which has all libraries."""
        raise NotImplementedError

    def rows_or_batches(self, task: Any) -> Iterator[Any]:
        """Yield the Arrow record batches of one task."""
        raise NotImplementedError

    @without_traceback()
    def partitions(self) -> list[InputPartition]:
        check_worker()
        return [InputPartition(task) for task in self.plan()]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        with without_traceback():
            check_worker()
            # Without tasks Spark makes an InputPartition of None.
            if partition.value is not None:
                yield from rename_columns(self.rows_or_batches(partition.value), self.written)

    def to_arrow(self, rows: Iterable[dict[str, Any]]) -> "Iterator[pa.RecordBatch]":
        """Convert rows: dicts by column name, with at least the requested columns; times as int microseconds."""
        schema = self.arrow_schema()
        columns: dict[str, list[Any]] = {name: [] for name in schema.names}
        count = 0
        for row in rows:
            for name, values in columns.items():
                values.append(row[name])
            count += 1
            if count % ROWS_PER_BATCH == 0:
                yield record_batch(schema, columns)
                columns = {name: [] for name in schema.names}
        if count % ROWS_PER_BATCH:
            yield record_batch(schema, columns)


def rename_columns(batches: Iterator[Any], written: Sequence[str] | None) -> Iterator[Any]:
    """Yield record batches with the `written` names of columns; unchanged if that is None."""
    return batches if written is None else (batch.rename_columns(list(written)) for batch in batches)


class PushedReader(DataSourceReader):
    """A view's reader that takes filters: they narrow its bounds, and Spark applies them again.

    The rows are correct only for a DataFrame with one query: Spark uses the tasks of the last filters for all queries.
    """

    def __init__(self, inner: ViewReader) -> None:
        self.inner = inner

    def pushFilters(self, filters: Sequence[Any]) -> Iterable[Any]:
        filters = list(filters)
        self.inner.bounds = narrow(self.inner.bounds, self.inner.view, filters)
        return filters

    def partitions(self) -> list[InputPartition]:
        return self.inner.partitions()

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return self.inner.read(partition)
