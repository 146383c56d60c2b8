"""OffsetCommit and TxnOffsetCommit: when commits are acknowledged, and which fields are stored."""

import pytest

from ottla.protocol.api_keys import ApiKey as K
from ottla.protocol.errors import ErrorCode as E
from ottla.testkit.in_memory.wire import message
from tests.memory_broker import MemoryBroker

GROUP = "g"
PLACE = [{"name": "ledger", "partitions": [{"partition_index": 0, "committed_offset": 5, "committed_metadata": ""}]}]


def errors(reply):
    return [row.error_code for topic in reply.topics for row in topic.partitions]


def fetch_offset(broker, group_id=GROUP):
    topics = [{"name": "ledger", "partition_indexes": [0]}]
    reply = broker.call(K.OFFSET_FETCH, 5, group_id=group_id, topics=topics)
    return reply.topics[0].partitions[0].committed_offset


@pytest.mark.parametrize("group_id", [GROUP, ""])
@pytest.mark.parametrize("version", [2, 8])
def test_offsets_are_committed_when_they_are_on_the_device(flushing, version, group_id):
    flushing.broker.create_topic("ledger")
    flushing.broker.call_when_ready(K.FIND_COORDINATOR, 1, key=GROUP, key_type=0)
    of_nobody = {"group_id": group_id, "generation_id_or_member_epoch": -1, "member_id": ""}
    assert errors(flushing.ask(K.OFFSET_COMMIT, version, **of_nobody, topics=PLACE)) == [E.NONE]
    assert fetch_offset(flushing.broker, group_id) == 5


def test_a_commit_for_an_unknown_partition_is_answered_without_a_sync(flushing):
    flushing.broker.call_when_ready(K.FIND_COORDINATOR, 1, key=GROUP, key_type=0)
    flushing.broker.advance(1_000)
    client = flushing.broker.client()
    of_nobody = {"group_id": GROUP, "generation_id_or_member_epoch": 3, "member_id": "m"}
    client.send(K.OFFSET_COMMIT, 8, **of_nobody, topics=PLACE)
    assert [errors(reply) for reply in client.replies] == [[E.UNKNOWN_TOPIC_OR_PARTITION]]


def test_offsets_of_a_transaction_are_pending_when_they_are_on_the_device(flushing):
    flushing.broker.create_topic("ledger")
    flushing.broker.call_when_ready(K.FIND_COORDINATOR, 1, key=GROUP, key_type=0)
    flushing.broker.call_when_ready(K.FIND_COORDINATOR, 1, key="txn", key_type=1)
    begun = {"transactional_id": "txn", "transaction_timeout_ms": 60_000}
    producer = flushing.broker.call_when_ready(K.INIT_PRODUCER_ID, 1, **begun)
    owner = {"transactional_id": "txn", "producer_id": producer.producer_id, "producer_epoch": producer.producer_epoch}
    added = flushing.ask(K.ADD_OFFSETS_TO_TXN, 1, **owner, group_id=GROUP)
    assert added.error_code == E.NONE
    reply = flushing.ask(K.TXN_OFFSET_COMMIT, 2, **owner, group_id=GROUP, topics=PLACE)
    assert errors(reply) == [E.NONE] and fetch_offset(flushing.broker) == -1
    assert flushing.ask(K.END_TXN, 1, **owner, committed=True).error_code == E.NONE
    flushing.broker.advance(1_000)
    assert fetch_offset(flushing.broker) == 5


OF_NOBODY = {"group_id": GROUP, "generation_id_or_member_epoch": -1, "member_id": ""}


@pytest.fixture
def broker():
    broker = MemoryBroker()
    broker.create_topic("ledger", 2)
    while broker.ask(K.FIND_COORDINATOR, 1, message(K.FIND_COORDINATOR, 1, key=GROUP, key_type=0)).error_code:
        broker.advance()
    return broker


def commit(broker, version, *rows, **given):
    """Commit and return errors by partition; rows are (partition, offset, fields that differ)."""
    partitions = [{"partition_index": index, "committed_offset": offset} | more for index, offset, more in rows]
    topics = [{"name": "ledger", "partitions": partitions}]
    asked = message(K.OFFSET_COMMIT, version, **OF_NOBODY | given, topics=topics)
    (topic,) = broker.ask(K.OFFSET_COMMIT, version, asked).topics
    return {row.partition_index: E(row.error_code) for row in topic.partitions}


def fetch_rows(broker, *indexes):
    """Return [(offset, leader epoch, metadata)]."""
    asked = message(K.OFFSET_FETCH, 5, group_id=GROUP, topics=[{"name": "ledger", "partition_indexes": [*indexes]}])
    rows = broker.ask(K.OFFSET_FETCH, 5, asked).topics[0].partitions
    return [(row.committed_offset, row.committed_leader_epoch, row.metadata) for row in rows]


def test_each_partition_has_its_offset_and_its_error(broker):
    told = commit(broker, 8, (1, 7, {"committed_metadata": "said"}), (5, 1, {}), (0, 3, {"committed_metadata": None}))
    assert told == {1: E.NONE, 5: E.UNKNOWN_TOPIC_OR_PARTITION, 0: E.NONE} and [*told] == [1, 5, 0]
    assert fetch_rows(broker, 0, 1, 5) == [(3, -1, ""), (7, -1, "said"), (-1, -1, "")]


@pytest.mark.parametrize("version", range(2, 10))
def test_of_two_offsets_of_one_partition_the_last_counts_and_each_is_answered(broker, version):
    rows = [
        {"partition_index": index, "committed_offset": at, "committed_metadata": ""}
        for index, at in ((0, 4), (1, 5), (0, 6))
    ]
    reply = broker.call(K.OFFSET_COMMIT, version, **OF_NOBODY, topics=[{"name": "ledger", "partitions": rows}])
    assert [(row.partition_index, row.error_code) for row in reply.topics[0].partitions] == [(0, 0), (1, 0), (0, 0)]
    assert fetch_rows(broker, 0, 1) == [(6, -1, ""), (5, -1, "")]


@pytest.mark.parametrize(("version", "epoch"), [(5, -1), (6, 4), (9, 4)])
def test_leader_epochs_are_kept_from_version_6_on(broker, version, epoch):
    more = {"committed_leader_epoch": 4} if version >= 6 else {}
    assert commit(broker, version, (0, 3, more)) == {0: E.NONE}
    assert fetch_rows(broker, 0) == [(3, epoch, "")]


@pytest.mark.parametrize(("version", "retention_ms", "kept"), [(2, 60_000, False), (4, 60_000, False), (4, -1, True)])
def test_a_time_to_be_kept_counts_up_to_version_4(broker, version, retention_ms, kept):
    assert commit(broker, version, (0, 3, {}), retention_time_ms=retention_ms) == {0: E.NONE}
    assert commit(broker, 5, (1, 4, {})) == {1: E.NONE}
    assert fetch_rows(broker, 0, 1) == [(3, -1, ""), (4, -1, "")]
    broker.advance(3_600_000.0)
    assert fetch_rows(broker, 0, 1) == [(3, -1, "") if kept else (-1, -1, ""), (4, -1, "")]


@pytest.mark.parametrize(("version", "error"), [(8, E.ILLEGAL_GENERATION), (9, E.GROUP_ID_NOT_FOUND)])
def test_a_generation_of_a_group_that_does_not_exist_is_refused(broker, version, error):
    assert commit(broker, version, (0, 3, {}), generation_id_or_member_epoch=3, member_id="m") == {0: error}


@pytest.mark.parametrize("version", [6, 7])
def test_a_static_member_is_known_by_its_name_from_version_7_on(broker, version):
    protocols = [{"name": "range", "metadata": b""}]
    joining = {"group_id": GROUP, "group_instance_id": "i", "member_id": "", "protocol_type": "consumer"}
    joining |= {"session_timeout_ms": 10_000, "rebalance_timeout_ms": 60_000, "protocols": protocols}
    client = broker.client()
    client.send(K.JOIN_GROUP, 5, **joining)
    broker.advance(5_000)
    (joined,) = client.replies
    member = {"generation_id_or_member_epoch": joined.generation_id, "member_id": joined.member_id}
    synced = {"group_id": GROUP, "generation_id": joined.generation_id, "member_id": joined.member_id}
    client.send(K.SYNC_GROUP, 3, **synced, group_instance_id="i", assignments=[])
    named = {"group_instance_id": "j"} if version >= 7 else {}
    assert commit(broker, version, (0, 3, {}), **member, **named) == {0: E.UNKNOWN_MEMBER_ID if named else E.NONE}
    assert commit(broker, version, (0, 4, {}), **member) == {0: E.NONE}
