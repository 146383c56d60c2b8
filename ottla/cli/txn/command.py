"""`ottla txn`: list transactions, find those that hold back committed reads, and end them. shell

For any Kafka, over the wire.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from ottla.cli.bootstrap import asks_a_cluster
from ottla.cli.output import complain, output_for

if TYPE_CHECKING:
    from ottla.wire.cluster import Cluster

NOTHING, SOMETHING, FAILED = 0, 1, 2


@click.group()
def txn() -> None:
    """Find transactions that hold back committed reads, and those that will never end; end them.

    For any Kafka, Ottla or Apache, 3.0 or later.
    """


@txn.command(name="list")
@click.option("--all", "with_ended", is_flag=True, help="Include ids whose last transaction has ended.")
@asks_a_cluster
def list_ids(
    with_ended: bool, bootstrap_server: str, command_config: Path | None, timeout_s: float, format_name: str
) -> None:
    """List the transactional ids with an open transaction, the oldest first.

    Asks every broker for the ids that it coordinates. `age_ms` is the time since the transaction began, by the clock of
    this machine. A user sees only the ids that it may describe.

    Exit codes: 0 every broker has answered, 2 the brokers could not be asked.
    """
    from ottla.cli.txn.states import search, show

    def run(cluster: "Cluster") -> int:
        found = search(cluster, with_ended)
        show(found, output_for(format_name))
        for gap in found.gaps:
            complain(gap)
        return FAILED if found.gaps else NOTHING

    _ask(run, bootstrap_server, command_config, timeout_s)


@txn.command()
@click.argument("topic", required=False)
@click.argument("partition", type=click.IntRange(min=0), required=False)
@click.option("--group", metavar="GROUP", help="Partitions that this group reads, and the one with its offsets.")
@asks_a_cluster
def why(
    topic: str | None,
    partition: int | None,
    group: str | None,
    bootstrap_server: str,
    command_config: Path | None,
    timeout_s: float,
    format_name: str,
) -> None:
    """Show which transactions hold back the last stable offset: of all partitions, of a topic, a group, a partition.

    Consumers with isolation.level=read_committed read only up to this offset.

    Without PARTITION: the partitions that are held back. What never ends by itself comes first, then what is overdue,
    then the largest number of offsets. A group also waits for a transaction with offsets of the group.

    With PARTITION: all open transactions of the partition, the oldest first: this one holds the offset back. `frees`
    counts the offsets up to the next transaction, or to the end. `age_ms` is the time since the transaction began, or
    since its last batch if the start is unknown, by the clock of this machine.

    Exit codes: 0 nothing is held back, 1 something is, 2 usage, or not all brokers answered.
    """
    from ottla.cli.txn.held_back import places_of_group, search
    from ottla.cli.txn.held_back import show as show_held
    from ottla.cli.txn.progress import list_places
    from ottla.cli.txn.why import explain, show

    if group is not None and topic is not None:
        raise click.UsageError("--group and TOPIC exclude each other")
    properties = str(command_config or "")

    def run(cluster: "Cluster") -> int:
        if topic is not None and partition is not None:
            explained = explain(cluster, topic, partition)
            show(explained, output_for(format_name), bootstrap_server, properties)
            return SOMETHING if explained.held_back else NOTHING
        topics = [] if topic is None else [topic]
        places = places_of_group(cluster, group) if group is not None else list_places(cluster, topics)
        found = search(cluster, *places)
        show_held(found, output_for(format_name), bootstrap_server, properties)
        for gap in found.gaps:
            complain(gap)
        return SOMETHING if found.held else FAILED if found.gaps else NOTHING

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


_agrees: Final = click.option("--yes", is_flag=True, help="Do not ask.")


@txn.command()
@click.argument("transactional_id")
@_agrees
@asks_a_cluster
def fence(
    transactional_id: str,
    yes: bool,
    bootstrap_server: str,
    command_config: Path | None,
    timeout_s: float,
    format_name: str,
) -> None:
    """Abort the transaction of a transactional id in all its partitions, and refuse its producer from then on.

    Prints the state of the id, and asks. Sends InitProducerId, as a new producer with this id does. A transaction of a
    two-phase commit is left alone: other systems may have committed their part.

    Exit codes: 0 fenced, 1 not fenced: refused, or not agreed, 2 usage, or the brokers did not do it.
    """
    from ottla.cli.txn import fence as fencing

    def run(cluster: "Cluster") -> int:
        return fencing.fence(cluster, transactional_id, output_for(format_name), yes)

    _ask(run, bootstrap_server, command_config, timeout_s)


@txn.command()
@click.argument("topic")
@click.argument("partition", type=click.IntRange(min=0))
@click.argument("offset", type=click.IntRange(min=0))
@_agrees
@asks_a_cluster
def abort(
    topic: str,
    partition: int,
    offset: int,
    yes: bool,
    bootstrap_server: str,
    command_config: Path | None,
    timeout_s: float,
    format_name: str,
) -> None:
    """Abort the transaction that begins at OFFSET, in one partition, if its coordinator has forgotten it.

    Prints the verdict, and asks. Writes an abort marker, as kafka-transactions.sh abort does. Any other transaction is
    left to its coordinator: an abort in one partition would tear it. `ottla txn fence` ends it in all partitions.

    Exit codes: 0 aborted, 1 not aborted: refused, or not agreed, 2 usage, or the brokers did not do it.
    """
    from ottla.cli.txn import abort as aborting

    def run(cluster: "Cluster") -> int:
        place, properties = (topic, partition, offset), str(command_config or "")
        return aborting.abort(cluster, place, output_for(format_name), bootstrap_server, properties, yes)

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
