"""The arguments of an audit on the command line, and their meaning. pure"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import click
from click.shell_completion import CompletionItem

from ottla.audit.checks.finding import CHECKS, Severity
from ottla.audit.outputs import DELTA, JSON, PARQUET
from ottla.protocol.values import TopicPartition

FORMATS = (PARQUET, JSON, DELTA)
_COPIES = "copies"
_DAY_MS = 86_400_000
# A smaller number is a date without dashes, or seconds: no broker has written anything before March 1973.
_FIRST_MS = 100_000_000_000
# The range of datetime from 1970: to the end of the year 9999.
_LAST_MS = 253_402_300_799_999

EPILOG = f"Checks: {', '.join(CHECKS)}."


class BadArgument(ValueError):
    """An argument that is not valid; the text is one line."""


@dataclass(frozen=True)
class Arguments:
    """Arguments of the command line by the names of the options, as they were given."""

    directories: tuple[str, ...]
    checks: str
    topics: str
    since: str
    as_of: str
    copies: tuple[str, ...]
    transactional_id_expiration_ms: int
    producer_id_expiration_ms: int
    format: str
    all: bool
    fail_on: Severity
    report: str | None
    output: str | None
    output_format: str | None
    overwrite: bool
    run_on: str


def complete_folder(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Let the shell complete folders. A value may also be a URI, and is checked where it is opened."""
    return [CompletionItem(incomplete, type="dir")]


def complete_names(known: Iterable[str]) -> Callable[[click.Context, click.Parameter, str], list[str]]:
    """Complete the last of comma-separated names with those of `known` that do not come before it."""

    def complete(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
        given, comma, last = incomplete.rpartition(",")
        left = [name for name in known if name not in given.split(",")]
        return [f"{given}{comma}{name}" for name in left if name.startswith(last)]

    return complete


def _expiration_ms(context: click.Context, option: click.Parameter, given: str) -> int:
    if not _is_number(given) or int(given) == 0:
        raise click.UsageError(f"{option.opts[0]}: {given}: not a number of milliseconds above 0", context)
    return int(given)


def _expiration(name: str, days: int) -> Callable[..., Any]:
    default = days * _DAY_MS
    return click.option(
        f"--{name}-id-expiration-ms",
        metavar="MS",
        type=str,
        default=str(default),
        callback=_expiration_ms,
        help=f"{name}.id.expiration.ms of the brokers.  [default: {default}, {days} d]",
    )


takes_run_on = click.option(
    "--run-on",
    type=click.Choice(["auto", "here", "spark"]),
    default="auto",
    show_default=True,
    help="here: threads of this process; spark: Spark jobs; auto: spark under spark-submit, else here.",
)
_PARAMETERS = (
    click.argument("directories", metavar="DIR...", nargs=-1, required=True, shell_complete=complete_folder),
    click.option(
        "--checks",
        metavar="NAMES",
        default="",
        shell_complete=complete_names(CHECKS),
        help="Checks to run, comma-separated.  [default: all]",
    ),
    click.option("--topics", metavar="GLOBS", default="", help="Topics, comma-separated, such as ledger,audit-*."),
    click.option("--since", metavar="TIME", default="", help="Skip segments without records after this time."),
    click.option(
        "--as-of",
        metavar="TIME|OFFSETS",
        default="",
        help="Audit the log as it was at a time, or up to offsets such as ledger:0:898,ledger:1:12.",
    ),
    click.option(
        "--copies",
        metavar="INPUT=OUTPUT,key|header:NAME",
        multiple=True,
        help="Check that each committed record of INPUT has exactly one in OUTPUT, by key or header; may repeat.",
    ),
    _expiration("transactional", 7),
    _expiration("producer", 1),
    click.option(
        "--format",
        type=click.Choice(["text", "json"]),
        default="text",
        show_default=True,
        help="json: one finding per line.",
    ),
    click.option("--all", is_flag=True, help="Show internal topics and notes too."),
    click.option(
        "--fail-on",
        type=click.Choice(["warning", "error"]),
        default="warning",
        show_default=True,
        help="Exit with 1 if a finding is at least this severe.",
    ),
    click.option(
        "--report",
        metavar="FILE",
        type=click.Path(readable=False),
        help="Write the audit as one HTML file; may be a URI.",
    ),
    click.option(
        "--output",
        metavar="DIR",
        shell_complete=complete_folder,
        help="Write the tables findings, transactions and partitions to this folder; may be a URI.",
    ),
    click.option(
        "--output-format",
        type=click.Choice(FORMATS),
        help="Format of the tables; delta needs ottla[delta].  [default: parquet]",
    ),
    click.option("--overwrite", is_flag=True, help="Replace the tables of an earlier run in --output."),
    takes_run_on,
)


def takes_arguments(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the arguments and options of an audit; the command gets the fields of `Arguments`."""
    for decorate in reversed(_PARAMETERS):
        command = decorate(command)
    return command


def checks(given: str, *, has_copies: bool) -> tuple[str, ...]:
    """Return the names of checks in the order of reports, `copies` only with topics to compare. Raises BadArgument."""
    names = {name.strip() for name in given.split(",") if name.strip()}
    if unknown := sorted(names - set(CHECKS)):
        raise BadArgument(f"--checks: no check {', '.join(unknown)}; the checks are {', '.join(CHECKS)}")
    if _COPIES in names and not has_copies:
        raise BadArgument("--checks copies: no topics to compare; name them with --copies INPUT=OUTPUT,key")
    if names and has_copies and _COPIES not in names:
        raise BadArgument(f"--copies: --checks leaves out the check {_COPIES}; add it there")
    return tuple(one for one in CHECKS if one in names or (not names and (one != _COPIES or has_copies)))


def output_format(arguments: Arguments) -> str:
    """Return the format of the tables. Raises BadArgument for `--output-format` or `--overwrite` without `--output`."""
    for name, given in (("--output-format", arguments.output_format), ("--overwrite", arguments.overwrite)):
        if given and not arguments.output:
            raise BadArgument(f"{name} needs --output DIR; the format of the printed audit is --format")
    return str(arguments.output_format or PARQUET)


def time_ms(given: str, option: str) -> int:
    """Parse milliseconds, or ISO 8601 (UTC without a time zone), to milliseconds. Raises BadArgument."""
    if _is_number(given):
        since_1970_ms = int(given)
        if since_1970_ms < _FIRST_MS:
            raise BadArgument(f"{option} {given}: too early for milliseconds since 1970; write it as ISO 8601")
    else:
        try:
            moment = datetime.fromisoformat(given)
        except ValueError as error:
            raise BadArgument(f"{option} {given}: neither ISO 8601 nor milliseconds") from error
        since_1970_ms = int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)
    if not 0 <= since_1970_ms <= _LAST_MS:
        raise BadArgument(f"{option} {given}: not a time from 1970 to 9999")
    return since_1970_ms


def as_of(given: str) -> tuple[int | None, dict[TopicPartition, int]]:
    """Parse `--as-of`: a time in ms, or offsets by topic and partition. Raises BadArgument."""
    fields = [one.strip().rsplit(":", 2) for one in given.split(",")]
    if not given:
        return None, {}
    if not _is_time(given) and all(len(one) == 3 and _is_number(one[1]) and _is_number(one[2]) for one in fields):
        return None, {(topic, int(partition)): int(offset) for topic, partition, offset in fields}
    if ":" in given and not _is_time(given):
        raise BadArgument(f"--as-of {given}: neither ISO 8601 nor TOPIC:PARTITION:OFFSET,...")
    return time_ms(given, "--as-of"), {}


def ahead(as_of_ms: int | None, since_ms: int | None, now_ms: int) -> list[str]:
    """Return warnings about times in the future, which make the results differ from what a reader may expect."""
    warnings = []
    if as_of_ms is not None and as_of_ms > now_ms:
        warnings.append("--as-of is in the future: ages are those at that time, everything else is as it is now")
    if since_ms is not None and since_ms > now_ms:
        warnings.append("--since is in the future: only the segments that every audit needs are read")
    return warnings


def beyond(until_offsets: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> list[str]:
    """Return warnings about offsets of `--as-of` above the log end. `ends`: the ends of the logs that were read."""
    return [
        f"--as-of names offset {offset:,} of {topic}:{partition}, which ends at {end:,}: the audit ends there"
        for (topic, partition), offset in until_offsets.items()
        if offset > (end := ends.get((topic, partition), offset))
    ]


def _is_number(given: str) -> bool:
    return given.isascii() and given.isdigit()


def _is_time(given: str) -> bool:
    try:
        datetime.fromisoformat(given)
    except ValueError:
        return False
    return True


def directories(given: Sequence[str]) -> tuple[str, ...]:
    """Return each directory once, in the order given."""
    return tuple(dict.fromkeys(given))
