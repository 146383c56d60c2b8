"""`ottla audit`: hands its arguments to the audit job, which defines them, in this process. shell"""

import sys

import click

# Help too is the job's, so that the job says the same under spark-submit.
PASS_ON = {"ignore_unknown_options": True, "help_option_names": []}


@click.command(context_settings=PASS_ON, add_help_option=False)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def audit(arguments: tuple[str, ...]) -> None:
    """Audit data directories, in place."""
    from ottla.spark_jobs.audit import main  # needs the spark extra, and says so

    sys.exit(main(list(arguments)))
