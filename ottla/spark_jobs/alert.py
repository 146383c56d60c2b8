"""Alerts on hanging transactions while a broker runs: `spark-submit alert.py DIR`. free

Print a line when a transaction begins to hang and one when it no longer hangs, each once. With a folder in
`--checkpoint`, also across restarts. `--once` checks a single time in this process, without a JVM; the stream needs
Spark. Exit codes: 0 ended by a signal or `--once`, 2 could not run.
"""

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    from ottla.spark_jobs.start import mend_path, need_click

    mend_path()
    need_click()

import json
import os
import re
import signal
import tempfile
import threading
import time
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from ottla.audit.program import COULD_NOT_RUN, run_command, show
from ottla.audit.selection import BadArgument
from ottla.printable import printable
from ottla.spark_jobs.session import NoSpark, cannot_run, session

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame, SparkSession

    from ottla.spark_jobs.command_lines import AlertArguments

ENDED = 0
# Ctrl-C is handled within this time.
ANSWER_SECONDS = 1
# Beginning of a line with an error of Ottla: the last one of a Python traceback, or Spark's without a traceback.
_RAISED = re.compile(r"(\[PYTHON_DATA_SOURCE_ERROR\] .*?: )?ottla[\w.]*: ")
# Entries of the folder of `--checkpoint`: the alerts that `--once` printed, and Spark's folder for a stream's state.
_PRINTED = "told.json"
_SPARKS = "offsets"


class OutputClosed(Exception):
    """Stdout is a closed pipe; the text is one line."""


def main(argv: list[str] | None = None) -> int:
    """Watch as `argv` says until interrupted; return the exit code."""
    from ottla.spark_jobs import command_lines

    return run_command(command_lines.alert, argv)


def run(arguments: "AlertArguments") -> int:
    """Watch until interrupted; return the exit code."""
    if missing := cannot_run("the alert", on_spark=not arguments.once):
        return _refuse(missing)
    from ottla.scan.listing import UnreadableDirectory, describe_missing_topics, list_partitions, topic_patterns
    from ottla.spark_jobs.options import OptionError, check_utf8
    from ottla.spark_jobs.stream.stream_options import stream_options

    try:
        stream_options(_options(arguments))
        logs = list_partitions(arguments.directory)
        _prepare(arguments.checkpoint)
        if arguments.once:
            return _check_once(arguments)
        check_utf8((arguments.directory,))
        # Logged here: the processes of the stream log to the stderr of the JVM, which is not shown.
        if unmatched := describe_missing_topics(logs, topic_patterns(arguments.topics)):
            sys.stderr.write(printable(f"ottla alert: {unmatched}") + "\n")
        return _follow(arguments)
    except KeyboardInterrupt:
        return ENDED
    except (BadArgument, OptionError, UnreadableDirectory, NoSpark, OutputClosed, OSError) as error:
        return _refuse(str(error))


def _refuse(reason: str) -> int:
    sys.stderr.write(printable(f"ottla alert: {reason}") + "\n")
    return COULD_NOT_RUN


def _follow(arguments: "AlertArguments") -> int:
    """Watch with a stream of Spark until interrupted; return the exit code."""
    from pyspark.errors import StreamingQueryException

    try:
        with session("ottla alert") as spark, tempfile.TemporaryDirectory(prefix="ottla-alert-") as scratch:
            _watch(spark, arguments, arguments.checkpoint or scratch)
    except StreamingQueryException as error:
        return _refuse(_cause(str(error)))
    return ENDED


def _prepare(checkpoint: str | None) -> None:
    """Check the folder, as Spark reports an unusable one on many lines. Raises BadArgument. Spark checks URLs."""
    if checkpoint is None or "://" in checkpoint:
        return
    folder = Path(checkpoint)
    if folder.exists() and not folder.is_dir():
        raise BadArgument(f"--checkpoint {checkpoint}: Not a directory")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadArgument(f"--checkpoint {checkpoint}: {error.strerror}") from error
    if not os.access(folder, os.W_OK | os.X_OK):
        raise BadArgument(f"--checkpoint {checkpoint}: Permission denied")


def _cause(text: str) -> str:
    """Return the Python error in the text of Spark on a failed query, or the first line of the text."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return next((_RAISED.sub("", line) for line in reversed(lines) if _RAISED.match(line)), lines[0])


def _check_once(arguments: "AlertArguments") -> int:
    """Print the alerts since the last check, as a micro-batch of the stream does; return the exit code."""
    from ottla.scan import schemas
    from ottla.spark_jobs.stream.alert_rows import alert, changes, keep_first_seen
    from ottla.spark_jobs.stream.stream_options import stream_options
    from ottla.spark_jobs.stream.watch import Watch

    printed = _printed_file(arguments.checkpoint)
    before = [] if printed is None or not printed.exists() else json.loads(printed.read_text("utf-8"))["hanging"]
    watch, now_ms = Watch(stream_options(_options(arguments)).read), time.time_ns() // 1_000_000
    now = keep_first_seen(before, [alert(one, now_ms) for one in watch.find_hanging(now_ms)])
    rows = changes(before, now)
    _print(
        [
            {name: row[name] for name in schemas.VIEWS[schemas.HANGING]}
            | {"seen": datetime.fromtimestamp(row["seen"] / 1_000_000)}
            for row in sorted(rows, key=lambda row: (row["topic"], row["partition"], row["firstOffset"]))
        ],
        arguments.format,
    )
    if printed is not None:
        new = printed.with_suffix(".new")
        new.write_text(json.dumps({"hanging": now}), encoding="utf-8")
        new.replace(printed)
    return ENDED


def _printed_file(checkpoint: str | None) -> Path | None:
    """Return the file with the alerts that `--once` printed; None without a checkpoint. Raises BadArgument."""
    if checkpoint is None:
        return None
    if "://" in checkpoint:
        raise BadArgument(f"--checkpoint {checkpoint}: not a local folder, which --once needs")
    if (Path(checkpoint) / _SPARKS).exists():
        raise BadArgument(f"--checkpoint {checkpoint}: an alert without --once uses this folder; name another")
    return Path(checkpoint) / _PRINTED


def _options(arguments: "AlertArguments") -> dict[str, str]:
    return {"view": "hanging", "topics": arguments.topics, "path": arguments.directory}


def _watch(spark: "SparkSession", arguments: "AlertArguments", checkpoint: str) -> None:
    reader = spark.readStream.format("ottla")
    for name, value in _options(arguments).items():
        reader = reader.option(name, value)
    query = (
        reader.load()
        .writeStream.foreachBatch(_printer(arguments.format))
        .option("checkpointLocation", checkpoint)
        .trigger(processingTime=f"{int(arguments.interval * 1000)} milliseconds")
        .start()
    )
    with _catch_interrupt() as is_interrupted:
        try:
            while not query.awaitTermination(ANSWER_SECONDS) and not is_interrupted.is_set():
                pass
        finally:
            query.stop()


@contextmanager
def _catch_interrupt() -> "Iterator[threading.Event]":
    """Yield an event that Ctrl-C sets.

    PySpark's own handler calls the JVM in the middle of another call, which ends in tracebacks.
    """
    pressed = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield pressed
        return
    before = signal.signal(signal.SIGINT, lambda *_: pressed.set())
    try:
        yield pressed
    finally:
        signal.signal(signal.SIGINT, before)


def _printer(style: str) -> "Callable[[DataFrame, int], None]":
    def print_batch(alerts: "DataFrame", _: int) -> None:
        rows = alerts.orderBy("topic", "partition", "firstOffset").collect()
        _print([row.asDict() for row in rows], style)

    return print_batch


def _print(rows: list[dict[str, Any]], style: str) -> None:
    if not show("".join(_json(row) if style == "json" else _text(row) for row in rows)):
        # The checkpoint must not cover alerts that were not printed.
        raise OutputClosed("stdout is closed: the alerts cannot be printed")


def _json(row: dict[str, Any]) -> str:
    # Spark returns datetimes in the local time zone, without the zone.
    return json.dumps({**row, "seen": row["seen"].astimezone(UTC).isoformat()}) + "\n"


def _text(row: dict[str, Any]) -> str:
    place = f"{row['topic']}-{row['partition']}@{row['firstOffset']}"
    who = row["transactionalId"] or f"producer id {row['producerId']}"
    if row["event"] == "ended":
        return printable(f"{datetime.now():%F %T}  ended    {place}  {who}, first seen {row['seen']:%F %T}") + "\n"
    line = printable(f"{row['seen']:%F %T}  HANGING  {place}  {who}: {row['message']}")
    return f"{line}\n    {printable(row['action'])}\n"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
