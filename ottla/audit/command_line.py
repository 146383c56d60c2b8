"""The arguments of an audit on the command line, and their meaning. pure"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import click
from click.shell_completion import CompletionItem

from ottla.audit.checks.finding import CHECKS, Severity
from ottla.audit.outputs import DELTA, JSON, PARQUET
from ottla.audit.selection import (
    PRODUCER_ID_EXPIRATION_MS,
    TRANSACTIONAL_ID_EXPIRATION_MS,
    BadArgument,
    Selection,
    parse_expiration_ms,
)
from ottla.protocol.times import duration
from ottla.protocol.values import TopicPartition

FORMATS = (PARQUET, JSON, DELTA)

EPILOG = f"Checks: {', '.join(CHECKS)}."


@dataclass(frozen=True, kw_only=True)
class Arguments(Selection):
    """Arguments of the command line by the names of the options, as they were given."""

    format: str
    all: bool
    require: str
    dry_run: bool
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


def _check_expiration(context: click.Context, option: click.Parameter, given: str) -> str:
    try:
        parse_expiration_ms(given, option.opts[0])
    except BadArgument as error:
        raise click.UsageError(str(error), context) from None
    return given


def _expiration(name: str, default: int) -> Callable[..., Any]:
    return click.option(
        f"--{name}-id-expiration-ms",
        metavar="MS",
        type=str,
        default=str(default),
        callback=_check_expiration,
        help=f"{name}.id.expiration.ms of the brokers.  [default: {default}, {duration(default)}]",
    )


takes_command_config = click.option(
    "--command-config",
    metavar="FILE",
    default="",
    type=click.Path(readable=False),
    help="Properties of a Java client, for a cluster with TLS or SASL.",
)
takes_run_on = click.option(
    "--run-on",
    type=click.Choice(["auto", "here", "spark"]),
    default="auto",
    show_default=True,
    help="here: threads of this process; spark: Spark jobs; auto: spark under spark-submit, else here.",
)
_PARAMETERS = (
    click.argument(
        "directories", metavar="DIR...|kafka://...", nargs=-1, required=True, shell_complete=complete_folder
    ),
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
    takes_command_config,
    click.option(
        "--max-bytes-per-second",
        metavar="BYTES",
        default="",
        help="Limit of all connections to a cluster together, such as 20M.",
    ),
    click.option(
        "--require",
        metavar="NAMES",
        default="",
        shell_complete=complete_names(CHECKS),
        help="Exit with 2 if one of these checks could not be made completely.",
    ),
    click.option(
        "--dry-run",
        is_flag=True,
        help="Print what would be read from a cluster, and the missing rights. Read no record.",
    ),
    click.option(
        "--carry",
        metavar="FILE",
        default="",
        type=click.Path(readable=False),
        help="Begin where the audit that wrote this file ended, and write it for the next one.",
    ),
    click.option(
        "--copies",
        metavar="INPUT=OUTPUT,key|header:NAME",
        multiple=True,
        help="Check that each committed record of INPUT has exactly one in OUTPUT, by key or header; may repeat.",
    ),
    _expiration("transactional", TRANSACTIONAL_ID_EXPIRATION_MS),
    _expiration("producer", PRODUCER_ID_EXPIRATION_MS),
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


def output_format(arguments: Arguments) -> str:
    """Return the format of the tables. Raises BadArgument for `--output-format` or `--overwrite` without `--output`."""
    for name, given in (("--output-format", arguments.output_format), ("--overwrite", arguments.overwrite)):
        if given and not arguments.output:
            raise BadArgument(f"{name} needs --output DIR; the format of the printed audit is --format")
    return str(arguments.output_format or PARQUET)


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
