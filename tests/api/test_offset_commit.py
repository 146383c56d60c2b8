"""OffsetCommit and TxnOffsetCommit: when commits are acknowledged."""

import pytest

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode as E
from ottla.testkit.furnish import message

GROUP = "g"
PLACE = [{"name": "ledger", "partitions": [{"partition_index": 0, "committed_offset": 5, "committed_metadata": ""}]}]


def errors(reply):
    return [row.error_code for topic in reply.topics for row in topic.partitions]


def committed(lone):
    topics = [{"name": "ledger", "partition_indexes": [0]}]
    reply = lone.ask(ApiKey.OFFSET_FETCH, 5, message(ApiKey.OFFSET_FETCH, 5, group_id=GROUP, topics=topics))
    return reply.topics[0].partitions[0].committed_offset


@pytest.mark.parametrize("version", [2, 8])
def test_offsets_are_committed_when_they_are_on_the_device(flushed, version):
    flushed.lone.create_topic("ledger")
    flushed.ask_until(ApiKey.FIND_COORDINATOR, 1, key=GROUP, key_type=0)
    of_nobody = {"group_id": GROUP, "generation_id_or_member_epoch": -1, "member_id": ""}
    assert errors(flushed.ask(ApiKey.OFFSET_COMMIT, version, **of_nobody, topics=PLACE)) == [E.NONE]
    assert committed(flushed.lone) == 5


def test_where_nothing_is_committed_nothing_is_waited_for(flushed):
    flushed.ask_until(ApiKey.FIND_COORDINATOR, 1, key=GROUP, key_type=0)
    flushed.lone.rest(1_000)
    client = flushed.lone.client()
    of_nobody = {"group_id": GROUP, "generation_id_or_member_epoch": 3, "member_id": "m"}
    client.send(ApiKey.OFFSET_COMMIT, 8, **of_nobody, topics=PLACE)
    assert [errors(reply) for reply in client.replies] == [[E.UNKNOWN_TOPIC_OR_PARTITION]]


def test_offsets_of_a_transaction_are_pending_when_they_are_on_the_device(flushed):
    flushed.lone.create_topic("ledger")
    flushed.ask_until(ApiKey.FIND_COORDINATOR, 1, key=GROUP, key_type=0)
    flushed.ask_until(ApiKey.FIND_COORDINATOR, 1, key="txn", key_type=1)
    begun = {"transactional_id": "txn", "transaction_timeout_ms": 60_000}
    producer = flushed.ask_until(ApiKey.INIT_PRODUCER_ID, 1, **begun)
    owner = {"transactional_id": "txn", "producer_id": producer.producer_id, "producer_epoch": producer.producer_epoch}
    added = flushed.ask(ApiKey.ADD_OFFSETS_TO_TXN, 1, **owner, group_id=GROUP)
    assert added.error_code == E.NONE
    reply = flushed.ask(ApiKey.TXN_OFFSET_COMMIT, 2, **owner, group_id=GROUP, topics=PLACE)
    assert errors(reply) == [E.NONE] and committed(flushed.lone) == -1
    assert flushed.ask(ApiKey.END_TXN, 1, **owner, committed=True).error_code == E.NONE
    flushed.lone.rest(1_000)
    assert committed(flushed.lone) == 5
