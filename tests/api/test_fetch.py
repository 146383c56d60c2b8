"""Fetch: sizes of the response over several partitions, leader epochs, and events while a client waits."""

import gc
from types import SimpleNamespace

import pytest

from lab.in_memory.disk import MemoryFile
from ottla.broker.api import fetch
from ottla.broker.api.request import Request
from ottla.broker.api.table import TABLE
from ottla.broker.log.partition import Partition
from ottla.broker.security.session import Session
from ottla.broker.turns import SHARE_US, Wait
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.batch import build_batch
from ottla.protocol.errors import ErrorCode as E
from ottla.protocol.requests import codec
from ottla.testkit.in_memory.schedule import START_MS
from ottla.testkit.in_memory.wire import message
from tests.memory_broker import MemoryBroker

VERSION = 12
NEVER_MS = 600_000
MANY = 2 * fetch.ROWS_AT_ONCE


class Ledger:
    """A broker in memory with one topic."""

    def __init__(self, partitions=1):
        self.broker = MemoryBroker(transaction_partition_verification_enable=False)
        self.partitions = self.broker.create_topic("ledger", partitions)

    def append(self, index=0, value=b"v", **owner):
        """Append a batch and return its size."""
        batch = bytes(build_batch([(b"k", value)], timestamp_ms=START_MS, **owner))
        topics = [{"name": "ledger", "partition_data": [{"index": index, "records": batch}]}]
        asked = message(
            ApiKey.PRODUCE, 9, transactional_id="t" if owner else None, acks=-1, timeout_ms=1, topic_data=topics
        )
        assert self.broker.ask(ApiKey.PRODUCE, 9, asked).responses[0].partition_responses[0].error_code == E.NONE
        return len(batch)

    def rows(self, *rows, version=VERSION, **given):
        """Fetch rows of (partition, fields that differ) and return their answers in order."""
        reply = self.broker.ask(ApiKey.FETCH, version, message(ApiKey.FETCH, version, **build_fetch(*rows, **given)))
        return reply.responses[0].partitions

    def sizes(self, *rows, **given):
        """Return the number of bytes of each row."""
        return [len(row.records or b"") for row in self.rows(*rows, **given)]

    def wait(self, *rows, reservation=None, **given):
        """Send a fetch for which there are not enough bytes yet; return a list that receives the response."""
        given = {"min_bytes": 100_000, "max_wait_ms": NEVER_MS} | given
        told, broker = [], self.broker

        def collect(reply):
            _, body = codec.decode_response(ApiKey.FETCH, VERSION, b"".join(map(bytes, reply.buffers))[4:])
            told.extend(body.responses[0].partitions)

        body = message(ApiKey.FETCH, VERSION, **build_fetch(*rows, **given))
        handler = TABLE[ApiKey.FETCH].handle(
            broker.assembly.broker, Request(ApiKey.FETCH, VERSION, 1, "", Session(), body, reservation)
        )
        broker.turns.event(lambda: broker.turns.start(handler, collect, broker.bugs.append))
        assert told == []
        return told


def build_fetch(*rows, **given):
    partitions = [{"partition": index, "fetch_offset": 0, "partition_max_bytes": 1 << 20} | row for index, row in rows]
    body = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1 << 20, "isolation_level": 0}
    return body | {"topics": [{"topic": "ledger", "partitions": partitions}]} | given


# --- how much ---------------------------------------------------------------------------------------------------------


def test_partitions_share_what_the_request_may_have_in_their_order():
    ledger = Ledger(3)
    first, second, third = (ledger.append(index, bytes(100 * (index + 1))) for index in range(3))
    every = [(index, {}) for index in range(3)]
    assert ledger.sizes(*every, max_bytes=first + second + third) == [first, second, third]
    assert ledger.sizes(*every, max_bytes=first + second + third - 1) == [first, second, 0]
    assert ledger.sizes(*every, max_bytes=first + second) == [first, second, 0]
    assert ledger.sizes(*every, max_bytes=first + second - 1) == [first, 0, 0]
    assert ledger.sizes((2, {}), (0, {}), (1, {}), max_bytes=third + second) == [third, first, 0]
    assert ledger.sizes((2, {}), (0, {}), (1, {}), max_bytes=third) == [third, 0, 0]


def test_the_first_batch_that_there_is_is_sent_however_large():
    ledger = Ledger(3)
    size_bytes = ledger.append(1)
    ledger.append(2)
    assert ledger.sizes((0, {}), (1, {}), (2, {}), max_bytes=1) == [0, size_bytes, 0]
    assert ledger.sizes((1, {"partition_max_bytes": 1}), (2, {"partition_max_bytes": 1})) == [size_bytes, 0]


def test_partition_max_bytes_leaves_bytes_for_other_partitions():
    ledger = Ledger(2)
    one = ledger.append(0)
    ledger.append(0)
    other = ledger.append(1, bytes(100))
    rows = (0, {"partition_max_bytes": one}), (1, {})
    assert ledger.sizes(*rows, max_bytes=one + other) == [one, other]


@pytest.mark.parametrize("spare", [True, False])
def test_a_response_bounds_the_batches_it_must_read_without_spare_files(monkeypatch, spare):
    """A response has at most 128 KiB of large batches that must be read; other batches are sent from the files."""
    if not spare:
        monkeypatch.setattr(MemoryFile, "slice", lambda *_: None)
    ledger = Ledger(5)
    (size_bytes,) = {ledger.append(index, bytes(50_000)) for index in range(5)}
    every = [(index, {}) for index in range(5)]
    assert ledger.sizes(*every) == [size_bytes] * (5 if spare else 3) + [0] * (0 if spare else 2)


def test_small_batches_are_read_however_much_is_held():
    ledger = Ledger(8)
    size_bytes = [ledger.append(index, bytes(30_000 if index < 5 else 1_000)) for index in range(8)]
    assert ledger.sizes(*((index, {}) for index in range(8))) == size_bytes


def test_a_refused_partition_uses_none_of_max_bytes():
    ledger = Ledger(2)
    size_bytes = ledger.append(1)
    rows = ledger.rows((0, {"fetch_offset": 5}), (7, {}), (1, {}), max_bytes=size_bytes)
    errors = [(row.partition_index, row.error_code) for row in rows]
    assert errors == [(0, E.OFFSET_OUT_OF_RANGE), (1, E.NONE), (7, E.UNKNOWN_TOPIC_OR_PARTITION)]
    assert len(rows[1].records) == size_bytes


# --- how far ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("commit", [False, True])
def test_read_committed_ends_at_open_transactions_and_lists_aborted_ones(commit):
    ledger = Ledger()
    plain = ledger.append()
    begun = ledger.append(producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
    (row,) = ledger.rows((0, {}), isolation_level=1)
    assert (len(row.records), row.last_stable_offset, row.high_watermark) == (plain, 1, 2)
    (row,) = ledger.rows((0, {}))
    assert (len(row.records), row.aborted_transactions) == (plain + begun, None)
    topics = [{"name": "ledger", "partition_indexes": [0]}]
    marker = {"producer_id": 7, "producer_epoch": 0, "transaction_result": commit, "coordinator_epoch": 0}
    ended = message(ApiKey.WRITE_TXN_MARKERS, 1, markers=[marker | {"topics": topics}])
    ledger.broker.ask(ApiKey.WRITE_TXN_MARKERS, 1, ended)
    (row,) = ledger.rows((0, {}), isolation_level=1)
    assert len(row.records) > plain + begun and (row.last_stable_offset, row.high_watermark) == (3, 3)
    aborted = [(each.producer_id, each.first_offset) for each in row.aborted_transactions]
    assert aborted == ([] if commit else [(7, 1)])


# --- leader epochs (KIP-320) ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("epoch", "error"),
    [(-1, E.NONE), (2, E.FENCED_LEADER_EPOCH), (3, E.NONE), (4, E.UNKNOWN_LEADER_EPOCH)],
)
@pytest.mark.parametrize("version", [9, VERSION])
def test_an_older_or_later_leader_epoch_is_refused(version, epoch, error):
    ledger = Ledger()
    ledger.partitions[0].lead(3)
    size_bytes = ledger.append()
    (row,) = ledger.rows((0, {"current_leader_epoch": epoch}), version=version)
    assert (row.error_code, len(row.records or b"")) == (error, 0 if error else size_bytes)
    assert (row.high_watermark, row.log_start_offset) == ((-1, -1) if error else (1, 0))


def test_a_wrong_leader_epoch_is_refused_at_once_before_a_wrong_offset():
    ledger = Ledger()
    ledger.partitions[0].lead(3)
    before_ms = ledger.broker.schedule.now_ms
    row = {"current_leader_epoch": 2, "fetch_offset": 7}
    assert ledger.rows((0, row), max_wait_ms=1_000)[0].error_code == E.FENCED_LEADER_EPOCH
    assert ledger.broker.schedule.now_ms - before_ms < 1_000


def test_before_version_9_there_is_no_leader_epoch():
    ledger = Ledger()
    ledger.partitions[0].lead(3)
    assert ledger.rows((0, {}), version=8)[0].error_code == E.NONE


@pytest.mark.parametrize(
    ("last", "offset", "error", "diverging"),
    [
        (-1, 1, E.NONE, None),
        (0, 1, E.NONE, None),
        (0, 2, E.NONE, (0, 1)),
        (2, 1, E.NONE, (0, 1)),
        (3, 2, E.NONE, None),
        (3, 9, E.NONE, (3, 2)),
        (4, 1, E.OFFSET_OUT_OF_RANGE, None),
    ],
)
def test_a_client_with_another_log_gets_the_end_of_the_last_common_epoch_at_once(last, offset, error, diverging):
    """The log has one record of epoch 0 and one of epoch 3."""
    ledger = Ledger()
    ledger.append()
    ledger.partitions[0].lead(3)
    ledger.append()
    before_ms = ledger.broker.schedule.now_ms
    waits = {"max_wait_ms": 1_000} if diverging else {}
    (row,) = ledger.rows((0, {"last_fetched_epoch": last, "fetch_offset": offset}), **waits)
    found = row.diverging_epoch and (row.diverging_epoch.epoch, row.diverging_epoch.end_offset)
    assert (row.error_code, found) == (error, diverging)
    assert diverging is None or (row.high_watermark == 2 and not row.records)
    assert ledger.broker.schedule.now_ms - before_ms < 1_000


# --- a client that waits ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("offset", [0, 2, 3])
def test_a_log_start_that_is_raised_above_a_waiting_fetch_ends_its_wait(offset):
    ledger = Ledger()
    for _ in range(4):
        ledger.append()
    told = ledger.wait((0, {"fetch_offset": offset}))
    ledger.broker.turns.event(lambda: ledger.partitions[0].raise_log_start(offset + 1))
    assert [row.error_code for row in told] == [E.OFFSET_OUT_OF_RANGE]


def test_a_log_start_below_a_waiting_fetch_is_nothing_to_it():
    ledger = Ledger()
    for _ in range(4):
        ledger.append()
    told = ledger.wait((0, {"fetch_offset": 2}))
    ledger.broker.turns.event(lambda: ledger.partitions[0].raise_log_start(2))
    assert told == [] and ledger.partitions[0].offline is None
    # Stopping the broker ends the wait.
    ledger.broker.turns.event(ledger.broker.assembly.close)
    ledger.broker.advance(1.0)
    assert [row.error_code for row in told] == [E.KAFKA_STORAGE_ERROR]


@pytest.mark.plain
def test_a_large_fetch_that_waits_holds_nothing_of_its_request():
    ledger = Ledger()
    released = []
    ledger.wait((0, {}), reservation=SimpleNamespace(release=lambda: released.append(True)))
    assert released == [True]


@pytest.mark.parametrize("end", ["enough", "time"])
def test_a_waiting_fetch_is_answered_at_min_bytes_or_after_max_wait(end):
    ledger = Ledger()
    size_bytes = ledger.append()
    enough = 2 * size_bytes if end == "enough" else 3 * size_bytes
    told = ledger.wait((0, {}), min_bytes=enough, max_wait_ms=500)
    ledger.broker.advance(400)
    ledger.append()
    assert bool(told) is (end == "enough")
    ledger.broker.advance(100)
    assert [len(row.records) for row in told] == [2 * size_bytes]


def waits():
    """Return the number of handlers that wait, also those whose client is gone."""
    gc.collect()
    return sum(type(each) is Wait for each in gc.get_objects())


@pytest.mark.parametrize("partitions", [1, 3, MANY, 1_000])
def test_of_a_client_that_hangs_up_while_it_waits_nothing_stays(partitions):
    ledger = Ledger(partitions)
    broker, memory = ledger.broker, ledger.broker.assembly.broker.memory
    client, before = broker.client(), waits()
    client.send(ApiKey.FETCH, VERSION, **build_fetch(*((index, {}) for index in range(partitions)), max_wait_ms=5_000))
    broker.advance()
    parked = partitions * fetch.WAITING_ROW_BYTES
    assert waits() == before + 1 and client.replies == []
    held = held_bytes(memory)
    assert held >= parked if partitions == 1_000 else held == 0
    client.hang_up()
    assert held_bytes(memory) == 0
    broker.advance(5_100)  # what was to come when its time is over has gone from the clock
    assert waits() == before
    ledger.append()
    assert broker.bugs == [] and client.replies == []


def held_bytes(memory):
    return sum(part.held_bytes for part in (memory.requests, memory.medium, memory.decoded, memory.replies))


@pytest.mark.plain
@pytest.mark.parametrize("comes_behind", [None, fetch.ROWS_AT_ONCE - 1, fetch.ROWS_AT_ONCE])
def test_a_large_fetch_returns_records_appended_while_it_checks(monkeypatch, comes_behind):
    ledger, max_wait_ms = Ledger(MANY), 1_000
    broker, look = ledger.broker, Partition.bytes_available
    batch = bytes(build_batch([(b"k", b"v")], timestamp_ms=START_MS))
    producer, rows = broker.client("producer"), [{"name": "ledger", "partition_data": [{"index": 0, "records": batch}]}]

    def append_then_look(partition, *more):
        nonlocal comes_behind
        if partition.index == comes_behind:
            comes_behind = None
            produced = {"transactional_id": None, "acks": -1, "timeout_ms": 1, "topic_data": rows}
            producer.post(ApiKey.PRODUCE, 9, **produced)
        return look(partition, *more)

    monkeypatch.setattr(Partition, "bytes_available", append_then_look)
    monkeypatch.setattr(fetch, "ROW_US", SHARE_US / 10)
    began_ms, comes = broker.schedule.now_ms, comes_behind is not None
    found = ledger.rows(*((index, {}) for index in range(MANY)), max_wait_ms=max_wait_ms)
    assert bool(found[0].records) is comes
    assert (broker.schedule.now_ms - began_ms < max_wait_ms) is comes
