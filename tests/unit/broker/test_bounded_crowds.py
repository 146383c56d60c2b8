"""Many small requests that wait for one thing: when it comes, they go on in shares, each paid for."""

import pytest

from ottla.broker.turns import SHARE_US
from ottla.protocol.api_keys import ApiKey as K
from tests.api.callers import batch, coordinating

CLIENTS, EACH = 200, 2
MOST_US = 3 * SHARE_US
MOST_UNCHARGED_CALLS = 2_000
TOPIC, ID, GROUP = "crowded", "txn", "group"


def init(transactional_id):
    fields = {"transaction_timeout_ms": 60_000, "producer_id": -1, "producer_epoch": -1}
    return K.INIT_PRODUCER_ID, 4, {"transactional_id": transactional_id, **fields}


def produce(number):
    rows = [{"index": 0, "records": batch()}]
    topics = [{"name": TOPIC, "partition_data": rows}]
    return K.PRODUCE, 8, {"transactional_id": None, "acks": -1, "timeout_ms": 1_000, "topic_data": topics}


def commit(number):
    row = {"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}
    fields = {"generation_id_or_member_epoch": -1, "member_id": "", "retention_time_ms": -1}
    return K.OFFSET_COMMIT, 2, {"group_id": GROUP, **fields, "topics": [{"name": TOPIC, "partitions": [row]}]}


def add_partitions(number):
    topics = [{"name": TOPIC, "partitions": [0]}]
    producer = {"v3_and_below_producer_id": 0, "v3_and_below_producer_epoch": 0}
    return K.ADD_PARTITIONS_TO_TXN, 3, {"v3_and_below_transactional_id": ID, **producer, "v3_and_below_topics": topics}


ASKED = {
    "InitProducerId of an id each": lambda number: init(f"{ID}-{number}"),
    "InitProducerId of one id": lambda number: init(ID),
    "InitProducerId without an id": lambda number: init(None),
    "Produce": produce,
    "OffsetCommit": commit,
    "AddPartitionsToTxn": add_partitions,
}


@pytest.mark.parametrize("asked", ASKED.values(), ids=ASKED)
def test_a_crowd_that_waits_for_one_sync_holds_nobody(asked):
    lone = coordinating(sync_ms=50.0)
    lone.create_topic(TOPIC, 1, flush_messages="1")
    crowd = [lone.client(f"client-{number}") for number in range(CLIENTS)]
    for number, client in enumerate(crowd):  # so that each has been served once
        client.post(*asked(number)[:2], **asked(number)[2])
    lone.rest(500.0)
    turns = lone.turns
    turns.most_us, turns.uncharged_calls, turns.weighing = 0.0, 0, True
    for number, client in enumerate(crowd):
        key, version, fields = asked(number)
        for _ in range(EACH):
            client.post(key, version, **fields)
    lone.rest(3_000.0)
    turns.weighing = False
    assert [len(client.replies) for client in crowd] == [1 + EACH] * CLIENTS
    assert turns.most_us <= MOST_US and turns.uncharged_calls <= MOST_UNCHARGED_CALLS, (
        turns.most_us,
        turns.uncharged_calls,
    )
    assert lone.bugs == []
