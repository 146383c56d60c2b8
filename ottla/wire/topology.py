"""Leaders of partitions, by the Metadata answers of brokers. pure"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from ottla.protocol.errors import ErrorCode
from ottla.protocol.values import TopicPartition
from ottla.wire import Unanswered
from ottla.wire.brokers import Address
from ottla.wire.login import error_name

PARTITIONS_AT_ONCE: Final = 200
DELETED: Final = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})

_Item = TypeVar("_Item")


class Place(NamedTuple):
    """The leader of a partition, -1 without a leader, and the brokers that have a replica."""

    leader: int
    leader_epoch: int
    replicas: tuple[int, ...] = ()


class Topology(NamedTuple):
    """Brokers by id, partitions of each topic by number, the topics that have an error instead, and topic ids.

    Brokers before Kafka 2.8 send no topic ids.
    """

    brokers: dict[int, Address]
    topics: dict[str, dict[int, Place]]
    errors: dict[str, int]
    topic_ids: Mapping[str, bytes] = {}
    cluster_id: str = ""
    rights: Mapping[str, frozenset[int]] = {}
    """The operations (`AclOperation`) that this user has on each topic, as far as brokers answer that (KIP-430)."""
    asked_at_s: float = -math.inf
    """The monotonic time before the request."""

    def merge(self, other: "Topology") -> "Topology":
        """Return this answer with the topics of another one."""
        return self._replace(
            topics=self.topics | other.topics,
            errors=self.errors | other.errors,
            topic_ids={**self.topic_ids, **other.topic_ids},
            rights={**self.rights, **other.rights},
        )

    def merge_newer(self, other: "Topology") -> "Topology":
        """Return this answer, with partitions of another broker's answer to the same request that are newer there."""
        topics = {
            name: places | {at: place for at, place in known.items() if _is_newer(place, places.get(at))}
            for name, places in self.topics.items()
            for known in (other.topics.get(name, {}),)
        }
        errors = {name: error for name, error in self.errors.items() if not topics.get(name)}
        return self._replace(brokers=other.brokers | self.brokers, topics=topics, errors=errors)


def _is_newer(place: Place, known: Place | None) -> bool:
    return known is None or place.leader_epoch > known.leader_epoch


def parse_topology(reply: Any) -> Topology:
    """Return the topology of a Metadata answer."""
    topics, errors, topic_ids, rights = {}, {}, {}, {}
    for topic in reply.topics:
        if topic.error_code:
            errors[topic.name] = topic.error_code
        topics[topic.name] = {
            row.partition_index: Place(row.leader_id, row.leader_epoch, tuple(row.replica_nodes))
            for row in topic.partitions
        }
        topic_ids[topic.name] = b"" if topic.topic_id is None else topic.topic_id.bytes
        if topic.authorized_operations:
            rights[topic.name] = frozenset(map(int, topic.authorized_operations))
    brokers = {row.node_id: (row.host, row.port) for row in reply.brokers}
    return Topology(brokers, topics, errors, topic_ids, reply.cluster_id or "", rights)


def find_leader(topology: Topology, name: str, number: int) -> int:
    """Return the broker that leads a partition. Raises Unanswered if there is no such partition, or no leader."""
    if error := topology.errors.get(name):
        raise Unanswered(f"topic {name}: {error_name(error)}")
    places = topology.topics[name]
    if number not in places:
        raise Unanswered(f"topic {name} has partitions 0 to {len(places) - 1}, not {number}")
    leader = places[number].leader
    if leader not in topology.brokers:
        raise Unanswered(f"{name}-{number} has no leader")
    return leader


def by_leader(
    topology: Topology, places: Sequence[TopicPartition]
) -> Iterator[tuple[int | None, Sequence[TopicPartition]]]:
    """Yield partitions in batches of one leader each; None without a leader. Deleted partitions are left out."""
    groups: dict[int | None, list[TopicPartition]] = {}
    for name, number in places:
        if topology.errors.get(name) in DELETED:
            continue
        place = topology.topics.get(name, {}).get(number)
        leader = place.leader if place is not None and place.leader in topology.brokers else None
        groups.setdefault(leader, []).append((name, number))
    for leader, group in groups.items():
        for batch in chunks(group, PARTITIONS_AT_ONCE):
            yield leader, batch


def chunks(items: Sequence[_Item], size: int) -> Iterator[Sequence[_Item]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]
