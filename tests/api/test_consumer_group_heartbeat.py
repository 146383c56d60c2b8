"""ConsumerGroupHeartbeat: members join, share partitions, and leave. Steps and answers are those of Kafka 4.3.1."""

from dataclasses import replace

import pytest

from ottla.protocol.api_keys import ApiKey as K
from ottla.protocol.errors import ErrorCode as E
from ottla.protocol.internal_topics.metadata_records import GROUP_RESOURCE
from tests.api.consumer_groups import INTERVAL_MS, GroupBroker, Member, read_assignment


@pytest.fixture
def broker():
    return GroupBroker(group_initial_rebalance_delay_ms=0)


def error_of(reply):
    return E(reply.error_code)


def test_members_share_the_partitions_of_a_topic_without_owning_one_twice(broker):
    m1, m2 = Member(broker, "m1"), Member(broker, "m2")
    reply = m1.join()
    assert read_assignment(reply) == (E.NONE, 2, [0, 1, 2, 3])
    assert reply.heartbeat_interval_ms == 5_000
    assert read_assignment(m2.join()) == (E.NONE, 2, [])
    assert read_assignment(m1.beat(2)) == (E.NONE, 2, None)
    broker.advance(INTERVAL_MS + 200)
    epoch, kept = read_assignment(m1.beat(2))[1:]
    assert (epoch, len(kept)) == (2, 2)
    assert read_assignment(m2.beat(2)) == (E.NONE, 3, None)
    assert read_assignment(m1.beat(2)) == (E.NONE, 2, None)
    assert read_assignment(m1.beat(2, kept)) == (E.NONE, 3, None)
    assert read_assignment(m1.beat(2, kept)) == (E.NONE, 3, None)
    assert error_of(m1.beat(2)) is E.FENCED_MEMBER_EPOCH
    assert error_of(m1.beat(1)) is error_of(m1.beat(12)) is E.FENCED_MEMBER_EPOCH
    assert error_of(Member(broker, "zz").beat(3)) is E.UNKNOWN_MEMBER_ID
    full = m1.beat(3, kept, rebalance_timeout_ms=5_000, subscribed_topic_names=["t"])
    assert read_assignment(full) == (E.NONE, 3, kept)
    rest = read_assignment(m2.beat(3, []))[2]
    assert sorted([*kept, *rest]) == [0, 1, 2, 3]
    left = m1.beat(-1)
    assert (left.member_epoch, left.heartbeat_interval_ms) == (-1, 0)
    assert error_of(m1.beat(-1)) is E.UNKNOWN_MEMBER_ID


def test_static_member_takes_over_the_partitions_of_the_member_that_left_for_a_while(broker):
    s1 = Member(broker, "s1", instance_id="i")
    assert read_assignment(s1.join()) == (E.NONE, 2, [0, 1, 2, 3])
    assert error_of(s1.join()) is E.UNRELEASED_INSTANCE_ID
    s2 = Member(broker, "s2", instance_id="i")
    assert error_of(s2.join()) is E.UNRELEASED_INSTANCE_ID
    assert error_of(s2.beat(2)) is E.FENCED_INSTANCE_ID
    assert error_of(Member(broker, "s2", instance_id="j").beat(2)) is E.UNKNOWN_MEMBER_ID
    assert s1.beat(-2).member_epoch == -2
    assert read_assignment(s2.join()) == (E.NONE, 2, [0, 1, 2, 3])
    assert error_of(s1.beat(2)) is E.FENCED_INSTANCE_ID


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"member_id": ""}, E.INVALID_REQUEST),
        ({"member_id": " "}, E.INVALID_REQUEST),
        ({"group_id": ""}, E.INVALID_REQUEST),
        ({"instance_id": ""}, E.INVALID_REQUEST),
        ({"rack_id": " "}, E.INVALID_REQUEST),
        ({"topic_partitions": None}, E.INVALID_REQUEST),
        ({"rebalance_timeout_ms": -1}, E.INVALID_REQUEST),
        ({"subscribed_topic_names": None}, E.INVALID_REQUEST),
        ({"member_epoch": -3}, E.INVALID_REQUEST),
        ({"member_epoch": -2}, E.INVALID_REQUEST),
        ({"server_assignor": "x"}, E.UNSUPPORTED_ASSIGNOR),
        ({"subscribed_topic_regex": "("}, E.INVALID_REGULAR_EXPRESSION),
        ({"member_epoch": 5}, E.GROUP_ID_NOT_FOUND),
        ({"member_epoch": -1}, E.GROUP_ID_NOT_FOUND),
    ],
)
def test_invalid_heartbeat_is_refused_and_creates_nothing(broker, fields, error):
    reply = Member(broker, "m").join(**fields)
    assert error_of(reply) is error
    assert (reply.member_id, reply.member_epoch, reply.heartbeat_interval_ms, reply.assignment) == (None, 0, 0, None)
    assert broker.call(K.LIST_GROUPS, 4, states_filter=[]).groups == []


def test_version_0_gives_a_member_its_id(broker):
    reply = Member(broker, "").join(version=0)
    assert len(reply.member_id) == 22 and reply.member_epoch == 2


def test_member_without_topics_has_no_partitions_until_its_topic_exists(broker):
    m = Member(broker, "m")
    assert read_assignment(m.join(["later"])) == (E.NONE, 2, [])
    broker.create_topic("later", 2)
    broker.advance(INTERVAL_MS + 200)
    assert read_assignment(m.beat(2, [])) == (E.NONE, 3, [0, 1])


def test_silent_member_is_removed_after_its_session(broker):
    m1, m2 = Member(broker, "m1"), Member(broker, "m2")
    m1.join()
    broker.advance(30_000.0)
    m2.join()
    broker.advance(20_000.0)
    assert error_of(m1.beat(2)) is E.UNKNOWN_MEMBER_ID
    assert read_assignment(m2.beat(3, []))[1:] == (4, [0, 1, 2, 3])


def test_member_that_gives_nothing_up_is_removed_after_its_rebalance_time(broker):
    m1, m2 = Member(broker, "m1"), Member(broker, "m2")
    m1.join()
    broker.advance(INTERVAL_MS + 200)
    m2.join()
    assert len(read_assignment(m1.beat(2))[2]) == 2
    for _ in range(3):
        broker.advance(2_000.0)
        m1.beat(2)
    assert error_of(m1.beat(2)) is E.UNKNOWN_MEMBER_ID
    assert read_assignment(m2.beat(3, []))[2] == [0, 1, 2, 3]


def test_member_that_must_give_up_more_has_its_rebalance_time_again(broker):
    m1, *others = (Member(broker, f"m{number}") for number in range(1, 5))
    m1.join()
    broker.advance(INTERVAL_MS + 200)
    others[0].join()
    kept = read_assignment(m1.beat(2))[2]
    others[1].join()
    others[2].join()
    broker.advance(4_000.0)
    others[1].beat(2)
    epoch, left = read_assignment(m1.beat(2, kept))[1:]
    assert (epoch, len(left)) == (2, 1)
    broker.advance(4_000.0)
    assert error_of(m1.beat(2)) is E.NONE
    broker.advance(2_000.0)
    assert error_of(m1.beat(2)) is E.UNKNOWN_MEMBER_ID


def test_group_is_the_same_after_a_restart(broker):
    m1, m2 = Member(broker, "m1"), Member(broker, "m2", server_assignor="range")
    m1.join()
    broker.advance(INTERVAL_MS + 200)
    m2.join()
    before = broker.call(K.CONSUMER_GROUP_DESCRIBE, 1, group_ids=["g"], include_authorized_operations=False)
    broker.restart()
    after = broker.call(K.CONSUMER_GROUP_DESCRIBE, 1, group_ids=["g"], include_authorized_operations=False)
    assert repr(before) == repr(after)
    assert after.groups[0].group_state == "Reconciling"
    assert len(read_assignment(m1.beat(2))[2]) == 2


def test_topic_names_beyond_the_limit_of_a_member_are_refused():
    broker = GroupBroker(group_member_max_metadata_bytes=1_000)
    assert error_of(Member(broker, "m").join(["n" * 200] * 6)) is E.INVALID_REQUEST
    assert error_of(Member(broker, "m").join(["n" * 200])) is E.NONE


def configure(broker, **configs):
    """Set configs of the group `g`; `_` stands for a dot."""
    rows = [{"name": name.replace("_", "."), "config_operation": 0, "value": value} for name, value in configs.items()]
    resources = [{"resource_type": GROUP_RESOURCE, "resource_name": "g", "configs": rows}]
    (reply,) = broker.call(K.INCREMENTAL_ALTER_CONFIGS, 1, resources=resources, validate_only=False).responses
    return E(reply.error_code)


def test_configs_of_a_group_count_from_the_next_heartbeat(broker):
    m = Member(broker, "m")
    assert m.join().heartbeat_interval_ms == 5_000
    assert configure(broker, consumer_heartbeat_interval_ms="9000", consumer_session_timeout_ms="60000") is E.NONE
    assert m.beat(2).heartbeat_interval_ms == 9_000
    broker.advance(50_000.0)
    assert error_of(m.beat(2)) is E.NONE
    assert configure(broker, consumer_heartbeat_interval_ms="15001") is E.INVALID_CONFIG
    assert m.beat(2).heartbeat_interval_ms == 9_000


def test_config_of_a_group_is_used_within_the_bounds_that_the_broker_has_now(broker, caplog):
    m = Member(broker, "m")
    m.join()
    assert configure(broker, consumer_heartbeat_interval_ms="15000") is E.NONE
    options = broker.assembly.config.static or broker.assembly.config
    broker.assembly.config = replace(options, group_consumer_max_heartbeat_interval_ms=6_000)
    broker.restart()
    assert [m.beat(2).heartbeat_interval_ms for _ in range(3)] == [6_000] * 3
    line = "Group g: consumer.heartbeat.interval.ms=15000 is out of the broker's bounds: 6000 is used"
    assert [record.getMessage() for record in caplog.records].count(line) == 1
