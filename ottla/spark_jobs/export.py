"""Records to Parquet, written by the tasks that decode them: `spark-submit export.py DIR OUT`, or `main(argv)`. free

Rows never become Spark's. `OUT/topic=T/partition=N/part-<offset>-<position>.parquet` is how Spark, DuckDB and others
find topic and partition. A file appears when it is whole, and `_SUCCESS` when all are. Exit codes: 0 done, 2 could not
run.
"""

import sys
from pathlib import Path

if __name__ == "__main__":
    # Run as a script, the folder of this file comes first on the path and would shadow the standard library.
    _here = Path(__file__).resolve()
    sys.path[:] = [str(_here.parents[2])] + [
        entry for entry in sys.path if Path(entry or ".").resolve() != _here.parent
    ]

import argparse
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.spark_jobs import schemas
from ottla.spark_jobs.needs import WorkerLacks, check_worker
from ottla.spark_jobs.options import READ_COMMITTED, READ_UNCOMMITTED, OptionError, Options, read_options

if TYPE_CHECKING:
    import pyarrow as pa

    from ottla.spark_jobs.views.planning import Reading, Task

DONE, COULD_NOT_RUN = 0, 2
COMPRESSIONS = ("zstd", "snappy", "lz4", "gzip", "none")
ROW_GROUP_BYTES = 64 * 1024 * 1024
# Told by the names of the folders.
_IN_FOLDERS = ("topic", "partition")


class CannotExport(Exception):
    """The export cannot be made; the text is one line."""


class Export(NamedTuple):
    """What every task goes by."""

    options: Options
    columns: tuple[str, ...]
    output: str
    compression: str


class Written(NamedTuple):
    """What a task did, or why it could not."""

    files: int
    rows: int
    error: str = ""


def main(argv: list[str] | None = None) -> int:
    """Export as `argv` says; returns the exit code."""
    try:
        arguments = parser().parse_args(argv)
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else COULD_NOT_RUN
    from ottla.spark_jobs.scan.damage import REMEDY, DamagedSegment
    from ottla.spark_jobs.scan.listing import UnreadableDirectory
    from ottla.spark_jobs.session import NoSpark

    try:
        check_worker()
        written = _export(arguments)
    except (CannotExport, DamagedSegment, NoSpark, OptionError, OSError, UnreadableDirectory, WorkerLacks) as error:
        # The reader names its option, which has another name here.
        text = str(error).replace(REMEDY, "--on-damage report leaves it out")
        sys.stderr.write(f"ottla export: {text}\n")
        return COULD_NOT_RUN
    sys.stdout.write(f"{written.rows:,} records in {written.files:,} files in {arguments.output}\n")
    return DONE


def parser() -> argparse.ArgumentParser:
    """The options; help says what each means."""
    made = argparse.ArgumentParser(
        prog="ottla export",
        description="Write the records of log directories to Parquet, aborted and open ones left out.",
        epilog="Exit codes: 0 done, 2 could not run.",
    )
    made.add_argument("directory", metavar="DIR", help="a log directory of Ottla or Apache Kafka, in use or not")
    made.add_argument("output", metavar="OUT", help="a folder that does not exist, or is empty")
    made.add_argument("--topics", default="", metavar="GLOBS", help="comma-separated; default: every user topic")
    made.add_argument("--columns", default="", metavar="NAMES", help="comma-separated; default: all of view records")
    made.add_argument("--isolation-level", choices=(READ_COMMITTED, READ_UNCOMMITTED), default=READ_COMMITTED)
    made.add_argument(
        "--on-damage", choices=("fail", "report"), default="fail", help="report: leave out what is broken"
    )
    made.add_argument("--compression", choices=COMPRESSIONS, default="zstd", help="default: zstd")
    made.add_argument("--run-on", choices=("auto", "here", "spark"), default="auto", help="as of ottla audit")
    return made


def _export(arguments: argparse.Namespace) -> Written:
    from ottla.spark_jobs.scan.listing import local_path
    from ottla.spark_jobs.session import session, under_spark_submit

    output = Path(local_path(arguments.output)).absolute()
    export = Export(
        read_options(
            {
                "path": arguments.directory,
                "topics": arguments.topics,
                "isolation.level": arguments.isolation_level,
                "on.damage": arguments.on_damage,
            }
        ),
        _columns(arguments.columns),
        str(output),
        arguments.compression,
    )
    if output.exists() and any(output.iterdir()):
        raise CannotExport(f"{output} is not empty")
    _topics_exist(export.options)
    output.mkdir(parents=True, exist_ok=True)
    tasks = _tasks(export.options)
    if arguments.run_on == "spark" or (arguments.run_on == "auto" and under_spark_submit()):
        with session("ottla export") as spark:
            context = spark.sparkContext
            done = context.parallelize(tasks, len(tasks)).map(_writer(export)).collect() if tasks else []
    else:
        with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
            done = list(pool.map(_writer(export), tasks))
    if failed := next((one.error for one in done if one.error), ""):
        raise CannotExport(failed)
    (output / "_SUCCESS").touch()
    return Written(sum(one.files for one in done), sum(one.rows for one in done))


def _topics_exist(options: Options) -> None:
    """A misspelt topic must not be taken for one without records. Raises CannotExport."""
    from ottla.spark_jobs.scan.listing import list_partitions, select_topics, topic_patterns

    if options.topics and not select_topics(list_partitions(options.path), topic_patterns(options.topics)):
        raise CannotExport(f"{options.path}: no topic matches {options.topics}")


def _columns(given: str) -> tuple[str, ...]:
    known = schemas.VIEWS[schemas.RECORDS]
    names = tuple(name.strip() for name in given.split(",") if name.strip()) or tuple(known)
    if unknown := [name for name in names if name not in known]:
        raise CannotExport(f"no column {', '.join(unknown)}; records have {', '.join(known)}")
    kept = tuple(name for name in names if name not in _IN_FOLDERS)
    if not kept:
        raise CannotExport("topic and partition are the names of the folders; name another column")
    return kept


def _tasks(options: Options) -> "list[Task]":
    from ottla.spark_jobs.views.bounds import UNBOUNDED
    from ottla.spark_jobs.views.planning import Task, plan_readings

    planned = plan_readings(options, UNBOUNDED, with_fates=options.isolation_level == READ_COMMITTED)
    return [task for task in planned if isinstance(task, Task)]


def _writer(export: Export) -> "Callable[[Task], Written]":
    def write(task: "Task") -> Written:
        from ottla.spark_jobs.scan.damage import DamagedSegment

        try:
            check_worker()
            counts = [_write_range(export, reading) for reading in task.readings]
        except (DamagedSegment, OSError, WorkerLacks) as error:
            return Written(0, 0, str(error))
        return Written(sum(rows > 0 for rows in counts), sum(counts))

    return write


def _write_range(export: Export, reading: "Reading") -> int:
    """One file of the visible records of a range; none if there are none. The number of records."""
    import pyarrow.parquet as pq

    part = reading.part
    first = part.pieces[0]
    folder = Path(export.output) / f"topic={part.topic}" / f"partition={part.number}"
    path = folder / f"part-{first.base_offset:020d}-{first.start}.parquet"
    # Spark does not read what begins with an underscore; a task that runs again begins anew.
    unfinished = path.with_name(f"_{path.name}")
    rows, writer = 0, None
    try:
        for table in _row_groups(export, reading):
            if writer is None:
                folder.mkdir(parents=True, exist_ok=True)
                writer = pq.ParquetWriter(
                    unfinished, table.schema, compression=export.compression, use_dictionary=_repeating(export.columns)
                )
            writer.write_table(table, row_group_size=len(table))
            rows += len(table)
    finally:
        if writer is not None:
            writer.close()
    if writer is not None:
        unfinished.rename(path)
    return rows


def _repeating(columns: Sequence[str]) -> list[str]:
    """Columns that are worth a dictionary: keys, values and offsets are mostly unique."""
    return [name for name in columns if name not in ("key", "value", "offset", "headers", "sequence")]


def _row_groups(export: Export, reading: "Reading") -> "Iterator[pa.Table]":
    import pyarrow as pa

    from ottla.spark_jobs.scan.damage import DamageLog
    from ottla.spark_jobs.scan.records import RecordScan, uncommitted
    from ottla.spark_jobs.views.planning import told_damage

    schema = schemas.arrow_schema(schemas.RECORDS, [(name, True) for name in export.columns])
    log = DamageLog(export.options.on_damage)
    held: list[Any] = []
    size = 0
    visible = reading.visible or uncommitted(reading.part.log_start)
    for batch in RecordScan(schema, log).read(reading.part, visible, reading.wanted):
        held.append(batch)
        size += batch.nbytes
        if size >= ROW_GROUP_BYTES:
            yield pa.Table.from_batches(held)
            held, size = [], 0
    if held:
        yield pa.Table.from_batches(held)
    told_damage(log)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
