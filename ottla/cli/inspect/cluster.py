"""A cluster as its brokers describe it: offsets of partitions, open transactions and groups, without a record. shell"""

from typing import NamedTuple

from ottla.protocol.values import TopicPartition
from ottla.scan.cluster.listing import ServedPartition, list_cluster_partitions
from ottla.scan.listing import UnreadableDirectory
from ottla.verdict import KnownTransaction, OpenTransaction
from ottla.wire import Unanswered
from ottla.wire.address import KafkaAddress, connections_to
from ottla.wire.brokers import Address
from ottla.wire.cluster import Cluster
from ottla.wire.login import error_name
from ottla.wire.topology import Topology


class ClusterState(NamedTuple):
    """The answers of a cluster. `groups`: the number of committed offsets by group. `gaps`: what was not answered."""

    cluster_id: str
    brokers: dict[int, Address]
    leaders: dict[TopicPartition, int]
    partitions: list[ServedPartition]
    opened: list[OpenTransaction]
    coordinated: list[KnownTransaction]
    groups: dict[str, int]
    gaps: list[str]


def ask_cluster(address: KafkaAddress) -> ClusterState:
    """Ask the brokers of a cluster. Raises UnreadableDirectory if none answers."""
    partitions = list_cluster_partitions(address, ())
    gaps: list[str] = []
    opened: list[OpenTransaction] = []
    try:
        with connections_to(address).borrow() as cluster:
            topology = cluster.topology()
            readable = [(one.log.topic, one.log.partition) for one in partitions if not one.unread]
            opened, gaps = cluster.open_transactions(readable)
            coordinated, unheard = cluster.known_transactions(topology)
            gaps += unheard
            groups = _count_commits(cluster, topology, gaps)
    except Unanswered as error:
        raise UnreadableDirectory(f"{address}: {error}") from None
    leaders = {
        (name, number): place.leader for name in topology.topics for number, place in topology.topics[name].items()
    }
    return ClusterState(
        topology.cluster_id, topology.brokers, leaders, partitions, opened, sorted(coordinated), groups, gaps
    )


def _count_commits(cluster: Cluster, topology: Topology, gaps: list[str]) -> dict[str, int]:
    """Return the number of committed offsets of each group, and add what was not answered to `gaps`."""
    found: dict[str, int] = {}
    for broker, address in sorted(topology.brokers.items()):
        try:
            names = sorted(row.group_id for row in cluster.list_groups(broker, address))
            for group, error, topics in cluster.fetch_offsets(address, names):
                rows = [row for topic in topics or () for row in topic.partitions if row.committed_offset >= 0]
                found[group] = len(rows)
                if error:
                    gaps.append(f"group {group}: {error_name(error)}")
        except Unanswered as error:
            gaps.append(str(error))
    return dict(sorted(found.items()))
