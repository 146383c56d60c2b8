"""SyncGroup: all members receive the leader's assignment after it is logged."""

import pytest

from ottla.protocol.api_keys import ApiKey as K
from ottla.protocol.errors import ErrorCode as E
from tests.api.callers import Member, stable_pair

VERSIONS = range(6)
SAME = {"protocol_type": "consumer", "protocol_name": "range"}


def read_reply(reply):
    return E(reply.error_code), bytes(reply.assignment)


@pytest.mark.parametrize("version", VERSIONS)
def test_followers_wait_for_what_the_leader_brings(broker, version):
    first, second = stable_pair(broker)
    first.post_join(3)
    second.post_join(3)
    first.finish_join(), second.finish_join()
    second.post_sync((second, b"own wish"), version=version, **SAME)
    broker.advance(1_000.0)
    assert second.client.replies == []
    reply = first.sync((first, b"1"), (second, b"2"), version=version, **SAME)
    assert (read_reply(reply), read_reply(second.reply())) == ((E.NONE, b"1"), (E.NONE, b"2"))
    if version >= 5:
        assert (reply.protocol_type, reply.protocol_name) == ("consumer", "range")


@pytest.mark.parametrize("version", VERSIONS)
def test_a_repeated_sync_is_answered_and_an_unassigned_member_gets_none(broker, version):
    first, second = stable_pair(broker)
    assert read_reply(second.sync(version=version, **SAME)) == (E.NONE, b"two")
    first.post_join(3)
    second.post_join(3)
    first.finish_join(), second.finish_join()
    assert read_reply(first.sync((first, b"all"), version=version, **SAME)) == (E.NONE, b"all")
    assert read_reply(second.sync(version=version, **SAME)) == (E.NONE, b"")


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"group_id": ""}, E.INVALID_GROUP_ID),
        ({"group_id": "nobody"}, E.UNKNOWN_MEMBER_ID),
        ({"member_id": "stranger"}, E.UNKNOWN_MEMBER_ID),
        ({"generation_id": 0}, E.ILLEGAL_GENERATION),
        ({"generation_id": 2}, E.ILLEGAL_GENERATION),
    ],
    ids=str,
)
@pytest.mark.parametrize("version", VERSIONS)
def test_a_sync_with_a_wrong_group_member_or_generation_is_refused(broker, version, given, error):
    assert read_reply(Member(broker).settle().sync(version=version, **SAME | given)) == (error, b"")


@pytest.mark.parametrize("version", VERSIONS)
def test_while_the_group_rebalances_members_join_first(broker, version):
    first, _ = stable_pair(broker)
    Member(broker).post_join(3)
    assert read_reply(first.sync(version=version, **SAME)) == (E.REBALANCE_IN_PROGRESS, b"")


@pytest.mark.parametrize(
    ("protocol_type", "protocol_name", "fits"),
    [
        ("consumer", "range", True),
        ("connect", "range", False),
        ("consumer", "sticky", False),
        (None, "range", False),
        ("consumer", None, False),
    ],
)
def test_from_version_5_on_the_protocol_must_be_the_groups(broker, protocol_type, protocol_name, fits):
    member = Member(broker).settle()
    said = {"protocol_type": protocol_type, "protocol_name": protocol_name}
    assert read_reply(member.sync(version=5, **said)) == (
        (E.NONE, b"share") if fits else (E.INCONSISTENT_GROUP_PROTOCOL, b"")
    )
    assert read_reply(member.sync(version=4, **said)) == (E.NONE, b"share")


@pytest.mark.parametrize("version", VERSIONS)
def test_a_static_member_is_fenced_by_the_one_that_took_its_name_from_version_3_on(broker, version):
    old = Member(broker, instance_id="mine").settle(version=5)
    assert Member(broker, instance_id="mine").join(5).error_code == E.NONE
    error = E.FENCED_INSTANCE_ID if version >= 3 else E.UNKNOWN_MEMBER_ID
    assert read_reply(old.sync(version=version, **SAME)) == (error, b"")


def test_assignments_are_returned_after_their_sync(flushing):
    broker = flushing.broker
    broker.call_when_ready(K.FIND_COORDINATOR, 1, key="g", key_type=0)
    member = Member(broker)
    member.post_join(3)
    broker.advance(4_000.0)
    member.finish_join()
    given = [{"member_id": member.member_id, "assignment": b"share"}]
    reply = flushing.ask(K.SYNC_GROUP, 3, **member.who, assignments=given)
    assert read_reply(reply) == (E.NONE, b"share")
