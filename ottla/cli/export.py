"""`ottla export`: hands its arguments to the export job, which defines them, in this process. shell"""

import sys

import click

from ottla.cli.audit import PASS_ON


@click.command(context_settings=PASS_ON, add_help_option=False)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def export(arguments: tuple[str, ...]) -> None:
    """Write records to Parquet, by what became of their transactions."""
    from ottla.spark_jobs.export import main  # needs the spark extra, and says so

    sys.exit(main(list(arguments)))
