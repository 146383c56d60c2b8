"""Produce: refused batches and their errors in each version; the other partitions are accepted."""

import pytest

from ottla.protocol.api_keys import ApiKey as K
from ottla.protocol.errors import ErrorCode as E
from tests.api.callers import LEDGER, ORDERS, Producer, batch

VERSIONS = range(3, 13)
SOUND = batch()
GZIP, SNAPPY, LZ4, ZSTD = range(1, 5)


def flip_bit(at):
    changed = bytearray(SOUND)
    changed[at] ^= 1
    return bytes(changed)


def ask(broker, version, *rows, acks=-1, transactional_id=None):
    """Produce (topic, partition, records) each and return the rows of the response."""
    topics = [{"name": name, "partition_data": [{"index": index, "records": data}]} for name, index, data in rows]
    asked = {"transactional_id": transactional_id, "acks": acks, "timeout_ms": 1_000}
    reply = broker.call(K.PRODUCE, version, **asked, topic_data=topics)
    return [row for topic in reply.responses for row in topic.partition_responses]


@pytest.mark.parametrize(
    ("row", "error"),
    [
        (("none", 0, SOUND), E.UNKNOWN_TOPIC_OR_PARTITION),
        ((LEDGER, 9, SOUND), E.UNKNOWN_TOPIC_OR_PARTITION),
        ((LEDGER, -1, SOUND), E.UNKNOWN_TOPIC_OR_PARTITION),
        (("__consumer_offsets", 0, SOUND), E.INVALID_TOPIC_EXCEPTION),
        ((LEDGER, 0, None), E.INVALID_RECORD),
        ((LEDGER, 0, flip_bit(17)), E.CORRUPT_MESSAGE),
        ((LEDGER, 0, flip_bit(len(SOUND) - 1)), E.CORRUPT_MESSAGE),
        ((LEDGER, 0, batch(1, producer_id=7, producer_epoch=0, base_sequence=4)), E.NONE),
    ],
    ids=["topic", "partition", "negative", "internal", "null", "CRC", "value", "sound"],
)
@pytest.mark.parametrize("version", VERSIONS)
def test_a_partition_is_refused_and_its_neighbours_are_not(broker, version, row, error):
    """Responses have log start offsets from version 5 on, messages from 8."""
    found, beside = ask(broker, version, row, (ORDERS, 0, SOUND))
    assert (found.error_code, found.base_offset) == (error, -1 if error else 0)
    assert (beside.error_code, beside.base_offset, beside.log_append_time_ms) == (E.NONE, 0, -1)
    if version >= 5:
        assert (found.log_start_offset, beside.log_start_offset) == (-1 if error else 0, 0)
    if version >= 8:
        assert (beside.error_message, beside.record_errors) == (None, [])
    assert broker.assembly.broker.cluster.partition(LEDGER, 0).log_end_offset == (not error)


@pytest.mark.parametrize(("more_bytes", "error"), [(0, E.NONE), (1, E.MESSAGE_TOO_LARGE)])
@pytest.mark.parametrize("version", [3, 9])
def test_a_batch_larger_than_max_message_bytes_is_refused(broker, version, more_bytes, error):
    broker.create_topic("small", max_message_bytes=str(len(SOUND) - more_bytes))
    (row,) = ask(broker, version, ("small", 0, SOUND))
    assert (row.error_code, row.base_offset) == (error, -1 if error else 0)


def test_the_batch_size_is_checked_before_the_crc(broker):
    """As in `UnifiedLog.analyzeAndValidateRecords`: the CRC is checked after the size."""
    broker.create_topic("small", max_message_bytes=str(len(SOUND) - 1))
    (row,) = ask(broker, 9, ("small", 0, flip_bit(len(SOUND) - 1)))
    assert row.error_code == E.MESSAGE_TOO_LARGE


def test_bytes_after_a_batch_are_refused_but_not_as_too_large(broker):
    """Bytes after the batch do not count towards its size, and are refused as more than one batch."""
    broker.create_topic("small", max_message_bytes=str(len(SOUND)))
    (row,) = ask(broker, 9, ("small", 0, SOUND + SOUND))
    assert row.error_code == E.INVALID_RECORD


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD])
@pytest.mark.parametrize("version", [6, 7])
def test_every_codec_is_taken_zstd_from_version_7_on_and_only_whole(broker, version, codec):
    data = bytearray(batch(2, compression=codec))
    (row,) = ask(broker, version, (LEDGER, 0, bytes(data)))
    early = codec == ZSTD and version < 7
    assert (row.error_code, row.base_offset) == ((E.UNSUPPORTED_COMPRESSION_TYPE, -1) if early else (E.NONE, 0))
    data[-1] ^= 1
    (row,) = ask(broker, version, (LEDGER, 0, bytes(data)))
    assert (row.error_code, row.base_offset) == (E.CORRUPT_MESSAGE, -1)


@pytest.mark.parametrize("acks", [2, -2, 127])
@pytest.mark.parametrize("version", [*VERSIONS])
def test_acknowledgements_that_there_are_not_refuse_all(broker, version, acks):
    rows = ask(broker, version, (LEDGER, 0, SOUND), (ORDERS, 0, SOUND), acks=acks)
    assert [(row.error_code, row.base_offset) for row in rows] == [(E.INVALID_REQUIRED_ACKS, -1)] * 2
    assert broker.assembly.broker.cluster.partition(LEDGER, 0).log_end_offset == 0


@pytest.mark.parametrize("named", ["in one topic", "in two"])
@pytest.mark.parametrize("version", VERSIONS)
def test_of_a_request_that_names_a_partition_twice_nothing_is_written(broker, version, named):
    if named == "in two":
        rows = ask(broker, version, (LEDGER, 0, SOUND), (ORDERS, 0, SOUND), (LEDGER, 0, SOUND))
    else:
        twice = [{"index": 0, "records": SOUND}] * 2
        topics = [{"name": LEDGER, "partition_data": twice}, {"name": ORDERS, "partition_data": twice[:1]}]
        asked = {"transactional_id": None, "acks": -1, "timeout_ms": 1_000}
        reply = broker.call(K.PRODUCE, version, **asked, topic_data=topics)
        rows = [row for topic in reply.responses for row in topic.partition_responses]
    assert [(row.error_code, row.base_offset) for row in rows] == [(E.INVALID_REQUEST, -1)] * 3
    for topic in (LEDGER, ORDERS):
        assert broker.assembly.broker.cluster.partition(topic, 0).log_end_offset == 0


@pytest.mark.parametrize("version", [3, 11, 12])
@pytest.mark.parametrize(
    ("ours", "error"),
    [
        ({"epoch": 0}, E.INVALID_PRODUCER_EPOCH),
        ({"epoch": 2}, E.INVALID_PRODUCER_EPOCH),
        ({"producer_id": 77}, E.INVALID_PRODUCER_ID_MAPPING),
    ],
    ids=["an older epoch", "a later epoch", "another id"],
)
def test_a_transactional_batch_with_a_wrong_id_or_epoch_is_refused(broker, version, ours, error):
    """The error is never PRODUCER_FENCED: producers expect it only from the coordinator of their transaction."""
    Producer(broker)
    producer = Producer(broker)
    producer.add((LEDGER, [0]))
    for name, value in ours.items():
        setattr(producer, name, value)
    assert producer.produce(version=version) == (error, -1)
    assert broker.assembly.broker.cluster.partition(LEDGER, 0).log_end_offset == 0
