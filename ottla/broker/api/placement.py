"""Leader and replicas of partitions, as Metadata and DescribeTopicPartitions report them. free

A client on a listener that is not advertised gets no leaders. An offline partition has no leader, and its replica is
offline and not in sync, as Kafka answers for one in a failed log directory. Source: `KRaftMetadataCache` of Kafka
4.3.1.
"""

from typing import NamedTuple

from ottla.broker.api.context import Broker
from ottla.broker.cluster.image import PartitionRegistration, TopicImage
from ottla.protocol.errors import ErrorCode
from ottla.protocol.internal_topics.metadata_records import NO_LEADER


class Placed(NamedTuple):
    """The error, the leader and the replicas of partitions."""

    error: ErrorCode
    leader: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]
    offline: tuple[int, ...]


class Placement:
    """The places of partitions in one reply. `version` is that of Metadata."""

    def __init__(self, broker: Broker, version: int, *, is_advertised: bool) -> None:
        self._broker = broker
        self._version = version
        self._is_advertised = is_advertised
        self._known: dict[int, Placed] = {}  # by the id of the registration, which partitions share

    def locate(self, topic: TopicImage, index: int) -> Placed:
        """Return the place of a partition."""
        opened = self._broker.cluster.open_partitions(topic.name)
        partition = opened[index] if index < len(opened) else None
        registration = topic.registrations[index]
        placed = self._known.get(id(registration))
        if placed is None:
            placed = self._known[id(registration)] = self._place(registration)
        if self._broker.logs.offline is not None or (partition is not None and partition.offline is not None):
            return Placed(ErrorCode.LEADER_NOT_AVAILABLE, NO_LEADER, placed.replicas, (), placed.replicas)
        return placed

    def _place(self, place: PartitionRegistration) -> Placed:
        """Return the leader, the replicas, those in sync and those offline, of the brokers that this process is."""
        cluster = self._broker.cluster
        replicas = tuple(replica for replica in place.replicas if replica in cluster.own_ids) or (cluster.node_id,)
        if not self._is_advertised:
            error = ErrorCode.LISTENER_NOT_FOUND if self._version >= 6 else ErrorCode.LEADER_NOT_AVAILABLE
            known = replicas if self._version else ()
            return Placed(error, NO_LEADER, known, known, replicas)
        if len(cluster.own_ids) == 1:
            return Placed(ErrorCode.NONE, cluster.node_id, replicas, replicas, ())
        in_sync = tuple(replica for replica in place.isr if replica in replicas)
        offline = tuple(replica for replica in replicas if replica in self._broker.metadata.stopped_ids)
        error = ErrorCode.NONE
        if self._version == 0 and offline:  # there is no list of offline replicas
            error = ErrorCode.REPLICA_NOT_AVAILABLE
            replicas, in_sync = (tuple(each for each in ids if each not in offline) for ids in (replicas, in_sync))
        if place.leader not in cluster.own_ids:
            return Placed(ErrorCode.LEADER_NOT_AVAILABLE, NO_LEADER, replicas, in_sync, offline)
        return Placed(error, place.leader, replicas, in_sync, offline)
