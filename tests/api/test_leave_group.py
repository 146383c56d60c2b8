"""LeaveGroup: one member or several leave, and the others rebalance."""

import pytest

from ottla.protocol.api_keys import ApiKey as K
from ottla.protocol.errors import ErrorCode as E
from tests.api.callers import GROUP, Member, stable_pair

ONE, SEVERAL = range(3), range(3, 6)


def leave(broker, version, *who, group_id=GROUP):
    """Remove members, given as (member id, instance id); return (error, [(member id, instance id, error)])."""
    rows = [{"member_id": member_id, "group_instance_id": instance_id} for member_id, instance_id in who]
    reply = broker.call(K.LEAVE_GROUP, version, group_id=group_id, members=rows)
    told = [(row.member_id, row.group_instance_id, E(row.error_code)) for row in reply.members]
    return E(reply.error_code), told


@pytest.mark.parametrize("version", ONE)
def test_a_member_leaves_and_the_others_rebalance(broker, version):
    first, second = stable_pair(broker)
    assert second.leave(version).error_code == E.NONE
    assert second.leave(version).error_code == E.UNKNOWN_MEMBER_ID
    assert first.heartbeat() is E.REBALANCE_IN_PROGRESS
    assert first.join().generation_id == 3


@pytest.mark.parametrize(
    ("group_id", "one", "several"),
    [("", E.INVALID_GROUP_ID, (E.INVALID_GROUP_ID, [])), ("nobody", E.UNKNOWN_MEMBER_ID, None)],
)
def test_a_group_that_is_not_there_has_no_members(broker, group_id, one, several):
    for version in ONE:
        assert broker.call(K.LEAVE_GROUP, version, group_id=group_id, member_id="m").error_code == one
    for version in SEVERAL:
        told = leave(broker, version, ("m", None), group_id=group_id)
        assert told == (several or (E.NONE, [("m", None, E.UNKNOWN_MEMBER_ID)]))


@pytest.mark.parametrize("version", SEVERAL)
def test_several_leave_at_once_each_with_its_error(broker, version):
    first, second = stable_pair(broker)
    who = [(second.member_id, None), ("stranger", None), (first.member_id, None), (second.member_id, None)]
    errors = [E.NONE, E.UNKNOWN_MEMBER_ID, E.NONE, E.UNKNOWN_MEMBER_ID]
    assert leave(broker, version, *who) == (E.NONE, [(*each, error) for each, error in zip(who, errors, strict=True)])
    (group,) = broker.call(K.DESCRIBE_GROUPS, 0, groups=[GROUP]).groups
    assert (group.group_state, group.members) == ("Empty", [])


@pytest.mark.parametrize("version", SEVERAL)
@pytest.mark.parametrize(
    ("named", "error"),
    [
        ("by its name", E.NONE),
        ("by both", E.NONE),
        ("with another id", E.FENCED_INSTANCE_ID),
        ("by a name of nobody", E.UNKNOWN_MEMBER_ID),
    ],
)
def test_static_members_leave_by_their_name(broker, version, named, error):
    member = Member(broker, instance_id="mine").settle(version=5)
    who = {
        "by its name": ("", "mine"),
        "by both": (member.member_id, "mine"),
        "with another id": ("another", "mine"),
        "by a name of nobody": ("", "nobodys"),
    }[named]
    assert leave(broker, version, who) == (E.NONE, [(*who, error)])
    assert member.heartbeat() is (E.UNKNOWN_MEMBER_ID if error is E.NONE else E.NONE)


@pytest.mark.parametrize("version", SEVERAL)
def test_a_request_without_members_is_accepted(broker, version):
    Member(broker).settle()
    assert leave(broker, version) == (E.NONE, [])


@pytest.mark.parametrize("version", [1, 4])
def test_a_leave_is_acknowledged_after_its_sync(flushing, version):
    broker = flushing.broker
    broker.call_when_ready(K.FIND_COORDINATOR, 1, key=GROUP, key_type=0)
    member = Member(broker)
    member.post_join(3)
    broker.advance(4_000.0)
    member.finish_join()
    member.post_sync((member, b"share"))
    broker.advance(1_000.0)
    fields = {"member_id": member.member_id} if version < 3 else {"members": [{"member_id": member.member_id}]}
    assert flushing.ask(K.LEAVE_GROUP, version, group_id=GROUP, **fields).error_code == E.NONE
