"""Produce: the time of the response, and events while the handler waits or yields."""

import errno
from functools import partial

import pytest

from lab.crash.life import Life
from lab.crash.script import Script
from lab.in_memory.disk_errors import FOR_EVER, BadDisk
from ottla.broker.api import produce, produce_check
from ottla.broker.api.request import Request
from ottla.broker.security.session import Session
from ottla.broker.turns import SHARE_US
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.batch import build_batch
from ottla.protocol.errors import ErrorCode as E
from ottla.protocol.requests import codec
from ottla.protocol.requests.produce_wire import ProduceBody
from ottla.protocol.requests.structs import error_codes
from ottla.testkit.in_memory import wire
from ottla.testkit.in_memory.schedule import START_MS
from tests.memory_broker import MemoryBroker

from .conftest import SLOW_SYNC_MS, SYNC_MS

WITH_IDS = 13

# --- when it is answered ----------------------------------------------------------------------------------------------


def one_batch(acks, **given):
    batch = bytes(build_batch([(b"k", b"v")], timestamp_ms=START_MS, **given))
    topics = [{"name": "ledger", "partition_data": [{"index": 0, "records": batch}]}]
    return {"transactional_id": None, "acks": acks, "timeout_ms": 1, "topic_data": topics}


def row_of(reply):
    (row,) = reply.responses[0].partition_responses
    return E(row.error_code), row.base_offset


@pytest.mark.parametrize("acks", [1, -1])
def test_a_flushed_batch_is_acknowledged_after_its_sync(flushing, acks):
    flushing.broker.create_topic("ledger")
    assert row_of(flushing.ask(ApiKey.PRODUCE, 9, **one_batch(acks))) == (E.NONE, 0)
    assert row_of(flushing.ask(ApiKey.PRODUCE, 9, **one_batch(acks))) == (E.NONE, 1)


@pytest.mark.parametrize("acks", [1, -1])
def test_a_duplicate_is_acknowledged_no_earlier_than_what_it_repeats(flushing, acks):
    flushing.broker.create_topic("ledger")
    asked = one_batch(acks, producer_id=7, producer_epoch=0, base_sequence=0)
    broker = flushing.broker
    broker.advance(1_000)
    clients = broker.client(), broker.client()
    for client in clients:
        client.send(ApiKey.PRODUCE, 9, **asked)
    broker.advance(SLOW_SYNC_MS - 1.0)
    assert [client.replies for client in clients] == [[], []]
    broker.advance(SLOW_SYNC_MS)
    assert [row_of(client.replies[0]) for client in clients] == [(E.NONE, 0)] * 2


@pytest.mark.parametrize("acks", [1, -1])
def test_a_batch_that_is_not_flushed_is_acknowledged_at_once(acks):
    broker = MemoryBroker(sync_ms=1_000.0)
    broker.create_topic("ledger")
    client = broker.client()
    client.send(ApiKey.PRODUCE, 9, **one_batch(acks))
    assert [row_of(reply) for reply in client.replies] == [(E.NONE, 0)]


def test_acks_0_is_not_answered_and_lets_the_next_request_go_ahead(flushing):
    flushing.broker.create_topic("ledger")
    client = flushing.broker.client()
    client.post(ApiKey.PRODUCE, 9, **one_batch(0))
    client.send(ApiKey.API_VERSIONS, 0)
    assert len(client.replies) == 1 and not client.closed


# --- a log that goes offline after the append: the flush never finishes -----------------------------------------------


@pytest.fixture
def life(begin_life):
    """A broker that flushes every append."""
    life = begin_life(flushing=True)
    Script.on(life).make_topic(("ledger", 1))
    return life


def errors_of(life, ask, meanwhile):
    errors = []
    life.call_all([ask], lambda _at, reply: errors.extend(error_codes(reply)), meanwhile)
    return errors


def build_produce(sequence, producer_id=7):
    owner = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": sequence}
    return wire.produce(wire.V2, None, "ledger", 0, bytes(build_batch([(b"k", b"v")], timestamp_ms=1, **owner)))


def rows_of(life, asks, meanwhile=None):
    """Send all at once and return (error, base offset) of each."""
    rows = {}

    def store_row(at, reply):
        (row,) = reply.responses[0].partition_responses
        rows[at] = E(row.error_code), row.base_offset

    life.call_all(asks, store_row, meanwhile)
    return [rows[at] for at in range(len(asks))]


@pytest.mark.parametrize("rests", [False, True])
def test_an_append_whose_flush_was_given_up_is_not_acknowledged(life, monkeypatch, rests):
    if rests:
        monkeypatch.setattr(produce, "APPEND_US", SHARE_US)
    partition = life.assembly.broker.cluster.partition("ledger", 0)
    batch = bytes(build_batch([(b"k", b"v")], timestamp_ms=1))
    ask = wire.produce(wire.V2, None, "ledger", 0, batch)
    assert errors_of(life, ask, lambda: partition.take_offline("gone")) == [E.KAFKA_STORAGE_ERROR]
    assert (partition.log_end_offset, partition.high_watermark) == (1, 0)


@pytest.mark.parametrize("rests", [False, True])
def test_an_append_that_is_flushed_is_acknowledged(life, monkeypatch, rests):
    if rests:
        monkeypatch.setattr(produce, "APPEND_US", SHARE_US)
    batch = bytes(build_batch([(b"k", b"v")], timestamp_ms=1))
    assert errors_of(life, wire.produce(wire.V2, None, "ledger", 0, batch), None) == [E.NONE]


@pytest.mark.parametrize("offline", ["sync", "damage"])
def test_a_batch_in_the_log_that_is_answered_with_an_error_is_not_pushed_out_of_those_that_are_known(life, offline):
    """Send twice, each time with the maximum of batches in flight: no batch is appended after them meanwhile."""
    in_flight = [build_produce(sequence) for sequence in range(5)]
    partition = life.assembly.broker.cluster.partition("ledger", 0)
    if offline == "sync":
        life.disk.errors.break_down(BadDisk(frozenset({"sync"}), errno.EIO, 0, FOR_EVER))
        meanwhile = None
    else:
        meanwhile = partial(partition.take_offline, "it is damaged")
    assert rows_of(life, in_flight, meanwhile) == [(E.KAFKA_STORAGE_ERROR, -1)] * 5
    assert partition.log_end_offset == 5
    behind = [build_produce(5), build_produce(0, producer_id=8)]
    assert rows_of(life, [*in_flight, *behind]) == [(E.KAFKA_STORAGE_ERROR, -1)] * 7
    assert partition.log_end_offset == 5
    life.kill()
    life.disk.errors.mend()
    again = Life(life.disk, life.schedule, flushing=True)
    assert rows_of(again, [*in_flight, *behind]) == [(E.NONE, offset) for offset in range(7)]
    assert rows_of(again, in_flight[2:]) == [(E.NONE, offset) for offset in range(2, 5)]


@pytest.mark.parametrize("calls", [("append",), ("open", "read", "write", "list")], ids=["append", "others"])
def test_a_lack_of_descriptors_keeps_the_partition_online_for_a_retry(life, calls):
    """A batch that is in the log is a duplicate, also when no file can be opened."""
    partition = life.assembly.broker.cluster.partition("ledger", 0)
    assert rows_of(life, [build_produce(0)]) == [(E.NONE, 0)]
    life.disk.errors.break_down(BadDisk(frozenset(calls), errno.EMFILE, 0, FOR_EVER))
    for tries in range(2):
        first, second = rows_of(life, [build_produce(0), build_produce(1)])
        assert first == (E.NONE, 0)
        assert second == ((E.NONE, 1) if "open" in calls else (E.KAFKA_STORAGE_ERROR, -1)), tries
    assert partition.offline is None
    life.disk.errors.mend()
    assert rows_of(life, [build_produce(1)]) == [(E.NONE, 1)]


# --- handlers that yield, and changes by others before they resume ----------------------------------------------------


def resting(handler):
    """Run a handler until it yields or waits; only `finished` resumes it."""
    assert handler.send(None) is not None
    return handler


def run_to_end(life, handler):
    """Run the handler to its end and return the response."""
    for _ in range(100):
        try:
            handler.send(None)
        except StopIteration as end:
            _, message = codec.decode_response(ApiKey.PRODUCE, WITH_IDS, b"".join(map(bytes, end.value.buffers))[4:])
            return message
        life.advance(2 * SYNC_MS)
    raise AssertionError("the handler waits")


def deletion(name):
    request = codec.request_class(ApiKey.DELETE_TOPICS)
    return wire.Request(ApiKey.DELETE_TOPICS, 4, request(version=4, topic_names=[name], timeout_ms=1000))


@pytest.mark.plain
@pytest.mark.parametrize("made_again", [False, True])
def test_a_batch_for_a_topic_id_is_not_appended_to_a_recreated_topic(begin_life, monkeypatch, made_again):
    life = begin_life(flushing=False)
    script = Script.on(life)
    script.make_topic(("scratch", 3))
    cluster = life.assembly.broker.cluster
    topic_id = cluster.topics["scratch"].topic_id
    rows = [(index, memoryview(build_batch([(b"k", b"v")], timestamp_ms=1))) for index in range(3)]
    body = ProduceBody(None, -1, 1000, [("", rows)], [topic_id], 0)
    with monkeypatch.context() as slow:
        slow.setattr(produce_check, "CHECK_US", SHARE_US)
        handler = resting(
            produce.handle(life.assembly.broker, Request(ApiKey.PRODUCE, WITH_IDS, 1, "", Session(), body))
        )
    if made_again:
        life.call(deletion("scratch"))
        script.make_topic(("scratch", 3))
    reply = run_to_end(life, handler)
    errors = [row.error_code for row in reply.responses[0].partition_responses]
    ends = [cluster.partition("scratch", index).log_end_offset for index in range(3)]
    if made_again:
        assert errors == [E.UNKNOWN_TOPIC_OR_PARTITION, E.UNKNOWN_TOPIC_ID, E.UNKNOWN_TOPIC_ID] and ends == [0, 0, 0]
    else:
        assert errors == [E.NONE] * 3 and ends == [1, 1, 1]
