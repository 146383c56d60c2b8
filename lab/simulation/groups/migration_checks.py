"""Checks of a group that changes its protocol: each member keeps its partitions, and gets none of another. free"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from lab.simulation.groups.classic_membership import ClassicMembership, TopicCounts, find_places
from lab.simulation.groups.membership import GroupPartition, Membership
from ottla.broker.assembly import Assembly
from ottla.broker.group.classic_group import ClassicGroup
from ottla.broker.group.consumer.consumer_group import ConsumerGroup
from ottla.broker.group.states import ClassicGroupState
from ottla.protocol.internal_topics.consumer_group_records import Assignment

_S: Final = ClassicGroupState
_WITH_OWNERS: Final = (_S.STABLE, _S.PREPARING_REBALANCE)
"""States of a classic group in which members may commit."""


class SeenGroup(NamedTuple):
    """A group at one step: the assignments of a classic group, or the targets of a consumer group, by member id."""

    kills: int
    """The number of lives of the broker that had ended."""
    classic: ClassicGroup | None
    is_empty: bool
    assignments: Mapping[str, bytes]
    targets: Mapping[str, Assignment]

    @classmethod
    def of(cls, group: ClassicGroup | ConsumerGroup, kills: int) -> "SeenGroup":
        if isinstance(group, ClassicGroup):
            assignments = {member_id: member.assignment for member_id, member in group.members.items()}
            return cls(kills, group, group.is_empty, assignments, {})
        targets = {member_id: group.targets.get(member_id, {}) for member_id in group.members}
        return cls(kills, None, group.is_empty, {}, targets)

    @property
    def is_classic(self) -> bool:
        return self.classic is not None

    def look_again(self) -> "SeenGroup":
        """Return the group as it is now or was last: a classic one also changes in steps that call no port."""
        return self if self.classic is None else SeenGroup.of(self.classic, self.kills)

    def find_partitions(self, assembly: Assembly, member_id: str) -> set[GroupPartition]:
        """Return the existing partitions of a member."""
        if self.is_classic:
            return find_places(assembly, self.assignments.get(member_id, b""))
        topics, target = assembly.broker.cluster.topics_by_id, self.targets.get(member_id, {})
        return {(topic_id, index) for topic_id in target if topic_id in topics for index in target[topic_id]}


def check_migration(
    assembly: Assembly, before: SeenGroup, group: ClassicGroup | ConsumerGroup, has_restarted: bool
) -> Iterator[str]:
    """Check that the members of a group that has changed its protocol have what they had, or were to have, before.

    A classic group that is loaded begins no rebalance, as in Kafka.
    """
    is_replaced = not group.members.keys() <= before.targets.keys()
    if isinstance(group, ClassicGroup) and not (is_replaced or has_restarted) and group.state is _S.STABLE:
        yield f"downgrade: group {group.group_id} begins no rebalance, although a member is gone"
    for member_id in before.assignments.keys() | before.targets.keys():
        if isinstance(group, ClassicGroup):
            classic = group.members.get(member_id)
            found = None if classic is None else find_places(assembly, classic.assignment)
        else:
            member = group.members.get(member_id)
            assigned = {} if member is None else member.current.assigned
            found = (
                None if member is None else {(topic_id, index) for topic_id in assigned for index in assigned[topic_id]}
            )
        expected = before.find_partitions(assembly, member_id)
        topics = assembly.broker.cluster.topics_by_id
        if found is not None and {place for place in found if place[0] in topics} != expected:
            kind = "downgrade" if isinstance(group, ClassicGroup) else "upgrade"
            yield f"{kind}: {member_id} of group {group.group_id} has {len(found)} partitions of {len(expected)}"


def check_classic_owners(assembly: Assembly, group: ClassicGroup) -> Iterator[str]:
    """Check that no partition is assigned to two members that may commit."""
    if group.state not in _WITH_OWNERS:
        return
    owners: dict[GroupPartition, str] = {}
    for member in group.members.values():
        for place in sorted(find_places(assembly, member.assignment)):
            other = owners.setdefault(place, member.member_id)
            if other != member.member_id:
                topic_id, index = place
                title = f"{topic_id.hex()[:6]}-{index} of group {group.group_id}"
                yield f"two-owners: {title} belongs to {other} and {member.member_id}"


def is_owner_of_classic_group(group: ClassicGroup, membership: Membership) -> bool:
    """Return whether a client may commit in a classic group."""
    is_of_generation = membership.member_id in group.members and membership.epoch == group.generation
    return is_of_generation and group.state in _WITH_OWNERS


def find_forgotten(assembly: Assembly, group: ClassicGroup, memberships: Iterable[Membership]) -> set[GroupPartition]:
    """Return the partitions that static members forgot when they restarted in a generation, which begins no rebalance.

    The leader of cooperative members assigns a partition only in the rebalance that its owner begins when it has given
    the partition up. A member that restarts with another subscription gets its old assignment.
    """
    found: set[GroupPartition] = set()
    for each in memberships:
        if isinstance(each, ClassicMembership) and each.restart.generation == group.generation:
            found |= each.restart.withheld
            for name, topic in assembly.broker.cluster.topics.items():
                if (name in each.names) != (name in each.restart.names):
                    found |= {(topic.topic_id, index) for index in range(topic.partition_count)}
    return found


def find_changes(
    assembly: Assembly, group: ClassicGroup, memberships: Sequence[Membership], downgraded: tuple[int, TopicCounts]
) -> set[GroupPartition]:
    """Return the partitions that were created or deleted since a generation lost its leader.

    The leader alone notices that topics change. A static member that restarts does not know that it is the leader, and
    no client knows it in the generation in which a group becomes a classic one without a rebalance (`downgraded`).
    """
    restarts = [each.restart for each in memberships if isinstance(each, ClassicMembership)]
    divided = [(each.generation, each.assigned_of) for each in restarts if each.assigned_of is not None]
    topics, ids = assembly.broker.cluster.topics, assembly.broker.cluster.topics_by_id
    found: set[GroupPartition] = set()
    for generation, counts in [*divided, downgraded]:
        if generation != group.generation:
            continue
        for name, topic in topics.items():
            topic_id, count = counts.get(name) or (b"", 0)
            first = count if topic_id == topic.topic_id else 0
            found |= {(topic.topic_id, index) for index in range(first, topic.partition_count)}
        owned = {place for each in memberships for place in each.owned}
        found |= {place for place in owned if place[0] not in ids or place[1] >= ids[place[0]].partition_count}
    return found


def count_partitions(assembly: Assembly) -> TopicCounts:
    """Return the topics that exist, with the number of their partitions."""
    return {name: (topic.topic_id, topic.partition_count) for name, topic in assembly.broker.cluster.topics.items()}
