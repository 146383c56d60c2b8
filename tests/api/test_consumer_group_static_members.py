"""Static members that leave a group for a while: their session and the changes of topics meanwhile."""

import pytest

from ottla.protocol.api_keys import ApiKey as K
from ottla.protocol.errors import ErrorCode as E
from tests.api.consumer_groups import INTERVAL_MS, GroupBroker, Member, read_assignment


@pytest.fixture
def broker():
    return GroupBroker(group_initial_rebalance_delay_ms=0)


@pytest.fixture
def away(broker):
    """Return a static member that has joined alone, whose last heartbeat is 30 s old, and that has left for a while."""
    member = Member(broker, "s1", instance_id="i")
    member.join()
    broker.advance(30_000.0)
    assert member.beat(-2).member_epoch == -2
    return member


def member_ids(broker):
    (group,) = broker.call(K.CONSUMER_GROUP_DESCRIBE, 1, group_ids=["g"], include_authorized_operations=False).groups
    return [member.member_id for member in group.members]


def test_session_goes_on_from_the_last_heartbeat(broker, away):
    broker.advance(14_000.0)
    assert member_ids(broker) == ["s1"]
    broker.advance(2_000.0)
    assert member_ids(broker) == []


def test_session_begins_again_after_a_restart(broker, away):
    broker.restart()
    broker.advance(44_000.0)
    assert member_ids(broker) == ["s1"]
    broker.advance(2_000.0)
    assert member_ids(broker) == []


def test_session_of_the_old_id_ends_with_the_return_under_another(broker, away):
    returned = Member(broker, "s2", instance_id="i")
    assert read_assignment(returned.join()) == (E.NONE, 2, [0, 1, 2, 3])
    group = broker.assembly.broker.groups.describe("g")[0].group
    assert group.sessions.keys() == {"s2"}
    broker.advance(44_000.0)
    assert member_ids(broker) == ["s2"]
    broker.advance(2_000.0)
    assert member_ids(broker) == []


def test_heartbeat_after_a_leave_for_a_while_sees_the_partitions_added_before_it(broker):
    m1, s1 = Member(broker, "m1"), Member(broker, "s1", instance_id="i")
    s1.join()
    broker.advance(INTERVAL_MS + 200)
    m1.join()
    more = {"name": "t", "count": 9, "assignments": None}
    broker.call(K.CREATE_PARTITIONS, 3, topics=[more], timeout_ms=1_000, validate_only=False)
    s1.beat(-2)
    broker.advance(INTERVAL_MS + 200)
    epoch, assigned = read_assignment(m1.beat(3, []))[1:]
    assert epoch == 4
    assert assigned and {*assigned} <= {4, 5, 6, 7, 8}
