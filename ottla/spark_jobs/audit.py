"""The audit of log directories: `spark-submit audit.py DIR`, or `main(argv)` in this process. free

Data goes to stdout, everything else to stderr. Exit codes: 0 clean, 1 findings of the severity of `--fail-on` or worse,
2 could not run.
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
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ottla.spark_jobs import audit_arguments
from ottla.spark_jobs.audit_arguments import BadArgument
from ottla.spark_jobs.needs import cannot_run

if TYPE_CHECKING:
    from ottla.spark_jobs.audit_scan import Listed, Request
    from ottla.spark_jobs.audited import Audit
    from ottla.spark_jobs.runner import Runner

CLEAN, FINDINGS, COULD_NOT_RUN = 0, 1, 2
MOST_TRIES = 3


def main(argv: list[str] | None = None) -> int:
    """Audit as `argv` (without the program's name) says; returns the exit code."""
    try:
        arguments = audit_arguments.parser().parse_args(argv)
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else COULD_NOT_RUN
    if missing := cannot_run("the audit on Spark", on_spark=_on_spark(arguments)):
        return _failed(missing)
    return _audit(arguments)


def _audit(arguments: argparse.Namespace) -> int:
    from ottla.spark_jobs.audit_output import OutputFailed, write_tables
    from ottla.spark_jobs.audit_scan import AuditFailed, list_everything
    from ottla.spark_jobs.scan.listing import UnreadableDirectory
    from ottla.spark_jobs.session import NoSpark

    try:
        request = _request(arguments)
        listed = list_everything(request)
        _topics_exist(request, listed)
        with _runner(arguments) as runner:
            found = _audit_anew(runner, request, listed)
        if request.output is not None:
            write_tables(found, *request.output)
        if arguments.report:
            _write_report(found, Path(arguments.report))
    except (BadArgument, UnreadableDirectory, AuditFailed, OutputFailed, NoSpark) as error:
        return _failed(str(error))
    _print(found, arguments)
    return FINDINGS if found.at_least(arguments.fail_on) else CLEAN


def _audit_anew(runner: "Runner", request: "Request", listed: "list[Listed]") -> "Audit":
    """The audit; listed again when the broker deleted what was to be read."""
    from ottla.spark_jobs.audit_output import clear
    from ottla.spark_jobs.audit_scan import FilesVanished, audit_listed, list_everything

    for _ in range(MOST_TRIES - 1):
        try:
            return audit_listed(runner, request, listed)
        except FilesVanished:
            if request.output is not None:
                clear(request.output[0])
            listed = list_everything(request)
    return audit_listed(runner, request, listed)


def _request(arguments: argparse.Namespace) -> "Request":
    """What is asked for. Raises BadArgument."""
    from ottla.spark_jobs.audit_output import prepare
    from ottla.spark_jobs.audit_scan import Request
    from ottla.spark_jobs.checks import copies
    from ottla.spark_jobs.scan.listing import topic_patterns

    until_ms, until_offsets = audit_arguments.as_of(arguments.as_of)
    try:
        pairs = tuple(copies.parse(one) for one in arguments.copies)
    except ValueError as error:
        raise BadArgument(str(error)) from error
    checks = audit_arguments.checks(arguments.checks, has_copies=bool(pairs))
    output = None
    if arguments.output:
        output = prepare(arguments.output), arguments.output_format
    return Request(
        audit_arguments.directories(arguments.directories),
        topic_patterns(arguments.topics),
        time.time_ns() // 1_000_000 if until_ms is None else until_ms,
        checks,
        arguments.as_of,
        until_ms,
        until_offsets,
        audit_arguments.time_ms(arguments.since, "--since") if arguments.since else None,
        arguments.transactional_id_expiration_ms,
        arguments.producer_id_expiration_ms,
        output,
        pairs,
    )


def _topics_exist(request: "Request", listed: "list[Listed]") -> None:
    """A misspelt topic must not be reported as clean. Raises BadArgument."""
    from ottla.spark_jobs.scan.listing import select_topics

    logs = [one.log for one in listed]
    if request.topics and not select_topics(logs, request.topics):
        raise BadArgument(f"{', '.join(request.directories)}: no topic matches {', '.join(request.topics)}")
    names = {(log.topic, log.partition) for log in logs}
    for topic, partition in request.until_offsets:
        if (topic, partition) not in names:
            raise BadArgument(f"--as-of names {topic}:{partition}, which is not there")


def _write_report(found: "Audit", path: Path) -> None:
    """Raises BadArgument."""
    from ottla.spark_jobs.report.html import render

    try:
        path.write_text(render(found), encoding="utf-8")
    except OSError as error:
        raise BadArgument(f"--report {path}: {error.strerror}") from error


def _print(found: "Audit", arguments: argparse.Namespace) -> None:
    from ottla.spark_jobs.report import json, text

    if arguments.format == "json":
        sys.stdout.write(json.lines(found.findings))
    else:
        is_terminal = sys.stdout.isatty()
        width = shutil.get_terminal_size().columns if is_terminal else None
        colour = is_terminal and "NO_COLOR" not in os.environ
        everything = arguments.all or bool(arguments.topics)
        sys.stdout.write(text.text_report(found, everything=everything, colour=colour, width=width))
    sys.stdout.flush()


def _on_spark(arguments: argparse.Namespace) -> bool:
    from ottla.spark_jobs.session import under_spark_submit

    return bool(arguments.run_on == "spark" or (arguments.run_on == "auto" and under_spark_submit()))


@contextmanager
def _runner(arguments: argparse.Namespace) -> "Iterator[Runner]":
    from ottla.spark_jobs.runner import HereRunner, SparkRunner
    from ottla.spark_jobs.session import session

    if _on_spark(arguments):
        with session("ottla audit") as spark:
            yield SparkRunner(spark)
    else:
        yield HereRunner(os.cpu_count() or 1)


def _failed(reason: str) -> int:
    sys.stderr.write(f"ottla audit: {reason}\n")
    return COULD_NOT_RUN


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
