"""OffsetDelete: which offsets of a group may be deleted."""

import pytest

from ottla.protocol.api_keys import ApiKey as K
from ottla.protocol.errors import ErrorCode as E
from tests.api.callers import GROUP, LEDGER, ORDERS, Member, commit, fetch_offsets

SUBSCRIBED_TO_LEDGER = bytes.fromhex("0000 00000001 0006 6c6564676572 ffffffff")
PLACES = [(LEDGER, 0), (LEDGER, 1), (ORDERS, 0)]


@pytest.fixture
def broker(broker):
    commit(broker, *((*place, 5) for place in PLACES))
    return broker


def delete(broker, *topics, group_id=GROUP):
    """Delete offsets and return (error, [(topic, [(partition, error)])])."""
    rows = [{"name": name, "partitions": [{"partition_index": index} for index in indexes]} for name, indexes in topics]
    reply = broker.call(K.OFFSET_DELETE, 0, group_id=group_id, topics=rows)
    told = [
        (topic.name, [(row.partition_index, E(row.error_code)) for row in topic.partitions]) for topic in reply.topics
    ]
    return E(reply.error_code), told


def test_each_partition_is_answered_and_those_that_are_named_go(broker):
    told = delete(broker, (LEDGER, [1, 9, 3]), ("none", [0]), (ORDERS, []))
    unknown = E.UNKNOWN_TOPIC_OR_PARTITION
    rows = [(LEDGER, [(1, E.NONE), (9, unknown), (3, E.NONE)]), ("none", [(0, unknown)]), (ORDERS, [])]
    assert told == (E.NONE, rows)
    assert fetch_offsets(broker) == {(LEDGER, 0): 5, (ORDERS, 0): 5}


@pytest.mark.parametrize(("group_id", "error"), [("", E.INVALID_GROUP_ID), ("nobody", E.GROUP_ID_NOT_FOUND)])
def test_an_error_of_the_group_is_that_of_the_request(broker, group_id, error):
    assert delete(broker, (LEDGER, [0]), group_id=group_id) == (error, [])


def test_of_a_group_with_members_go_offsets_of_topics_that_none_of_them_reads(broker):
    Member(broker).settle(protocols=(("range", SUBSCRIBED_TO_LEDGER),))
    subscribed = E.GROUP_SUBSCRIBED_TO_TOPIC
    assert delete(broker, (LEDGER, [0, 9]), (ORDERS, [0])) == (
        E.NONE,
        [(LEDGER, [(0, subscribed), (9, E.UNKNOWN_TOPIC_OR_PARTITION)]), (ORDERS, [(0, E.NONE)])],
    )
    assert fetch_offsets(broker) == {(LEDGER, 0): 5, (LEDGER, 1): 5}


def test_members_that_are_no_consumers_keep_all_of_them(broker):
    member = Member(broker).settle(protocol_type="connect")
    assert delete(broker, (ORDERS, [0])) == (E.NON_EMPTY_GROUP, [])
    assert len(fetch_offsets(broker)) == 3
    member.leave()
    assert delete(broker, (ORDERS, [0])) == (E.NONE, [(ORDERS, [(0, E.NONE)])])


def test_an_offset_deletion_is_acknowledged_after_its_sync(flushing):
    flushing.broker.create_topic(LEDGER)
    flushing.broker.call_when_ready(K.FIND_COORDINATOR, 1, key=GROUP, key_type=0)
    commit(flushing.broker, (LEDGER, 0, 5))
    topics = [{"name": LEDGER, "partitions": [{"partition_index": 0}]}]
    assert flushing.ask(K.OFFSET_DELETE, 0, group_id=GROUP, topics=topics).error_code == E.NONE
    assert fetch_offsets(flushing.broker) == {}
