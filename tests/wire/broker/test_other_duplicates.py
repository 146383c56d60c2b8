"""Sequences that a producer without transactions uses again for other records, on the wire (docs/in-the-log.md)."""

import pytest
from raw_producer import INIT_PRODUCER_ID, PRODUCE
from rig import Rig
from targets import TARGETS

from ottla.protocol.batch import build_batch
from ottla.protocol.errors import ErrorCode as E
from ottla.protocol.requests import codec

VERSION = {INIT_PRODUCER_ID: 4, PRODUCE: 9}


@pytest.fixture(scope="module")
def start(tmp_path_factory):
    """A broker that treats them as Kafka does, and one that refuses them."""
    rigs = {}

    def start(refuse):
        if refuse not in rigs:
            options = {"producer.sequence.reuse.refuse": str(refuse).lower()}
            rigs[refuse] = Rig(TARGETS["ottla"](tmp_path_factory.mktemp("others"), options).start())
        rigs[refuse].begin_log()
        return rigs[refuse]

    yield start
    for rig in rigs.values():
        rig.stop()


class Idempotent:
    """A producer whose sequences the test chooses."""

    def __init__(self, rig, **configs):
        self.rig, self.topic = rig, rig.new_topic(**configs)
        reply = self.ask(
            INIT_PRODUCER_ID, transactional_id=None, transaction_timeout_ms=1, producer_id=-1, producer_epoch=-1
        )
        self.producer_id, self.epoch = reply.producer_id, reply.producer_epoch

    def ask(self, api_key, **fields):
        with self.rig.connect() as peer:
            peer.send(codec.encode_request(codec.request_class(api_key)(**fields), VERSION[api_key], 7, ""))
            return peer.reply(api_key, VERSION[api_key])

    def send(self, sequence, records, **given):
        """Send a batch and return (error, base offset, message)."""
        batch = build_batch(
            records,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=sequence,
            **{"timestamp_ms": 1} | given,
        )
        message = codec.request_class(PRODUCE)
        row = message.TopicProduceData.PartitionProduceData(index=0, records=bytes(batch))
        topics = [message.TopicProduceData(name=self.topic, partition_data=[row])]
        reply = self.ask(PRODUCE, transactional_id=None, acks=-1, timeout_ms=5_000, topic_data=topics)
        row = reply.responses[0].partition_responses[0]
        return E(row.error_code), row.base_offset, row.error_message

    @property
    def end_offset(self):
        return self.rig.end_offset(self.topic)


ONE, OTHER = [(b"k", b"1")] * 2_000, [(b"k", b"1")] * 1_999 + [(b"k", b"2")]


def log_lines(rig):
    return [line for line in rig.log().splitlines() if "not in the log" in line or "Refused Produce" in line]


@pytest.mark.parametrize("codec", range(5))
@pytest.mark.parametrize("kept", ["producer", "lz4"])
def test_a_reused_sequence_with_other_records_is_dropped_and_logged(start, codec, kept):
    rig = start(refuse=False)
    producer = Idempotent(rig, compression_type=kept)
    assert producer.send(0, ONE, compression=codec) == (E.NONE, 0, None)
    assert producer.send(0, ONE, compression=codec, timestamp_ms=5) == (E.NONE, 0, None)
    assert log_lines(rig) == []
    assert producer.send(0, OTHER, compression=codec) == (E.NONE, 0, None)
    (line,) = log_lines(rig)
    assert f"{producer.topic!r}-0: producer {producer.producer_id} at epoch 0 with no transactional id" in line
    assert "sent sequences 0 to 1999 again" in line and "the batch at offset 0;" in line
    assert producer.end_offset == 2_000


def test_a_refused_reuse_of_a_sequence_does_not_stop_the_producer(start):
    rig = start(refuse=True)
    producer = Idempotent(rig)
    producer.send(0, ONE)
    error, offset, message = producer.send(0, OTHER)
    assert (error, offset) == (E.INVALID_RECORD, -1) and "with other keys, values or headers" in message
    (line,) = log_lines(rig)
    assert message in line
    assert producer.send(0, ONE) == (E.NONE, 0, None)
    assert producer.send(2_000, OTHER) == (E.NONE, 2_000, None)
    assert producer.end_offset == 4_000


def test_a_retry_after_a_restart_is_compared_with_the_log(start):
    rig = start(refuse=True)
    producer = Idempotent(rig)
    producer.send(0, ONE, compression=4)
    rig.broker.kill()
    rig.broker.start()
    assert producer.send(0, ONE, compression=4, timestamp_ms=9) == (E.NONE, 0, None)
    assert producer.send(0, OTHER, compression=4)[0] is E.INVALID_RECORD
