"""EndTxn of both generations, aborts by the coordinator, completion: the decision tables, one case per row."""

import itertools
from typing import NamedTuple

import pytest

from ottla.broker.txn.end_txn_rules import completion, decide_abort, decide_end, decide_end_v2
from ottla.broker.txn.machine import append_failed, check_step, has_expired, has_timed_out
from ottla.broker.txn.states import TransactionStatus as S
from ottla.broker.txn.values import NEED_PRODUCER_ID, NO_PENDING, TransactionState, TransientState
from ottla.protocol.errors import ErrorCode as E

BUSY, MAPPING, FENCED, STATE = (
    E.CONCURRENT_TRANSACTIONS,
    E.INVALID_PRODUCER_ID_MAPPING,
    E.PRODUCER_FENCED,
    E.INVALID_TXN_STATE,
)
PID, OLD_PID, FRESH_PID, NOW = 4000, 3000, 5000, 1_700_000_000_000
PARTITIONS = {("foo", 1): None, ("bar", 0): None}
COMMIT, ABORT = True, False
PENDING = TransientState(pending=TransactionState(PID, 5, S.COMPLETE_COMMIT, 60_000, {}, NOW, NOW))
LOGGED_STATES = list(S)[:6]


def held(status, epoch=5, *, previous=PID):
    partitions = PARTITIONS if status in (S.ONGOING, S.PREPARE_COMMIT, S.PREPARE_ABORT) else {}
    start_ms = -1 if status is S.EMPTY else NOW - 500
    return TransactionState(PID, epoch, status, 60_000, partitions, start_ms, NOW - 400, previous)


class Row(NamedTuple):
    name: str
    state: TransactionState | None
    commit: bool
    error: E
    producer: tuple[int, int] = (PID, 5)
    transient: TransientState = NO_PENDING
    record: tuple[S, int] | None = None  # status and epoch
    answer: tuple[int, int] = (-1, -1)


def both(name, state, error, **more):
    return [Row(f"{name}, {'commit' if c else 'abort'}", state, c, error, **more) for c in (COMMIT, ABORT)]


V1 = [
    *both("unknown id", None, MAPPING),
    *both("unknown id being created", None, MAPPING, transient=PENDING),
    *both("another producer id", held(S.ONGOING), MAPPING, producer=(9, 5)),
    *both("another producer id wins over pending", held(S.ONGOING), MAPPING, producer=(9, 5), transient=PENDING),
    *both("lower epoch", held(S.ONGOING), FENCED, producer=(PID, 4)),
    *both("higher epoch", held(S.ONGOING), FENCED, producer=(PID, 6)),
    *both("epoch wins over pending", held(S.ONGOING), FENCED, producer=(PID, 4), transient=PENDING),
    *both("fenced in memory", held(S.ONGOING), FENCED, transient=TransientState(fenced_epoch=6)),
    *[row for s in LOGGED_STATES for row in both(f"pending, {s.name}", held(s), BUSY, transient=PENDING)],
    Row("Ongoing, commit", held(S.ONGOING), COMMIT, E.NONE, record=(S.PREPARE_COMMIT, 5)),
    Row("Ongoing, abort", held(S.ONGOING), ABORT, E.NONE, record=(S.PREPARE_ABORT, 5)),
    Row("PrepareCommit, commit", held(S.PREPARE_COMMIT), COMMIT, BUSY),
    Row("PrepareCommit, abort", held(S.PREPARE_COMMIT), ABORT, STATE),
    Row("PrepareAbort, commit", held(S.PREPARE_ABORT), COMMIT, STATE),
    Row("PrepareAbort, abort", held(S.PREPARE_ABORT), ABORT, BUSY),
    Row("CompleteCommit, commit again", held(S.COMPLETE_COMMIT), COMMIT, E.NONE),
    Row("CompleteCommit, abort", held(S.COMPLETE_COMMIT), ABORT, STATE),
    Row("CompleteAbort, commit", held(S.COMPLETE_ABORT), COMMIT, STATE),
    Row("CompleteAbort, abort again", held(S.COMPLETE_ABORT), ABORT, E.NONE),
    *both("Empty", held(S.EMPTY), STATE),
]


@pytest.mark.parametrize("row", V1, ids=[row.name for row in V1])
def test_end_txn_version_1(row):
    decision = decide_end(row.state, row.transient, *row.producer, row.commit, NOW)
    assert (decision.error, decision.producer_id, decision.producer_epoch) == (row.error, -1, -1)
    if row.record is None:
        assert decision.record is None
        return
    status, epoch = row.record
    assert decision.record == TransactionState(PID, epoch, status, 60_000, PARTITIONS, NOW - 500, NOW, PID, -1, 0)
    check_step(row.state, decision.record)


MOVED = (PID, 4)  # the request that moved the epoch to 5
V2 = [
    *both("unknown id", None, MAPPING),
    *both("pending wins over an unknown id", None, BUSY, transient=PENDING),
    *both("pending wins over another producer id", held(S.ONGOING), BUSY, producer=(9, 5), transient=PENDING),
    *both("another producer id", held(S.ONGOING), MAPPING, producer=(9, 5)),
    *[
        row
        for s in (S.ONGOING, S.EMPTY)
        for e in (3, 4, 6)
        for row in both(f"{s.name}, epoch {e} of 5", held(s), FENCED, producer=(PID, e))
    ],
    *[
        row
        for s in (S.PREPARE_COMMIT, S.PREPARE_ABORT)
        for e in (3, 5, 6)
        for row in both(f"{s.name}, epoch {e} of 5", held(s), FENCED, producer=(PID, e))
    ],
    *[
        row
        for s in (S.COMPLETE_COMMIT, S.COMPLETE_ABORT)
        for e in (3, 6)
        for row in both(f"{s.name}, epoch {e} of 5", held(s), FENCED, producer=(PID, e))
    ],
    Row("Ongoing, commit", held(S.ONGOING), COMMIT, E.NONE, record=(S.PREPARE_COMMIT, 6), answer=(PID, 6)),
    Row("Ongoing, abort", held(S.ONGOING), ABORT, E.NONE, record=(S.PREPARE_ABORT, 6), answer=(PID, 6)),
    Row("Empty, commit", held(S.EMPTY), COMMIT, STATE),
    Row("Empty, abort", held(S.EMPTY), ABORT, E.NONE, record=(S.PREPARE_ABORT, 6), answer=(PID, 6)),
    Row("PrepareCommit, commit again", held(S.PREPARE_COMMIT), COMMIT, BUSY, MOVED),
    Row("PrepareCommit, abort", held(S.PREPARE_COMMIT), ABORT, STATE, MOVED),
    Row("PrepareAbort, commit", held(S.PREPARE_ABORT), COMMIT, STATE, MOVED),
    Row("PrepareAbort, abort again", held(S.PREPARE_ABORT), ABORT, BUSY, MOVED),
    Row("CompleteCommit, commit again", held(S.COMPLETE_COMMIT), COMMIT, E.NONE, MOVED, answer=(PID, 5)),
    Row("CompleteCommit, abort of what was committed", held(S.COMPLETE_COMMIT), ABORT, STATE, MOVED),
    Row("CompleteCommit, commit of nothing", held(S.COMPLETE_COMMIT), COMMIT, STATE),
    Row(
        "CompleteCommit, empty abort",
        held(S.COMPLETE_COMMIT),
        ABORT,
        E.NONE,
        record=(S.PREPARE_ABORT, 6),
        answer=(PID, 6),
    ),
    Row("CompleteAbort, commit of what was aborted", held(S.COMPLETE_ABORT), COMMIT, STATE, MOVED),
    Row("CompleteAbort, abort again", held(S.COMPLETE_ABORT), ABORT, E.NONE, MOVED, answer=(PID, 5)),
    Row("CompleteAbort, commit of nothing", held(S.COMPLETE_ABORT), COMMIT, STATE),
    Row(
        "CompleteAbort, empty abort",
        held(S.COMPLETE_ABORT),
        ABORT,
        E.NONE,
        record=(S.PREPARE_ABORT, 6),
        answer=(PID, 6),
    ),
    Row(
        "rotated, commit again",
        held(S.COMPLETE_COMMIT, 0, previous=OLD_PID),
        COMMIT,
        E.NONE,
        (OLD_PID, 32766),
        answer=(PID, 0),
    ),
    Row(
        "rotated, abort again",
        held(S.COMPLETE_ABORT, 0, previous=OLD_PID),
        ABORT,
        E.NONE,
        (OLD_PID, 32766),
        answer=(PID, 0),
    ),
    *both("rotated, then open", held(S.ONGOING, 0, previous=OLD_PID), FENCED, producer=(OLD_PID, 32766)),
    *both("rotated, then prepared", held(S.PREPARE_ABORT, 0, previous=OLD_PID), FENCED, producer=(OLD_PID, 32766)),
    *both(
        "previous id with another epoch", held(S.COMPLETE_COMMIT, 0, previous=OLD_PID), MAPPING, producer=(OLD_PID, 7)
    ),
    Row(
        "32765 is not exhausted",
        held(S.ONGOING, 32765),
        COMMIT,
        E.NONE,
        (PID, 32765),
        record=(S.PREPARE_COMMIT, 32766),
        answer=(PID, 32766),
    ),
    Row(
        "exhausted, commit",
        held(S.ONGOING, 32766),
        COMMIT,
        E.NONE,
        (PID, 32766),
        record=(S.PREPARE_COMMIT, 32767),
        answer=(FRESH_PID, 0),
    ),
    Row(
        "exhausted, abort",
        held(S.ONGOING, 32766),
        ABORT,
        E.NONE,
        (PID, 32766),
        record=(S.PREPARE_ABORT, 32767),
        answer=(FRESH_PID, 0),
    ),
    Row(
        "32767, abort",
        held(S.ONGOING, 32767),
        ABORT,
        E.NONE,
        (PID, 32767),
        record=(S.PREPARE_ABORT, 32767),
        answer=(FRESH_PID, 0),
    ),
    Row("32767, commit", held(S.ONGOING, 32767), COMMIT, E.UNKNOWN_SERVER_ERROR, (PID, 32767)),
]


@pytest.mark.parametrize("row", V2, ids=[row.name for row in V2])
def test_end_txn_version_2(row):
    decision = decide_end_v2(row.state, row.transient, *row.producer, row.commit, NOW, FRESH_PID)
    assert (decision.error, (decision.producer_id, decision.producer_epoch)) == (row.error, row.answer)
    if row.record is None:
        assert decision.record is None
        return
    status, epoch = row.record
    opened = row.state.status is S.ONGOING
    next_id = FRESH_PID if row.answer[0] == FRESH_PID else -1
    assert decision.record == TransactionState(
        PID, epoch, status, 60_000, row.state.partitions, NOW - 500 if opened else NOW, NOW, PID, next_id, 2
    )
    assert decision.last_epoch == row.state.producer_epoch
    check_step(row.state, decision.record)


def test_an_exhausted_epoch_needs_a_producer_id_before_anything_is_logged():
    assert decide_end_v2(held(S.ONGOING, 32766), NO_PENDING, PID, 32766, COMMIT, NOW) is NEED_PRODUCER_ID


@pytest.mark.parametrize("level", [0, 1])
def test_an_abort_by_the_coordinator_moves_the_epoch_and_forgets_the_last(level):
    decision = decide_abort(held(S.ONGOING), TransientState(last_epoch=4), level, NOW, -1, E.NONE)
    assert decision.record == TransactionState(PID, 6, S.PREPARE_ABORT, 60_000, PARTITIONS, NOW - 500, NOW, PID)
    assert (decision.last_epoch, decision.error) == (-1, E.NONE)


def test_an_abort_by_the_coordinator_at_level_2_remembers_the_last_epoch():
    decision = decide_abort(held(S.ONGOING), NO_PENDING, 2, NOW, -1, E.NONE)
    assert (decision.record.producer_epoch, decision.record.client_version, decision.last_epoch) == (6, 2, 5)


def test_a_failed_fence_is_remembered_at_level_1_and_not_at_level_2():
    first = decide_abort(held(S.ONGOING), NO_PENDING, 1, NOW, -1, E.NONE)
    kept = append_failed(NO_PENDING, first)
    assert kept == TransientState(fenced_epoch=6)
    assert decide_abort(held(S.ONGOING), kept, 1, NOW, -1, E.NONE).record.producer_epoch == 6
    assert append_failed(NO_PENDING, decide_abort(held(S.ONGOING), NO_PENDING, 2, NOW, -1, E.NONE)) == NO_PENDING


def test_the_fence_stops_at_32767():
    assert decide_abort(held(S.ONGOING, 32767), NO_PENDING, 1, NOW, -1, E.NONE).record.producer_epoch == 32767


def test_completion_keeps_producer_and_start_and_drops_partitions():
    after = completion(held(S.PREPARE_COMMIT), NOW)
    assert after == TransactionState(PID, 5, S.COMPLETE_COMMIT, 60_000, {}, NOW - 500, NOW, PID)
    check_step(held(S.PREPARE_COMMIT), after)


def test_completion_switches_to_the_next_producer_id():
    before = held(S.PREPARE_ABORT, 32767)._replace(next_producer_id=FRESH_PID, client_version=2)
    after = completion(before, NOW)
    assert after[:3] == (FRESH_PID, 0, S.COMPLETE_ABORT)
    assert (after.previous_producer_id, after.next_producer_id) == (PID, -1)
    check_step(before, after)


@pytest.mark.parametrize("status", LOGGED_STATES, ids=lambda status: status.name)
def test_only_an_open_transaction_times_out(status):
    assert has_timed_out(held(status), NO_PENDING, NOW + 10**9) is (status is S.ONGOING)


def test_timeout_runs_from_the_first_partition_and_must_be_passed():
    state = held(S.ONGOING)
    assert not has_timed_out(state, NO_PENDING, state.start_ms + 60_000)
    assert has_timed_out(state, NO_PENDING, state.start_ms + 60_001)
    assert not has_timed_out(state, PENDING, state.start_ms + 60_001)
    assert not has_timed_out(state._replace(timeout_ms=2147483647), NO_PENDING, NOW * 2)


@pytest.mark.parametrize(("status", "pending"), list(itertools.product(LOGGED_STATES, (False, True))))
def test_only_ids_at_rest_expire(status, pending):
    may = status in (S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT) and not pending
    state = held(status)
    transient = PENDING if pending else NO_PENDING
    assert has_expired(state, transient, state.last_update_ms + 1000, 1000) is may
    assert not has_expired(state, transient, state.last_update_ms + 999, 1000)
