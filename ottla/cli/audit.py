"""`ottla audit`: the audit of `ottla.spark_jobs.audit` on a local Spark session. shell"""

import sys
from importlib.util import find_spec

import click


@click.command()
@click.argument("directory", metavar="DIR", type=click.Path(exists=True, file_okay=False))
@click.option("--format", "format_name", type=click.Choice(["text", "json"]), default="text", show_default=True)
def audit(directory: str, format_name: str) -> None:
    """Audit a data directory on Spark, in place.

    Reads the segments of Ottla or of Apache Kafka, running or stopped, and tells what became of every transaction.
    """
    if find_spec("pyspark") is None:
        click.echo("ottla: audit needs Spark: pip install 'ottla[spark]'", err=True)
        sys.exit(1)

    from ottla.spark_jobs.audit import main  # starts a Java machine

    sys.exit(main([directory, "--format", format_name]))
