"""The assignors of consumer groups: each partition has one owner, members are balanced, little moves."""

from random import Random

import pytest

from ottla.broker.group.consumer.assignors import Subscriber, assign_ranges, assign_uniformly
from ottla.protocol.steps import to_the_end

T1, T2, T3 = (bytes([number]) * 16 for number in (1, 2, 3))


def members_of(*names, topics=(T1,), targets=None):
    return {name: Subscriber(None, topics, (targets or {}).get(name, {})) for name in names}


def sizes(assigned, members):
    return [sum(map(len, assigned.get(name, {}).values())) for name in members]


def check_complete(assigned, members, counts):
    owned = [
        (topic, index) for name, topics in assigned.items() for topic, indexes in topics.items() for index in indexes
    ]
    assert sorted(owned) == sorted((topic, index) for topic, count in counts.items() for index in range(count))
    assert all(topic in members[name].topic_ids for name, topics in assigned.items() for topic in topics)


def test_ranges_are_contiguous_and_the_first_members_get_one_more():
    assigned = to_the_end(assign_ranges(members_of("b", "a", "c"), {T1: 7}, True))
    assert assigned == {"a": {T1: (0, 1, 2)}, "b": {T1: (3, 4)}, "c": {T1: (5, 6)}}


def test_static_members_come_first_in_the_order_of_their_instance_ids():
    members = members_of("a", "b") | {"z": Subscriber("i2", (T1,), {}), "y": Subscriber("i1", (T1,), {})}
    assigned = to_the_end(assign_ranges(members, {T1: 4}, True))
    assert assigned == {"y": {T1: (0,)}, "z": {T1: (1,)}, "a": {T1: (2,)}, "b": {T1: (3,)}}


def test_member_ids_are_ordered_by_utf_16_units_as_java_does():
    high, low = "\U0001f600", "\uff21"
    assert to_the_end(assign_ranges(members_of(low, high), {T1: 2}, True)) == {high: {T1: (0,)}, low: {T1: (1,)}}


def test_ranges_of_a_topic_go_to_its_subscribers_alone():
    members = {"a": Subscriber(None, (T1, T2), {}), "b": Subscriber(None, (T1,), {})}
    assigned = to_the_end(assign_ranges(members, {T1: 3, T2: 2}, False))
    assert assigned == {"a": {T1: (0, 1), T2: (0, 1)}, "b": {T1: (2,)}}


@pytest.mark.parametrize("seed", range(200))
def test_uniform_assignment_is_balanced_and_moves_no_more_than_it_must(seed):
    random = Random(seed)
    topics = [T1, T2, T3][: random.randint(1, 3)]
    counts = {topic: random.randint(1, 9) for topic in topics}
    first = members_of(*(f"m{number}" for number in range(random.randint(1, 7))), topics=topics)
    before = to_the_end(assign_uniformly(first, counts, True))
    check_complete(before, first, counts)
    stay = [name for name in first if random.random() < 0.7]
    join = [f"n{number}" for number in range(random.randint(0 if stay else 1, 3))]
    members = members_of(*stay, *join, topics=topics, targets=before)
    after = to_the_end(assign_uniformly(members, counts, True))
    check_complete(after, members, counts)
    assert max(sizes(after, members)) - min(sizes(after, members)) <= 1
    kept = sum(
        len(set(before[name].get(topic, ())) & set(after[name].get(topic, ()))) for name in stay for topic in topics
    )
    least, extras = divmod(sum(counts.values()), len(members))
    had = sizes(before, stay)
    assert kept == sum(min(size, least) for size in had) + min(extras, sum(size > least for size in had))


@pytest.mark.parametrize("seed", range(200))
def test_uniform_assignment_of_different_subscriptions_is_complete_and_balanced_in_each_topic(seed):
    random = Random(seed)
    topics = [T1, T2, T3]
    counts = {topic: random.randint(1, 9) for topic in topics}
    subscribed = {f"m{number}": [each for each in topics if random.random() < 0.6] for number in range(5)}
    members = {name: Subscriber(None, names, {}) for name, names in subscribed.items()}
    used = {topic: count for topic, count in counts.items() if any(topic in names for names in subscribed.values())}
    if not used:
        assert to_the_end(assign_uniformly(members, used, False)) == {}
        return
    assigned = to_the_end(assign_uniformly(members, used, False))
    check_complete(assigned, members, used)
    loads = dict(zip(members, sizes(assigned, members), strict=True))
    for topic in used:
        givers = [loads[name] for name in members if topic in assigned[name]]
        takers = [loads[name] for name in members if topic in subscribed[name]]
        assert max(givers) - min(takers) <= 1


def test_uniform_assignment_without_partitions_is_empty():
    assert to_the_end(assign_uniformly(members_of("a"), {}, True)) == {}
