"""Heartbeat: the answer says whether the client is a member and whether it must rejoin."""

import pytest

from ottla.protocol.api_keys import ApiKey as K
from ottla.protocol.errors import ErrorCode as E
from tests.api.callers import FEW, GROUP, Member, stable_pair
from tests.memory_broker import MemoryBroker

VERSIONS = range(5)
SESSION_MS = 10_000


@pytest.mark.parametrize("version", VERSIONS)
def test_a_member_stays_while_it_sends_heartbeats_within_the_timeout(broker, version):
    member = Member(broker).settle()
    for _ in range(3):
        broker.advance(SESSION_MS - 100.0)
        assert member.heartbeat(version) is E.NONE
    broker.advance(SESSION_MS + 100.0)
    assert member.heartbeat(version) is E.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"group_id": ""}, E.INVALID_GROUP_ID),
        ({"group_id": "nobody"}, E.UNKNOWN_MEMBER_ID),
        ({"member_id": "stranger"}, E.UNKNOWN_MEMBER_ID),
        ({"member_id": ""}, E.UNKNOWN_MEMBER_ID),
        ({"generation_id": 0}, E.ILLEGAL_GENERATION),
        ({"generation_id": 2}, E.ILLEGAL_GENERATION),
        ({"generation_id": 9, "member_id": "stranger"}, E.UNKNOWN_MEMBER_ID),
    ],
    ids=str,
)
@pytest.mark.parametrize("version", VERSIONS)
def test_a_heartbeat_with_a_wrong_group_member_or_generation_is_refused(broker, version, given, error):
    assert Member(broker).settle().heartbeat(version, **given) is error


@pytest.mark.parametrize("version", VERSIONS)
def test_heartbeats_return_rebalance_in_progress_during_a_rebalance(broker, version):
    first, second = stable_pair(broker)
    Member(broker).post_join(3)
    assert first.heartbeat(version) is second.heartbeat(version) is E.REBALANCE_IN_PROGRESS


@pytest.mark.parametrize("version", VERSIONS)
def test_a_static_member_is_fenced_by_the_one_that_took_its_name_from_version_3_on(broker, version):
    old = Member(broker, instance_id="mine").settle(version=5)
    new = Member(broker, instance_id="mine")
    assert new.join(5).error_code == E.NONE
    assert new.heartbeat() is E.NONE
    assert old.heartbeat(version) is (E.FENCED_INSTANCE_ID if version >= 3 else E.UNKNOWN_MEMBER_ID)
    assert new.heartbeat(3, group_instance_id="another") is E.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("version", VERSIONS)
def test_a_heartbeat_without_a_coordinator_gets_not_coordinator(version):
    reply = MemoryBroker(**FEW).call(K.HEARTBEAT, version, group_id=GROUP, generation_id=1, member_id="m")
    assert reply.error_code == E.NOT_COORDINATOR
