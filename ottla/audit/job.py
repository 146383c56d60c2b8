"""The audit of log directories as a program: from its arguments to its output and its exit code. free

Data goes to stdout, everything else to stderr. Exit codes: 0 clean, 1 findings of the severity of `--fail-on` or worse,
2 could not run.
"""

import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING

from ottla.audit import command_line
from ottla.audit.command_line import Arguments, BadArgument
from ottla.audit.program import COULD_NOT_RUN, show
from ottla.printable import printable
from ottla.protocol.values import TopicPartition

if TYPE_CHECKING:
    from ottla.audit.audited import Audit
    from ottla.audit.outputs import Tables
    from ottla.audit.request import Listed, Request
    from ottla.audit.runner import Runner

CLEAN, FINDINGS = 0, 1
MOST_TRIES = 3


def audit(arguments: Arguments, open_runner: "Callable[[], AbstractContextManager[Runner]]") -> int:
    """Audit as `arguments` say, on the runner that `open_runner` opens, and return the exit code.

    The caller has checked that this Python has a worker's packages (`scan.needs`). The runner is opened after
    all arguments are checked.
    """
    from ottla.audit import outputs
    from ottla.audit.output_tables import write_tables
    from ottla.audit.request import list_everything
    from ottla.audit.runner import AuditFailed
    from ottla.scan.listing import UnreadableDirectory

    try:
        form = command_line.output_format(arguments)
        request = _request(arguments)
        for warning in command_line.ahead(request.until_ms, request.since_ms, time.time_ns() // 1_000_000):
            _log(warning)
        listed = list_everything(request)
        _topics_exist(request, listed)
        report = outputs.absolute(arguments.report) if arguments.report else ""
        with _tables(arguments, form) as tables:
            if report:
                outputs.check_file(report, f"--report {arguments.report}")
            with open_runner() as runner:
                found = _audit_again(runner, request._replace(output=tables), listed)
            if tables is not None:
                write_tables(found, tables)
            if report:
                from ottla.audit.report.html import render

                outputs.write(report, render(found, _everything(arguments)).encode())
    except (BadArgument, UnreadableDirectory, AuditFailed, outputs.OutputFailed) as error:
        return report_failure(str(error))
    for warning in command_line.beyond(request.until_offsets, _ends(found)):
        _log(warning)
    _print(found, arguments)
    return FINDINGS if found.at_least(arguments.fail_on) else CLEAN


@contextmanager
def threads() -> "Iterator[Runner]":
    """Open a runner without Spark: threads of this process."""
    from ottla.audit.runner import ThreadRunner

    yield ThreadRunner(os.cpu_count() or 1)


@contextmanager
def _tables(arguments: Arguments, form: str) -> "Iterator[Tables | None]":
    """Open the tables before the scan, so that an output that cannot be written fails at once. Raises OutputFailed."""
    from ottla.audit import outputs
    from ottla.audit.output_tables import writing

    if not arguments.output:
        yield None
        return
    outputs.check_outside(arguments.output, "--output ", arguments.directories)
    with writing(arguments.output, form, overwrite=arguments.overwrite) as tables:
        yield tables


def _audit_again(runner: "Runner", request: "Request", listed: "list[Listed]") -> "Audit":
    """Audit, and list again when the broker deleted files that were to be read."""
    from ottla.audit.output_tables import clear
    from ottla.audit.pipeline import audit_listing
    from ottla.audit.request import list_everything
    from ottla.audit.runner import FilesVanished

    for _ in range(MOST_TRIES - 1):
        try:
            return audit_listing(runner, request, listed)
        except FilesVanished:
            if request.output is not None:
                clear(request.output)
            listed = list_everything(request)
    return audit_listing(runner, request, listed)


def _request(arguments: Arguments) -> "Request":
    """Build the request from the arguments. Raises BadArgument."""
    from ottla.audit.checks import copies
    from ottla.audit.request import Request
    from ottla.scan.listing import topic_patterns

    until_ms, until_offsets = command_line.as_of(arguments.as_of)
    try:
        pairs = tuple(copies.parse(one) for one in arguments.copies)
    except ValueError as error:
        raise BadArgument(str(error)) from error
    checks = command_line.checks(arguments.checks, has_copies=bool(pairs))
    return Request(
        command_line.directories(arguments.directories),
        topic_patterns(arguments.topics),
        time.time_ns() // 1_000_000 if until_ms is None else until_ms,
        checks,
        arguments.as_of,
        until_ms,
        until_offsets,
        command_line.time_ms(arguments.since, "--since") if arguments.since else None,
        arguments.transactional_id_expiration_ms,
        arguments.producer_id_expiration_ms,
        copies=pairs,
    )


def _topics_exist(request: "Request", listed: "list[Listed]") -> None:
    """Check that the topics exist: a misspelt one must not be reported as clean. Raises BadArgument."""
    from ottla.scan.listing import describe_missing_topics, select_topics

    logs = [one.log for one in listed]
    if unmatched := describe_missing_topics(logs, request.topics):
        if not select_topics(logs, request.topics):
            raise BadArgument(f"{', '.join(request.directories)}: {unmatched}")
        _log(unmatched)
    names = {(log.topic, log.partition) for log in logs}
    for topic, partition in request.until_offsets:
        if (topic, partition) not in names:
            raise BadArgument(f"--as-of names {topic}:{partition}, which does not exist")


def _ends(found: "Audit") -> dict[TopicPartition, int]:
    """Return the log end of each partition in its longest replica, also if `--as-of` cut the log."""
    ends: dict[TopicPartition, int] = {}
    for one in found.partitions:
        place = one.log.topic, one.log.partition
        last_base = one.log.segments[-1].base_offset if one.log.segments else 0
        ends[place] = max(one.log_end, last_base, ends.get(place, 0))
    return ends


def _print(found: "Audit", arguments: Arguments) -> None:
    from ottla.audit.report import json, text

    if arguments.format == "json":
        show(json.lines(found))
    else:
        is_terminal = sys.stdout.isatty()
        width = shutil.get_terminal_size().columns if is_terminal else None
        colour = is_terminal and "NO_COLOR" not in os.environ
        show(text.text_report(found, everything=_everything(arguments), colour=colour, width=width))


def _everything(arguments: Arguments) -> bool:
    """Return whether internal topics are shown too: with `--all`, or if the arguments name topics."""
    return arguments.all or bool(arguments.topics)


def _log(what: str) -> None:
    sys.stderr.write(printable(f"ottla audit: {what}") + "\n")


def report_failure(reason: str) -> int:
    """Report the reason why the audit failed, and return the exit code."""
    _log(reason)
    return COULD_NOT_RUN
