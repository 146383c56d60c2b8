"""`spark.read.format("ottla")`: the records of a log directory, as a Python data source. shell

Light on purpose: Spark imports this in every first lookup of a data source, so numba, numpy and Arrow come later.
"""

import logging
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from ottla.spark_jobs import schemas
from ottla.spark_jobs.damage import FAIL, MODES, REPORT
from ottla.spark_jobs.needs import check_worker

if TYPE_CHECKING:
    from ottla.spark_jobs.listing import PartitionLog
    from ottla.spark_jobs.plan import Range
    from ottla.spark_jobs.records import Visibility

READ_COMMITTED = "read_committed"
READ_UNCOMMITTED = "read_uncommitted"
LARGEST_TASK_BYTES = 256 * 1024 * 1024

# Option -> (default, values; none means any).
OPTIONS: dict[str, tuple[str, tuple[str, ...]]] = {
    "isolation.level": (READ_COMMITTED, (READ_COMMITTED, READ_UNCOMMITTED)),
    "on.damage": (FAIL, MODES),
    "topics": ("", ()),
    "view": (schemas.RECORDS, tuple(schemas.VIEWS)),
}
# What Spark itself adds.
_SPARKS_OPTIONS = ("path", "serialization.format")

_log = logging.getLogger("ottla.spark_jobs")


class OptionError(ValueError):
    """An option that does not exist, or a value that it cannot have."""


class Options(NamedTuple):
    """The options of one read, checked."""

    path: str
    isolation_level: str
    on_damage: str
    topics: str
    view: str


def read_options(given: dict[str, str]) -> Options:
    """Raises OptionError, which says what is possible, rather than reading something else than was meant."""
    values = {name: default for name, (default, _) in OPTIONS.items()}
    for name, value in given.items():
        key = name.lower()
        if key not in values and key not in _SPARKS_OPTIONS:
            raise OptionError(f"the ottla source has no option {name!r}; it has {', '.join(OPTIONS)}")
        values[key] = value
        allowed = OPTIONS[key][1] if key in OPTIONS else ()
        if allowed and value not in allowed:
            raise OptionError(f"option {key} is one of {', '.join(allowed)}, not {value!r}")
    if not values.get("path"):
        raise OptionError("the ottla source needs a log directory: .load(DIR)")
    return Options(
        values["path"], values["isolation.level"], values["on.damage"], values["topics"].strip(), values["view"]
    )


class OttlaSource(DataSource):
    """Kafka's segment files in place, Ottla's or Apache Kafka's.

    | option | default | meaning |
    |---|---|---|
    | isolation.level | read_committed | or read_uncommitted |
    | topics | every user topic | comma-separated globs: `ledger,audit-*` |
    | on.damage | fail | report: read what is sound, log what is not (view `damage` lists it) |
    | view | records | damage: unreadable parts of segments, one a row |

    `.schema("offset bigint, key binary")` reads these columns only: what is not named is not decoded.
    """

    @classmethod
    def name(cls) -> str:
        return "ottla"

    def schema(self) -> str:
        return schemas.ddl(read_options(self.options).view)

    def reader(self, schema: StructType) -> DataSourceReader:
        options = read_options(self.options)
        schemas.check_schema(options.view, [(field.name, field.dataType.simpleString()) for field in schema.fields])
        fields = [(field.name, field.nullable) for field in schema.fields]
        reader = DamageReader if options.view == schemas.DAMAGE else RecordReader
        return reader(options, fields)


class ScanTask(InputPartition):
    """Ranges for one Spark task; for records with what of each range's partition is visible."""

    def __init__(self, ranges: "list[tuple[Range, Visibility | None]]") -> None:
        super().__init__(None)
        self.ranges = ranges


class _Reader(DataSourceReader):
    """pushFilters is not overridden: with Spark's default settings a reader that does fails every query."""

    def __init__(self, options: Options, fields: list[tuple[str, bool]]) -> None:
        self._options = options
        self._fields = fields

    def _logs(self) -> "list[PartitionLog]":
        from ottla.spark_jobs.listing import list_partitions, select_topics, topic_patterns

        return select_topics(list_partitions(self._options.path), topic_patterns(self._options.topics))


class RecordReader(_Reader):
    """Plans with a header scan, then reads records of ranges."""

    def partitions(self) -> list[InputPartition]:
        check_worker()
        from ottla.spark_jobs.plan import plan_tasks
        from ottla.spark_jobs.records import visibility, visible_in
        from ottla.spark_jobs.scan import scan_partitions

        options, logs, cores = self._options, self._logs(), os.cpu_count() or 1
        # When damage is reported, the fates must not rest on batches that the tasks will skip.
        fates = scan_partitions(
            logs, on_damage=options.on_damage, check_crc=options.on_damage == REPORT, threads=min(cores, 8)
        )
        committed_only = options.isolation_level == READ_COMMITTED
        visible = [visibility(one, committed_only=committed_only) for one in fates]
        return [
            ScanTask([(part, visible_in(visible[part.partition], part, logs[part.partition])) for part in task])
            for task in plan_tasks(logs, cores, LARGEST_TASK_BYTES)
        ]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        check_worker()
        from ottla.spark_jobs.damage import DamageLog
        from ottla.spark_jobs.records import RecordScan

        log = DamageLog(self._options.on_damage)
        scan = RecordScan(schemas.arrow_schema(schemas.RECORDS, self._fields), log)
        for part, visible in _ranges(partition):
            assert visible is not None
            yield from scan.read(part, visible)
        for damage in log.found:
            _log.warning("damaged segment, not read: %s", damage)


class DamageReader(_Reader):
    """Scans every batch header and CRC, and lists what cannot be read. A torn tail is not damage."""

    def partitions(self) -> list[InputPartition]:
        check_worker()
        from ottla.spark_jobs.plan import plan_tasks

        tasks = plan_tasks(self._logs(), os.cpu_count() or 1, LARGEST_TASK_BYTES)
        return [ScanTask([(part, None) for part in task]) for task in tasks]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        check_worker()
        import pyarrow as pa

        from ottla.spark_jobs.scan import scan_range

        rows = [
            (part.topic, part.number, damage.path, damage.position, damage.end_position, damage.reason)
            for part, _ in _ranges(partition)
            for damage in scan_range(part, on_damage=REPORT, check_crc=True).damage
        ]
        if rows:
            columns = dict(zip(schemas.VIEWS[schemas.DAMAGE], zip(*rows, strict=True), strict=True))
            schema = schemas.arrow_schema(schemas.DAMAGE, self._fields)
            arrays = [pa.array(columns[field.name], field.type) for field in schema]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _ranges(partition: InputPartition) -> "list[tuple[Range, Visibility | None]]":
    """Spark makes an empty task where there are none."""
    return partition.ranges if isinstance(partition, ScanTask) else []
