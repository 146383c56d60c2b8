"""WriteTxnMarkers: when markers are acknowledged."""

import pytest

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode as E

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
    flushed.ask_until(ApiKey.FIND_COORDINATOR, 1, key="g", key_type=0)
    reply = flushed.ask(ApiKey.WRITE_TXN_MARKERS, 1, markers=[marker(OFFSETS, 3)])
    assert errors(reply) == [[E.NONE]]


def test_where_there_is_no_partition_nothing_is_waited_for(flushed):
    client = flushed.lone.client()
    client.send(ApiKey.WRITE_TXN_MARKERS, 1, markers=[marker("nobodys", 0)])
    assert [errors(reply) for reply in client.replies] == [[[E.UNKNOWN_TOPIC_OR_PARTITION]]]
