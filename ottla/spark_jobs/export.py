"""Records to Parquet, written by the tasks that decode them: `spark-submit export.py DIR OUT`, or `main(argv)`. free

Spark never handles the rows. Spark, DuckDB and others find topic and partition in the file names,
`OUT/topic=T/partition=N/part-<offset>-<position>.parquet`; with `--format delta`, OUT is also a Delta table. A file
appears when it is complete, and `_SUCCESS` when all files are. Exit codes: 0 done, 2 could not run, 130 interrupted.
"""

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    from ottla.spark_jobs.start import mend_path, need_click

    mend_path()
    need_click()

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple

from ottla.audit import outputs
from ottla.audit.outputs import DELTA, PARQUET, Folder, TableFile
from ottla.audit.program import COULD_NOT_RUN, run_command, show
from ottla.printable import printable
from ottla.scan import schemas
from ottla.scan.needs import WorkerLacks, check_worker
from ottla.spark_jobs.options import READ_COMMITTED, OptionError, Options, read_options
from ottla.spark_jobs.row_groups import IN_FOLDERS, parquet_options, row_groups
from ottla.spark_jobs.session import NoSpark, cannot_run, is_on_spark, session
from ottla.wire import Unanswered, is_kafka_address

if TYPE_CHECKING:
    from ottla.spark_jobs.command_lines import ExportArguments
    from ottla.spark_jobs.views.planned_range import PlannedRange
    from ottla.spark_jobs.views.query_tasks import RangeTask

DONE = 0
MOST_TRIES = 3


class CannotExport(Exception):
    """The export cannot be made; the text is one line."""


class FilesVanished(CannotExport):
    """A segment was deleted after it was listed. The export may succeed if it is planned again."""


class Export(NamedTuple):
    """Settings of every task of an export."""

    options: Options
    columns: tuple[str, ...]
    folder: Folder
    compression: str


class Written(NamedTuple):
    """Result of a task: counts, or the reason why it failed."""

    files: int
    rows: int
    error: str = ""
    has_vanished: bool = False


def main(argv: list[str] | None = None) -> int:
    """Export as `argv` says; return the exit code."""
    from ottla.spark_jobs import command_lines  # click: an export's tasks import this module without it

    return run_command(command_lines.export, argv)


def run(arguments: "ExportArguments") -> int:
    """Export as `arguments` say; return the exit code."""
    if missing := cannot_run("the export", on_spark=is_on_spark(arguments.run_on)):
        return _report_failure(missing)
    from ottla.scan.damage_log import REMEDY, DamagedSegment
    from ottla.scan.listing import UnreadableDirectory
    from ottla.scan.storage import hide_secrets

    try:
        written = _export(arguments)
    except (CannotExport, DamagedSegment, NoSpark, OptionError, OSError, UnreadableDirectory, WorkerLacks) as error:
        # The error names options of the data source, which have other names here.
        reason = str(error).replace(REMEDY, "--on-damage report leaves the damage out")
        return _report_failure(reason.replace("option command.config", "--command-config FILE"))
    show(f"{written.rows:,} records in {written.files:,} files in {hide_secrets(arguments.output)}\n")
    return DONE


def _report_failure(reason: str) -> int:
    sys.stderr.write(printable(f"ottla export: {reason}") + "\n")
    return COULD_NOT_RUN


def _export(arguments: "ExportArguments") -> Written:
    from ottla.audit import delta

    options = read_options(
        {
            "path": arguments.directory,
            "topics": arguments.topics,
            "isolation.level": arguments.isolation_level,
            "on.damage": arguments.on_damage,
            "command.config": arguments.command_config,
        }
    )
    columns = _columns(arguments.columns)
    if not is_kafka_address(arguments.directory):  # the listing of a cluster checks its topics
        _topics_exist(options)
        outputs.check_outside(arguments.output, "", [arguments.directory])
    if arguments.format == DELTA:
        delta.check(outputs.absolute(arguments.output))
    for _ in range(MOST_TRIES - 1):
        try:
            return _export_once(arguments, options, columns)
        except (FilesVanished, FileNotFoundError):  # retention of a live directory
            continue
    return _export_once(arguments, options, columns)


def _export_once(arguments: "ExportArguments", options: Options, columns: tuple[str, ...]) -> Written:
    """Plan and write the export. Raises FilesVanished, FileNotFoundError if a listed file was deleted meanwhile."""
    from ottla.audit import delta

    tasks = _tasks(options)
    with outputs.writing(arguments.output, "", _is_ours, overwrite=arguments.overwrite) as folder:
        done = _written(Export(options, columns, folder, arguments.compression), tasks, arguments)
        if arguments.format == DELTA:
            schema = schemas.arrow_schema(schemas.RECORDS, [(name, True) for name in (*IN_FOLDERS, *columns)])
            delta.commit(folder.path, schema, IN_FOLDERS, has_files=any(one.files for one in done))
    return Written(sum(one.files for one in done), sum(one.rows for one in done))


def _is_ours(name: str) -> bool:
    return name.startswith("topic=") or name == "_delta_log"


def _written(export: Export, tasks: "Sequence[RangeTask]", arguments: "ExportArguments") -> list[Written]:
    """Run the tasks and return their results. Raises CannotExport with the reason of the first that failed."""
    if is_on_spark(arguments.run_on):
        with session("ottla export") as spark:
            context = spark.sparkContext
            done = context.parallelize(tasks, len(tasks)).map(_writer(export)).collect() if tasks else []
    else:
        with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
            done = list(pool.map(_writer(export), tasks))
    if failed := next((one.error for one in done if one.error), ""):
        raise (FilesVanished if any(one.has_vanished for one in done) else CannotExport)(failed)
    return done


def _topics_exist(options: Options) -> None:
    """Check that the topics exist: a misspelt one is not a topic without records. Raises CannotExport."""
    from ottla.scan.listing import describe_missing_topics, list_partitions, select_topics, topic_patterns

    (directory,) = options.paths
    patterns = topic_patterns(options.topics)
    logs = list_partitions(directory)
    # If only some patterns match no topic, the plan logs them.
    if not select_topics(logs, patterns) and (unmatched := describe_missing_topics(logs, patterns)):
        raise CannotExport(f"{directory}: {unmatched}")


def _columns(given: str) -> tuple[str, ...]:
    known = schemas.VIEWS[schemas.RECORDS]
    names = tuple(name.strip() for name in given.split(",") if name.strip()) or tuple(known)
    if unknown := [name for name in names if name not in known]:
        raise CannotExport(f"no column {', '.join(unknown)}; records have {', '.join(known)}")
    kept = tuple(name for name in names if name not in IN_FOLDERS)
    if not kept:
        raise CannotExport("topic and partition are only folder names; name another column")
    return kept


def _tasks(options: Options) -> "list[RangeTask]":
    from ottla.spark_jobs.views.bounds import UNBOUNDED
    from ottla.spark_jobs.views.planning import plan_ranges

    return plan_ranges(options, UNBOUNDED, with_fates=options.isolation_level == READ_COMMITTED)


def _writer(export: Export) -> "Callable[[RangeTask], Written]":
    def write(task: "RangeTask") -> Written:
        from ottla.scan.damage_log import DamagedSegment

        try:
            check_worker()
            outputs.check_here(export.folder)
            counts = [_write_range(export, planned) for planned in task.ranges]
        except (DamagedSegment, OSError, Unanswered, WorkerLacks) as error:
            return Written(0, 0, str(error), isinstance(error, FileNotFoundError))
        return Written(sum(rows > 0 for rows in counts), sum(counts))

    return write


def _write_range(export: Export, planned: "PlannedRange") -> int:
    """Write a file of the visible records of a range, or none without records. Return the number of records."""
    from ottla.scan.chunks import SegmentPiece
    from ottla.scan.damage_log import DamageLog
    from ottla.spark_jobs.views.planning import log_damage

    part = planned.part
    first = part.pieces[0]
    position = first.start if isinstance(first, SegmentPiece) else 0
    name = f"part-{first.base_offset:020d}-{position}.parquet"
    path = export.folder.below(f"topic={part.topic}", f"partition={part.number}", name)
    rows = 0
    log = DamageLog(export.options.on_damage)
    with TableFile(path, PARQUET, parquet_options(export.columns, export.compression)) as file:
        for table in row_groups(planned, export.columns, log):
            file.add(table)
            rows += len(table)
    log_damage(log)
    return rows


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
