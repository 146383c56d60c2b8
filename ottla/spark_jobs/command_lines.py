"""`ottla audit`, `ottla alert`, `ottla export`: their options, for the command and for spark-submit alike. shell

The jobs are imported when they are run (`run_job`): help and completion need no extra.
"""

from dataclasses import dataclass
from typing import Any

import click

from ottla.audit import command_line
from ottla.audit.command_line import complete_folder, complete_names, takes_command_config, takes_run_on
from ottla.audit.outputs import DELTA, PARQUET
from ottla.audit.program import run_job
from ottla.scan import schemas
from ottla.spark_jobs.options import READ_COMMITTED, READ_UNCOMMITTED

COMPRESSIONS = ("zstd", "snappy", "lz4", "gzip", "none")
MOST_SECONDS = 86_400
# Settings of the group `ottla`, which has these commands.
_SETTINGS = {"help_option_names": ["-h", "--help"]}


@dataclass(frozen=True)
class AlertArguments:
    """Arguments of the command line of an alert; `interval` in seconds."""

    directory: str
    topics: str
    interval: float
    checkpoint: str | None
    once: bool
    format: str


@dataclass(frozen=True)
class ExportArguments:
    """Arguments of the command line of an export."""

    directory: str
    output: str
    command_config: str
    format: str
    overwrite: bool
    topics: str
    columns: str
    isolation_level: str
    on_damage: str
    compression: str
    run_on: str


@click.command(context_settings=_SETTINGS, epilog=command_line.EPILOG)
@command_line.takes_arguments
def audit(**given: Any) -> None:
    """Audit data directories in place, or a cluster over the wire.

    Check that everything in log directories was written exactly once. The broker may be running. DIR is a log directory
    of Ottla or Apache Kafka, and may be a URI such as s3://BUCKET/FOLDER. Several must be of one cluster. With
    kafka://HOST:PORT,... the brokers send the same records, and are asked what they hold open now; nothing is written.
    Times are ISO 8601 (UTC without a time zone), or milliseconds since 1970.

    Exit codes: 0 clean, 1 findings of the severity of --fail-on or worse, 2 could not run, 130 interrupted.
    """
    run_job("audit", "ottla.spark_jobs.audit", command_line.Arguments(**given))


def _seconds(context: click.Context, option: click.Parameter, given: str) -> float:
    try:
        seconds = float(given)
    except ValueError:
        raise click.UsageError(f"{option.opts[0]}: {given}: not a number of seconds", context) from None
    if not 0 <= seconds <= MOST_SECONDS:
        raise click.UsageError(f"{option.opts[0]}: {given}: not from 0 to {MOST_SECONDS}", context)
    return seconds


@click.command(context_settings=_SETTINGS)
@click.argument("directory", metavar="DIR", shell_complete=complete_folder)
@click.option("--topics", metavar="GLOBS", default="", help="Topics, comma-separated, such as ledger,audit-*.")
@click.option(
    "--interval",
    metavar="SECONDS",
    type=str,
    default="10",
    show_default=True,
    callback=_seconds,
    help="Time between two checks.",
)
@click.option(
    "--checkpoint", metavar="FOLDER", shell_complete=complete_folder, help="Store alerts here; a restart repeats none."
)
@click.option("--once", is_flag=True, help="Check once and exit; needs no Spark.")
@click.option("--format", type=click.Choice(["text", "json"]), default="text", show_default=True)
def alert(**given: Any) -> None:
    """Report transactions that begin to hang, while a broker runs.

    Report their end, too. DIR is the log directory of a running broker, Ottla or Apache Kafka.

    Exit codes: 0 ended by a signal or --once, 2 could not run.
    """
    run_job("alert", "ottla.spark_jobs.alert", AlertArguments(**given))


@click.command(context_settings=_SETTINGS)
@click.argument("directory", metavar="DIR|kafka://...", shell_complete=complete_folder)
@click.argument("output", metavar="OUT", shell_complete=complete_folder)
@click.option(
    "--format",
    type=click.Choice([PARQUET, DELTA]),
    default=PARQUET,
    show_default=True,
    help="delta: write a Delta table; needs ottla[delta].",
)
@click.option("--overwrite", is_flag=True, help="Replace what an earlier export wrote to OUT.")
@click.option("--topics", metavar="GLOBS", default="", help="Topics, comma-separated.  [default: every user topic]")
@click.option(
    "--columns",
    metavar="NAMES",
    default="",
    shell_complete=complete_names(schemas.VIEWS[schemas.RECORDS]),
    help="Columns, comma-separated.  [default: all of the view records]",
)
@click.option(
    "--isolation-level",
    type=click.Choice([READ_COMMITTED, READ_UNCOMMITTED]),
    default=READ_COMMITTED,
    show_default=True,
    help="read_uncommitted: write aborted and open transactions too.",
)
@click.option(
    "--on-damage",
    type=click.Choice(["fail", "report"]),
    default="fail",
    show_default=True,
    help="report: leave out damaged records, and report them.",
)
@takes_command_config
@click.option("--compression", type=click.Choice(COMPRESSIONS), default="zstd", show_default=True)
@takes_run_on
def export(**given: Any) -> None:
    """Write committed records to Parquet.

    Records of aborted and open transactions are left out. DIR is a log directory of Ottla or Apache Kafka; its broker
    may be running. OUT is a new or empty folder. Both may be URIs such as s3://BUCKET/FOLDER. With kafka://HOST:PORT,...
    the brokers send the records; nothing is written to them.

    Exit codes: 0 done, 2 could not run, 130 interrupted.
    """
    run_job("export", "ottla.spark_jobs.export", ExportArguments(**given))
