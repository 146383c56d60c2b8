"""WriteTxnMarkers: when markers are acknowledged, and which ones are refused."""

import pytest

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.batch import build_batch
from ottla.protocol.errors import ErrorCode as E
from ottla.protocol.requests.produced import check_produced_batch
from ottla.testkit.in_memory.schedule import START_MS
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


def test_a_partition_that_is_offline_is_not_known():
    broker = MemoryBroker()
    (partition,) = broker.create_topic("ledger")
    broker.turns.event(lambda: partition.take_offline("gone"))
    assert errors(ask_at_once(broker, 1, marker("ledger", 0))) == [[E.UNKNOWN_TOPIC_OR_PARTITION]]


EPOCH, LAST_EPOCH = 5, 32_767


def written_by(epoch, transactional):
    """Return a partition whose producer 7 has this epoch, and an open transaction or none."""
    broker = MemoryBroker()
    (partition,) = broker.create_topic("ledger")
    owner = {"producer_id": 7, "producer_epoch": epoch, "base_sequence": 0, "transactional": transactional}
    data = memoryview(build_batch([(b"k", b"v")], timestamp_ms=START_MS, **owner))
    broker.turns.event(lambda: partition.append_from_client(check_produced_batch(data), data))
    return broker, partition


@pytest.mark.parametrize(
    ("version", "made_by", "transactional", "epoch", "error"),
    [
        (1, 0, True, EPOCH - 1, E.INVALID_PRODUCER_EPOCH),
        (1, 0, True, EPOCH, E.NONE),
        (1, 0, True, EPOCH + 1, E.NONE),
        (1, 2, True, EPOCH, E.NONE),
        (2, 1, True, EPOCH - 1, E.INVALID_PRODUCER_EPOCH),
        (2, 1, True, EPOCH, E.NONE),
        (2, 2, True, EPOCH, E.INVALID_PRODUCER_EPOCH),
        (2, 2, True, EPOCH + 1, E.NONE),
        (2, 2, False, EPOCH, E.NONE),
        (2, 2, False, EPOCH - 1, E.INVALID_PRODUCER_EPOCH),
    ],
)
def test_a_marker_has_the_epoch_of_its_transaction_or_the_next_if_v2_made_it(
    version, made_by, transactional, epoch, error
):
    """Version 1 has no transaction version in the marker: it counts as version 0."""
    broker, partition = written_by(EPOCH, transactional)
    asked = marker("ledger", 0, commit=True) | {"producer_epoch": epoch, "transaction_version": made_by}
    assert errors(ask_at_once(broker, version, asked)) == [[error]]
    assert partition.log_end_offset == (1 if error else 2)
    assert partition.last_stable_offset == (0 if error and transactional else partition.log_end_offset)


def test_the_last_epoch_of_all_ends_its_own_transaction():
    broker, partition = written_by(LAST_EPOCH, transactional=True)
    asked = marker("ledger", 0) | {"producer_epoch": LAST_EPOCH, "transaction_version": 2}
    assert errors(ask_at_once(broker, 2, asked)) == [[E.NONE]] and partition.last_stable_offset == 2


def test_a_marker_with_an_older_coordinator_epoch_is_fenced():
    broker = MemoryBroker()
    broker.create_topic("ledger", 2)
    ask_at_once(broker, 1, marker("ledger", 0) | {"coordinator_epoch": 3})
    for coordinator_epoch, error in ((2, E.TRANSACTION_COORDINATOR_FENCED), (3, E.NONE), (4, E.NONE)):
        asked = marker("ledger", 0, 1) | {"coordinator_epoch": coordinator_epoch}
        other = marker("nowhere", 3) | {"coordinator_epoch": coordinator_epoch}
        reply = ask_at_once(broker, 1, asked, other, marker("ledger", 1, producer_id=8))
        assert errors(reply) == [[error, E.NONE, E.UNKNOWN_TOPIC_OR_PARTITION], [E.NONE]]


def test_no_markers_are_answered_at_once():
    assert ask_at_once(MemoryBroker(), 1).markers == []
