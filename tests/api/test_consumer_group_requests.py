"""Answers of the other group APIs about a group of the consumer protocol, and its commits and fetches."""

import pytest

from ottla.protocol.api_keys import ApiKey as K
from ottla.protocol.errors import ErrorCode as E
from tests.api.consumer_groups import INTERVAL_MS, GroupBroker, Member, read_assignment


@pytest.fixture
def broker():
    return GroupBroker(group_initial_rebalance_delay_ms=0)


def commit(broker, epoch, member_id, *, version=9, partitions=(0,), instance_id=None):
    rows = [
        {"partition_index": index, "committed_offset": 7, "committed_leader_epoch": -1, "committed_metadata": ""}
        for index in partitions
    ]
    reply = broker.call(
        K.OFFSET_COMMIT,
        version,
        group_id="g",
        generation_id_or_member_epoch=epoch,
        member_id=member_id,
        group_instance_id=instance_id,
        topics=[{"name": "t", "partitions": rows}],
    )
    return [E(row.error_code) for row in reply.topics[0].partitions]


def fetch(broker, member_id=None, epoch=-1, *, version=9):
    group = {"group_id": "g", "topics": [{"name": "t", "partition_indexes": [0]}]}
    if version >= 9:
        group |= {"member_id": member_id, "member_epoch": epoch}
    (found,) = broker.call(K.OFFSET_FETCH, version, groups=[group], require_stable=False).groups
    return E(found.error_code), [row.committed_offset for topic in found.topics for row in topic.partitions]


def describe(broker, version=1):
    (group,) = broker.call(
        K.CONSUMER_GROUP_DESCRIBE, version, group_ids=["g"], include_authorized_operations=False
    ).groups
    return group


def test_member_commits_and_fetches_with_its_epoch(broker):
    Member(broker, "m").join()
    assert commit(broker, 2, "m") == [E.NONE]
    assert fetch(broker, "m", 2) == (E.NONE, [7])
    assert fetch(broker, "m", 1) == (E.STALE_MEMBER_EPOCH, [])
    assert fetch(broker, "zz", 2) == (E.UNKNOWN_MEMBER_ID, [])
    assert fetch(broker) == fetch(broker, version=8) == (E.NONE, [7])


def test_commit_of_another_epoch_is_stale(broker):
    Member(broker, "m").join()
    assert commit(broker, 3, "m", partitions=(0, 1)) == [E.STALE_MEMBER_EPOCH] * 2
    assert commit(broker, 1, "m") == [E.STALE_MEMBER_EPOCH]
    assert commit(broker, 2, "zz") == commit(broker, -1, "zz") == [E.UNKNOWN_MEMBER_ID]


def test_commit_of_an_earlier_epoch_counts_for_partitions_that_the_member_has_had_since(broker):
    m1, m2 = Member(broker, "m1"), Member(broker, "m2")
    m1.join()
    broker.advance(INTERVAL_MS + 200)
    m2.join()
    kept = read_assignment(m1.beat(2))[2]
    assert read_assignment(m1.beat(2, kept))[1] == 3
    lost = [index for index in range(4) if index not in kept]
    assert commit(broker, 2, "m1", partitions=kept) == [E.NONE] * 2
    assert commit(broker, 2, "m1", partitions=[kept[0], lost[0]]) == [E.STALE_MEMBER_EPOCH] * 2


def test_commit_of_a_version_without_epochs_is_refused(broker):
    Member(broker, "m").join()
    assert commit(broker, 2, "m", version=8) == [E.UNSUPPORTED_VERSION]


def test_admin_commits_to_a_group_whose_members_have_left(broker):
    m = Member(broker, "m")
    m.join()
    assert commit(broker, -1, "") == [E.UNKNOWN_MEMBER_ID]
    m.beat(-1)
    assert commit(broker, -1, "") == [E.NONE]


def test_group_is_described_with_epochs_and_assignments(broker):
    Member(broker, "m", rack_id="r").join()
    group = describe(broker)
    assert (group.error_code, group.group_state, group.group_epoch, group.assignment_epoch) == (0, "Stable", 2, 2)
    assert group.assignor_name == "uniform"
    (member,) = group.members
    assert (member.member_id, member.rack_id, member.member_epoch, member.member_type) == ("m", "r", 2, 1)
    assert [*member.subscribed_topic_names] == ["t"]
    for assignment in (member.assignment, member.target_assignment):
        (topic,) = assignment.topic_partitions
        assert (topic.topic_name, sorted(topic.partitions)) == ("t", [0, 1, 2, 3])


def test_unknown_group_is_not_found(broker):
    group = describe(broker)
    assert (group.error_code, group.error_message) == (E.GROUP_ID_NOT_FOUND, "Group g not found.")


def test_group_is_listed_with_its_type_and_is_no_classic_group(broker):
    Member(broker, "m").join()
    filters = {"states_filter": [], "types_filter": ["CONSUMER"]}
    (row,) = broker.call(K.LIST_GROUPS, 5, **filters).groups
    assert (row.group_id, row.protocol_type, row.group_state, row.group_type) == ("g", "consumer", "Stable", "consumer")
    assert broker.call(K.LIST_GROUPS, 5, states_filter=[], types_filter=["classic"]).groups == []
    (row,) = broker.call(K.LIST_GROUPS, 4, states_filter=["stable"]).groups
    assert row.group_state == "Stable"
    (classic,) = broker.call(K.DESCRIBE_GROUPS, 6, groups=["g"], include_authorized_operations=False).groups
    assert (classic.error_code, classic.group_state) == (E.GROUP_ID_NOT_FOUND, "Dead")
    (classic,) = broker.call(K.DESCRIBE_GROUPS, 5, groups=["g"], include_authorized_operations=False).groups
    assert (classic.error_code, classic.group_state) == (E.NONE, "Dead")


def test_group_is_deleted_when_its_members_have_left(broker):
    m = Member(broker, "m")
    m.join()
    assert commit(broker, 2, "m") == [E.NONE]
    (row,) = broker.call(K.DELETE_GROUPS, 2, groups_names=["g"]).results
    assert row.error_code == E.NON_EMPTY_GROUP
    m.beat(-1)
    (row,) = broker.call(K.DELETE_GROUPS, 2, groups_names=["g"]).results
    assert row.error_code == E.NONE
    assert describe(broker).error_code == E.GROUP_ID_NOT_FOUND
    broker.restart()
    assert describe(broker).error_code == E.GROUP_ID_NOT_FOUND
    assert read_assignment(m.join()) == (E.NONE, 2, [0, 1, 2, 3])


def test_offsets_of_a_topic_to_which_the_group_subscribes_are_not_deleted(broker):
    m = Member(broker, "m")
    m.join()
    commit(broker, 2, "m")
    topic = {"name": "t", "partitions": [{"partition_index": 0}]}
    reply = broker.call(K.OFFSET_DELETE, 0, group_id="g", topics=[topic])
    assert reply.topics[0].partitions[0].error_code == E.GROUP_SUBSCRIBED_TO_TOPIC


def test_classic_member_joins_a_group_that_its_members_have_left(broker):
    m = Member(broker, "m")
    m.join()
    m.beat(-1)
    fields = {"session_timeout_ms": 10_000, "rebalance_timeout_ms": 10_000, "protocol_type": "consumer"}
    protocols = [{"name": "range", "metadata": bytes(10)}]
    reply = broker.call(K.JOIN_GROUP, 3, group_id="g", member_id="", protocols=protocols, **fields)
    assert reply.error_code == E.NONE
    assert describe(broker).error_code == E.GROUP_ID_NOT_FOUND


def test_protocol_that_is_turned_off_is_unsupported():
    broker = GroupBroker(group_coordinator_rebalance_protocols="classic")
    assert Member(broker, "m").join().error_code == E.UNSUPPORTED_VERSION
    assert describe(broker).error_code == E.UNSUPPORTED_VERSION


def test_feature_level_0_turns_the_protocol_off(broker):
    update = {"feature": "group.version", "max_version_level": 0, "upgrade_type": 2}
    assert broker.call(K.UPDATE_FEATURES, 1, feature_updates=[update]).error_code == E.NONE
    assert Member(broker, "m").join().error_code == E.UNSUPPORTED_VERSION


def test_own_configs_of_a_group_count(broker):
    config = {"name": "consumer.heartbeat.interval.ms", "config_operation": 0, "value": "6000"}
    resource = {"resource_type": 32, "resource_name": "g", "configs": [config]}
    reply = broker.call(K.INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource], validate_only=False)
    assert reply.responses[0].error_code == E.NONE
    assert Member(broker, "m").join().heartbeat_interval_ms == 6_000


def test_changed_assignment_interval_of_the_broker_counts_at_once(broker):
    m1, m2 = Member(broker, "m1"), Member(broker, "m2")
    config = {"name": "group.consumer.assignment.interval.ms", "config_operation": 0, "value": "0"}
    resource = {"resource_type": 4, "resource_name": "1", "configs": [config]}
    reply = broker.call(K.INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource], validate_only=False)
    assert reply.responses[0].error_code == E.NONE
    m1.join()
    assert read_assignment(m2.join()) == (E.NONE, 3, [])
