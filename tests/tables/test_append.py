"""Batches with a producer id: the table APPEND, and a partition's verification state (JOIN), on real logs."""

from dataclasses import replace
from typing import NamedTuple

import pytest

from ottla.protocol.batch import build_batch
from ottla.protocol.errors import ErrorCode as E
from ottla.protocol.requests.produced import check_produced_batch
from ottla.protocol.values import TransactionMarker
from tests.tables.rows import EPOCH, STATE, row, rows
from tests.unit.broker.txn.test_txn_v2_writes import Client, SlowLog, decode_produce

PID = 7
MAX = 2**31 - 1
ORDER = E.OUT_OF_ORDER_SEQUENCE_NUMBER
REUSED = E.UNKNOWN_PRODUCER_ID


class Data(NamedTuple):
    """A batch; `own` is one that a coordinator appends."""

    sequence: int = 0
    epoch: int = 0
    count: int = 1
    transactional: bool = False
    own: bool = False


class Marker(NamedTuple):
    epoch: int = 0
    generation: int = 1


class Verifying(NamedTuple):
    """The coordinator is asked about a transactional batch with this first sequence."""

    sequence: int = 0
    epoch: int = 0
    v2: bool = False


class Expire(NamedTuple):
    """A step in which this time passes, and the partition removes producers older than a day."""

    ms: int


def bytes_of(data):
    records = [(b"k", b"v")] * data.count
    return build_batch(
        records,
        timestamp_ms=1_700_000_000_000,
        producer_id=PID,
        producer_epoch=data.epoch,
        base_sequence=data.sequence,
        transactional=data.transactional,
    )


def play(logs, partition, step):
    """Run a step and return its result."""
    if isinstance(step, Marker):
        return partition.append_marker(TransactionMarker(PID, step.epoch, 0, True, step.generation))
    if isinstance(step, Verifying):
        return partition.maybe_start_transaction_verification(
            PID, step.epoch, step.sequence, supports_epoch_bump=step.v2
        )
    if isinstance(step, Expire):
        return sum(partition.log.remove_expired_producers(logs.clock.now_ms() + step.ms))
    if step.own:
        return partition.append_own(bytearray(bytes_of(step)))
    batch = memoryview(bytes_of(step))
    return partition.append_from_client(check_produced_batch(batch), batch)


class Case(NamedTuple):
    row: str
    before: list
    sent: Data
    error: E = E.NONE
    original: int | None = None  # the offset of the batch of which this is a duplicate
    reuse: bool = False  # transaction.sequence.reuse.refuse=false


SIX = [Data(n) for n in range(6)]
OPEN = Data(transactional=True)
V2_NEXT = [Data(count=3, transactional=True), Marker(1, 2)]
FIRST_GENERATION_NEXT = [Data(count=3, transactional=True), Marker()]
REUSABLE = [*SIX, Data(6, transactional=True), Marker()]
NEXT_TWO = [Data(1, transactional=True), Data(2, transactional=True)]
WRAPPED = [Data(MAX, count=3, transactional=True), Marker()]
NEWER = [Verifying(2, 3), Verifying(5, 4), Verifying(0, 3)]

CASES = [
    *[Case(f"APPEND-1 {5 - n} behind", SIX, Data(n), original=n) for n in range(1, 6)],
    Case("APPEND-1 of many records", [Data(count=3), Data(3)], Data(count=3), original=0),
    Case("APPEND-1 transactional", [OPEN], OPEN, original=0),
    Case("APPEND-1 behind its marker", [OPEN, Marker()], OPEN, original=0, reuse=True),
    Case("APPEND-1 across the wrap", [Data(MAX - 1, count=4)], Data(MAX - 1, count=4), original=0),
    Case("APPEND-1 while a lower sequence is verified", [*SIX, Verifying(2)], Data(5), original=5),
    Case("APPEND-2 behind a marker", [OPEN, Marker(1, 2)], Data(1, transactional=True), EPOCH),
    Case("APPEND-2 behind data", [Data(epoch=3)], Data(epoch=2, transactional=True), EPOCH),
    Case("APPEND-2 of a coordinator", [Data(epoch=3)], Data(epoch=2, transactional=True, own=True), EPOCH),
    Case("APPEND-4 idempotent", [Data(epoch=3)], Data(1, epoch=2), EPOCH),
    Case("APPEND-4 one is open", [Data(epoch=3, transactional=True)], Data(1, 2, transactional=True), EPOCH),
    Case("APPEND-4 its own duplicate", [Data(), Data(epoch=1)], Data(), EPOCH),
    Case("APPEND-4 of a coordinator", [Data(epoch=3)], Data(epoch=2, own=True), EPOCH),
    Case("APPEND-5 unknown producer", [Verifying(3, v2=True)], Data(3, transactional=True), ORDER),
    Case("APPEND-5 behind a marker", [*V2_NEXT, Verifying(3, 1, v2=True)], Data(3, 1, transactional=True), ORDER),
    Case("APPEND-5 V1 is not asked", [Verifying(3)], Data(3, transactional=True)),
    Case("APPEND-5 of a coordinator", [Verifying(3, v2=True)], Data(3, transactional=True, own=True)),
    Case("APPEND-6 unknown producer", [Verifying(6), Verifying(5)], Data(6, transactional=True), ORDER),
    Case("APPEND-6 known producer", [Data(count=5), Verifying(5), Verifying(6)], Data(6, transactional=True), ORDER),
    Case("APPEND-6 not transactional", [Data(), Verifying(0)], Data(1), ORDER),
    Case("APPEND-6 the lowest", [Verifying(6), Verifying(5)], Data(5, transactional=True)),
    Case("APPEND-7", [Data()], Data(1, epoch=1), ORDER),
    Case("APPEND-7 transactional", [OPEN, Marker()], Data(1, 1, transactional=True), ORDER),
    Case("APPEND-8", [Data(4)], Data(0, epoch=1)),
    Case("APPEND-8 two epochs on", [Data(4)], Data(0, epoch=2)),
    Case("APPEND-9 a gap", [Data()], Data(2), ORDER),
    Case("APPEND-9 a part of the last batch", [Data(count=3)], Data(1), ORDER),
    Case("APPEND-9 the same first sequence", [Data(count=3)], Data(count=2), ORDER),
    Case("APPEND-9 a gap at the wrap", [Data(MAX)], Data(1), ORDER),
    Case("APPEND-9 not 0 without a batch", [Marker()], Data(1), ORDER),
    Case("APPEND-10", [Data(count=3)], Data(3)),
    Case("APPEND-10 at the wrap", [Data(MAX)], Data(0)),
    Case("APPEND-10 over the wrap", [Data(MAX - 1)], Data(MAX, count=3)),
    Case("APPEND-10 behind the wrap", [Data(MAX - 1, count=3)], Data(1)),
    Case("APPEND-10 without a batch", [Marker()], Data(0)),
    Case("APPEND-11", [OPEN], Data(1), STATE),
    Case("APPEND-11 of a coordinator", [OPEN], Data(1, own=True), STATE),
    Case("APPEND-12", [], OPEN),
    Case("APPEND-12 behind data", [Data()], Data(1, transactional=True)),
    Case("APPEND-12 behind a marker", [OPEN, Marker()], Data(1, transactional=True)),
    Case("APPEND-12 goes on", [OPEN], Data(1, transactional=True)),
    Case("APPEND-13 idempotent", [], Data(99, epoch=4)),
    Case("APPEND-13 V1", [Verifying(99, 4)], Data(99, 4, transactional=True)),
    Case("APPEND-14 not 0", [Verifying(1, 4, v2=True)], Data(1, 4, transactional=True), ORDER),
    Case("APPEND-14 0", [Verifying(0, 4, v2=True)], Data(0, 4, transactional=True)),
    Case("APPEND-15", SIX, Data(0), ORDER),
    Case("APPEND-16 goes on", FIRST_GENERATION_NEXT, Data(3, transactional=True)),
    Case("APPEND-16 begins again", FIRST_GENERATION_NEXT, Data(0, transactional=True), ORDER, reuse=True),
    Case("APPEND-16 leaves a gap", FIRST_GENERATION_NEXT, Data(4, transactional=True), ORDER),
    Case("APPEND-17 goes on", V2_NEXT, Data(3, 1, transactional=True), ORDER),
    Case("APPEND-17 begins again", V2_NEXT, Data(0, 1, transactional=True)),
    Case("APPEND-18 goes on with the old", [Data(), Data(1), Data(epoch=1)], Data(2, epoch=1), ORDER),
    Case("APPEND-18 goes on with the new", [Data(), Data(1), Data(epoch=1)], Data(1, epoch=1)),
    *[Case(f"APPEND-19 sequence {n}", [Data(3)], Data(n, own=True)) for n in (0, 3, 99)],
    Case("APPEND-20 the same batch", [OPEN, Marker()], OPEN, REUSED),
    Case("APPEND-20 another count", FIRST_GENERATION_NEXT, Data(0, transactional=True), REUSED),
    Case("APPEND-20 a part", FIRST_GENERATION_NEXT, Data(2, count=2, transactional=True), REUSED),
    Case("APPEND-20 long ago", [*SIX, Data(6, transactional=True), Marker()], Data(0, transactional=True), REUSED),
    Case("APPEND-20 while a lower one is verified", [*REUSABLE, Verifying(0)], Data(2, transactional=True), REUSED),
    Case("APPEND-20 across the wrap", WRAPPED, Data(MAX, transactional=True), REUSED),
    Case("APPEND-20 not of another epoch", [OPEN, Marker(1, 2)], Data(0, 1, transactional=True)),
    Case("APPEND-20 while the next is open", [OPEN, Marker(), Data(1, transactional=True)], OPEN, REUSED),
    Case("APPEND-20 not within a transaction", [OPEN, Marker(), *NEXT_TWO], Data(1, transactional=True), original=2),
    Case("APPEND-20 not without one", [OPEN, Marker()], Data(), original=0),
    Case("APPEND-20 not of a coordinator", [OPEN, Marker()], Data(transactional=True, own=True)),
    Case("APPEND-21 the next", [*REUSABLE, Verifying(6)], Data(7, transactional=True), REUSED),
    Case("APPEND-21 any further", [*REUSABLE, Verifying(6)], Data(9, transactional=True), REUSED),
    Case("APPEND-21 not by the option", [*REUSABLE, Verifying(6)], Data(9, transactional=True), ORDER, reuse=True),
    Case("APPEND-21 not behind a new one", [*REUSABLE, Verifying(7)], Data(9, transactional=True), ORDER),
    Case("APPEND-21 not of another epoch", [*REUSABLE, Verifying(6)], Data(9, 1, transactional=True), ORDER),
    Case("JOIN-16 the lowest", [Verifying(6), Verifying(5), Verifying(7)], Data(5, transactional=True)),
    Case("JOIN-16 above the lowest", [Verifying(6), Verifying(5), Verifying(7)], Data(6, transactional=True), ORDER),
    Case("JOIN-17 the newer", [Verifying(2, 3), Verifying(5, 4), Verifying(0, 3)], Data(5, 4, transactional=True)),
    Case(
        "JOIN-17 above it", [Verifying(2, 3), Verifying(5, 4), Verifying(0, 3)], Data(6, 4, transactional=True), ORDER
    ),
    Case("JOIN-18 transactional", [Verifying(5), Data(5, transactional=True)], Data(6, transactional=True)),
    Case("JOIN-18 not transactional", [Verifying(5), Data(5)], Data(6, transactional=True), ORDER),
    Case("JOIN-19", [Verifying(0), Marker(), Data(0)], Data(1)),
    Case("JOIN-19 V2, another epoch", [Verifying(0, 1, v2=True), Marker(2, 2), Data(0, 2)], Data(1, 2)),
    Case("JOIN-20", [OPEN, Verifying(0, 1, v2=True), Marker(1, 2), Data(0, 1)], Data(1, 1), ORDER),
    Case("JOIN-21", [Data(), Verifying(0), Expire(86_400_000)], Data(6)),
    Case("JOIN-21 not yet", [Data(), Verifying(0), Expire(86_399_999)], Data(1), ORDER),
]


def known(partition):
    return next((producer.to_value() for producer in partition.producers()), None)


@rows(CASES)
def test_a_batch(case, logs):
    partition = logs.partition()
    partition.log.config = replace(partition.log.config, transaction_sequence_reuse_refuse=not case.reuse)
    for step in case.before:
        answer = play(logs, partition, step)
        assert answer is None or isinstance(answer, int) or answer.error is E.NONE, step
    end, before, stable = partition.log_end_offset, known(partition), partition.last_stable_offset
    sent = case.sent
    result = play(logs, partition, sent)
    assert result.error is case.error
    if case.error or case.original is not None:
        assert (partition.log_end_offset, known(partition), partition.last_stable_offset) == (end, before, stable)
        assert (result.base_offset, result.duplicate) == (
            (-1, False) if case.original is None else (case.original, True)
        )
        if case.original is not None:
            assert (result.last_offset, result.log_append_time_ms) == (
                case.original + sent.count - 1,
                1_700_000_000_000,
            )
        return
    assert (result.base_offset, result.last_offset, result.duplicate) == (end, end + sent.count - 1, False)
    assert partition.log_end_offset == end + sent.count
    epoch, _, _, current_txn_first_offset, batches = known(partition)
    assert (epoch, batches[-1].last_offset) == (sent.epoch, partition.log_end_offset - 1)
    assert batches[-1].last_sequence == (sent.sequence + sent.count - 1) % 2**31
    was_open = before is not None and before[3] >= 0
    expected = (before[3] if was_open else end) if sent.transactional else -1
    assert current_txn_first_offset == expected
    assert partition.last_stable_offset == (expected if expected >= 0 else partition.log_end_offset)


@row("APPEND-18 what is known")
def test_a_new_epoch_forgets_the_batches_of_the_old_one(row, logs):
    partition = logs.partition()
    for step in (Data(), Data(1), Data(epoch=1)):
        play(logs, partition, step)
    assert [batch.last_offset for batch in known(partition)[-1]] == [2]


@row("APPEND-19 read from the log")
def test_sequences_are_not_checked_when_they_are_read_from_the_log(row, logs):
    partition = logs.partition()
    for sequence in (9, 0, 5):
        assert play(logs, partition, Data(sequence, own=True)).error is E.NONE
    assert play(logs, partition, Data(7)).error is ORDER
    live = known(partition)
    logs.kill()
    logs.start()
    assert known(logs.partition()) == live


MEANWHILE = [
    ("APPEND-3 aborted by another instance", None, -1, EPOCH),
    ("APPEND-3 aborted by another instance, markers missing", None, 0, EPOCH),
    ("APPEND-3 ended in the same epoch", False, 0, E.NOT_ENOUGH_REPLICAS),
]


@pytest.mark.plain
@rows(MEANWHILE)
def test_a_batch_is_refused_if_its_transaction_ended_during_the_wait(case, parts, monkeypatch):
    """The transaction ends while a request waits until its added partition is durable."""
    _, v2, hearing, error = case
    client = Client(parts)
    place = ("ledger", 0)
    slow = SlowLog(monkeypatch)
    replies = client.begin_produce(place)
    assert (replies, parts.offsets(place)) == ([], (0, 0))
    monkeypatch.undo()
    parts.sink.hearing = hearing
    coordinator = parts.coordinator

    def overtake():
        slow.held.pop(0)()
        end = coordinator.init_producer_id("t", 60_000)
        if v2 is False:
            end.close()
            end = coordinator.end("t", *client.producer, False, v2=False)
        parts.turns.start(end, lambda answer: None, parts.bugs.append)

    parts.turns.event(overtake)
    assert decode_produce(replies) is error
    parts.sink.hearing = -1
    parts.clock.advance(2_000)
    stable, end = parts.offsets(place)
    assert stable == end == parts.markers(place) == 1  # the marker alone: no record stands outside of a transaction
