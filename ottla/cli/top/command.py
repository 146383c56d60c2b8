"""`ottla top`: open transactions, partitions that hold readers back, and lagging groups of any Kafka. shell"""

import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from ottla.cli.bootstrap import asks_a_cluster
from ottla.cli.output import fail, output_for

if TYPE_CHECKING:
    from ottla.cli.top.watch import Watch

DONE, FAILED = 0, 2
NEEDS_RICH: Final = "the live view needs rich: pip install 'ottla[top]'; --once does not need it"


@click.command()
@asks_a_cluster
@click.option("--once", is_flag=True, help="Print the present state once, and exit.")
@click.option(
    "--interval-s",
    type=click.FloatRange(min=0.2),
    default=2.0,
    show_default=True,
    help="Time between two updates of the live view.",
)
def top(
    bootstrap_server: str,
    command_config: Path | None,
    once: bool,
    format_name: str,
    interval_s: float,
    timeout_s: float,
) -> None:
    """Watch open transactions, partitions that hold readers back, and lagging groups.

    For any Kafka, Ottla or Apache, 3.0 or later. The worst problems are at the top. Keys of the live view: arrows and
    Tab move, / filters by name, Esc removes the filter, q quits.

    Exit codes: 0 done, 2 usage, or the brokers could not be asked.
    """
    if not once:
        if format_name == "json":
            raise click.UsageError("--format json needs --once")
        if importlib.util.find_spec("rich") is None:
            fail(FAILED, NEEDS_RICH)
        if not (sys.stdin.isatty() and sys.stdout.isatty()):
            raise click.UsageError("the live view needs a terminal; --once prints the present state, and exits")
    from ottla.cli.top.watch import Watch  # imports the codecs, which --help does not need
    from ottla.wire import Unanswered
    from ottla.wire.brokers import parse_address
    from ottla.wire.client_properties import client_options

    try:
        addresses = [parse_address(part) for part in bootstrap_server.split(",")]
        with Watch(addresses, timeout_s, client_options(command_config)) as watch:
            if once:
                _print(watch, format_name)
            else:
                from ottla.cli.top.live import run

                run(watch, interval_s)
    except (Unanswered, ValueError) as error:
        fail(FAILED, error)
    sys.exit(DONE)


def _print(watch: "Watch", format_name: str) -> None:
    from ottla.cli.top.show import show

    show(watch.poll(), output_for(format_name))
