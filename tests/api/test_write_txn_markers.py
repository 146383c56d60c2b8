"""WriteTxnMarkers: when markers are acknowledged, and which ones are refused."""

import pytest

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode as E
from tests.memory_broker import MemoryBroker

OFFSETS = "__consumer_offsets"


def marker(topic, *indexes, producer_id=7, commit=False):
    topics = [{"name": topic, "partition_indexes": [*indexes]}]
    return {"producer_id": producer_id, "producer_epoch": 0, "transaction_result": commit} | {
        "coordinator_epoch": 0,
        "topics": topics,
    }


def errors(reply):
    return [[row.error_code for topic in of.topics for row in topic.partitions] for of in reply.markers]


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("commit", [False, True])
def test_markers_are_acknowledged_when_they_are_on_the_device(flushing, version, commit):
    partitions = flushing.broker.create_topic("ledger", 2)
    asked = [marker("ledger", 0, commit=commit), marker("ledger", 0, 1, producer_id=8, commit=commit)]
    assert errors(flushing.ask(ApiKey.WRITE_TXN_MARKERS, version, markers=asked)) == [[E.NONE], [E.NONE, E.NONE]]
    assert [partition.high_watermark for partition in partitions] == [2, 1]


def test_markers_of_committed_offsets_are_acknowledged_when_they_are_on_the_device(flushing):
    flushing.broker.call_when_ready(ApiKey.FIND_COORDINATOR, 1, key="g", key_type=0)
    reply = flushing.ask(ApiKey.WRITE_TXN_MARKERS, 1, markers=[marker(OFFSETS, 3)])
    assert errors(reply) == [[E.NONE]]


def test_a_marker_for_an_unknown_partition_is_answered_without_a_sync(flushing):
    client = flushing.broker.client()
    client.send(ApiKey.WRITE_TXN_MARKERS, 1, markers=[marker("nobodys", 0)])
    assert [errors(reply) for reply in client.replies] == [[[E.UNKNOWN_TOPIC_OR_PARTITION]]]


def ask_at_once(broker, version, *markers):
    client = broker.client()
    client.send(ApiKey.WRITE_TXN_MARKERS, version, markers=[*markers])
    (reply,) = client.replies
    return reply


def test_the_answer_has_a_row_for_each_producer_and_none_for_who_names_no_partition():
    broker = MemoryBroker()
    broker.create_topic("ledger", 2)
    twice = [marker("ledger", 0, producer_id=8), marker("ledger", 1, 1, producer_id=8)]
    reply = ask_at_once(broker, 1, marker("ledger", producer_id=7), *twice)
    assert [(of.producer_id, errors_of) for of, errors_of in zip(reply.markers, errors(reply), strict=True)] == [
        (8, [E.NONE, E.NONE])
    ]
    assert [row.partition_index for topic in reply.markers[0].topics for row in topic.partitions] == [0, 1]


@pytest.mark.parametrize("broken", [{"producer_id": -1}, {"producer_epoch": -1}, {"transaction_version": -1}], ids=str)
def test_markers_that_kafka_cannot_build_are_refused_as_kafka_does(broken):
    broker = MemoryBroker()
    (partition,) = broker.create_topic("ledger")
    reply = ask_at_once(broker, 2, marker("ledger", 0) | broken)
    assert errors(reply) == [[E.UNKNOWN_SERVER_ERROR]] and partition.high_watermark == 0
