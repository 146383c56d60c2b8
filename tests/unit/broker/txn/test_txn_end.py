"""Ends of transactions at the last epochs, timeouts and expiration: the cases that no decision table has."""

import itertools

import pytest

from ottla.broker.txn.end_txn_rules import decide_end_v2
from ottla.broker.txn.machine import check_step, has_expired, has_timed_out
from ottla.broker.txn.states import TransactionStatus as S
from ottla.broker.txn.values import NO_PENDING, TransactionState, TransientState
from ottla.protocol.errors import ErrorCode as E

PID, OLD_PID, FRESH_PID, NOW = 4000, 3000, 5000, 1_700_000_000_000
PARTITIONS = {("foo", 1): None, ("bar", 0): None}
COMMIT, ABORT = True, False
LAST_EPOCH = 32767
PENDING = TransientState(pending=TransactionState(PID, 5, S.COMPLETE_COMMIT, 60_000, {}, NOW, NOW))
LOGGED_STATES = list(S)[:6]


def build_state(status, epoch=5, *, previous=PID):
    partitions = PARTITIONS if status in (S.ONGOING, S.PREPARE_COMMIT, S.PREPARE_ABORT) else {}
    start_ms = -1 if status is S.EMPTY else NOW - 500
    return TransactionState(PID, epoch, status, 60_000, partitions, start_ms, NOW - 400, previous)


def end(state, producer_id, epoch, commit):
    return decide_end_v2(state, NO_PENDING, producer_id, epoch, commit, NOW, FRESH_PID)


def test_at_the_last_epoch_a_transaction_can_only_be_aborted_which_gives_its_producer_another_id():
    before = build_state(S.ONGOING, LAST_EPOCH)
    decision = end(before, PID, LAST_EPOCH, ABORT)
    assert (decision.error, decision.producer_id, decision.producer_epoch) == (E.NONE, FRESH_PID, 0)
    prepared = (PID, LAST_EPOCH, S.PREPARE_ABORT, 60_000, PARTITIONS, NOW - 500, NOW, PID, FRESH_PID, 2)
    assert decision.record == TransactionState(*prepared)
    check_step(before, decision.record)
    refused = end(before, PID, LAST_EPOCH, COMMIT)
    assert (refused.error, refused.record) == (E.UNKNOWN_SERVER_ERROR, None)


@pytest.mark.parametrize("commit", [COMMIT, ABORT])
@pytest.mark.parametrize("status", [S.ONGOING, S.PREPARE_ABORT], ids=lambda status: status.name)
def test_an_end_with_the_previous_id_is_fenced_in_the_next_transaction(status, commit):
    decision = end(build_state(status, 0, previous=OLD_PID), OLD_PID, 32766, commit)
    assert (decision.error, decision.record) == (E.PRODUCER_FENCED, None)


@pytest.mark.parametrize("status", LOGGED_STATES, ids=lambda status: status.name)
def test_only_an_open_transaction_times_out(status):
    assert has_timed_out(build_state(status), NO_PENDING, NOW + 10**9) is (status is S.ONGOING)


def test_timeout_runs_from_the_first_partition_and_must_be_passed():
    state = build_state(S.ONGOING)
    assert not has_timed_out(state, NO_PENDING, state.start_ms + 60_000)
    assert has_timed_out(state, NO_PENDING, state.start_ms + 60_001)
    assert not has_timed_out(state, PENDING, state.start_ms + 60_001)
    assert not has_timed_out(state._replace(timeout_ms=2147483647), NO_PENDING, NOW * 2)


@pytest.mark.parametrize(("status", "pending"), list(itertools.product(LOGGED_STATES, (False, True))))
def test_only_ids_without_a_transaction_or_pending_change_expire(status, pending):
    may = status in (S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT) and not pending
    state = build_state(status)
    transient = PENDING if pending else NO_PENDING
    assert has_expired(state, transient, state.last_update_ms + 1000, 1000) is may
    assert not has_expired(state, transient, state.last_update_ms + 999, 1000)
