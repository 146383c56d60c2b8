"""`ottla alert`: hands its arguments to the alert job, which defines them, on a local Spark session. shell"""

import sys

import click

from ottla.cli.audit import PASS_ON


@click.command(context_settings=PASS_ON, add_help_option=False)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def alert(arguments: tuple[str, ...]) -> None:
    """Tell when a transaction begins to hang, while a broker runs."""
    from ottla.spark_jobs.alert import main  # needs the spark extra and Java, and says so

    sys.exit(main(list(arguments)))
