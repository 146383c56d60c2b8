"""`cached(spark, DIR, cache)`: the records of a log from Parquet files. It writes missing files first. free

Spark reads the valid files itself, without Python. The data source reads the records that are not settled, or cannot
be cached.
"""

import os
from collections.abc import Iterable, Sequence
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.audit import outputs
from ottla.scan import schemas, storage
from ottla.scan.needs import check_worker
from ottla.spark_jobs.cache.filling import Filled, fill
from ottla.spark_jobs.cache.names import FOLDER
from ottla.spark_jobs.cache.partition_cache import PartitionCache
from ottla.spark_jobs.cache.upkeep import CacheFailed, Run, live_options, parts, up_to_date
from ottla.spark_jobs.options import READ_COMMITTED, OptionError, Options, option_texts, read_options
from ottla.spark_jobs.spark_runner import group_works

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from ottla.spark_jobs.cache.filling import Fill

TAKEN = (
    "isolation.level",
    "topics",
    "partitions",
    "startingOffsets",
    "endingOffsets",
    "startingTimestamp",
    "endingTimestamp",
    "producerIds",
    "failOnDataLoss",
    "on.damage",
    "verify",
)
# Characters with a meaning in Spark's globs.
_GLOB = set("{}[]*?\\")
_DESCRIPTION = "spark.job.description"


def cached(
    spark: "SparkSession", path: str | Sequence[str], cache: str | os.PathLike[str], **options: str | int
) -> "DataFrame":
    """Return the view `records` of the log directory `path`, or of several, with settled records read from Parquet.

    `cache` is a folder for these files, which each call brings up to date first. The rows are those of
    `spark.read.format("ottla").options(**options).load(path)` at the time of the call; options with a dot are given as
    `**{"isolation.level": "read_uncommitted"}`. Call it for each query: an older DataFrame lacks the records that were
    written later, and its files are deleted a day after the log has changed.

    Raises OptionError, CacheFailed, and the errors of the data source (DamagedSegment, UnreadableDirectory, DataLost).
    """
    checked = _check_options(path, options)
    root = _root(cache, checked)
    if not hasattr(spark, "_jsparkSession"):
        raise CacheFailed(
            "cached() does not work with Spark Connect: use a session with its own JVM, whose tasks can write files"
        )
    check_worker()
    caches = up_to_date(root, checked, _run(spark))
    frames = _from_files(spark, root, caches, checked)
    if (live := live_options(caches, checked)) is not None:
        frames.append(spark.read.format("ottla").options(**live).load(list(checked.paths)))
    return reduce(lambda one, other: one.unionAll(other), frames or [_no_rows(spark)])


def _check_options(path: str | Sequence[str], options: dict[str, str | int]) -> Options:
    known = {name.lower() for name in TAKEN}
    if refused := [name for name in options if name.lower() not in known]:
        raise OptionError(
            f"cached() has no option {', '.join(refused)}; it has {', '.join(TAKEN)}. "
            'spark.read.format("ottla") has the others, and reads the log without a cache'
        )
    checked = read_options(option_texts(path, options))
    if remote := [storage.hide_secrets(one) for one in checked.paths if storage.is_remote(one)]:
        raise OptionError(
            f"{remote[0]}: cached() reads only log directories on local disks, where it can detect changed files"
        )
    return checked


def _root(cache: str | os.PathLike[str], options: Options) -> Path:
    given = os.fspath(cache)
    if storage.is_remote(given):
        raise OptionError(
            f"{storage.hide_secrets(given)}: not a local folder: name one, on a disk that all machines share"
        )
    outputs.check_outside(given, "the cache ", options.paths)
    root = Path(outputs.absolute(given)) / FOLDER
    if odd := _GLOB & set(str(root)):
        raise OptionError(f"{given}: Spark reads {' '.join(sorted(odd))} in a path as a pattern: name another folder")
    return root


def _run(spark: "SparkSession") -> Run:
    """Return a function that fills the cache in tasks of Spark of about equal size."""

    def run(fills: "Sequence[Fill]") -> list[Filled]:
        context = spark.sparkContext
        groups = group_works([_Work(one, index) for index, one in enumerate(fills)], context.defaultParallelism)
        described = context.getLocalProperty(_DESCRIPTION)
        context.setJobDescription("ottla: fill the cache")
        try:
            done = context.parallelize(groups, len(groups)).flatMap(_fill_all).collect()
        finally:
            context.setLocalProperty(_DESCRIPTION, described)
        return [filled for _, filled in sorted(done, key=lambda one: one[0])]

    return run


class _Work(NamedTuple):
    one: "Fill"
    number: int

    @property
    def part(self) -> Any:
        return self.one.part


def _fill_all(works: Iterable[_Work]) -> list[tuple[int, Filled]]:
    return [(work.number, fill(work.one)) for work in works]


def _from_files(
    spark: "SparkSession", root: Path, caches: Sequence[PartitionCache], options: Options
) -> "list[DataFrame]":
    """Return the files that are read whole, and separately those with unwanted offsets, which are filtered."""
    found = list(parts(caches, committed_only=options.isolation_level == READ_COMMITTED))
    whole = [name for part in found if part.bounds is None for name in part.files]
    edges = [name for part in found if part.bounds is not None for name in part.files]
    frames = [_read(spark, root, whole, options)] if whole else []
    if edges:
        bounds = {(part.topic, part.partition, *part.bounds) for part in found if part.bounds is not None}
        within = reduce(lambda one, other: one | other, [_within(*one) for one in sorted(bounds)])
        frames.append(_read(spark, root, edges, options).where(within))
    return frames


def _within(topic: str, partition: int, first: int, end: int) -> "Column":
    from pyspark.sql import functions as F

    place = (F.col("topic") == topic) & (F.col("partition") == partition)
    return place & (F.col("offset") >= first) & (F.col("offset") < end)


def _read(spark: "SparkSession", root: Path, files: Sequence[str], options: Options) -> "DataFrame":
    from pyspark.sql import functions as F

    # These override the session's settings: every file must be read, and times must not be converted.
    reader = spark.read.options(
        basePath=str(root), ignoreCorruptFiles="false", ignoreMissingFiles="false", datetimeRebaseMode="CORRECTED"
    )
    found = reader.schema(schemas.ddl(schemas.RECORDS)).parquet(*files).select(*schemas.VIEWS[schemas.RECORDS])
    if options.producer_ids is None:
        return found
    return found.where(F.col("producerId").isin(list(options.producer_ids)))


def _no_rows(spark: "SparkSession") -> "DataFrame":
    columns = schemas.VIEWS[schemas.RECORDS].items()
    return spark.range(0).selectExpr(*(f"cast(null as {kind}) as {name}" for name, kind in columns))
