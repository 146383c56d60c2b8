"""`cached(spark, DIR, cache)`: the records of a log from Parquet files that are made when they are missing. free

Spark reads the files itself, without Python: it is told exactly which are valid. What is not settled, or cannot be
kept, comes from the data source.
"""

import json
import os
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.audit import outputs
from ottla.scan import schemas, storage
from ottla.scan.listing import list_partitions
from ottla.scan.needs import check_worker
from ottla.spark_jobs.cache.filling import Filled, fill
from ottla.spark_jobs.cache.names import FOLDER, Piece
from ottla.spark_jobs.cache.partition_cache import PartitionCache, forget_partitions
from ottla.spark_jobs.options import READ_COMMITTED, OptionError, Options, read_options
from ottla.spark_jobs.spark_runner import grouped
from ottla.spark_jobs.views.bounds import UNBOUNDED
from ottla.spark_jobs.views.planning import fates_of, narrowed_log, selected_logs, wanted_of

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
# What Spark's globs give a meaning to.
_GLOB = set("{}[]*?\\")
_DESCRIPTION = "spark.job.description"


class CacheFailed(Exception):
    """The cache cannot be used; the text is one line that says what to do."""


class Part(NamedTuple):
    """Files of a cache, and the offsets in them that are wanted, if not all of them are."""

    topic: str
    partition: int
    files: tuple[str, ...]
    bounds: tuple[int, int] | None


def cached(
    spark: "SparkSession", path: str | Sequence[str], cache: str | os.PathLike[str], **options: str
) -> "DataFrame":
    """The view `records` of the log directory `path`, or of several, with what is settled of it read from Parquet.

    `cache` is a folder for these files, which each call brings up to date first. The rows are those of
    `spark.read.format("ottla").options(**options).load(path)` at the time of the call; options with a dot are given as
    `**{"isolation.level": "read_uncommitted"}`. Call it for each query: a DataFrame that is kept knows nothing of what
    was written since, and its files are taken away a day after the log has become another.

    Raises OptionError, CacheFailed, and what the data source raises (DamagedSegment, UnreadableDirectory, DataLost).
    """
    checked = _checked(path, options)
    root = _root(cache, checked)
    if not hasattr(spark, "_jsparkSession"):
        raise CacheFailed(
            "cached() needs a session with its own JVM, not Spark Connect: it runs tasks that write files"
        )
    check_worker()
    caches = _up_to_date(spark, root, checked)
    frames = _from_files(spark, root, caches, checked)
    live = _live(spark, caches, checked)
    if live is not None:
        frames.append(live)
    return reduce(lambda one, other: one.unionAll(other), frames or [_no_rows(spark)])


def _checked(path: str | Sequence[str], options: dict[str, str]) -> Options:
    known = {name.lower() for name in TAKEN}
    if refused := [name for name in options if name.lower() not in known]:
        raise OptionError(
            f"cached() takes no option {', '.join(refused)}; it has {', '.join(TAKEN)}. "
            'spark.read.format("ottla") has the others, and reads the log itself'
        )
    where = {"path": path} if isinstance(path, str) else {"paths": json.dumps(list(path))}
    checked = read_options({**where, **options})
    if remote := [storage.shown(one) for one in checked.paths if storage.is_remote(one)]:
        raise OptionError(
            f"{remote[0]}: cached() reads log directories on local disks, whose files tell when they change"
        )
    return checked


def _root(cache: str | os.PathLike[str], options: Options) -> Path:
    given = os.fspath(cache)
    if storage.is_remote(given):
        raise OptionError(f"{storage.shown(given)}: a cache is in a local folder, or on a disk that all machines share")
    outputs.check_outside(given, "the cache ", options.paths)
    root = Path(outputs.absolute(given)) / FOLDER
    if odd := _GLOB & set(str(root)):
        raise OptionError(f"{given}: Spark takes {' '.join(sorted(odd))} in a path for a pattern: name another folder")
    return root


def _up_to_date(spark: "SparkSession", root: Path, options: Options) -> list[PartitionCache]:
    logs = selected_logs(options, UNBOUNDED)
    fates = fates_of(logs, options)
    caches = []
    try:
        root.mkdir(parents=True, exist_ok=True)
        for log, found in zip(logs, fates, strict=True):
            wanted = wanted_of(log, options, UNBOUNDED)
            caches.append(PartitionCache(root, log, narrowed_log(log, wanted, UNBOUNDED), wanted, found))
        with ThreadPoolExecutor(os.cpu_count() or 1) as threads:
            list(threads.map(lambda one: one.lay_out(verify=options.verify), caches))
        _fill(spark, caches)
        for one in caches:
            one.finish()
        forget_partitions(root, [log for directory in options.paths for log in list_partitions(directory)])
    except OSError as error:
        raise CacheFailed(
            f"{error.filename or root}: the cache cannot be written: {error.strerror or error}"
        ) from error
    return caches


def _fill(spark: "SparkSession", caches: Sequence[PartitionCache]) -> None:
    """Write what is missing, in tasks of about equal size. Raises CacheFailed, OSError."""
    fills = [(index, one) for index, some in enumerate(caches) for one in some.to_fill()]
    context = spark.sparkContext
    works = [_Work(one, index) for index, one in fills]
    groups = grouped(works, context.defaultParallelism)
    if not groups:
        return
    described = context.getLocalProperty(_DESCRIPTION)
    context.setJobDescription("ottla: fill the cache")
    try:
        done = context.parallelize(groups, len(groups)).flatMap(_filled).collect()
    finally:
        context.setLocalProperty(_DESCRIPTION, described)
    for index, written in done:
        if written.error:
            raise CacheFailed(f"the cache cannot be written: {written.error}")
        if written.piece is not None:
            _add(caches[index], written.piece)


def _add(cache: PartitionCache, piece: Piece) -> None:
    try:
        cache.add(piece)
    except FileNotFoundError as error:
        raise CacheFailed(
            f"{cache.folder} is not the folder that a task wrote to: name one on a disk that all machines share"
        ) from error


class _Work(NamedTuple):
    one: "Fill"
    number: int

    @property
    def part(self) -> Any:
        return self.one.part


def _filled(works: Iterable[_Work]) -> list[tuple[int, Filled]]:
    return [(work.number, fill(work.one)) for work in works]


def _parts(caches: Sequence[PartitionCache], *, committed_only: bool) -> Iterable[Part]:
    for cache in caches:
        first, end = max(cache.wanted.first_offset, cache.log.log_start), cache.wanted.end_offset
        for stretch, piece in cache.valid():
            if stretch.end_offset <= first or stretch.first_offset >= end:
                continue
            names = [piece.name] if committed_only else piece.sizes
            files = tuple(str(cache.folder / name) for name in names)
            is_whole = first <= stretch.first_offset and stretch.end_offset <= end
            yield Part(cache.log.topic, cache.log.partition, files, None if is_whole else (first, end))


def _from_files(
    spark: "SparkSession", root: Path, caches: Sequence[PartitionCache], options: Options
) -> "list[DataFrame]":
    """What is read whole, and apart from it what has offsets that are not wanted, so that only this is filtered."""
    parts = list(_parts(caches, committed_only=options.isolation_level == READ_COMMITTED))
    whole = [name for part in parts if part.bounds is None for name in part.files]
    edges = [name for part in parts if part.bounds is not None for name in part.files]
    frames = [_read(spark, root, whole, options)] if whole else []
    if edges:
        bounds = {(part.topic, part.partition, *part.bounds) for part in parts if part.bounds is not None}
        within = reduce(lambda one, other: one | other, [_within(*one) for one in sorted(bounds)])
        frames.append(_read(spark, root, edges, options).where(within))
    return frames


def _within(topic: str, partition: int, first: int, end: int) -> "Column":
    from pyspark.sql import functions as F

    place = (F.col("topic") == topic) & (F.col("partition") == partition)
    return place & (F.col("offset") >= first) & (F.col("offset") < end)


def _read(spark: "SparkSession", root: Path, files: Sequence[str], options: Options) -> "DataFrame":
    from pyspark.sql import functions as F

    # What a session may be told otherwise: no file may be left out, and times are those of the log.
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


def _live(spark: "SparkSession", caches: Sequence[PartitionCache], options: Options) -> "DataFrame | None":
    """What is not in the cache, up to where the log was found to end; None if nothing is left."""
    starts: dict[str, dict[str, int]] = {}
    ends: dict[str, dict[str, int]] = {}
    is_needed = False
    for cache in caches:
        fates, place = cache.fates, str(cache.log.partition)
        behind = fates.last_stable_offset if options.isolation_level == READ_COMMITTED else fates.log_end
        end = min(cache.wanted.end_offset, behind)
        first = max(cache.wanted.first_offset, cache.log.log_start, cache.covered)
        is_needed = is_needed or first < end
        starts.setdefault(cache.log.topic, {})[place] = max(first, 0)
        ends.setdefault(cache.log.topic, {})[place] = max(end, 0)
    if not is_needed:
        return None
    given = {
        "isolation.level": options.isolation_level,
        "on.damage": options.on_damage,
        "topics": options.topics,
        "partitions": ",".join(map(str, options.partitions)) if options.partitions is not None else "",
        "producerIds": ",".join(map(str, options.producer_ids)) if options.producer_ids is not None else "",
        "verify": str(options.verify).lower(),
        "failOnDataLoss": str(options.fail_on_data_loss).lower(),
        "startingOffsets": json.dumps(starts),
        "endingOffsets": json.dumps(ends),
    }
    return spark.read.format("ottla").options(**given).load(list(options.paths))
