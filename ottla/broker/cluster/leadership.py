"""Leaders, replicas and in-sync sets of the partitions of several brokers in one process. shell

A change is a PartitionChangeRecord in the metadata log, as Kafka's controller writes it. It is decided while its topic
is locked, and is in force when it is durable: no other table says who leads.

In sync are the replicas whose brokers run, because there is one log. The last one stays in the set when its broker
stops, and then the partition has no leader. A new replica is in sync at once if its broker runs.

Source: `ReplicationControlManager`, `PartitionChangeBuilder` of Kafka 4.3.1.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final

from ottla.broker.cluster import reassignment
from ottla.broker.cluster.image import PartitionRegistration
from ottla.broker.cluster.metadata import Cluster
from ottla.broker.costs import CHANGE_US
from ottla.protocol.errors import ApiError, ErrorCode
from ottla.protocol.internal_topics.metadata_records import NO_LEADER, PartitionChangeRecord
from ottla.protocol.values import TopicPartition

log = logging.getLogger(__name__)

Decide = Callable[[TopicPartition, PartitionRegistration], PartitionRegistration]
"""partition, registration -> its next registration."""

_NOT_NEEDED: Final = ApiError(ErrorCode.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition.")
_NOT_PREFERRED: Final = ApiError(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, "The preferred leader was not available.")
_NONE_ELIGIBLE: Final = ApiError(
    ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, "Eligible topic partition leaders are not available."
)
_NOTHING_TO_CANCEL: Final = ApiError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)


class LeadershipProblem(Exception):
    """A move, stop or start that is not possible. The text says why, and what is possible."""


class Leadership:
    """Moves leaders, and follows brokers that stop and start."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def move_leader(self, topic: str, index: int, to: int) -> None:
        """Make another replica the leader. Raises LeadershipProblem; OSError if the change cannot be logged."""
        self._check_move(topic, index, to)

        def decide(_: TopicPartition, place: PartitionRegistration) -> PartitionRegistration:
            self._check_move(topic, index, to)
            return place._replace(leader=to)

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

        def decide(_: TopicPartition, place: PartitionRegistration) -> PartitionRegistration:
            place = place._replace(isr=tuple(each for each in place.isr if each != node_id) or place.isr)
            if place.leader != node_id:
                return place
            able = [each for each in place.replicas if each in place.isr and each not in stopped]
            return place._replace(leader=able[0] if able else NO_LEADER)

        await self._change_all(decide)
        log.info("Broker %d has stopped; partitions without a leader: %d", node_id, self._count_without_leader())

    async def start_broker(self, node_id: int) -> None:
        """Let a broker lead the partitions of which it is the last replica in sync. The replicas of partitions with a
        leader join the in-sync set, which completes the changes of replicas that waited for them."""
        self.check_start(node_id)
        stopped = self._cluster.stopped_ids
        stopped.remove(node_id)

        def decide(_: TopicPartition, place: PartitionRegistration) -> PartitionRegistration:
            if place.leader == NO_LEADER and node_id in place.isr:
                place = place._replace(leader=node_id)
            return reassignment.settle(place, self._running)

        await self._change_all(decide)
        log.info("Broker %d has started; partitions without a leader: %d", node_id, self._count_without_leader())

    async def elect(self, places: Sequence[TopicPartition], *, is_unclean: bool) -> dict[TopicPartition, ApiError]:
        """Elect the first replica of each partition, or any replica that runs if the election is unclean. Return the
        outcomes. Raises OSError. Source: `ReplicationControlManager.electLeader`."""
        outcomes: dict[TopicPartition, ApiError] = {}

        def decide(key: TopicPartition, place: PartitionRegistration) -> PartitionRegistration:
            elected, outcomes[key] = self._elect(place, is_unclean=is_unclean)
            return elected

        await self._change(places, decide)
        return outcomes

    def election_problem(self, key: TopicPartition, *, is_unclean: bool) -> ApiError | None:
        """Return why a partition that exists gets no other leader now, or None."""
        topic, index = key
        _, outcome = self._elect(self._cluster.topics[topic].registrations[index], is_unclean=is_unclean)
        return outcome if outcome.error else None

    def _elect(self, place: PartitionRegistration, *, is_unclean: bool) -> tuple[PartitionRegistration, ApiError]:
        if place.leader == place.replicas[0] or (is_unclean and place.leader != NO_LEADER):
            return place, _NOT_NEEDED
        if not is_unclean:
            preferred = place.replicas[0]
            if preferred not in place.isr or preferred not in self._running:
                return place, _NOT_PREFERRED
            return place._replace(leader=preferred), ApiError()
        leader = next((each for each in place.replicas if each in self._running), None)
        if leader is None:
            return place, _NONE_ELIGIBLE
        # There is one log, so the leader has all records, and the other replicas that run are in sync.
        return reassignment.settle(place._replace(leader=leader), self._running), ApiError()

    async def reassign(
        self, targets: Mapping[TopicPartition, Sequence[int] | None], *, may_change_factor: bool
    ) -> dict[TopicPartition, ApiError]:
        """Change the replicas of each partition to valid ones, or cancel its change in progress if it has no target.
        Return the outcomes. Raises OSError. Source: `ReplicationControlManager.alterPartitionReassignment`."""
        outcomes: dict[TopicPartition, ApiError] = {}

        def decide(key: TopicPartition, place: PartitionRegistration) -> PartitionRegistration:
            reassigned, outcomes[key] = self._reassign(key, place, targets[key], may_change_factor)
            return reassigned

        await self._change([*targets], decide)
        return outcomes

    def _reassign(
        self,
        key: TopicPartition,
        place: PartitionRegistration,
        target: Sequence[int] | None,
        may_change_factor: bool,
    ) -> tuple[PartitionRegistration, ApiError]:
        if target is not None:
            count = reassignment.count_replicas_after(place)
            if not may_change_factor and count != len(target):
                why = f"The replication factor is changed from {count} to {len(target)}"
                return place, ApiError(ErrorCode.INVALID_REPLICATION_FACTOR, why)
            return reassignment.settle(reassignment.begin(place, target), self._running), ApiError()
        if not reassignment.is_in_progress(place):
            return place, _NOTHING_TO_CANCEL
        reverted = reassignment.revert(place)
        if reverted is None:
            why = "because it would require an unclean leader election."
            return place, ApiError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Unable to revert partition assignment for {key[0]}:{key[1]} {why}",
            )
        return reassignment.elect(reverted, self._running), ApiError()

    @property
    def _running(self) -> Collection[int]:
        return {*self._cluster.own_ids} - self._cluster.stopped_ids

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
        controller = self._cluster.controller

        async def change(part: Sequence[TopicPartition]) -> None:
            changes = [self._change_of(key, decide) for key in part]
            changed = [each for each in changes if each is not None]
            if changed:
                await controller.change_partitions(changed)
            await controller.turns.spend(len(part) * CHANGE_US)

        await controller.in_parts(places, lambda place: place[0], change)

    def _change_of(self, key: TopicPartition, decide: Decide) -> PartitionChangeRecord | None:
        """Return the change of a partition; None if it stays as it is, or is deleted."""
        topic, index = key
        if not self._cluster.has_partition(topic, index):
            return None
        known = self._cluster.topics[topic]
        place = known.registrations[index]
        return reassignment.change_of(place, decide(key, place), known.topic_id, index)

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
