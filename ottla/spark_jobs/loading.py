"""`load`: a read whose plan names its view, topics and directory, and whose options are checked at once. free"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ottla.printable import printable
from ottla.scan import storage
from ottla.spark_jobs.options import OptionError, Options, option_texts, read_options
from ottla.spark_jobs.source import OttlaSource

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

    Raises OptionError for a wrong option or value. The DataFrame raises the other errors of the data source.
    """
    given = option_texts(path, options)
    try:
        name = describe_read(read_options(given))
    except OptionError as error:
        raise error.with_traceback(None) from None
    _register(spark, name)
    reader = spark.read.format(name).options(**given)
    return (reader if schema is None else reader.schema(schema)).load()


def describe_read(options: Options) -> str:
    """Return the name of a read: the source, the view, the topics, if they are selected, and the places."""
    topics = f" of {options.topics}" if options.topics else ""
    places = ", ".join(map(storage.hide_secrets, options.paths))
    text = printable(f"{OttlaSource.name()}: {options.view}{topics} in {places}")
    return text if len(text) <= _MOST_CHARACTERS else f"{text[: _MOST_CHARACTERS - 3]}..."


def _register(spark: Any, name: str) -> None:
    """Register the source under another name, which Spark's plans show. Spark would log a second registration."""
    jvm_session = getattr(spark, "_jsparkSession", None)  # a client of Spark Connect has none
    if jvm_session is not None and jvm_session.sessionState().dataSourceManager().dataSourceExists(name):
        return
    wanted = name

    class NamedSource(OttlaSource):
        @classmethod
        def name(cls) -> str:
            return wanted

    spark.dataSource.register(NamedSource)
