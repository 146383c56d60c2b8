"""The assignors of consumer groups: which member is to get which partition. They work in steps. pure

`range` gives each subscriber of a topic a contiguous range of its partitions. Kafka's result is the same. `uniform`
gives all members equally many partitions and moves no more than that takes; which ones is not defined in Kafka, whose
result depends on the order of hash maps.

Source: `RangeAssignor`, `UniformAssignor`, `UniformHomogeneousAssignmentBuilder`,
`UniformHeterogeneousAssignmentBuilder` of Kafka 4.3.1.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from heapq import heapify, heappop, heapreplace
from typing import Final, NamedTuple

from ottla.broker.costs import ASSIGNED_PARTITION_US, ASSIGNED_TOPIC_US
from ottla.protocol.internal_topics.consumer_group_records import Assignment
from ottla.protocol.steps import Steps

MAX_ROUNDS: Final = 16
"""Rounds over all topics in which `uniform` moves partitions between members with different subscriptions."""


class Subscriber(NamedTuple):
    """A member as an assignor sees it: the topics to which it is subscribed, and its previous target."""

    instance_id: str | None
    topic_ids: Collection[bytes]
    target: Assignment


Subscribers = Mapping[str, Subscriber]
"""Member id to member."""
PartitionCounts = Mapping[bytes, int]
"""Number of partitions by topic id, of all topics to which somebody is subscribed."""
Assignments = dict[str, Assignment]
Assignor = Callable[[Subscribers, PartitionCounts, bool], Steps[Assignments]]
"""Return the partitions of each member. The last argument says that all members have the same subscription."""


def assign_ranges(members: Subscribers, counts: PartitionCounts, _is_homogeneous: bool) -> Steps[Assignments]:
    """Give each subscriber of a topic a range of its partitions: static members first, in order of their ids."""
    subscribers: dict[bytes, int] = dict.fromkeys(counts, 0)
    for member in members.values():
        for topic_id in member.topic_ids:
            subscribers[topic_id] += 1
        yield ASSIGNED_TOPIC_US * (1 + len(member.topic_ids))
    shares = {topic_id: divmod(counts[topic_id], count) for topic_id, count in subscribers.items() if count}
    starts = dict.fromkeys(counts, 0)
    places = dict.fromkeys(counts, 0)
    assigned: Assignments = {}
    for member_id in sorted(members, key=lambda each: _range_order(each, members[each])):
        ranges: dict[bytes, tuple[int, ...]] = {}
        for topic_id in members[member_id].topic_ids:
            share, extras = shares[topic_id]
            start = starts[topic_id]
            end = starts[topic_id] = start + share + (places[topic_id] < extras)
            places[topic_id] += 1
            if start < end:
                ranges[topic_id] = tuple(range(start, end))
        assigned[member_id] = ranges
        yield ASSIGNED_TOPIC_US * (1 + len(ranges))
    return assigned


def _range_order(member_id: str, member: Subscriber) -> tuple[bool, bytes]:
    """Return a sort key: Java compares strings by UTF-16 units."""
    key = member_id if member.instance_id is None else member.instance_id
    return member.instance_id is None, key.encode("utf-16-be", "surrogatepass")


def assign_uniformly(members: Subscribers, counts: PartitionCounts, is_homogeneous: bool) -> Steps[Assignments]:
    """Give all members equally many partitions. Each keeps what it had, as far as that allows it."""
    if not counts:
        return {}
    return (yield from (_assign_equal if is_homogeneous else _assign_unequal)(members, counts))


class _Shares:
    """The number of partitions of each member: `least`, and one more for the first `extras` that need it."""

    def __init__(self, partitions: int, members: int) -> None:
        self.least, self._extras = divmod(partitions, members)
        self._members = members

    def take(self, has: int) -> tuple[int, int]:
        """Return (partitions that the next member keeps, those that it lacks), if it has `has` of them."""
        quota = self.least + (self._extras > 0)
        lacks = max(quota - has, 0)
        takes_extra = self._extras > 0
        if lacks and takes_extra and self._members > self._extras:
            # Another member may claim it, unless so few are left that all of them must take one.
            lacks -= 1
            takes_extra = False
        self._members -= 1
        self._extras -= takes_extra
        return min(has, quota), lacks


def _assign_equal(members: Subscribers, counts: PartitionCounts) -> Steps[Assignments]:
    """Assign the partitions of topics to which all members are subscribed."""
    shares = _Shares(sum(counts.values()), len(members))
    free = yield from _without_target(members, counts)
    assigned: dict[str, dict[bytes, tuple[int, ...]]] = {}
    lacking: list[tuple[str, int]] = []
    for member_id, member in members.items():
        target = {topic_id: indexes for topic_id, indexes in member.target.items() if topic_id in counts}
        keeps, lacks = shares.take(sum(map(len, target.values())))
        mine = assigned[member_id] = {}
        for topic_id, indexes in target.items():
            kept = indexes[:keeps]
            keeps -= len(kept)
            free += [(topic_id, index) for index in indexes[len(kept) :]]
            if kept:
                mine[topic_id] = kept
        if lacks:
            lacking.append((member_id, lacks))
        yield ASSIGNED_TOPIC_US * (1 + len(target))
    start = 0
    for member_id, lacks in lacking:
        _add(assigned[member_id], free[start : start + lacks])
        start += lacks
        yield ASSIGNED_PARTITION_US * lacks
    return {**assigned}


def _without_target(members: Subscribers, counts: PartitionCounts) -> Steps[list[tuple[bytes, int]]]:
    """Return the partitions that are in no member's target, in order."""
    targeted: dict[bytes, set[int]] = {topic_id: set() for topic_id in counts}
    for member in members.values():
        for topic_id, indexes in member.target.items():
            if topic_id in targeted:
                targeted[topic_id].update(indexes)
        yield ASSIGNED_TOPIC_US * (1 + len(member.target))
    free: list[tuple[bytes, int]] = []
    for topic_id, count in counts.items():
        taken = targeted[topic_id]
        free += [(topic_id, index) for index in range(count) if index not in taken]
        yield ASSIGNED_PARTITION_US * (1 + count)
    return free


def _add(assignment: dict[bytes, tuple[int, ...]], partitions: Sequence[tuple[bytes, int]]) -> None:
    by_topic: dict[bytes, list[int]] = {}
    for topic_id, index in partitions:
        by_topic.setdefault(topic_id, []).append(index)
    for topic_id, indexes in by_topic.items():
        assignment[topic_id] = tuple(sorted([*assignment.get(topic_id, ()), *indexes]))


def _assign_unequal(members: Subscribers, counts: PartitionCounts) -> Steps[Assignments]:
    """Assign the partitions of members with different subscriptions, then move some to balance them."""
    names = [*members]
    topics = {topic_id: _TopicOwners(count) for topic_id, count in counts.items()}
    loads = [0] * len(names)
    for place, member in enumerate(members.values()):
        for topic_id in member.topic_ids:
            topics[topic_id].subscribers.append(place)
        for topic_id, indexes in member.target.items():
            if topic_id in member.topic_ids:
                topics[topic_id].keep(indexes, place)
                loads[place] += len(indexes)
        yield ASSIGNED_TOPIC_US * (1 + len(member.topic_ids) + len(member.target))
    in_order = sorted(
        (topic_id for topic_id, topic in topics.items() if topic.subscribers),
        key=lambda each: (-counts[each] / len(topics[each].subscribers), len(topics[each].subscribers), each),
    )
    for topic_id in in_order:
        topics[topic_id].assign_rest(loads)
        yield topics[topic_id].cost_us
    shared = [topics[topic_id] for topic_id in in_order if len(topics[topic_id].subscribers) > 1]
    for _ in range(MAX_ROUNDS):
        moved = 0
        for topic in shared:
            moved += topic.balance(loads)
            yield topic.cost_us
        if not moved:
            break
    assigned: dict[str, dict[bytes, tuple[int, ...]]] = {name: {} for name in names}
    for topic_id, topic in topics.items():
        for place, owned in topic.by_owner().items():
            assigned[names[place]][topic_id] = tuple(owned)
        yield topic.cost_us
    return {**assigned}


class _TopicOwners:
    """The owner of each partition of a topic, by the place of the member; -1 is none. `loads` counts all partitions."""

    def __init__(self, count: int) -> None:
        self.subscribers: list[int] = []
        self._owners = [-1] * count

    @property
    def cost_us(self) -> float:
        """The cost of one pass over the partitions and the subscribers."""
        return ASSIGNED_PARTITION_US * (len(self._owners) + len(self.subscribers))

    def keep(self, indexes: Sequence[int], place: int) -> None:
        for index in indexes:
            self._owners[index] = place

    def assign_rest(self, loads: list[int]) -> None:
        """Give each partition without an owner to the subscriber with the fewest partitions."""
        fewest = [(loads[place], place) for place in self.subscribers]
        heapify(fewest)
        for index, owner in enumerate(self._owners):
            if owner == -1:
                load, place = fewest[0]
                heapreplace(fewest, (load + 1, place))
                self._move(index, place, loads)

    def balance(self, loads: list[int]) -> int:
        """Move partitions from the subscriber with most partitions to the one with fewest; return how many moved."""
        moved = 0
        mine = self.by_owner()
        fewest = [(loads[place], place) for place in self.subscribers]
        most = [(-loads[place], -place) for place in mine]
        heapify(fewest)
        heapify(most)
        while most and -most[0][0] - fewest[0][0] > 1:
            giver = -most[0][1]
            load, taker = fewest[0]
            self._move(mine[giver].pop(), taker, loads)
            heapreplace(fewest, (load + 1, taker))
            if mine[giver]:
                heapreplace(most, (-loads[giver], -giver))
            else:
                heappop(most)
            moved += 1
        return moved

    def by_owner(self) -> dict[int, list[int]]:
        """Return the partitions of each owner, in order."""
        found: dict[int, list[int]] = {}
        for index, owner in enumerate(self._owners):
            if owner != -1:
                found.setdefault(owner, []).append(index)
        return found

    def _move(self, index: int, place: int, loads: list[int]) -> None:
        if self._owners[index] != -1:
            loads[self._owners[index]] -= 1
        self._owners[index] = place
        loads[place] += 1


ASSIGNORS: Final[Mapping[str, Assignor]] = {"uniform": assign_uniformly, "range": assign_ranges}
"""Assignors by the name that clients use; the first is the default of `group.consumer.assignors`."""
