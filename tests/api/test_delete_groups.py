"""DeleteGroups: groups without members are deleted, with all their offsets."""

import pytest

from ottla.protocol.api_keys import ApiKey as K
from ottla.protocol.errors import ErrorCode as E
from tests.api.callers import GROUP, LEDGER, OF_NOBODY, Member, commit, fetch_offsets

VERSIONS = range(4)


def delete(broker, version, *names):
    return [
        (row.group_id, E(row.error_code))
        for row in broker.call(K.DELETE_GROUPS, version, groups_names=[*names]).results
    ]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_group_named_twice_is_answered_once_and_loses_its_offsets(broker, version):
    commit(broker, (LEDGER, 0, 5))
    commit(broker, (LEDGER, 0, 6), group_id="other")
    assert delete(broker, version, "nobody", GROUP, "nobody", GROUP) == [
        ("nobody", E.GROUP_ID_NOT_FOUND),
        (GROUP, E.NONE),
    ]
    assert (fetch_offsets(broker), fetch_offsets(broker, group_id="other")) == ({}, {(LEDGER, 0): 6})
    assert [row.group_id for row in broker.call(K.LIST_GROUPS, 4, states_filter=[]).groups] == ["other"]
    assert delete(broker, version, GROUP) == [(GROUP, E.GROUP_ID_NOT_FOUND)]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_group_with_members_stays_until_they_have_left(broker, version):
    commit(broker, (LEDGER, 0, 5))
    member = Member(broker).settle()
    assert delete(broker, version, GROUP) == [(GROUP, E.NON_EMPTY_GROUP)]
    assert member.heartbeat() is E.NONE and fetch_offsets(broker) == {(LEDGER, 0): 5}
    assert member.leave().error_code == E.NONE
    assert delete(broker, version, GROUP) == [(GROUP, E.NONE)]


def test_the_group_without_a_name_is_one_too(broker):
    """Kafka stores offsets under the empty name for old clients, and deletes them."""
    assert delete(broker, 2, "") == [("", E.GROUP_ID_NOT_FOUND)]
    commit(broker, (LEDGER, 0, 5), group_id="")
    assert delete(broker, 2, "") == [("", E.NONE)]


def test_a_group_deletion_is_acknowledged_after_its_sync(flushing):
    flushing.broker.create_topic(LEDGER)
    flushing.broker.call_when_ready(K.FIND_COORDINATOR, 1, key=GROUP, key_type=0)
    commit(flushing.broker, (LEDGER, 0, 5))
    (row,) = flushing.ask(K.DELETE_GROUPS, 2, groups_names=[GROUP]).results
    assert row.error_code == E.NONE


def test_a_group_with_1500_offsets_is_deleted(broker):
    broker.create_topic("wide", 1_500)
    rows = [{"partition_index": index, "committed_offset": 5, "committed_metadata": ""} for index in range(1_500)]
    broker.call(K.OFFSET_COMMIT, 8, **OF_NOBODY, topics=[{"name": "wide", "partitions": rows}])
    assert len(fetch_offsets(broker)) == 1_500
    assert delete(broker, 2, GROUP) == [(GROUP, E.NONE)]
    assert (fetch_offsets(broker), delete(broker, 2, GROUP)) == ({}, [(GROUP, E.GROUP_ID_NOT_FOUND)])
