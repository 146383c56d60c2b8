"""Heartbeats of large groups of the consumer protocol charge their work, and no event of one takes too long."""

import pytest

from lab.simulation.charged import MOST_EVENT_US
from ottla.protocol.api_keys import ApiKey as K
from ottla.protocol.errors import ErrorCode as E
from ottla.testkit.in_memory.wire import message
from tests.api.consumer_groups import INTERVAL_MS, GroupBroker, Member

MOST_US = MOST_EVENT_US / 2
MOST_UNCHARGED_CALLS = 2_000
"""As in `test_bounded.py`."""
NAMES = 16_000
"""Nearly as many names as the arrays of one request may have."""
MEMBERS = 50
SHAPES = [(1, 10_000), (300, 5)]
"""Topics, and partitions of each."""


class Weighing(GroupBroker):
    """A broker that weighs the requests of members, and all that follows from them."""

    def weigh_call(self, name, call, most_calls=MOST_UNCHARGED_CALLS):
        """Return the result of a call, and check the weight of its heaviest event."""
        with self.scales.weigh():
            result = call()
            self.advance(100.0)
        assert self.scales.most_us <= MOST_US, name
        assert self.scales.uncharged_calls <= most_calls, name
        assert self.bugs == []
        return result


def read_partitions(reply):
    return [
        {"topic_id": topic.topic_id, "partitions": [*topic.partitions]} for topic in reply.assignment.topic_partitions
    ]


def count(owned):
    return sum(len(topic["partitions"]) for topic in owned)


@pytest.mark.slow
@pytest.mark.parametrize(("topics", "partitions"), SHAPES)
@pytest.mark.parametrize("assignor", ["uniform", "range"])
def test_heartbeats_of_a_large_group_are_charged_and_yield(topics, partitions, assignor):
    broker = Weighing()
    names = [f"topic-{number}" for number in range(topics)]
    for name in names:
        broker.create_topic(name, partitions)
    first = Member(broker, "first", server_assignor=assignor)
    others = [Member(broker, f"other-{number}", server_assignor=assignor) for number in range(MEMBERS)]
    # The first request of a version compiles its codecs.
    Member(broker, "stranger").beat(5, [])
    everything = read_partitions(broker.weigh_call("join", lambda: first.join(names)))
    assert count(everything) == topics * partitions
    broker.weigh_call("full heartbeat", lambda: first.beat(2, rebalance_timeout_ms=5_000, topic_partitions=everything))
    for member in others:
        broker.weigh_call("another joins", lambda member=member: member.join(names))
    broker.advance(INTERVAL_MS + 200)
    kept = read_partitions(broker.weigh_call("revocation", lambda: first.beat(2)))
    assert count(kept) < topics * partitions / 10
    broker.weigh_call("not acknowledged", lambda: first.beat(2, topic_partitions=everything))
    acknowledged = broker.weigh_call("acknowledged", lambda: first.beat(2, topic_partitions=kept))
    assert acknowledged.member_epoch > 2
    for member in others:
        broker.weigh_call("another gets its partitions", lambda member=member: member.beat(2))
    broker.weigh_call("other topics", lambda: first.beat(acknowledged.member_epoch, subscribed_topic_names=names[:1]))
    broker.weigh_call("leave", lambda: first.beat(-1))
    broker.weigh_call("sessions end", lambda: broker.advance(50_000.0))
    (group,) = broker.call(K.CONSUMER_GROUP_DESCRIBE, 1, group_ids=["g"], include_authorized_operations=False).groups
    assert group.group_state == "Empty"


def test_heartbeats_with_very_many_names_and_partitions_are_charged_and_yield():
    broker = Weighing()
    m = Member(broker, "m")
    m.beat(5, [])
    names = [f"topic-{number:05}" for number in range(NAMES)]
    joined = broker.weigh_call("join", lambda: m.join(names), NAMES)
    assert E(joined.error_code) is E.NONE
    rows = [broker.topic_of(*range(NAMES))]
    answered = broker.weigh_call(
        "partitions", lambda: m.beat(2, topic_partitions=rows, rebalance_timeout_ms=5_000), NAMES
    )
    assert E(answered.error_code) is E.NONE
    broker.weigh_call("other names", lambda: m.beat(2, subscribed_topic_names=names[NAMES // 2 :]), NAMES)
    broker.weigh_call("leave", lambda: m.beat(-1), NAMES)


def test_a_subscription_to_100_000_topics_closes_the_connection_and_nothing_else():
    broker = Weighing()
    assert broker.weigh_call("a member joins", lambda: Member(broker, "other").join()).error_code == E.NONE
    fields = {
        "group_id": "g",
        "member_id": "m",
        "member_epoch": 0,
        "instance_id": None,
        "rack_id": None,
        "rebalance_timeout_ms": 5_000,
        "subscribed_topic_regex": None,
        "server_assignor": None,
        "topic_partitions": [],
    }
    names = [f"t{number}" for number in range(100_000)]
    request = message(K.CONSUMER_GROUP_HEARTBEAT, 1, subscribed_topic_names=names, **fields)
    assert broker.weigh_call("100,000 topics", lambda: broker.serve(request, 1)) is None
    assert broker.weigh_call("the other member", lambda: Member(broker, "other").beat(2)).error_code == E.NONE
