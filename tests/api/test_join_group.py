"""JoinGroup: new members, the time of the response, and the data that the leader receives."""

import pytest

from ottla.protocol.api_keys import ApiKey as K
from ottla.protocol.errors import ErrorCode as E
from tests.api.callers import GROUP, Member, coordinating, stable_pair

VERSIONS = range(10)
KNOWN_ID_FIRST = range(4, 10)


def join(member, version, **given):
    """Join; send the request twice in versions where the first response returns the new member's id."""
    reply = member.join(version, **given)
    if version in KNOWN_ID_FIRST and reply.error_code == E.MEMBER_ID_REQUIRED:
        return member.join(version, **given)
    return reply


@pytest.mark.parametrize("version", VERSIONS)
def test_the_first_member_leads_and_gets_the_metadata_of_all_members(broker, version):
    member = Member(broker)
    reply = join(member, version, protocols=(("range", b"a"), ("sticky", b"b")))
    assert (reply.error_code, reply.generation_id, reply.protocol_name) == (E.NONE, 1, "range")
    assert reply.leader == reply.member_id and reply.member_id.startswith("client-")
    assert [(each.member_id, bytes(each.metadata)) for each in reply.members] == [(reply.member_id, b"a")]
    assert getattr(reply, "protocol_type", None) == ("consumer" if version >= 7 else None)


@pytest.mark.parametrize("version", KNOWN_ID_FIRST)
def test_a_new_member_gets_its_id_first_and_joins_with_it(broker, version):
    """KIP-394: a client that misses this response leaves no member in the group that others wait for."""
    member = Member(broker)
    told = member.join(version)
    assert (told.error_code, told.generation_id, told.members, told.leader) == (E.MEMBER_ID_REQUIRED, -1, [], "")
    assert told.protocol_name == ("" if version < 7 else None)
    reply = member.join(version)
    assert (reply.error_code, reply.member_id) == (E.NONE, told.member_id)


@pytest.mark.parametrize("version", [*range(4), *range(5, 10)])
def test_static_members_and_old_clients_need_no_second_request(broker, version):
    member = Member(broker, instance_id="mine")
    reply = member.join(version)
    assert reply.error_code == E.NONE
    assert reply.member_id.startswith("mine-" if version >= 5 else "client-")
    (row,) = reply.members
    assert getattr(row, "group_instance_id", None) == ("mine" if version >= 5 else None)


REFUSED = [
    ({"group_id": ""}, E.INVALID_GROUP_ID),
    ({"session_timeout_ms": 5_999}, E.INVALID_SESSION_TIMEOUT),
    ({"session_timeout_ms": 1_800_001}, E.INVALID_SESSION_TIMEOUT),
    ({"protocol_type": ""}, E.INCONSISTENT_GROUP_PROTOCOL),
    ({"protocols": ()}, E.INCONSISTENT_GROUP_PROTOCOL),
    ({"member_id": "stranger"}, E.UNKNOWN_MEMBER_ID),
]


@pytest.mark.parametrize(("given", "error"), REFUSED, ids=str)
@pytest.mark.parametrize("settled", [False, True])
@pytest.mark.parametrize("version", [0, 3, 4, 9])
def test_a_join_with_an_invalid_field_is_refused(broker, version, settled, given, error):
    if settled:
        Member(broker).settle()
    reply = Member(broker).join(version, **given)
    assert (reply.error_code, reply.generation_id, reply.leader, reply.members) == (error, -1, "", [])


@pytest.mark.parametrize(
    ("given", "fits"),
    [
        ({"protocols": (("sticky", b""),)}, False),
        ({"protocols": (("sticky", b""), ("range", b""))}, True),
        ({"protocol_type": "connect"}, False),
    ],
    ids=["no protocol of theirs", "one of theirs", "another type"],
)
def test_members_of_a_group_share_a_type_and_a_protocol(broker, given, fits):
    first, second = Member(broker).settle(), Member(broker)
    second.post_join(3, **given)
    if not fits:
        assert second.finish_join().error_code == E.INCONSISTENT_GROUP_PROTOCOL
        return
    first.post_join(3)
    assert (first.finish_join().error_code, second.finish_join().error_code) == (E.NONE, E.NONE)


def test_all_members_get_the_generation_and_the_leader_the_member_list(broker):
    first, second = stable_pair(broker)
    third = Member(broker)
    third.post_join(3, protocols=(("range", b"three"),))
    broker.advance(1_000)
    assert third.client.replies == [], "the others are waited for"
    second.post_join(3)
    first.post_join(3)
    replies = [member.finish_join() for member in (first, second, third)]
    assert [(reply.error_code, reply.generation_id, reply.leader) for reply in replies] == [
        (E.NONE, 3, first.member_id)
    ] * 3
    assert [len(reply.members) for reply in replies] == [3, 0, 0]
    assert {each.member_id: bytes(each.metadata) for each in replies[0].members}[third.member_id] == b"three"


@pytest.mark.parametrize(("version", "waited_ms"), [(0, 10_000), (1, 60_000)])
def test_a_rebalance_waits_for_an_absent_member_until_its_timeout(broker, version, waited_ms):
    """Version 1 has a rebalance timeout; before, the session timeout is used. The absent member sends heartbeats."""
    silent, other = Member(broker).settle(version=version), Member(broker)
    other.post_join(version)
    for _ in range(waited_ms // 5_000 - 1):
        broker.advance(5_000.0)
        silent.heartbeat(0)
    broker.advance(4_000.0)
    assert other.client.replies == []
    broker.advance(2_000.0)
    reply = other.finish_join()
    assert (reply.error_code, len(reply.members)) == (E.NONE, 1)


@pytest.mark.parametrize(("version", "skips"), [(8, False), (9, True)])
def test_a_static_leader_that_rejoins_skips_assignment_from_version_9_on(broker, version, skips):
    """KIP-814. Before, the response names the member's old id as leader, so that it does not assign."""
    old = Member(broker, instance_id="mine").settle(version=5)
    reply = Member(broker, instance_id="mine").join(version)
    assert (reply.error_code, reply.generation_id) == (E.NONE, 1)
    leader = reply.member_id if skips else old.member_id
    assert (reply.leader, len(reply.members)) == (leader, 1 if skips else 0)
    assert getattr(reply, "skip_assignment", False) is skips


def test_a_full_group_refuses_a_new_member():
    broker = coordinating(group_max_size=1)
    Member(broker).settle()
    reply = Member(broker).join(3)
    assert (reply.error_code, reply.member_id) == (E.GROUP_MAX_SIZE_REACHED, "")


def test_a_first_generation_waits_a_moment_for_others():
    broker = coordinating(group_initial_rebalance_delay_ms=500)
    members = [Member(broker), Member(broker)]
    for member in members:
        member.post_join(3)
        broker.advance(400.0)
        assert member.client.replies == []
    broker.advance(700.0)
    assert {member.finish_join().generation_id for member in members} == {1}


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("10.0.0.7", "/10.0.0.7"),
        ("::1", "/0:0:0:0:0:0:0:1"),
        ("fe80::a1%eth0", "/fe80:0:0:0:0:0:0:a1"),
        ("::ffff:10.0.0.7", "/10.0.0.7"),
        ("somewhere", "/somewhere"),
    ],
)
def test_a_member_is_described_with_its_address_as_java_prints_it(broker, address, shown):
    """The address has the form of Java's `InetAddress.toString`."""
    Member(broker, address=address).settle()
    (group,) = broker.call(K.DESCRIBE_GROUPS, 0, groups=[GROUP]).groups
    assert group.members[0].client_host == shown
