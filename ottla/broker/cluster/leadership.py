"""Leaders and in-sync sets of the partitions of several brokers in one process. shell

A change is a PartitionChangeRecord in the metadata log, as Kafka's controller writes it. It is decided while its topic
is locked, and is in force when it is durable: no other table says who leads.

In sync are the replicas whose brokers run. The last one stays in the set when its broker stops, and then the partition
has no leader.

Source: `ReplicationControlManager`, `PartitionChangeBuilder` of Kafka 4.3.1.
"""

import logging
from collections.abc import Callable, Iterable, Sequence

from ottla.broker.cluster.image import PartitionRegistration
from ottla.broker.cluster.metadata import Cluster
from ottla.protocol.internal_topics.metadata_records import NO_LEADER, PartitionChangeRecord
from ottla.protocol.values import TopicPartition

log = logging.getLogger(__name__)

Decide = Callable[[PartitionRegistration], tuple[int, Sequence[int]]]
"""registration -> leader and in-sync set."""


class LeadershipProblem(Exception):
    """A move, stop or start that is not possible. The text says why, and what is possible."""


class Leadership:
    """Moves leaders, and follows brokers that stop and start."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def move_leader(self, topic: str, index: int, to: int) -> None:
        """Make another replica the leader. Raises LeadershipProblem; OSError if the change cannot be logged."""
        self._check_move(topic, index, to)

        def decide(place: PartitionRegistration) -> tuple[int, Sequence[int]]:
            self._check_move(topic, index, to)
            return to, place.isr

        await self._change([(topic, index)], decide)
        leader, epoch = self._cluster.leader_of(topic, index)
        log.info("Broker %d leads %s-%d in leader epoch %d", leader, topic, index, epoch)

    async def stop_broker(self, node_id: int) -> None:
        """Take a broker that stops out of the in-sync sets, and let the next replica in sync lead its partitions."""
        self.check_id(node_id)
        stopped = self._cluster.stopped_ids
        if node_id in stopped:
            raise LeadershipProblem(f"broker {node_id} is stopped already")
        if len(stopped) + 1 == len(self._cluster.own_ids):
            raise LeadershipProblem(f"broker {node_id} is the last one that runs: start another one before")
        stopped.add(node_id)

        def decide(place: PartitionRegistration) -> tuple[int, Sequence[int]]:
            in_sync = [each for each in place.isr if each != node_id] or place.isr
            if place.leader != node_id:
                return place.leader, in_sync
            able = [each for each in place.replicas if each in in_sync and each not in stopped]
            return able[0] if able else NO_LEADER, in_sync

        await self._change_all(decide)
        log.info("Broker %d has stopped; partitions without a leader: %d", node_id, self._count_without_leader())

    async def start_broker(self, node_id: int) -> None:
        """Let a broker lead the partitions of which it is the last replica in sync. The replicas of partitions with a
        leader join the in-sync set."""
        self.check_start(node_id)
        stopped = self._cluster.stopped_ids
        stopped.remove(node_id)

        def decide(place: PartitionRegistration) -> tuple[int, Sequence[int]]:
            leader = node_id if place.leader == NO_LEADER and node_id in place.isr else place.leader
            if leader == NO_LEADER:
                return leader, place.isr
            # The leader may be about to stop: it stays in sync until another one leads.
            return leader, [each for each in place.replicas if each == leader or each not in stopped]

        await self._change_all(decide)
        log.info("Broker %d has started; partitions without a leader: %d", node_id, self._count_without_leader())

    def check_start(self, node_id: int) -> None:
        """Raise LeadershipProblem if a broker cannot be started."""
        self.check_id(node_id)
        if node_id not in self._cluster.stopped_ids:
            raise LeadershipProblem(f"broker {node_id} runs already")

    def _count_without_leader(self) -> int:
        registrations = (each for topic in self._cluster.topics.values() for each in topic.registrations)
        return sum(each.leader == NO_LEADER for each in registrations)

    async def _change_all(self, decide: Decide) -> None:
        """Decide for every partition. Topics that are created meanwhile have a leader that runs (`Controller`)."""
        topics = self._cluster.topics
        await self._change([(name, index) for name in topics for index in range(topics[name].partition_count)], decide)

    async def _change(self, places: Sequence[TopicPartition], decide: Decide) -> None:
        async def change(part: Iterable[TopicPartition]) -> None:
            changes = [self._change_of(topic, index, decide) for topic, index in part]
            changed = [each for each in changes if each is not None]
            if changed:
                await self._cluster.controller.change_partitions(changed)

        await self._cluster.controller.in_parts(places, lambda place: place[0], change)

    def _change_of(self, topic: str, index: int, decide: Decide) -> PartitionChangeRecord | None:
        """Return the change of a partition; None if it stays as it is, or is deleted."""
        if not self._cluster.has_partition(topic, index):
            return None
        known = self._cluster.topics[topic]
        place = known.registrations[index]
        leader, in_sync = decide(place)
        change = PartitionChangeRecord(index, known.topic_id)
        if leader != place.leader:
            change = change._replace(leader=leader)
        if tuple(in_sync) != place.isr:
            change = change._replace(isr=tuple(in_sync))
        return change if change != PartitionChangeRecord(index, known.topic_id) else None

    def _check_move(self, topic: str, index: int, to: int) -> None:
        self.check_id(to)
        if not self._cluster.has_partition(topic, index):
            raise LeadershipProblem(f"there is no partition {topic}-{index}")
        place = self._cluster.topics[topic].registrations[index]
        others = [each for each in place.isr if each not in (place.leader, *self._cluster.stopped_ids)]
        possible = f"it can move to {list_ids(others)}" if others else "no other replica of it is in sync"
        if to in self._cluster.stopped_ids:
            raise LeadershipProblem(f"broker {to} is stopped: {possible}")
        if to not in place.replicas:
            raise LeadershipProblem(f"broker {to} has no replica of {topic}-{index}: {possible}")
        if to == place.leader:
            raise LeadershipProblem(f"broker {to} leads {topic}-{index} already: {possible}")

    def check_id(self, node_id: int) -> None:
        """Raise LeadershipProblem if no broker of the process has this id."""
        ids = self._cluster.own_ids
        if node_id not in ids:
            raise LeadershipProblem(f"there is no broker {node_id}: the brokers are {list_ids(ids)}")


def list_ids(ids: Iterable[int]) -> str:
    """Return the ids for a sentence."""
    return ", ".join(map(str, ids))
