"""DeleteRecords: records that may be deleted, while some records of the log are not durable yet."""

import pytest

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.batch import build_batch
from ottla.protocol.errors import ErrorCode as E
from ottla.testkit.in_memory.schedule import START_MS
from ottla.testkit.in_memory.wire import message
from tests.memory_broker import MemoryBroker

HIGH_WATERMARK = -1


def build_produce():
    batch = bytes(build_batch([(b"k", b"v")] * 2, timestamp_ms=START_MS))
    topics = [{"name": "ledger", "partition_data": [{"index": 0, "records": batch}]}]
    return {"transactional_id": None, "acks": -1, "timeout_ms": 1, "topic_data": topics}


def delete(broker, offset):
    """Delete records and return (error, new log start offset)."""
    topics = [{"name": "ledger", "partitions": [{"partition_index": 0, "offset": offset}]}]
    asked = message(ApiKey.DELETE_RECORDS, 2, topics=topics, timeout_ms=1_000)
    (row,) = broker.ask(ApiKey.DELETE_RECORDS, 2, asked).topics[0].partitions
    return E(row.error_code), row.low_watermark


@pytest.mark.parametrize("offset", [HIGH_WATERMARK, 2, 3, 4])
def test_records_that_are_not_durable_are_not_deleted(flushing, offset):
    broker = flushing.broker
    (partition,) = broker.create_topic("ledger")
    flushing.ask(ApiKey.PRODUCE, 9, **build_produce())
    broker.client().send(ApiKey.PRODUCE, 9, **build_produce())
    assert (partition.high_watermark, partition.log_end_offset) == (2, 4), "a flush is under way"
    expected = (E.NONE, 2) if offset in (HIGH_WATERMARK, 2) else (E.OFFSET_OUT_OF_RANGE, -1)
    assert delete(broker, offset) == expected
    broker.advance(1_000)
    assert delete(broker, offset) == (E.NONE, 4 if offset == HIGH_WATERMARK else offset)


@pytest.mark.parametrize(("offset", "expected"), [(-2, (E.OFFSET_OUT_OF_RANGE, -1)), (0, (E.NONE, 2)), (5, None)])
def test_the_start_of_a_log_only_rises_and_stays_in_the_log(flushing, offset, expected):
    broker = flushing.broker
    broker.create_topic("ledger")
    for _ in range(2):
        flushing.ask(ApiKey.PRODUCE, 9, **build_produce())
    assert delete(broker, 2) == (E.NONE, 2)
    assert delete(broker, offset) == (expected or (E.OFFSET_OUT_OF_RANGE, -1))


@pytest.mark.parametrize(
    ("policy", "error"),
    [("delete", E.NONE), ("compact,delete", E.NONE), ("compact", E.POLICY_VIOLATION)],
)
@pytest.mark.parametrize("version", range(3))
def test_records_of_a_topic_that_is_only_compacted_are_not_deleted(version, policy, error):
    broker = MemoryBroker()
    (partition,) = broker.create_topic("ledger", cleanup_policy=policy)
    broker.call(ApiKey.PRODUCE, 9, **build_produce())
    topics = [{"name": "ledger", "partitions": [{"partition_index": 0, "offset": 1}]}]
    (row,) = broker.call(ApiKey.DELETE_RECORDS, version, topics=topics, timeout_ms=1_000).topics[0].partitions
    assert (row.error_code, row.low_watermark) == (error, -1 if error else 1)
    assert partition.log.log_start_offset == (0 if error else 1)


def test_each_partition_has_its_error_and_the_others_are_deleted(broker):
    broker.call(ApiKey.PRODUCE, 9, **build_produce())
    broker.turns.event(lambda: broker.assembly.broker.cluster.partition("orders", 0).take_offline("gone"))
    places = [("none", 0), ("ledger", 9), ("__consumer_offsets", 0), ("orders", 0), ("ledger", 0)]
    topics = [{"name": name, "partitions": [{"partition_index": index, "offset": -1}]} for name, index in places]
    reply = broker.call(ApiKey.DELETE_RECORDS, 2, topics=topics, timeout_ms=1_000)
    told = {
        (topic.name, row.partition_index): (E(row.error_code), row.low_watermark)
        for topic in reply.topics
        for row in topic.partitions
    }
    assert told == {
        ("none", 0): (E.UNKNOWN_TOPIC_OR_PARTITION, -1),
        ("ledger", 9): (E.UNKNOWN_TOPIC_OR_PARTITION, -1),
        ("__consumer_offsets", 0): (E.INVALID_TOPIC_EXCEPTION, -1),
        ("orders", 0): (E.KAFKA_STORAGE_ERROR, -1),
        ("ledger", 0): (E.NONE, 2),
    }
