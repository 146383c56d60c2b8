"""Timeouts and expiry: the tables TIME, EXPIRE and AFTER."""

from typing import NamedTuple

from lab.metadata import update_features
from ottla.broker.cluster.features import FeatureUpdate
from ottla.broker.txn.machine import has_expired, has_timed_out
from ottla.broker.txn.states import TransactionStatus as S
from ottla.broker.txn.values import NO_PENDING, TransactionState, TransientState
from ottla.protocol.errors import ErrorCode as E
from ottla.protocol.records import iter_records
from tests.tables.rows import (
    BEGAN,
    BUSY,
    EPOCH,
    FENCED,
    HOUR_MS,
    LOGGED,
    MAPPING,
    NOW,
    PENDING,
    PID,
    PREPARED,
    RESTING,
    STATE,
    build_state,
    quick_expiry,
    row,
    rows,
)
from tests.unit.broker.txn.test_txn_v2_writes import Client

FOO, BAR = ("foo", 1), ("bar", 0)
LEDGER = [("ledger", 0), ("ledger", 1)]
TIMEOUT_MS = 60_000
WEEK_MS = 7 * 86_400_000


class Judged(NamedTuple):
    row: str
    state: TransactionState
    now_ms: int
    expected: bool
    transient: TransientState = NO_PENDING


DUE = BEGAN + TIMEOUT_MS + 1
OPEN = build_state(S.ONGOING)


@rows(
    [
        Judged("TIME-1", OPEN, DUE, True),
        Judged("TIME-1 fenced in memory", OPEN, DUE, True, TransientState(fenced_epoch=6)),
        *[Judged(f"TIME-2 {s.wire_name}", build_state(s), DUE * 2, False) for s in LOGGED if s is not S.ONGOING],
        Judged("TIME-3", OPEN, DUE, False, PENDING),
        Judged("TIME-4", OPEN._replace(timeout_ms=2147483647), DUE * 2, False),
        Judged("TIME-5 now", OPEN, DUE - 1, False),
        Judged("TIME-5 not yet", OPEN, DUE - 2, False),
    ]
)
def test_only_ongoing_transactions_past_their_timeout_time_out(case):
    assert has_timed_out(case.state, case.transient, case.now_ms) is case.expected


EXPIRES = NOW - 400 + WEEK_MS


@rows(
    [
        *[Judged(f"EXPIRE-1 {s.wire_name}", build_state(s), EXPIRES, True) for s in RESTING],
        *[Judged(f"EXPIRE-2 {s.wire_name}", build_state(s), EXPIRES - 1, False) for s in RESTING],
        *[Judged(f"EXPIRE-3 {s.wire_name}", build_state(s), EXPIRES * 2, False) for s in (S.ONGOING, *PREPARED)],
        *[Judged(f"EXPIRE-4 {s.wire_name}", build_state(s), EXPIRES, False, PENDING) for s in RESTING],
    ]
)
def test_only_ids_without_a_transaction_expire(case):
    assert has_expired(case.state, case.transient, case.now_ms, WEEK_MS) is case.expected


# ---- the scans


@row("TIME-1 served, level 0", "TIME-1 served, level 1", "TIME-1 served, level 2")
def test_a_timed_out_transaction_is_aborted_by_the_scan(row, make_rig):
    rig = make_rig(int(row[-1])).start()
    producer = rig.producer(timeout_ms=5_000)
    rig.add("t", producer, FOO, BAR)
    rig.clock.advance(rig.config.transaction_abort_timed_out_transaction_cleanup_interval_ms - 1)
    assert (rig.state().status, rig.sink.written) == (S.ONGOING, [])
    rig.clock.advance(1)
    assert rig.state()[:3] == (PID, 1, S.COMPLETE_ABORT)
    assert [(*place, m.producer_epoch, m.commit) for *place, m in rig.sink.written] == [
        (*FOO, 1, False),
        (*BAR, 1, False),
    ]


@row("TIME-6")
def test_the_time_runs_from_the_first_partition(row, rig):
    producer = rig.producer(timeout_ms=15_000)
    rig.add("t", producer, FOO)
    rig.clock.advance(14_000)
    assert rig.add("t", producer, BAR) is E.NONE
    rig.clock.advance(6_000)
    assert rig.state().status is S.COMPLETE_ABORT


def tombstones(rig):
    """Return the number of tombstones in each batch of the id's log, without zeros."""
    counts = [sum(r.value is None for r in iter_records(batch, header)) for header, batch in rig.log_of("t").batches]
    return [count for count in counts if count]


def move_before_expiry(rig):
    """Create "t", move to just before the scan that expires it, and return its producer."""
    quick_expiry(rig)
    producer = rig.producer()
    rig.clock.advance(10 * HOUR_MS - 1)
    assert rig.state() is not None
    return producer


@row("EXPIRE-1 served", "EXPIRE-7")
def test_an_expired_id_is_forgotten(row, rig):
    old = move_before_expiry(rig)
    rig.clock.advance(1)
    assert (rig.state(), tombstones(rig), "t" in rig.shard_of().transient) == (None, [1], False)
    assert (rig.add("t", old, FOO), rig.end("t", old).error) == (MAPPING, MAPPING)
    rig.restart()
    assert rig.state() is None
    assert rig.producer() == (PID + 1, 0)
    assert rig.init(expected=old).error is FENCED
    rig.restart()
    assert rig.state()[:3] == (PID + 1, 0, S.EMPTY)


@row("EXPIRE-5")
def test_tombstones_share_batches(row, rig):
    quick_expiry(rig)
    names = [f"{'x' * 80}-{n}" for n in range(2000)]
    mine = [name for name in names if rig.log_of(name) is rig.log_of("t")]
    for name in mine:
        rig.producer(name)
    rig.producer()
    rig.clock.advance(10 * HOUR_MS)
    counts = tombstones(rig)
    assert sum(counts) == len(mine) + 1
    assert 1 < len(counts) < 10
    sizes = [header.size_bytes for header, batch in rig.log_of("t").batches if header.record_count > 1]
    assert max(sizes) <= 8_192


@row("EXPIRE-6")
def test_an_id_whose_tombstone_is_being_logged_is_busy(row, rig):
    producer = move_before_expiry(rig)
    rig.log_of("t").hold = True
    rig.clock.advance(1)
    assert rig.shard_of().transient["t"].pending.status is S.DEAD
    assert rig.end("t", producer).error is BUSY
    assert rig.end("t", producer, v2=True).error is BUSY
    assert (rig.add("t", producer, FOO), rig.init().error) == (BUSY, BUSY)
    assert rig.coordinator.describe("t").error is E.TRANSACTIONAL_ID_NOT_FOUND
    rig.turns.event(rig.log_of("t").release)
    assert rig.state() is None


@row("EXPIRE-8")
def test_an_id_whose_tombstone_is_refused_stays(row, rig):
    producer = move_before_expiry(rig)
    rig.log_of("t").refuse = E.NOT_ENOUGH_REPLICAS
    rig.clock.advance(1)
    rig.log_of("t").refuse = E.NONE
    assert rig.state()[:3] == (*producer, S.EMPTY)
    assert "t" not in rig.shard_of().transient
    assert rig.add("t", producer, FOO) is E.NONE


# ---- what an old producer sees


def time_out(parts, level, v2):
    """Return a client whose transaction, with data in the first partition, was aborted by the timeout."""
    if level != 2:
        update_features(parts.cluster, [FeatureUpdate("transaction.version", level, 2)])
    client = Client(parts)
    if v2:
        assert client.produce(LEDGER[0]) is E.NONE
    else:
        assert parts.ask(parts.coordinator.add_partitions("t", *client.producer, LEDGER[:1])) is E.NONE
        assert client.produce(LEDGER[0], version=11) is E.NONE
    parts.clock.advance(80_000)
    assert client.state[:3] == (client.producer[0], 1, S.COMPLETE_ABORT)
    return client


@row("AFTER-1 level 0", "AFTER-1 level 1", "AFTER-2 level 2, V1", "AFTER-2 level 2, V2")
def test_the_log_refuses_the_old_epoch(row, parts):
    v2 = "V2" in row
    client = time_out(parts, int(row.split("level ")[1][0]), v2)
    end = parts.offsets(LEDGER[0])
    assert client.produce(LEDGER[0], version=12 if v2 else 11, sequence=1) is EPOCH
    assert parts.offsets(LEDGER[0]) == end == (2, 2)


@row("AFTER-3 level 0", "AFTER-3 level 1", "AFTER-4 level 2")
def test_the_coordinator_adds_nothing_for_the_old_epoch(row, make_rig):
    rig, producer = abort_by_timeout(make_rig, row)
    before = rig.state()
    assert rig.add("t", producer, FOO) is FENCED
    assert rig.add("t", producer, ("__consumer_offsets", 3)) is FENCED
    assert rig.coordinator.verify("t", *producer, [FOO, BAR]) == [FENCED, FENCED]
    assert rig.state() == before


def abort_by_timeout(make_rig, row, markers=True):
    """Abort the transaction of epoch 0 at the row's level, with or without markers, and return its rig and producer."""
    rig = make_rig(int(row.split("level ")[1][0])).start()
    producer = rig.producer(timeout_ms=5_000)
    rig.add("t", producer, FOO)
    if not markers:
        rig.sink.answers[FOO] = [E.NOT_LEADER_OR_FOLLOWER] * 99
    rig.clock.advance(10_000)
    assert rig.state()[:3] == (PID, 1, S.COMPLETE_ABORT if markers else S.PREPARE_ABORT)
    return rig, producer


@row("AFTER-5 level 0", "AFTER-5 level 1", "AFTER-8 level 0", "AFTER-8 level 1")
def test_the_end_of_the_old_epoch_is_fenced(row, make_rig):
    rig, producer = abort_by_timeout(make_rig, row)
    answer = rig.end("t", producer, commit="AFTER-8" in row)
    assert (answer.error, answer.record) == (FENCED, None)
    assert rig.state()[:3] == (PID, 1, S.COMPLETE_ABORT)


@row("AFTER-6 level 2, abort")
def test_the_end_of_the_old_epoch_waits_for_the_markers(row, make_rig):
    rig, producer = abort_by_timeout(make_rig, row, markers=False)
    answer = rig.end("t", producer, commit=False, v2=True)
    assert (answer.error, answer.producer_id, answer.producer_epoch) == (BUSY, -1, -1)


@row("AFTER-7 level 2")
def test_the_abort_of_the_old_epoch_is_one_that_was_done(row, make_rig):
    rig, producer = abort_by_timeout(make_rig, row)
    answer = rig.end("t", producer, commit=False, v2=True)
    assert (answer.error, answer.producer_id, answer.producer_epoch, answer.record) == (E.NONE, PID, 1, None)
    assert rig.add("t", (PID, 1), FOO) is E.NONE


@row("AFTER-9 level 2")
def test_a_commit_of_the_old_epoch_after_a_timeout_is_refused(row, make_rig):
    rig, producer = abort_by_timeout(make_rig, row)
    answer = rig.end("t", producer, commit=True, v2=True)
    assert (answer.error, answer.producer_id, answer.producer_epoch, answer.record) == (STATE, -1, -1, None)
    assert rig.state()[:3] == (PID, 1, S.COMPLETE_ABORT)


@row("AFTER-10 level 0", "AFTER-10 level 1")
def test_the_old_epoch_cannot_resume(row, make_rig):
    rig, producer = abort_by_timeout(make_rig, row)
    answer = rig.init(expected=producer)
    assert (answer.error, answer.producer_id, answer.producer_epoch) == (FENCED, -1, -1)


@row("AFTER-11 level 2", "AFTER-11 level 2, restarted")
def test_the_old_epoch_resumes_at_the_next_one(row, make_rig):
    rig, producer = abort_by_timeout(make_rig, row)
    if "restarted" in row:
        rig.restart()
        assert rig.init(expected=producer).error is FENCED
    else:
        answer = rig.init(expected=producer)
        assert (answer.error, answer.producer_id, answer.producer_epoch) == (E.NONE, PID, 1)


@row("AFTER-12 level 0", "AFTER-12 level 1", "AFTER-13 level 2")
def test_a_new_instance_is_two_epochs_on(row, make_rig):
    rig, _ = abort_by_timeout(make_rig, row)
    answer = rig.init()
    assert (answer.error, answer.producer_id, answer.producer_epoch) == (E.NONE, PID, 2)
