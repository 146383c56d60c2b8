"""OffsetCommit 10, OffsetFetch 10 and TxnOffsetCommit 6: topics by id, and the ids that commits store.

As Kafka 4.3.1 answers; TxnOffsetCommit as Kafka 4.4.0.
"""

from uuid import UUID

import pytest

from ottla.protocol.api_keys import ApiKey as K
from ottla.protocol.errors import ErrorCode as E
from tests.api.callers import FEW, FOR_GROUPS, FOR_TRANSACTIONS, GROUP, LEDGER, OF_NOBODY, ORDERS, TXN, Producer
from tests.api.consumer_groups import GroupBroker, Member

UNKNOWN = UUID(int=7)
NONE = UUID(int=0)


@pytest.fixture
def broker():
    broker = GroupBroker(**FEW)
    broker.create_topic(LEDGER, 2)
    broker.create_topic(ORDERS, 1)
    for name, key_type in ((GROUP, FOR_GROUPS), (TXN, FOR_TRANSACTIONS)):
        broker.call_when_ready(K.FIND_COORDINATOR, 1, key=name, key_type=key_type)
    return broker


def topic_id(broker, name):
    return UUID(bytes=broker.assembly.broker.cluster.topics[name].topic_id)


def commit(broker, *topics, version=10, **fields):
    """Commit (name or id, partition, offset) each; return [(name or id, partition, error)]."""
    rows = [
        {
            **_place(name, version),
            "partitions": [{"partition_index": index, "committed_offset": offset, "committed_metadata": ""}],
        }
        for name, index, offset in topics
    ]
    reply = broker.call(K.OFFSET_COMMIT, version, **OF_NOBODY | fields, topics=rows)
    return [
        (_place_of(topic), row.partition_index, E(row.error_code)) for topic in reply.topics for row in topic.partitions
    ]


def fetch(broker, *topics, version=10, **fields):
    """Return {(name or id, partition): offset, or its error}; of all topics if none is given."""
    rows = [{**_place(name, version), "partition_indexes": [index]} for name, index in topics]
    reply = broker.call(K.OFFSET_FETCH, version, groups=[{"group_id": GROUP, "topics": rows or None}], **fields)
    (group,) = reply.groups
    assert not group.error_code
    return {
        (_place_of(topic), row.partition_index): E(row.error_code) if row.error_code else row.committed_offset
        for topic in group.topics
        for row in topic.partitions
    }


def _place(name, version):
    return {"topic_id" if version >= 10 else "name": name}


def _place_of(topic):
    if topic.version < 10:
        return topic.name
    return NONE if topic.topic_id is None else topic.topic_id


def stored_id(broker, topic, index=0):
    _, offsets = broker.assembly.broker.groups.offsets.of_group(GROUP)
    stored = offsets.get((topic, index)).value.topic_id
    return None if stored is None else UUID(bytes=stored)


def test_topics_are_named_by_id(broker):
    ledger, orders = topic_id(broker, LEDGER), topic_id(broker, ORDERS)
    assert commit(broker, (ledger, 1, 5), (orders, 0, 6)) == [(ledger, 1, E.NONE), (orders, 0, E.NONE)]
    assert fetch(broker, (orders, 0), (ledger, 1), (ledger, 0)) == {(orders, 0): 6, (ledger, 1): 5, (ledger, 0): -1}
    assert fetch(broker) == {(ledger, 1): 5, (orders, 0): 6}
    assert fetch(broker, (LEDGER, 1), version=9) == {(LEDGER, 1): 5}


def test_an_unknown_id_fails_its_partitions_alone(broker):
    ledger = topic_id(broker, LEDGER)
    assert commit(broker, (UNKNOWN, 0, 5), (ledger, 0, 6), (NONE, 0, 7), (ledger, 9, 8)) == [
        (UNKNOWN, 0, E.UNKNOWN_TOPIC_ID),
        (ledger, 0, E.NONE),
        (NONE, 0, E.UNKNOWN_TOPIC_ID),
        (ledger, 9, E.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    assert fetch(broker, (UNKNOWN, 0), (ledger, 0), (NONE, 0), (ledger, 9)) == {
        (UNKNOWN, 0): E.UNKNOWN_TOPIC_ID,
        (ledger, 0): 6,
        (NONE, 0): E.UNKNOWN_TOPIC_ID,
        (ledger, 9): -1,
    }


@pytest.mark.parametrize("version", [5, 9, 10])
def test_a_commit_stores_the_id_of_its_topic(broker, version):
    commit(broker, (LEDGER if version < 10 else topic_id(broker, LEDGER), 0, 5), version=version)
    assert stored_id(broker, LEDGER) == topic_id(broker, LEDGER)
    broker.restart()
    broker.call_when_ready(K.FIND_COORDINATOR, 1, key=GROUP, key_type=0)
    assert stored_id(broker, LEDGER) == topic_id(broker, LEDGER)


def test_a_commit_with_a_time_to_be_kept_stores_no_id(broker):
    """Version 1 of the stored value, which has the time, has no id."""
    commit(broker, (LEDGER, 0, 5), version=4, retention_time_ms=60_000)
    assert stored_id(broker, LEDGER) is None
    assert fetch(broker, (topic_id(broker, LEDGER), 0)) == {(topic_id(broker, LEDGER), 0): 5}


def test_a_commit_in_a_transaction_stores_no_id(broker):
    producer = Producer(broker)
    producer.add_offsets()
    rows = [{"partition_index": 0, "committed_offset": 5, "committed_metadata": ""}]
    of_group = {
        "group_id": GROUP,
        "generation_id": -1,
        "member_id": "",
        "topics": [{"name": LEDGER, "partitions": rows}],
    }
    broker.call(K.TXN_OFFSET_COMMIT, 3, **producer.owner, **of_group)
    ledger = topic_id(broker, LEDGER)
    assert fetch(broker, (ledger, 0), require_stable=True) == {(ledger, 0): E.UNSTABLE_OFFSET_COMMIT}
    producer.end()
    assert stored_id(broker, LEDGER) is None
    assert fetch(broker, (ledger, 0)) == {(ledger, 0): 5}


def test_an_offset_of_a_deleted_topic_does_not_count_for_the_next_topic_of_its_name(broker):
    commit(broker, (LEDGER, 0, 5), (ORDERS, 0, 6), version=9)
    before = topic_id(broker, LEDGER)
    broker.call(K.DELETE_TOPICS, 1, topic_names=[LEDGER], timeout_ms=1_000)
    assert fetch(broker, (before, 0)) == {(before, 0): E.UNKNOWN_TOPIC_ID}
    assert commit(broker, (before, 0, 7)) == [(before, 0, E.UNKNOWN_TOPIC_ID)]
    broker.create_topic(LEDGER, 1)
    broker.advance(10_000.0)
    ledger = topic_id(broker, LEDGER)
    assert fetch(broker, (ledger, 0), (before, 0)) == {(ledger, 0): -1, (before, 0): E.UNKNOWN_TOPIC_ID}
    assert fetch(broker) == {(topic_id(broker, ORDERS), 0): 6}


def test_an_offset_whose_removal_a_crash_prevented_is_hidden_from_the_next_topic_of_its_name(broker, monkeypatch):
    commit(broker, (LEDGER, 0, 5), version=9)
    monkeypatch.setattr(broker.assembly.broker.groups._deleted_topics, "forget_topic", lambda topic: None)
    broker.call(K.DELETE_TOPICS, 1, topic_names=[LEDGER], timeout_ms=1_000)
    broker.restart()
    broker.create_topic(LEDGER, 1)
    broker.call_when_ready(K.FIND_COORDINATOR, 1, key=GROUP, key_type=0)
    ledger = topic_id(broker, LEDGER)
    assert fetch(broker, (ledger, 0)) == {(ledger, 0): -1}
    assert fetch(broker, (LEDGER, 0), version=9) == {(LEDGER, 0): 5}
    assert fetch(broker) == {(ledger, 0): 5}  # as in Kafka: only topics that are named are compared
    commit(broker, (ledger, 0, 1))
    assert fetch(broker, (ledger, 0)) == {(ledger, 0): 1}


def test_all_offsets_leave_out_topics_that_are_gone(broker, monkeypatch):
    commit(broker, (LEDGER, 0, 5), (ORDERS, 0, 6), version=9)
    monkeypatch.setattr(broker.assembly.broker.groups._deleted_topics, "forget_topic", lambda topic: None)
    broker.call(K.DELETE_TOPICS, 1, topic_names=[LEDGER], timeout_ms=1_000)
    assert fetch(broker) == {(topic_id(broker, ORDERS), 0): 6}
    assert fetch(broker, version=9) == {(LEDGER, 0): 5, (ORDERS, 0): 6}


def commit_in_transaction(producer, *topics, version=6, **fields):
    """Commit (name or id, partition) each in the transaction; return [(name or id, partition, error)]."""
    rows = [
        {
            "topic_id" if version >= 6 else "name": name,
            "partitions": [{"partition_index": index, "committed_offset": 5, "committed_metadata": ""}],
        }
        for name, index in topics
    ]
    asked = {"group_id": GROUP, "generation_id": -1, "member_id": "", "topics": rows}
    reply = producer.broker.call(K.TXN_OFFSET_COMMIT, version, **producer.owner | asked | fields)
    return [
        ((topic.topic_id or NONE) if version >= 6 else topic.name, row.partition_index, E(row.error_code))
        for topic in reply.topics
        for row in topic.partitions
    ]


def test_a_commit_by_id_in_a_transaction_stores_the_id(broker):
    producer, ledger = Producer(broker), topic_id(broker, LEDGER)
    unknown = [(UNKNOWN, 0, E.UNKNOWN_TOPIC_ID), (NONE, 0, E.UNKNOWN_TOPIC_ID)]
    assert commit_in_transaction(producer, (UNKNOWN, 0), (NONE, 0)) == unknown
    assert producer.describe().transaction_state == "Empty"
    assert commit_in_transaction(producer, (UNKNOWN, 0), (ledger, 1), (NONE, 0), (ledger, 9)) == [
        unknown[0],
        (ledger, 1, E.NONE),
        unknown[1],
        (ledger, 9, E.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    assert producer.end(5)[0] is E.NONE
    assert stored_id(broker, LEDGER, 1) == ledger
    assert fetch(broker, (ledger, 1)) == {(ledger, 1): 5}


@pytest.mark.parametrize(
    ("version", "missing", "stale"), [(5, *[E.ILLEGAL_GENERATION] * 2), (6, E.GROUP_ID_NOT_FOUND, E.STALE_MEMBER_EPOCH)]
)
def test_a_commit_by_id_in_a_transaction_knows_epochs(broker, version, missing, stale):
    producer, name = Producer(broker), topic_id(broker, LEDGER) if version >= 6 else LEDGER
    asked = {"version": version, "generation_id": 1}
    assert commit_in_transaction(producer, (name, 0), **asked) == [(name, 0, missing)]
    joined = Member(broker, "m1", GROUP).join([LEDGER])
    for epoch, error in ((joined.member_epoch, E.NONE), (joined.member_epoch + 1, stale)):
        asked = {"version": version, "generation_id": epoch, "member_id": "m1"}
        assert commit_in_transaction(producer, (name, 0), **asked) == [(name, 0, error)]


def test_a_commit_by_the_id_of_a_deleted_topic_is_not_one_to_the_next_topic_of_its_name(broker):
    producer, before = Producer(broker), topic_id(broker, LEDGER)
    broker.call(K.DELETE_TOPICS, 1, topic_names=[LEDGER], timeout_ms=1_000)
    broker.create_topic(LEDGER, 2)
    assert commit_in_transaction(producer, (before, 0)) == [(before, 0, E.UNKNOWN_TOPIC_ID)]
    ledger = topic_id(broker, LEDGER)
    assert commit_in_transaction(producer, (ledger, 0)) == [(ledger, 0, E.NONE)]
