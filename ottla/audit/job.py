"""The audit of log directories as a program: from its arguments to its output and its exit code. free

Data goes to stdout, everything else to stderr. Exit codes: 0 clean, 1 findings of the severity of `--fail-on` or worse,
2 could not run.
"""

import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING

from ottla.audit import command_line
from ottla.audit.command_line import Arguments
from ottla.audit.program import COULD_NOT_RUN, show
from ottla.audit.selection import BadArgument, parse_requirement
from ottla.colours import is_coloured
from ottla.printable import printable
from ottla.protocol.values import TopicPartition

if TYPE_CHECKING:
    from ottla.audit.audited import Audit
    from ottla.audit.carry import Carry
    from ottla.audit.outputs import Tables
    from ottla.audit.request import Request
    from ottla.audit.runner import Runner

CLEAN, FINDINGS = 0, 1
_WIDTH = 120


def audit(arguments: Arguments, open_runner: "Callable[[], AbstractContextManager[Runner]]") -> int:
    """Audit as `arguments` say, on the runner that `open_runner` opens, and return the exit code.

    The caller has checked that this Python has a worker's packages (`scan.needs`). The runner is opened after
    all arguments are checked.
    """
    from ottla.audit import outputs
    from ottla.audit.output_tables import write_tables
    from ottla.audit.pipeline import audit_listing
    from ottla.audit.request import list_selection, request_of
    from ottla.audit.runner import AuditFailed
    from ottla.scan.listing import UnreadableDirectory

    try:
        form = command_line.output_format(arguments)
        request = request_of(arguments, time.time_ns() // 1_000_000)
        required = parse_requirement(arguments.require)
        for warning in command_line.ahead(request.until_ms, request.since_ms, time.time_ns() // 1_000_000):
            _log(warning)
        if arguments.dry_run:
            return _dry_run(arguments, request)
        listed = list_selection(request, _log)
        report = outputs.absolute(arguments.report) if arguments.report else ""
        if arguments.carry:
            request = request._replace(carry=_load_carry(arguments, request))
        with _tables(arguments, form) as tables:
            if report:
                outputs.check_file(report, f"--report {arguments.report}")
            with open_runner() as runner:
                found = audit_listing(runner, request._replace(output=tables), listed)
            if tables is not None:
                write_tables(found, tables)
            if report:
                from ottla.audit.report.html import render

                outputs.write(report, render(found, _everything(arguments)).encode())
            if found.carry is not None:
                from ottla.audit.carry import encode

                outputs.write(found.carry.path, encode(found.carry))
    except (BadArgument, UnreadableDirectory, AuditFailed, outputs.OutputFailed) as error:
        return report_failure(str(error))
    for warning in command_line.beyond(request.until_offsets, _ends(found)):
        _log(warning)
    _print(found, arguments)
    if lacking := _lacking(found, required):
        return report_failure(f"--require: {', '.join(lacking)} could not be checked completely")
    return FINDINGS if found.at_least(arguments.fail_on) else CLEAN


def _load_carry(arguments: Arguments, request: "Request") -> "Carry":
    """Return what an earlier audit carried. Raises CarryRefused, BadArgument, OutputFailed."""
    from ottla.audit import outputs
    from ottla.audit.carrying import load

    if request.walks_no_log:
        raise BadArgument("--carry needs other checks: hanging and replicas do not follow the producers of a cluster")
    path = outputs.absolute(arguments.carry)
    if request.address is None:
        outputs.check_outside(arguments.carry, "--carry ", arguments.directories)
    outputs.check_file(path, f"--carry {arguments.carry}")
    return load(path)


def _dry_run(arguments: Arguments, request: "Request") -> int:
    """Print what an audit of a cluster would read. Raises BadArgument, UnreadableDirectory."""
    from ottla.audit.report import dry_run

    if request.address is None:
        raise BadArgument("--dry-run is for clusters: name one, such as kafka://HOST:PORT")
    from ottla.audit.dry_run import plan_audit  # and the connection, which directories do not need

    found = plan_audit(request)
    if arguments.format == "json":
        show(dry_run.json_lines(found))
    else:
        show(dry_run.text(found, shutil.get_terminal_size((_WIDTH, 0)).columns))
    return CLEAN if found.may_read_all else COULD_NOT_RUN


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


def _ends(found: "Audit") -> dict[TopicPartition, int]:
    """Return the log end of each partition in its longest replica, also if `--as-of` cut the log."""
    ends: dict[TopicPartition, int] = {}
    for one in found.partitions:
        place = one.log.topic, one.log.partition
        ends[place] = max(one.log_end, one.log.least_end, ends.get(place, 0))
    return ends


def _print(found: "Audit", arguments: Arguments) -> None:
    from ottla.audit.report import json, text

    if arguments.format == "json":
        show(json.lines(found))
    else:
        is_terminal = sys.stdout.isatty()
        width = shutil.get_terminal_size().columns if is_terminal else None
        show(text.text_report(found, everything=_everything(arguments), colour=is_coloured(sys.stdout), width=width))


def _lacking(found: "Audit", required: Sequence[str]) -> list[str]:
    """Return the required checks that were not made, or saw less than files show."""
    from ottla.audit.audited import ALL

    source = found.source
    limited = {one.check for one in (*source.not_checked, *source.reduced)}
    return [name for name in required if name in limited or ALL in limited]


def _everything(arguments: Arguments) -> bool:
    """Return whether internal topics are shown too: with `--all`, or if the arguments name topics."""
    return arguments.all or bool(arguments.topics)


def _log(what: str) -> None:
    sys.stderr.write(printable(f"ottla audit: {what}") + "\n")


def report_failure(reason: str) -> int:
    """Report the reason why the audit failed, and return the exit code."""
    _log(reason)
    return COULD_NOT_RUN
