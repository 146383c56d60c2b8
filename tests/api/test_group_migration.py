"""Groups with members change their protocol: upgrade, members of both protocols, downgrade. As in Kafka 4.3.1."""

import pytest

from ottla.protocol.api_keys import ApiKey as K
from ottla.protocol.errors import ErrorCode as E
from tests.api.consumer_groups import INTERVAL_MS, GroupBroker, Member, read_assignment
from tests.api.test_consumer_group_requests import commit, describe, fetch
from tests.subscriptions import assign, parse_assignment, subscribe

ALL = [0, 1, 2, 3]


@pytest.fixture
def broker():
    return GroupBroker(group_initial_rebalance_delay_ms=0)


class Classic:
    """A member of the classic protocol, which is cooperative: it reports what it owns when it joins."""

    def __init__(self, broker, *, instance=None, protocols=("range",), version=3, session_ms=30_000):
        self.broker, self.instance, self.protocols, self.version = broker, instance, protocols, version
        self.member_id, self.generation, self.owned, self.session_ms = "", -1, {}, session_ms

    @property
    def who(self):
        return {"group_id": "g", "member_id": self.member_id, "group_instance_id": self.instance}

    def join_fields(self, topics=("t",), **fields):
        metadata = subscribe(*topics, owned=self.owned, version=self.version)
        return {
            **self.who,
            "session_timeout_ms": self.session_ms,
            "rebalance_timeout_ms": 5_000,
            "protocol_type": "consumer",
            "protocols": [{"name": name, "metadata": metadata} for name in self.protocols],
            **fields,
        }

    def join(self, topics=("t",), version=7, **fields):
        """Join with the id that the broker gives, and return the last reply."""
        reply = self.broker.call(K.JOIN_GROUP, version, **self.join_fields(topics, **fields))
        if reply.error_code == E.MEMBER_ID_REQUIRED:
            self.member_id = reply.member_id
            return self.join(topics, version, **fields)
        if not reply.error_code:
            self.member_id, self.generation = reply.member_id, reply.generation_id
        return reply

    def post_join(self, topics=("t",)):
        """Begin to join, and return a list that gets the reply."""
        client = self.broker.client()
        client.send(K.JOIN_GROUP, 7, **self.join_fields(topics))
        return client.replies

    def post_sync(self):
        client = self.broker.client()
        asked = {"generation_id": self.generation, "protocol_type": "consumer", "protocol_name": "range"}
        client.send(K.SYNC_GROUP, 5, **self.who, **asked, assignments=[])
        return client.replies

    def sync(self, given=(), version=5, **fields):
        """Return (error, partitions of `t`)."""
        asked = {
            **self.who,
            "generation_id": self.generation,
            "protocol_type": "consumer",
            "protocol_name": self.protocols[0],
            "assignments": [{"member_id": member, "assignment": content} for member, content in given],
            **fields,
        }
        reply = self.broker.call(K.SYNC_GROUP, version, **asked)
        if reply.error_code:
            return E(reply.error_code), None
        self.owned = parse_assignment(reply.assignment)
        return E.NONE, self.owned.get("t", [])

    def heartbeat(self, generation=None):
        generation = self.generation if generation is None else generation
        return E(self.broker.call(K.HEARTBEAT, 4, **self.who, generation_id=generation).error_code)

    def leave(self):
        members = [{"member_id": self.member_id, "group_instance_id": self.instance}]
        return self.broker.call(K.LEAVE_GROUP, 4, group_id="g", members=members).members[0].error_code


def settle(broker, **fields):
    """Return a member that has all partitions of `t` in a classic group."""
    old = Classic(broker, **fields)
    assert old.join().error_code == E.NONE
    assert old.sync([(old.member_id, assign(t=ALL))]) == (E.NONE, ALL)
    return old


def mix(broker, **fields):
    """Return a classic member and one of the consumer protocol that share `t`, both in epoch 2."""
    old, new = settle(broker, **fields), Member(broker, "new", server_assignor="range")
    assert read_assignment(new.join()) == (E.NONE, 2, [])
    for generation in (1, 2):
        assert old.heartbeat() is E.REBALANCE_IN_PROGRESS
        assert old.join().generation_id == generation
        assert old.sync() == (E.NONE, [0, 1] if old.member_id < "new" else [2, 3])
    assert old.heartbeat() is E.NONE
    assert read_assignment(new.beat(2, []))[0] is E.NONE
    return old, new


def list_types(broker):
    return [
        (row.group_type, row.group_state)
        for row in broker.call(K.LIST_GROUPS, 5, states_filter=[], types_filter=[]).groups
    ]


def with_policy(policy, **options):
    options = {"group_initial_rebalance_delay_ms": 0, **options}
    return GroupBroker(group_consumer_migration_policy=policy, **options)


def test_first_member_of_the_consumer_protocol_upgrades_the_group(broker):
    old, _ = mix(broker)
    group = describe(broker)
    assert (group.group_state, group.group_epoch, group.assignment_epoch) == ("Stable", 2, 2)
    assert {member.member_id: (member.member_epoch, member.member_type) for member in group.members} == {
        "new": (2, 1),
        old.member_id: (2, 0),
    }


def test_upgraded_group_is_the_same_after_a_restart(broker):
    old, new = mix(broker)
    before = repr(describe(broker))
    broker.restart()
    assert repr(describe(broker)) == before
    assert old.heartbeat() is E.NONE
    assert read_assignment(new.beat(2, []))[0] is E.NONE


def test_waiting_members_are_asked_to_join_again(broker):
    old = settle(broker)
    waiting = Classic(broker, instance="i")
    joins = waiting.post_join()
    assert joins == []
    Member(broker, "new").join()
    assert [(E(reply.error_code), bool(reply.member_id)) for reply in joins] == [(E.REBALANCE_IN_PROGRESS, True)]
    waiting.member_id = joins[0].member_id
    assert waiting.join().error_code == E.NONE
    assert old.heartbeat() is E.REBALANCE_IN_PROGRESS


def test_members_that_wait_for_the_leader_are_asked_to_join_again(broker):
    first, second = settle(broker), Classic(broker, instance="i")
    joins = second.post_join()
    first.join()
    second.member_id, second.generation = joins[0].member_id, joins[0].generation_id
    syncs = second.post_sync()
    assert syncs == []
    Member(broker, "new").join()
    assert [E(reply.error_code) for reply in syncs] == [E.REBALANCE_IN_PROGRESS]


def test_group_without_a_generation_is_upgraded_later():
    broker = GroupBroker(group_initial_rebalance_delay_ms=3_000)
    waiting = Classic(broker, instance="i")
    joins = waiting.post_join()
    new = Member(broker, "new")
    assert new.join().error_code == E.COORDINATOR_NOT_AVAILABLE
    broker.advance(3_000.0)
    assert joins[0].error_code == E.NONE
    assert new.join().error_code == E.NONE


def test_partitions_that_do_not_exist_are_left_out(broker):
    old = Classic(broker)
    old.join()
    old.sync([(old.member_id, assign(t=[0, 7, -1], nowhere=[0]))])
    Member(broker, "new").join()
    (mine,) = [member for member in describe(broker).members if member.member_id == old.member_id]
    assert [[*topic.partitions] for topic in mine.assignment.topic_partitions] == [[0]]


def test_partition_of_two_members_refuses_the_upgrade(broker):
    first, second = settle(broker), Classic(broker, instance="i")
    joins = second.post_join()
    first.join()
    second.member_id = joins[0].member_id
    first.sync([(first.member_id, assign(t=[0])), (second.member_id, assign(t=[0]))])
    assert Member(broker, "new").join().error_code == E.UNKNOWN_SERVER_ERROR
    assert first.heartbeat() is E.NONE


@pytest.mark.parametrize("policy", ["downgrade", "disabled"])
def test_policy_that_does_not_upgrade(policy):
    broker = with_policy(policy)
    old = settle(broker)
    reply = Member(broker, "new").join()
    assert reply.error_code == E.GROUP_ID_NOT_FOUND
    assert reply.error_message.endswith("because online upgrade is disabled.")
    assert old.heartbeat() is E.NONE


@pytest.mark.parametrize(("policy", "error"), [("downgrade", E.NONE), ("disabled", E.INCONSISTENT_GROUP_PROTOCOL)])
def test_classic_member_joins_consumers_unless_migration_is_disabled(policy, error):
    broker = with_policy(policy)
    Member(broker, "new").join()
    assert Classic(broker).join().error_code == error


def test_group_that_is_too_large_is_not_upgraded():
    broker = with_policy("bidirectional", group_consumer_max_size=1)
    settle(broker)
    other = Classic(broker, instance="i")
    other.post_join()
    reply = Member(broker, "new").join()
    assert reply.error_message.endswith("the group size exceeds the consumer group maximum size.")
    assert reply.error_code == E.GROUP_ID_NOT_FOUND


def test_classic_member_that_does_not_join_again_in_time_is_removed(broker):
    old = settle(broker)
    new = Member(broker, "new")
    new.join()
    for _ in range(4):
        assert old.heartbeat() is E.REBALANCE_IN_PROGRESS
        broker.advance(1_000.0)
    broker.advance(1_500.0)
    assert old.heartbeat() is E.UNKNOWN_MEMBER_ID
    assert read_assignment(new.beat(2, [])) == (E.NONE, 3, ALL)


def test_classic_member_that_does_not_synchronize_in_time_is_removed(broker):
    old, _ = mix(broker)
    old.join()
    for _ in range(4):
        assert old.heartbeat() is E.NONE
        broker.advance(1_000.0)
    broker.advance(1_500.0)
    assert old.heartbeat() is E.UNKNOWN_MEMBER_ID


def test_classic_member_keeps_its_own_session(broker):
    old, new = mix(broker, session_ms=10_000)
    broker.advance(8_000.0)
    assert old.heartbeat() is E.NONE
    broker.advance(8_000.0)
    assert old.heartbeat() is E.NONE
    broker.advance(10_500.0)
    assert old.heartbeat() is E.UNKNOWN_MEMBER_ID
    assert new.beat(2).error_code == E.NONE


def test_classic_member_commits_and_fetches_with_its_generation(broker):
    old, _ = mix(broker)
    mine = old.owned["t"][:1]
    for version in (8, 9):
        assert commit(broker, 2, old.member_id, version=version, partitions=mine) == [E.NONE]
        assert commit(broker, 1, old.member_id, version=version, partitions=mine) == [E.NONE]
        assert commit(broker, 3, old.member_id, version=version, partitions=mine) == [E.ILLEGAL_GENERATION]
    assert fetch(broker, old.member_id, 2)[0] is E.NONE
    assert fetch(broker, old.member_id, 1)[0] is E.ILLEGAL_GENERATION


@pytest.mark.parametrize("end", ["leave", "session", "admin"])
def test_removal_of_the_last_consumer_downgrades_the_group(broker, end):
    old, new = settle(broker), Member(broker, "new", instance_id="i")
    new.join()
    old.join()
    old.sync()
    if end == "leave":
        assert new.beat(-1).error_code == E.NONE
    elif end == "admin":
        members = [{"member_id": "", "group_instance_id": "i"}]
        assert broker.call(K.LEAVE_GROUP, 4, group_id="g", members=members).members[0].error_code == E.NONE
    else:
        for _ in range(46):
            broker.advance(1_000.0)
            if old.heartbeat() is E.REBALANCE_IN_PROGRESS and list_types(broker)[0][0] == "consumer":
                old.join()
                old.sync()
    assert list_types(broker) == [("classic", "PreparingRebalance")]
    assert old.join().error_code == E.NONE
    assert old.sync([(old.member_id, assign(t=ALL))]) == (E.NONE, ALL)
    assert list_types(broker) == [("classic", "Stable")]
    broker.restart()
    assert old.heartbeat() is E.NONE


def test_downgraded_group_keeps_all_protocols_of_its_members(broker):
    old, new = mix(broker, protocols=("range", "roundrobin"))
    new.beat(-1)
    other = Classic(broker, instance="i", protocols=("roundrobin",))
    joins = other.post_join()
    old.join()
    assert [(E(reply.error_code), reply.protocol_name) for reply in joins] == [(E.NONE, "roundrobin")]


def test_policy_that_does_not_downgrade():
    broker = with_policy("upgrade")
    old, new = mix(broker)
    assert new.beat(-1).error_code == E.NONE
    assert list_types(broker)[0][0] == "consumer"
    assert old.heartbeat() is E.NONE
    assert old.join().error_code == E.NONE


def test_group_that_is_too_large_for_a_classic_one_stays():
    broker = with_policy("bidirectional", group_max_size=1)
    _, new = mix(broker)
    assert Classic(broker, instance="i").join().error_code == E.NONE
    assert new.beat(-1).error_code == E.NONE
    assert list_types(broker)[0][0] == "consumer"


def test_static_classic_member_takes_over_from_the_last_consumer_without_a_rebalance(broker):
    Member(broker, "new", instance_id="i").join()
    old = Classic(broker, instance="i")
    assert old.join().generation_id == 2
    assert list_types(broker) == [("classic", "Stable")]
    assert old.sync() == (E.NONE, ALL)
    broker.restart()
    assert old.heartbeat() is E.NONE


def test_group_changes_its_protocol_again_and_again(broker):
    old = settle(broker)
    for name in ("n1", "n2", "n3"):
        broker.advance(INTERVAL_MS + 100)
        new = Member(broker, name)
        assert new.join().error_code == E.NONE
        assert list_types(broker)[0][0] == "consumer"
        old.join()
        new.beat(-1)
        assert list_types(broker) == [("classic", "PreparingRebalance")]
        assert old.join().error_code == E.NONE
        assert old.sync([(old.member_id, assign(t=ALL))]) == (E.NONE, ALL)
    assert old.leave() == E.NONE
    assert list_types(broker) == [("classic", "Empty")]


def test_group_whose_members_all_leave_is_not_downgraded(broker):
    old, _ = mix(broker)
    members = [{"member_id": member, "group_instance_id": None} for member in (old.member_id, "new")]
    assert [row.error_code for row in broker.call(K.LEAVE_GROUP, 4, group_id="g", members=members).members] == [0, 0]
    assert list_types(broker) == [("consumer", "Empty")]


def test_requests_that_wait_while_the_group_is_downgraded_reach_the_classic_group(broker):
    old, new = mix(broker)
    gate = broker.assembly.broker.groups.describe("g")[0].group.gate
    gate.taken = True
    left = Classic(broker, instance="i")
    last, leaving, joining = (broker.client(name) for name in ("last", "leaving", "joining"))
    beat = {**new.fixed, "member_epoch": -1, "rebalance_timeout_ms": -1, "subscribed_topic_names": None}
    beat |= {"subscribed_topic_regex": None, "topic_partitions": None}
    last.send(K.CONSUMER_GROUP_HEARTBEAT, 1, **beat)
    leaving.send(K.LEAVE_GROUP, 4, group_id="g", members=[{"member_id": old.member_id, "group_instance_id": None}])
    joining.send(K.JOIN_GROUP, 7, **left.join_fields())
    assert last.replies == leaving.replies == joining.replies == []
    broker.turns.event(gate.leave)
    broker.advance(1_000.0)
    assert [reply.member_epoch for reply in last.replies] == [-1]
    assert [E(reply.members[0].error_code) for reply in leaving.replies] == [E.NONE]
    assert [E(reply.error_code) for reply in joining.replies] == [E.NONE]
    assert old.heartbeat() is E.UNKNOWN_MEMBER_ID
    assert list_types(broker) == [("classic", "CompletingRebalance")]
