"""Classic members in groups of the consumer protocol: the tables CJOIN, CSYNC, CBEAT, CLEAVE and CCOMMIT."""

import pytest

from ottla.protocol.api_keys import ApiKey as K
from ottla.protocol.errors import ErrorCode as E
from tests.api.consumer_groups import GroupBroker, Member, read_assignment
from tests.api.test_consumer_group_requests import commit, describe
from tests.api.test_group_migration import ALL, Classic, list_types, mix, with_policy
from tests.subscriptions import assign, subscribe
from tests.tables.rows import row, rows

NO_DELAY = {"group_initial_rebalance_delay_ms": 0}
ENTERED = 3
"""The group epoch after a second member has joined; the first one begins with 2."""


@pytest.fixture
def broker():
    return GroupBroker(group_consumer_assignors="range", group_consumer_assignment_interval_ms=0, **NO_DELAY)


def begin(broker, **fields):
    """Return a member of the consumer protocol that has all partitions."""
    new = Member(broker, "m", **fields)
    assert read_assignment(new.join()) == (E.NONE, 2, ALL)
    return new


def joining(broker, member_id="", instance=None, **fields):
    """Return a member of the classic protocol with this id, which has not joined."""
    old = Classic(broker, instance=instance, **fields)
    old.member_id = member_id
    return old


def share(broker, instance=None):
    """Return a member of each protocol in one epoch: the classic one `c` has [0, 1], `m` has [2, 3]."""
    new, old = begin(broker), joining(broker, "" if instance else "c", instance)
    assert old.join().error_code == E.NONE
    assert old.sync() == (E.NONE, [])
    assert read_assignment(new.beat(2, ALL))[0] is E.NONE
    new.beat(2, [2, 3] if old.member_id < "m" else [0, 1])
    assert old.heartbeat() is E.REBALANCE_IN_PROGRESS
    assert old.join().generation_id == ENTERED
    assert old.sync()[0] is E.NONE
    assert old.heartbeat() is E.NONE
    return old, new


def epochs(broker):
    group = describe(broker)
    return group.group_epoch, {member.member_id: member.member_epoch for member in group.members}


# ---- JoinGroup


REFUSED = {"CJOIN-1": {"group_consumer_migration_policy": "disabled"}, "CJOIN-2": {"group_consumer_max_size": 1}}


@rows(
    [
        ("CJOIN-1", E.INCONSISTENT_GROUP_PROTOCOL),
        ("CJOIN-2", E.GROUP_MAX_SIZE_REACHED),
    ]
)
def test_broker_refuses_a_member_by_its_options(case):
    broker = GroupBroker(**REFUSED[case[0]])
    begin(broker)
    for member_id in ("", "c"):
        assert joining(broker, member_id).join().error_code == case[1]
    assert [*epochs(broker)[1]] == ["m"]


@row("CJOIN-3")
def test_member_of_a_full_group_joins_again(row):
    broker = GroupBroker(group_consumer_max_size=2, **NO_DELAY)
    old, _ = mix(broker)
    assert joining(broker, "c").join().error_code == E.GROUP_MAX_SIZE_REACHED
    assert old.join().error_code == E.NONE


@rows(
    [
        ("CJOIN-4 another type", {"protocol_type": "connect"}, E.INCONSISTENT_GROUP_PROTOCOL),
        ("CJOIN-4 no protocols", {"protocols": []}, E.INCONSISTENT_GROUP_PROTOCOL),
        ("CJOIN-5", {"protocols": [{"name": "other", "metadata": subscribe("t")}]}, E.INCONSISTENT_GROUP_PROTOCOL),
        ("CJOIN-13 cut", {"protocols": [{"name": "range", "metadata": b"sub"}]}, E.UNKNOWN_SERVER_ERROR),
        ("CJOIN-13 empty", {"protocols": [{"name": "range", "metadata": b""}]}, E.UNKNOWN_SERVER_ERROR),
    ]
)
def test_join_that_the_group_refuses_changes_nothing(case, broker):
    _, fields, error = case
    share(broker)
    before = epochs(broker)
    assert joining(broker, "d").join(**fields).error_code == error
    assert epochs(broker) == before


@row("CJOIN-6 version 4", "CJOIN-6 version 9")
def test_dynamic_member_is_given_an_id(row, broker):
    begin(broker)
    asked = joining(broker).join_fields()
    reply = broker.call(K.JOIN_GROUP, int(row[-1]), **asked)
    assert (reply.error_code, bool(reply.member_id)) == (E.MEMBER_ID_REQUIRED, True)
    assert [*epochs(broker)[1]] == ["m"]


@row("CJOIN-7 version 0", "CJOIN-7 version 3")
def test_dynamic_member_of_an_old_client_joins_without_an_id(row, broker):
    begin(broker)
    reply = broker.call(K.JOIN_GROUP, int(row[-1]), **joining(broker).join_fields())
    assert (reply.error_code, reply.generation_id) == (E.NONE, ENTERED)
    assert {*epochs(broker)[1]} == {"m", reply.member_id}


@row("CJOIN-8")
def test_dynamic_member_joins_with_an_id_of_its_own(row, broker):
    begin(broker)
    assert joining(broker, "c").join().error_code == E.NONE
    assert {*epochs(broker)[1]} == {"m", "c"}


@rows(
    [
        ("CJOIN-9", "c", "other", E.UNKNOWN_MEMBER_ID),
        ("CJOIN-10", "c", "i", E.FENCED_INSTANCE_ID),
        ("CJOIN-11", "", "other", E.NONE),
    ]
)
def test_static_member_joins(case, broker):
    _, member_id, instance, error = case
    share(broker, "i")
    before = epochs(broker)
    reply = joining(broker, member_id, instance).join()
    assert reply.error_code == error
    found = epochs(broker)
    assert found[0] == before[0] + (error is E.NONE)
    assert {*found[1]} - {*before[1]} == ({reply.member_id} if error is E.NONE else set())


@row("CJOIN-12")
def test_static_member_without_an_id_takes_the_place_of_its_instance(row, broker):
    old, _ = share(broker, "i")
    before = epochs(broker)
    again = joining(broker, "", "i")
    assert again.join().generation_id == ENTERED
    assert again.member_id != old.member_id
    assert old.heartbeat() is E.FENCED_INSTANCE_ID
    assert epochs(broker) == (before[0], {"m": ENTERED, again.member_id: ENTERED})
    assert again.sync() == (E.NONE, old.owned["t"])


@row("CJOIN-14 new", "CJOIN-14 other topics")
def test_change_begins_a_group_epoch(row, broker):
    old, _ = share(broker)
    if "new" in row:
        assert joining(broker, "d").join().generation_id == ENTERED + 1
    else:
        assert old.join(("t", "nowhere")).error_code == E.NONE
    assert epochs(broker)[0] == ENTERED + 1


@row("CJOIN-15")
def test_same_subscription_again_changes_nothing(row, broker):
    old, _ = share(broker)
    before = epochs(broker)
    assert old.join().generation_id == ENTERED
    assert epochs(broker) == before


@row("CJOIN-16")
def test_member_moves_to_the_epoch_of_its_target_when_it_has_given_up_the_rest(row, broker):
    old, _ = share(broker)
    third = Member(broker, "a")
    assert third.join().error_code == E.NONE  # the range of `c` becomes [2]
    assert old.join().generation_id == ENTERED
    assert old.sync() == (E.NONE, [])
    assert old.join().generation_id == ENTERED + 1


@row("CJOIN-17 downgrade", "CJOIN-17 upgrade")
def test_static_member_takes_the_place_of_the_last_consumer(row):
    policy = row.split()[1]
    broker = with_policy(policy)
    begin(broker, instance_id="i")
    old = joining(broker, "", "i")
    assert old.join().generation_id == 2
    assert list_types(broker) == [("classic" if policy == "downgrade" else "consumer", "Stable")]
    assert old.sync() == (E.NONE, ALL)


@row("CJOIN-18 without an id", "CJOIN-18 with an id")
def test_member_joins_a_group_without_members(row, broker):
    begin(broker).beat(-1)
    old = joining(broker, "c" if "with an id" in row else "")
    assert old.join().error_code == (E.UNKNOWN_MEMBER_ID if "with an id" in row else E.NONE)
    assert list_types(broker) == [("consumer", "Empty") if "with an id" in row else ("classic", "CompletingRebalance")]


@row("CJOIN-19")
def test_reply_to_a_join_names_no_leader_and_no_members(row, broker):
    begin(broker)
    reply = joining(broker, "c", protocols=("range", "roundrobin")).join()
    assert (reply.error_code, reply.generation_id, reply.protocol_type) == (E.NONE, ENTERED, "consumer")
    assert (reply.protocol_name, reply.leader, reply.member_id, reply.members) == ("range", "", "c", [])


@row("CJOIN-20")
def test_member_that_does_not_synchronize_is_removed(row, broker):
    old, _ = share(broker)
    old.join()
    for _ in range(4):
        broker.advance(1_000.0)
        assert old.heartbeat() is E.NONE
    broker.advance(1_500.0)
    assert [*epochs(broker)[1]] == ["m"]


# ---- SyncGroup and Heartbeat


# a change of the caller, the answer to it
CALLERS = [
    ("1 unknown", {"member_id": "who", "group_instance_id": None}, E.UNKNOWN_MEMBER_ID),
    ("1 of the consumer protocol", {"member_id": "m", "group_instance_id": None}, E.UNKNOWN_MEMBER_ID),
    ("1 unknown instance", {"group_instance_id": "other"}, E.UNKNOWN_MEMBER_ID),
    ("2", {"member_id": "m", "group_instance_id": "i"}, E.FENCED_INSTANCE_ID),
    ("3 lower", {"generation_id": ENTERED - 1}, E.ILLEGAL_GENERATION),
    ("3 higher", {"generation_id": ENTERED + 1}, E.ILLEGAL_GENERATION),
    ("3 none", {"generation_id": -1}, E.ILLEGAL_GENERATION),
]


@rows([(f"CSYNC-{case}", fields, error) for case, fields, error in CALLERS])
def test_sync_of_another_caller(case, broker):
    _, fields, error = case
    old, _ = share(broker, "i")
    assert old.sync(**{"generation_id": ENTERED, **fields}) == (error, None)


@rows([(f"CBEAT-{case}", fields, error) for case, fields, error in CALLERS])
def test_heartbeat_of_another_caller(case, broker):
    _, fields, error = case
    old, _ = share(broker, "i")
    reply = broker.call(K.HEARTBEAT, 4, **{**old.who, "generation_id": ENTERED, **fields})
    assert E(reply.error_code) is error


@rows(
    [
        ("CSYNC-4 another type", {"protocol_type": "connect"}),
        ("CSYNC-4 another name", {"protocol_name": "other"}),
    ]
)
def test_sync_with_another_protocol(case, broker):
    old, _ = share(broker)
    assert old.sync(**case[1]) == (E.INCONSISTENT_GROUP_PROTOCOL, None)
    assert old.sync(version=4)[0] is E.NONE  # without the fields


def begin_epoch(broker):
    """Let a member join, for which `c` gives partitions up."""
    assert Member(broker, "a").join().error_code == E.NONE


@row("CSYNC-5", "CBEAT-4")
def test_new_target_asks_the_member_to_join_again(row, broker):
    old, _ = share(broker)
    begin_epoch(broker)
    if "CBEAT" in row:
        assert old.heartbeat() is E.REBALANCE_IN_PROGRESS
    else:
        assert old.sync() == (E.REBALANCE_IN_PROGRESS, None)


@row("CSYNC-6", "CBEAT-5")
def test_member_that_must_give_partitions_up_gets_the_rest_and_joins_again(row, broker):
    old, _ = share(broker)
    begin_epoch(broker)
    assert old.join().generation_id == ENTERED
    if "CBEAT" in row:
        assert old.heartbeat() is E.REBALANCE_IN_PROGRESS
    else:
        assert old.sync() == (E.NONE, [])


@row("CSYNC-7")
def test_sync_returns_what_the_member_has_and_ignores_assignments(row, broker):
    old, _ = share(broker)
    assert old.sync([("c", assign(t=ALL)), ("m", assign(t=ALL))]) == (E.NONE, [0, 1])


@row("CBEAT-6 free", "CBEAT-7 held")
def test_member_that_waits_for_partitions_joins_again_when_they_are_free(row, broker):
    new, old = begin(broker), joining(broker, "c")
    assert old.join().generation_id == ENTERED
    assert old.sync() == (E.NONE, [])
    if "free" in row:
        new.beat(2, ALL)
        new.beat(2, [2, 3])
    assert old.heartbeat() is (E.REBALANCE_IN_PROGRESS if "free" in row else E.NONE)


@row("CBEAT-8")
def test_heartbeat_of_a_member_that_has_its_target(row, broker):
    old, _ = share(broker)
    assert old.heartbeat() is E.NONE


@row("CBEAT-9 answered NONE", "CBEAT-9 asked to join")
def test_heartbeat_extends_the_session(row, broker):
    new, old = begin(broker), joining(broker, "c", session_ms=6_000)
    old.join()
    old.sync()
    if "asked" in row:
        new.beat(2, ALL)
        new.beat(2, [2, 3])
    error = E.REBALANCE_IN_PROGRESS if "asked" in row else E.NONE
    broker.advance(4_000.0)
    assert old.heartbeat() is error
    broker.advance(4_000.0)
    assert old.heartbeat() is error
    broker.advance(6_500.0)
    assert old.heartbeat() is E.UNKNOWN_MEMBER_ID


# ---- LeaveGroup


def leave(broker, *who):
    """Return the error of each (member id, instance id)."""
    members = [{"member_id": member_id, "group_instance_id": instance} for member_id, instance in who]
    return [E(row.error_code) for row in broker.call(K.LEAVE_GROUP, 4, group_id="g", members=members).members]


@rows(
    [
        ("CLEAVE-1 unknown id", ("who", None), E.UNKNOWN_MEMBER_ID),
        ("CLEAVE-1 unknown instance", ("", "other"), E.UNKNOWN_MEMBER_ID),
        ("CLEAVE-2", ("who", "i"), E.FENCED_INSTANCE_ID),
        ("CLEAVE-3", ("", "i"), E.NONE),
    ]
)
def test_one_member_leaves(case, broker):
    _, who, error = case
    old, _ = share(broker, "i")
    assert leave(broker, who) == [error]
    assert {*epochs(broker)[1]} == ({"m"} if error is E.NONE else {"m", old.member_id})


@row("CLEAVE-4")
def test_members_that_leave_together_begin_one_epoch(row, broker):
    share(broker)
    joining(broker, "d").join()
    assert leave(broker, ("c", None), ("who", None), ("d", None)) == [E.NONE, E.UNKNOWN_MEMBER_ID, E.NONE]
    group_epoch, members = epochs(broker)
    assert (group_epoch, [*members]) == (ENTERED + 2, ["m"])


@row("CLEAVE-5 version 0", "CLEAVE-5 version 2")
def test_error_of_an_old_version_is_that_of_the_request(row, broker):
    share(broker)
    for member_id, error in (("who", E.UNKNOWN_MEMBER_ID), ("c", E.NONE)):
        assert broker.call(K.LEAVE_GROUP, int(row[-1]), group_id="g", member_id=member_id).error_code == error
    assert [*epochs(broker)[1]] == ["m"]


@row("CLEAVE-6 bidirectional", "CLEAVE-6 downgrade", "CLEAVE-7 upgrade", "CLEAVE-7 disabled")
def test_last_consumer_leaves_a_classic_member(row):
    policy = row.split()[1]
    broker = with_policy("bidirectional")
    old, _ = mix(broker)
    broker.assembly.broker.groups.consumer_groups.configure(with_policy(policy).assembly.config)
    assert leave(broker, ("new", None)) == [E.NONE]
    assert list_types(broker)[0][0] == ("classic" if row.startswith("CLEAVE-6") else "consumer")
    assert old.heartbeat() is (E.REBALANCE_IN_PROGRESS if row.startswith("CLEAVE-6") else E.NONE)


@row("CLEAVE-8")
def test_all_members_leave(row, broker):
    share(broker)
    assert leave(broker, ("c", None), ("m", None)) == [E.NONE, E.NONE]
    assert list_types(broker) == [("consumer", "Empty")]


# ---- OffsetCommit


@pytest.mark.parametrize("version", [7, 9])
@rows(
    [
        ("CCOMMIT-1", ENTERED, "c", [0, 1], E.NONE),
        ("CCOMMIT-2", ENTERED - 1, "c", [0, 2], E.ILLEGAL_GENERATION),
        ("CCOMMIT-4", ENTERED + 1, "c", [0], E.ILLEGAL_GENERATION),
        ("CCOMMIT-5 an unknown id", ENTERED, "who", [0], E.UNKNOWN_MEMBER_ID),
        ("CCOMMIT-5 no id", -1, "", [0], E.UNKNOWN_MEMBER_ID),
    ]
)
def test_commit_to_a_group_with_members(case, broker, version):
    _, generation, member_id, partitions, error = case
    share(broker)
    assert commit(broker, generation, member_id, version=version, partitions=partitions) == [error] * len(partitions)


@row("CCOMMIT-3")
def test_commit_of_an_earlier_generation_in_which_the_member_had_the_partitions(row, broker):
    old, _ = share(broker)
    joining(broker, "d").join(("nowhere",))
    assert old.join().generation_id == ENTERED + 1
    assert commit(broker, ENTERED, "c", partitions=[0, 1]) == [E.NONE, E.NONE]
    assert commit(broker, ENTERED, "c", partitions=[0, 2]) == [E.ILLEGAL_GENERATION] * 2


@row("CCOMMIT-6")
def test_instance_of_a_commit_is_not_checked(row, broker):
    share(broker)
    assert commit(broker, ENTERED, "c", instance_id="other") == [E.NONE]


@row("CCOMMIT-7")
def test_commit_without_a_member_to_a_group_without_members(row, broker):
    share(broker)
    leave(broker, ("c", None), ("m", None))
    assert commit(broker, -1, "") == commit(broker, -1, "c") == [E.NONE]
    assert commit(broker, ENTERED, "c") == [E.UNKNOWN_MEMBER_ID]
