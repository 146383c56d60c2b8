"""Options of the commands that send requests to any cluster: `ottla txn`, `ottla top`, `ottla acl`. free"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import click

from ottla.cli.output import takes_format

DEFAULT_TIMEOUT_S: Final = 10.0

takes_command_config: Final = click.option(
    "--command-config",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Properties of a Java client, for brokers with TLS or SASL.",
)


def asks_a_cluster(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of a command that sends requests to brokers in Kafka's protocol."""
    for decorate in (
        takes_format,
        click.option(
            "--timeout-s",
            type=click.FloatRange(min=0.1),
            default=DEFAULT_TIMEOUT_S,
            show_default=True,
            help="Timeout for connecting, and for each answer.",
        ),
        takes_command_config,
        click.option(
            "-b",
            "--bootstrap-server",
            metavar="HOST:PORT[,...]",
            default="localhost:9092",
            show_default=True,
            help="Bootstrap brokers.",
        ),
    ):
        command = decorate(command)
    return command
