"""Writes of transactions V2 (KIP-890): Produce 12-13 and TxnOffsetCommit 5 add their partitions themselves."""

from types import SimpleNamespace

import pytest

from lab.metadata import create_internal_topic, update_features
from ottla.broker.api import produce
from ottla.broker.api.request import Request
from ottla.broker.cluster.features import FeatureUpdate
from ottla.broker.log.partition import Partition
from ottla.broker.log.results import FetchIsolation
from ottla.broker.security.session import Session
from ottla.broker.txn.states import TransactionStatus as S
from ottla.protocol.batch import build_batch
from ottla.protocol.batch_header import iter_batches
from ottla.protocol.errors import ErrorCode as E
from ottla.protocol.requests import codec
from ottla.protocol.requests.produce_wire import ProduceBody

PRODUCE, TXN_OFFSET_COMMIT = 0, 28
OFFSETS = ("__consumer_offsets", 1)  # where group "g" has its offsets
LEDGER = [("ledger", index) for index in range(4)]


class Client:
    """A producer of one transactional id, by raw requests. `producer` is (id, epoch)."""

    def __init__(self, parts, name="t"):
        self.parts, self.name = parts, name
        answer = parts.ask(parts.coordinator.init_producer_id(name, 60_000))
        assert answer.error is E.NONE
        self.producer = (answer.producer_id, answer.producer_epoch)

    @property
    def state(self):
        return self.parts.coordinator.describe(self.name).state

    def body(self, *places, version=12, sequence=0, epoch=None, producer_id=None, by_id=None):
        """Return a decoded Produce request with one transactional record per partition."""
        topics = {}
        for topic, index in places:
            batch = build_batch(
                [(b"k", b"v")],
                producer_id=self.producer[0] if producer_id is None else producer_id,
                producer_epoch=self.producer[1] if epoch is None else epoch,
                base_sequence=sequence,
                transactional=True,
                timestamp_ms=self.parts.clock.now_ms(),
            )
            topics.setdefault(topic, []).append((index, memoryview(batch)))
        ids = []
        if version >= 13:
            ids = [by_id or self.parts.cluster.topics[topic].topic_id for topic in topics]
        named = [("" if ids else topic, rows) for topic, rows in topics.items()]
        return ProduceBody(self.name, -1, 1000, named, ids, 0)

    def begin_produce(self, *places, **more):
        return self.parts.begin(PRODUCE, more.get("version", 12), self.body(*places, **more))

    def produce(self, *places, **more):
        """Produce and return an error per partition, or a single error if all are the same."""
        return decode_produce(self.begin_produce(*places, **more), more.get("version", 12))

    def commit_offset(self, version=5, **more):
        return decode_commit(self.begin_commit_offset(version, **more), version)

    def begin_commit_offset(self, version=5, group="g", epoch=None, generation=-1, topic="ledger"):
        row = SimpleNamespace(partition_index=0, committed_offset=5, committed_leader_epoch=-1, committed_metadata="")
        body = SimpleNamespace(
            transactional_id=self.name,
            group_id=group,
            producer_id=self.producer[0],
            producer_epoch=self.producer[1] if epoch is None else epoch,
            generation_id=generation,
            member_id="" if generation < 0 else "m",
            group_instance_id=None,
            topics=[SimpleNamespace(name=topic, partitions=[row])],
        )
        return self.parts.begin(TXN_OFFSET_COMMIT, version, body)

    def end(self, commit=True):
        answer = self.parts.ask(self.parts.coordinator.end(self.name, *self.producer, commit, v2=True))
        if answer.error is E.NONE:
            self.producer = (answer.producer_id, answer.producer_epoch)
        self.parts.clock.settle()
        return answer.error


def decode_commit(replies, version=5):
    (reply,) = replies
    _, message = codec.decode_response(TXN_OFFSET_COMMIT, version, reply.buffers[0][4:])
    return E(message.topics[0].partitions[0].error_code)


def decode_produce(replies, version=12):
    (reply,) = replies
    _, message = codec.decode_response(PRODUCE, version, b"".join(reply.buffers)[4:])
    errors = [E(row.error_code) for topic in message.responses for row in topic.partition_responses]
    return errors[0] if len(set(errors)) == 1 else errors


@pytest.fixture
def client(parts):
    create_internal_topic(parts.cluster, "__consumer_offsets")
    parts.clock.settle()
    assert parts.groups.offsets.partition_for("g") == OFFSETS[1]
    return Client(parts)


def test_produce_begins_the_transaction_and_adds_its_partitions(client):
    assert client.produce(*LEDGER[:2]) is E.NONE
    assert (client.state.status, list(client.state.partitions)) == (S.ONGOING, LEDGER[:2])
    assert client.state.client_version == 2
    assert client.produce(*LEDGER[:3], sequence=1) == [E.NONE, E.NONE, E.OUT_OF_ORDER_SEQUENCE_NUMBER]
    assert client.produce(LEDGER[2]) is E.NONE
    assert list(client.state.partitions) == LEDGER[:3]


def test_each_transaction_has_an_epoch_and_sequences_of_its_own(client, parts):
    for commit in (True, False, True):
        epoch = client.producer[1]
        assert client.produce(LEDGER[0]) is E.NONE
        assert client.produce(LEDGER[0], sequence=1) is E.NONE
        assert client.end(commit) is E.NONE
        assert client.producer[1] == epoch + 1
        assert parts.offsets(LEDGER[0])[0] == parts.offsets(LEDGER[0])[1]
    data = parts.cluster.partition(*LEDGER[0]).read(0, 1 << 20, isolation=FetchIsolation.LOG_END).records
    headers = [header for _, header in iter_batches(memoryview(data))]
    assert [(header.is_control, header.producer_epoch) for header in headers] == [
        (False, 0),
        (False, 0),
        (True, 1),
        (False, 1),
        (False, 1),
        (True, 2),
        (False, 2),
        (False, 2),
        (True, 3),
    ]


def test_an_unknown_topic_id_has_its_own_error_and_is_given_back(client):
    unknown = bytes(15) + b"\xff"
    (reply,) = client.begin_produce(*LEDGER[:2], version=13, by_id=unknown)
    _, message = codec.decode_response(PRODUCE, 13, b"".join(reply.buffers)[4:])
    (topic,) = message.responses
    assert topic.topic_id.bytes == unknown
    assert [row.error_code for row in topic.partition_responses] == [E.UNKNOWN_TOPIC_ID] * 2
    assert client.produce(("ledger", 9), version=13) is E.UNKNOWN_TOPIC_OR_PARTITION
    assert client.state.status is S.EMPTY


def test_offsets_join_the_transaction_before_the_member_is_checked(client):
    assert client.commit_offset(generation=3) is E.ILLEGAL_GENERATION
    assert OFFSETS in client.state.partitions


def test_offsets_that_cannot_be_committed_anyway_do_not_begin_a_transaction(client):
    assert client.commit_offset(group="") is E.INVALID_GROUP_ID
    assert client.commit_offset(topic="nowhere") is E.UNKNOWN_TOPIC_OR_PARTITION
    assert client.state.status is S.EMPTY


@pytest.mark.parametrize("places", [LEDGER[:1], LEDGER[:2]])
def test_the_first_sequence_of_a_transaction_is_zero(client, places):
    assert client.produce(*places, sequence=3) is E.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert client.state.status is S.ONGOING  # added, as in Kafka, before the log refused
    assert client.produce(*places) is E.NONE
    assert client.end() is E.NONE
    assert client.produce(*places, sequence=1) is E.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert client.produce(*places) is E.NONE


def waiting_for_markers(parts, client):
    """End a transaction whose second marker is refused: the id is busy until the fan-out retries."""
    assert client.produce(*LEDGER[:2]) is E.NONE
    parts.sink.hearing = 1
    assert client.end() is E.NONE
    assert client.state.status is S.PREPARE_COMMIT


def test_produce_waits_for_the_markers_of_the_transaction_before(client, parts):
    waiting_for_markers(parts, client)
    replies = client.begin_produce(LEDGER[0])
    parts.clock.advance(19)
    assert replies == []
    parts.sink.hearing = -1
    parts.clock.advance(60)
    assert decode_produce(replies) is E.NONE
    assert client.state.status is S.ONGOING


def test_produce_gives_up_after_a_while(client, parts):
    waiting_for_markers(parts, client)
    parts.sink.hearing = 0
    replies = client.begin_produce(LEDGER[0])
    # Held for 50 ms, sent again after the back-off of 20 ms, and held again: the 100 ms are over then.
    parts.clock.advance(50 + 20 + 49)
    assert replies == []
    parts.clock.advance(1)
    assert decode_produce(replies) is E.CONCURRENT_TRANSACTIONS


def test_offsets_wait_for_the_markers_of_the_transaction_before(client, parts):
    waiting_for_markers(parts, client)
    replies = client.begin_commit_offset()
    parts.clock.advance(19)
    assert replies == []
    parts.sink.hearing = -1
    parts.clock.advance(1)
    assert decode_commit(replies) is E.NONE
    assert client.state.status is S.ONGOING


def test_offsets_give_up_after_a_while(client, parts):
    waiting_for_markers(parts, client)
    parts.sink.hearing = 0
    replies = client.begin_commit_offset()
    parts.clock.advance(49)
    assert replies == []
    parts.clock.advance(1)
    assert decode_commit(replies) is E.CONCURRENT_TRANSACTIONS


def test_a_disconnected_client_leaves_no_timer(client, parts):
    waiting_for_markers(parts, client)
    parts.sink.hearing = 0
    armed = parts.clock.armed
    handler = produce.handle(parts.context, Request(PRODUCE, 12, 1, "", Session(), client.body(LEDGER[0])))
    activity = parts.turns.start(handler, lambda reply: pytest.fail("answered"), parts.bugs.append)
    assert parts.clock.armed == armed + 1
    activity.discard()
    assert parts.clock.armed == armed
    parts.clock.advance(500)


class SlowLog:
    """Holds the durability of the transaction log back, so that an addition suspends its request."""

    def __init__(self, monkeypatch):
        self.held = []
        advance = Partition._advance

        def hold(partition, end_offset):
            if partition.topic == "__transaction_state":
                self.held.append(lambda: advance(partition, end_offset))
            else:
                advance(partition, end_offset)

        monkeypatch.setattr(Partition, "_advance", hold)

    def release(self, parts):
        while self.held:
            parts.turns.event(self.held.pop(0))


def test_records_are_appended_after_the_partition_addition_is_durable(client, parts, monkeypatch):
    slow = SlowLog(monkeypatch)
    replies = client.begin_produce(LEDGER[0])
    assert (replies, parts.offsets(LEDGER[0])) == ([], (0, 0))
    slow.release(parts)
    assert decode_produce(replies) is E.NONE
    assert parts.offsets(LEDGER[0]) == (0, 1)


def test_an_open_transaction_of_the_second_generation_times_out_at_level_0(client, parts):
    assert client.produce(LEDGER[0]) is E.NONE
    update_features(parts.cluster, [FeatureUpdate("transaction.version", 0, 2)])
    parts.clock.advance(90_000)
    assert client.state.status is S.COMPLETE_ABORT
    assert parts.offsets(LEDGER[0]) == (2, 2)
