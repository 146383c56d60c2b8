"""Sequences that a producer without transactions uses again for other records, on the wire (docs/in-the-log.md)."""

import pytest
from raw_producer import INIT_PRODUCER_ID, PRODUCE
from rig import Rig
from targets import TARGETS

from ottla.protocol.batch import build_batch
from ottla.protocol.errors import ErrorCode as E
from ottla.protocol.requests import codec

VERSION = {INIT_PRODUCER_ID: 4, PRODUCE: 9}


@pytest.fixture
def rig(tmp_path):
    rig = Rig(TARGETS["ottla"](tmp_path, {"producer.sequence.reuse.refuse": "true"}).start())
    yield rig
    rig.stop()


class Idempotent:
    """A producer whose sequences the test chooses."""

    def __init__(self, rig):
        self.rig, self.topic = rig, rig.new_topic()
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


ONE, OTHER = [(b"k", b"1")] * 2_000, [(b"k", b"1")] * 1_999 + [(b"k", b"2")]


@pytest.mark.slow
def test_a_retry_after_a_restart_is_compared_with_the_log(rig):
    producer = Idempotent(rig)
    assert producer.send(0, ONE, compression=4) == (E.NONE, 0, None)
    rig.broker.kill()
    rig.broker.start()
    assert producer.send(0, ONE, compression=4, timestamp_ms=9) == (E.NONE, 0, None)
    assert producer.send(0, OTHER, compression=4)[0] is E.INVALID_RECORD
