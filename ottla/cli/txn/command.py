"""`ottla txn`: transactions that hold back committed reads, and those that their coordinator forgot. shell

For any Kafka, over plain connections. Both commands only read; the user must carry out their advice.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ottla.cli.bootstrap import asks_a_cluster
from ottla.cli.output import complain, output_for

if TYPE_CHECKING:
    from ottla.wire.cluster import Cluster

NOTHING, SOMETHING, FAILED = 0, 1, 2


@click.group()
def txn() -> None:
    """Find transactions that hold back committed reads, and those that will never end.

    For any Kafka, Ottla or Apache, 3.0 or later.
    `kafka-python admin transactions` lists, describes and aborts transactions; these commands find the ones to abort.

    Exit codes: 0 nothing found, 1 something found, 2 usage, or the brokers could not be asked.
    """


@txn.command()
@click.argument("topic")
@click.argument("partition", type=click.IntRange(min=0))
@asks_a_cluster
def why(
    topic: str,
    partition: int,
    bootstrap_server: str,
    command_config: Path | None,
    timeout_s: float,
    format_name: str,
) -> None:
    """Show which transaction holds back the last stable offset of a partition.

    Consumers with isolation.level=read_committed read only up to this offset. Lists the open transactions of the
    partition, the oldest first: this one holds the offset back. `frees` counts the offsets up to the next transaction,
    or to the end. `age_ms` is the time since the transaction began, or since its last batch if the start is unknown, by
    the clock of this machine.

    Exit codes: 0 nothing is held back, 1 something is, 2 the brokers could not be asked.
    """
    from ottla.cli.txn.why import explain, show

    def run(cluster: "Cluster") -> int:
        found = explain(cluster, topic, partition)
        show(found, output_for(format_name), bootstrap_server, str(command_config or ""))
        return SOMETHING if found.held_back else NOTHING

    _ask(run, bootstrap_server, command_config, timeout_s)


@txn.command()
@click.option("--topic", "topics", metavar="TOPIC", multiple=True, help="Only this topic; may repeat.  [default: all]")
@click.option(
    "--min-age-ms",
    type=click.IntRange(min=0),
    default=0,
    help="Leave out transactions whose last batch is younger.  [default: none; the coordinators decide]",
)
@asks_a_cluster
def orphans(
    topics: tuple[str, ...],
    min_age_ms: int,
    bootstrap_server: str,
    command_config: Path | None,
    timeout_s: float,
    format_name: str,
) -> None:
    """Find open transactions that their coordinator has forgotten.

    No coordinator will end these, and the last stable offset stays where they begin. Asks every partition, of internal
    topics too, for its producers, and so finds transactions that a list of the coordinators lacks. Asks the partitions
    again after the coordinators, so that a transaction that ends meanwhile is not reported.

    Exit codes: 0 none, 1 some, 2 none, but not all brokers answered.
    """
    from ottla.cli.txn.orphans import search, show

    def run(cluster: "Cluster") -> int:
        found = search(cluster, topics, min_age_ms)
        show(found, output_for(format_name), bootstrap_server, str(command_config or ""))
        for gap in found.gaps:
            complain(gap)
        if found.orphans:
            return SOMETHING
        return FAILED if found.gaps else NOTHING

    _ask(run, bootstrap_server, command_config, timeout_s)


def _ask(run: Callable[["Cluster"], int], bootstrap_server: str, command_config: Path | None, timeout_s: float) -> None:
    """Run against the cluster and exit with the returned code. Report a request without an answer on stderr."""
    from ottla.wire import Unanswered
    from ottla.wire.brokers import parse_address
    from ottla.wire.client_properties import client_options
    from ottla.wire.cluster import Cluster  # imports the codecs, which --help does not need

    try:
        addresses = [parse_address(part) for part in bootstrap_server.split(",")]
        with Cluster(addresses, timeout_s, client_options(command_config)) as cluster:
            code = run(cluster)
    except (Unanswered, ValueError) as error:
        complain(str(error))
        code = FAILED
    sys.exit(code)
