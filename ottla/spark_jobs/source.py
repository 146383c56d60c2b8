"""`spark.read.format("ottla")`: a log directory as tables, as a Python data source. shell

The module imports little: Spark imports it in every first lookup of a data source. So numba, numpy and Arrow are
imported later.
"""

from importlib.util import find_spec
from typing import NoReturn

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType

from ottla.scan import schemas
from ottla.scan.needs import check_planner
from ottla.spark_jobs.brief import without_traceback
from ottla.spark_jobs.options import OptionError, Options, check_utf8, read_options
from ottla.spark_jobs.table_options import kept_options, options_of_table, table_schema
from ottla.wire import is_kafka_address

# A log has one writer, the broker that is its leader.
_READ_ONLY = (
    "the ottla source only reads: the broker writes the log directory. To send records to it, write with format kafka "
    "and kafka.bootstrap.servers (the package spark-sql-kafka-0-10); to store the result, write with format parquet or "
    "delta"
)
_NO_STREAM = "streams of the ottla source read log directories, no cluster: use spark.read, or format kafka to stream"
_OLD_STREAMS = (
    "streams of the ottla source need Spark 4.2 or later: an older one does not pass the position of a stream in Python"
)


class OttlaSource(DataSource):
    """Kafka's segment files in place, Ottla's or Apache Kafka's.

    | option | default | meaning |
    |---|---|---|
    | view | records | what is read, see below |
    | isolation.level | read_committed | or read_uncommitted |
    | topics, partitions | every user topic | comma-separated globs: `ledger,audit-*`; numbers: `0,2` |
    | startingOffsets, endingOffsets | earliest, latest | JSON by topic and partition, as in Spark's Kafka source |
    | startingTimestamp, endingTimestamp | | ms since 1970: from and up to the first offset that is as late |
    | failOnDataLoss | true | false: begin at the log start where offsets to begin at are gone |
    | fetchIsolation | log_end | high_watermark: nothing at or above that of the last checkpoint |
    | minPartitions | by size | about as many tasks at least |
    | producerIds | all | comma-separated numbers |
    | history | false | of transaction_state and group_offsets: true for all records instead of the last of each key |
    | verify | false | true: fates from every batch header, not from the indexes |
    | on.damage | fail | report: read what is sound, log what is not (view `damage` lists it) |
    | pushdown | false | true: take Spark's filters; then a load() is good for one query (docs/decisions/filters.md) |
    | command.config | | of a cluster: the file of a Java client's properties, on the driver and on each executor |
    | checks, since, as.of, copies | all, all, now, none | of findings: those of `ottla audit` |
    | transactional.id.expiration.ms, producer.id.expiration.ms | 7 and 1 days | of findings: those of the brokers |

    The path is a log directory, or the address of a cluster: kafka://HOST:PORT,HOST:PORT.
    A load of several paths reads the log directories of one cluster as one; each partition must be in one of them.

    Views: records, batches, transactions, producers, partitions, transaction_state, group_offsets, segments, damage,
    hanging, findings. `.schema("offset bigint, key binary")` reads these columns only: other columns are not decoded.
    Names of columns are written in any case.
    """

    @without_traceback()
    def __init__(self, options: dict[str, str]) -> None:
        # Spark imports Arrow next. If Arrow is missing, the process ends and Spark only reports a crash.
        check_planner()
        super().__init__(options)

    @classmethod
    def name(cls) -> str:
        return "ottla"

    @without_traceback()
    def schema(self) -> str | StructType:
        options = options_of_table(self.options)
        if options is not None:
            return table_schema(read_options(options).view, options)
        return schemas.ddl(self._options().view)

    @without_traceback()
    def reader(self, schema: StructType) -> DataSourceReader:
        options = read_options(kept_options(schema) | dict(self.options))
        check_utf8(options.paths)
        fields = _fields(options.view, schema)
        from ottla.spark_jobs.views.base import PushedReader
        from ottla.spark_jobs.views.registry import view_reader

        reader = view_reader(options, fields)
        reader.written = _written(fields, schema)
        return PushedReader(reader) if options.pushdown else reader

    @without_traceback()
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        if find_spec("pyspark.sql.streaming.datasource") is None:
            raise OptionError(_OLD_STREAMS)
        from ottla.spark_jobs.stream.alert_stream import AlertStream
        from ottla.spark_jobs.stream.record_stream import RecordStream
        from ottla.spark_jobs.stream.stream_options import stream_options

        options = stream_options(dict(self.options))
        if is_kafka_address(options.read.paths[0]):
            raise OptionError(_NO_STREAM)
        check_utf8(options.read.paths)
        view = options.read.view
        fields = _fields(view, schema)
        stream = (AlertStream if view == schemas.HANGING else RecordStream)(options, fields)
        stream.written = _written(fields, schema)
        return stream

    @without_traceback()
    def writer(self, schema: StructType, overwrite: bool) -> NoReturn:
        raise OptionError(_READ_ONLY)

    @without_traceback()
    def streamWriter(self, schema: StructType, overwrite: bool) -> NoReturn:
        raise OptionError(_READ_ONLY)

    def _options(self) -> Options:
        """Return the options. Spark requests the schema of a batch read and of a stream in the same way."""
        from ottla.spark_jobs.stream.stream_options import named_for_streams, stream_options

        given = dict(self.options)
        return stream_options(given).read if named_for_streams(given) else read_options(given)


def _fields(view: str, schema: StructType) -> list[tuple[str, bool]]:
    """Return the requested columns: their names in the view, and whether they may be null."""
    names = schemas.check_schema(view, [(field.name, field.dataType.simpleString()) for field in schema.fields])
    return [(name, field.nullable) for name, field in zip(names, schema.fields, strict=True)]


def _written(fields: list[tuple[str, bool]], schema: StructType) -> list[str] | None:
    """Return the column names of the schema; None if they equal the names of the view."""
    names = [field.name for field in schema.fields]
    return None if names == [name for name, _ in fields] else names
