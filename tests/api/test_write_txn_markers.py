"""WriteTxnMarkers: when markers are acknowledged, and which are refused."""

import pytest

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode as E
from tests.lone import Lone

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
def test_markers_are_acknowledged_when_they_are_on_the_device(flushed, version, commit):
    partitions = flushed.lone.create_topic("ledger", 2)
    asked = [marker("ledger", 0, commit=commit), marker("ledger", 0, 1, producer_id=8, commit=commit)]
    assert errors(flushed.ask(ApiKey.WRITE_TXN_MARKERS, version, markers=asked)) == [[E.NONE], [E.NONE, E.NONE]]
    assert [partition.high_watermark for partition in partitions] == [2, 1]


def test_markers_of_committed_offsets_are_acknowledged_when_they_are_on_the_device(flushed):
    flushed.lone.call_when_ready(ApiKey.FIND_COORDINATOR, 1, key="g", key_type=0)
    reply = flushed.ask(ApiKey.WRITE_TXN_MARKERS, 1, markers=[marker(OFFSETS, 3)])
    assert errors(reply) == [[E.NONE]]


def test_where_there_is_no_partition_nothing_is_waited_for(flushed):
    client = flushed.lone.client()
    client.send(ApiKey.WRITE_TXN_MARKERS, 1, markers=[marker("nobodys", 0)])
    assert [errors(reply) for reply in client.replies] == [[[E.UNKNOWN_TOPIC_OR_PARTITION]]]


def asked_at_once(lone, version, *markers):
    client = lone.client()
    client.send(ApiKey.WRITE_TXN_MARKERS, version, markers=[*markers])
    (reply,) = client.replies
    return reply


def test_the_answer_has_a_row_for_each_producer_and_none_for_who_names_no_partition():
    lone = Lone()
    lone.create_topic("ledger", 2)
    twice = [marker("ledger", 0, producer_id=8), marker("ledger", 1, 1, producer_id=8)]
    reply = asked_at_once(lone, 1, marker("ledger", producer_id=7), *twice)
    assert [(of.producer_id, errors_of) for of, errors_of in zip(reply.markers, errors(reply), strict=True)] == [
        (8, [E.NONE, E.NONE])
    ]
    assert [row.partition_index for topic in reply.markers[0].topics for row in topic.partitions] == [0, 1]


@pytest.mark.parametrize("broken", [{"producer_id": -1}, {"producer_epoch": -1}, {"transaction_version": -1}], ids=str)
def test_markers_that_kafka_cannot_build_are_refused_as_kafka_does(broken):
    lone = Lone()
    (partition,) = lone.create_topic("ledger")
    reply = asked_at_once(lone, 2, marker("ledger", 0) | broken)
    assert errors(reply) == [[E.UNKNOWN_SERVER_ERROR]] and partition.high_watermark == 0


def test_a_partition_that_is_offline_is_not_known():
    lone = Lone()
    (partition,) = lone.create_topic("ledger")
    lone.turns.event(lambda: partition.take_offline("gone"))
    assert errors(asked_at_once(lone, 1, marker("ledger", 0))) == [[E.UNKNOWN_TOPIC_OR_PARTITION]]
