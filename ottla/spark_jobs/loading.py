"""`load`: a read whose plan names its view, topics and directory, and whose options are checked at once. free"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ottla.printable import printable
from ottla.scan import storage
from ottla.scan.listing import UnreadableDirectory, check_log_directory
from ottla.spark_jobs.options import OptionError, Options, option_texts, read_options
from ottla.spark_jobs.source import OttlaSource
from ottla.wire import is_kafka_address

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

# Plans repeat the name of a source in each line about it.
_MOST_CHARACTERS = 200


def load(
    spark: "SparkSession",
    path: str | Sequence[str],
    *,
    schema: "str | StructType | None" = None,
    **options: str | int,
) -> "DataFrame":
    """Return the rows of `spark.read.format("ottla").options(**options).load(path)`.

    `df.explain()` and the page of the query in Spark's UI name the read, as in `ottla: records of ledger in
    /var/lib/ottla`. Options with a dot are given as `**{"isolation.level": "read_uncommitted"}`.

    Raises OptionError for a wrong option or value, and UnreadableDirectory for a local path that is no log directory.
    The DataFrame raises the other errors of the data source.
    """
    given = option_texts(path, options)
    # A client of Spark Connect has other files than its server, which checks the directory later.
    jvm_session = getattr(spark, "_jsparkSession", None)
    try:
        checked = read_options(given)
        if jvm_session is not None:
            _check_local(checked.paths)
    except (OptionError, UnreadableDirectory) as error:
        raise error.with_traceback(None) from None
    name = describe_read(checked)
    # Spark would log a second registration.
    if jvm_session is None or not jvm_session.sessionState().dataSourceManager().dataSourceExists(name):
        spark.dataSource.register(_named_source(name))
    reader = spark.read.format(name).options(**given)
    return (reader if schema is None else reader.schema(schema)).load()


def describe_read(options: Options) -> str:
    """Return the name of a read: the source, the view, the topics, if they are selected, and the places."""
    topics = f" of {options.topics}" if options.topics else ""
    places = ", ".join(map(storage.hide_secrets, options.paths))
    text = printable(f"{OttlaSource.name()}: {options.view}{topics} in {places}")
    return text if len(text) <= _MOST_CHARACTERS else f"{text[: _MOST_CHARACTERS - 3]}..."


def _check_local(paths: Sequence[str]) -> None:
    for path in paths:
        if not is_kafka_address(path) and not storage.is_remote(path):
            check_log_directory(path)


def _named_source(wanted: str) -> type[OttlaSource]:
    class NamedSource(OttlaSource):
        @classmethod
        def name(cls) -> str:
            return wanted

    return NamedSource
