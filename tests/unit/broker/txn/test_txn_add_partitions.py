"""AddPartitionsToTxn, AddOffsetsToTxn and verification: the decision tables, one case per row."""

from typing import NamedTuple

import pytest

from ottla.broker.txn.machine import check_step, decide_add_partitions, verify_partitions
from ottla.broker.txn.states import TransactionStatus as S
from ottla.broker.txn.values import NO_PENDING, TransactionState, TransientState
from ottla.protocol.errors import ErrorCode as E

BUSY, MAPPING, FENCED = E.CONCURRENT_TRANSACTIONS, E.INVALID_PRODUCER_ID_MAPPING, E.PRODUCER_FENCED
PID, NOW = 4000, 1_700_000_000_000
FOO, BAR = ("foo", 1), ("bar", 0)
PENDING = TransientState(pending=TransactionState(PID, 5, S.COMPLETE_COMMIT, 60_000, {}, NOW, NOW))


def build_state(status, *partitions):
    return TransactionState(
        PID, 5, status, 60_000, dict.fromkeys(partitions), -1 if status is S.EMPTY else NOW - 500, NOW - 400, PID
    )


class Row(NamedTuple):
    name: str
    state: TransactionState | None
    error: E
    add: tuple = (FOO,)
    producer: tuple[int, int] = (PID, 5)
    transient: TransientState = NO_PENDING
    partitions: dict | None = None  # of the record
    start_ms: int = NOW


ADD = [
    Row("3 unknown id", None, MAPPING),
    *[Row(f"4 pending set, {s.name}", build_state(s), BUSY, transient=PENDING) for s in list(S)[:6]],
    Row("4 pending wins over another producer id", build_state(S.EMPTY), BUSY, producer=(9, 5), transient=PENDING),
    Row("4 pending wins over another epoch", build_state(S.EMPTY), BUSY, producer=(PID, 4), transient=PENDING),
    *[Row(f"5 another producer id, {s.name}", build_state(s), MAPPING, producer=(9, 5)) for s in list(S)[:6]],
    *[Row(f"6 lower epoch, {s.name}", build_state(s), FENCED, producer=(PID, 4)) for s in list(S)[:6]],
    *[Row(f"6 higher epoch, {s.name}", build_state(s), FENCED, producer=(PID, 6)) for s in list(S)[:6]],
    Row(
        "6 fenced by an abort that was not logged",
        build_state(S.ONGOING, FOO),
        FENCED,
        transient=TransientState(fenced_epoch=6),
    ),
    Row("7 PrepareCommit", build_state(S.PREPARE_COMMIT, FOO), BUSY),
    Row("7 PrepareAbort", build_state(S.PREPARE_ABORT, FOO), BUSY),
    Row("8 all there already", build_state(S.ONGOING, FOO, BAR), E.NONE, add=(BAR, FOO)),
    Row("8 nothing to add to an open transaction", build_state(S.ONGOING, FOO), E.NONE, add=()),
    Row("9 Empty", build_state(S.EMPTY), E.NONE, partitions={FOO: None}),
    Row("9 Empty, no partitions", build_state(S.EMPTY), E.NONE, add=(), partitions={}),
    Row("9 CompleteCommit", build_state(S.COMPLETE_COMMIT), E.NONE, partitions={FOO: None}),
    Row("9 CompleteAbort", build_state(S.COMPLETE_ABORT), E.NONE, partitions={FOO: None}),
    Row(
        "9 Ongoing, another partition",
        build_state(S.ONGOING, BAR),
        E.NONE,
        partitions={BAR: None, FOO: None},
        start_ms=NOW - 500,
    ),
]


@pytest.mark.parametrize("row", ADD, ids=[row.name for row in ADD])
def test_add_partitions(row):
    decision = decide_add_partitions(row.state, row.transient, *row.producer, row.add, NOW)
    assert decision.error == row.error
    if row.partitions is None:
        assert decision.record is None
        return
    assert decision.record == TransactionState(
        PID, 5, S.ONGOING, 60_000, row.partitions, row.start_ms, NOW, PID, client_version=0
    )
    check_step(row.state, decision.record)


def test_the_record_before_keeps_its_partitions():
    before = build_state(S.ONGOING, BAR)
    decide_add_partitions(before, NO_PENDING, PID, 5, (FOO,), NOW)
    assert before.partitions == {BAR: None}


def test_the_last_epoch_survives_the_beginning_of_a_transaction():
    decision = decide_add_partitions(build_state(S.EMPTY), TransientState(last_epoch=4), PID, 5, (FOO,), NOW)
    assert decision.last_epoch == 4


VERIFY = [
    Row("unknown id", None, MAPPING),
    Row("another producer id", build_state(S.ONGOING, FOO), MAPPING, producer=(9, 5)),
    Row("lower epoch", build_state(S.ONGOING, FOO), FENCED, producer=(PID, 4)),
    Row("higher epoch", build_state(S.ONGOING, FOO), FENCED, producer=(PID, 6)),
    Row("fenced in memory", build_state(S.ONGOING, FOO), FENCED, transient=TransientState(fenced_epoch=6)),
    Row("PrepareCommit", build_state(S.PREPARE_COMMIT, FOO), BUSY),
    Row("PrepareAbort", build_state(S.PREPARE_ABORT, FOO), BUSY),
    Row("in the transaction", build_state(S.ONGOING, FOO), E.NONE),
    Row("in the transaction, pending set", build_state(S.ONGOING, FOO), E.NONE, transient=PENDING),
    Row("not in the transaction", build_state(S.ONGOING, BAR), E.TRANSACTION_ABORTABLE),
    Row("Empty", build_state(S.EMPTY), E.TRANSACTION_ABORTABLE),
    Row("CompleteCommit", build_state(S.COMPLETE_COMMIT), E.TRANSACTION_ABORTABLE),
    Row("CompleteAbort", build_state(S.COMPLETE_ABORT), E.TRANSACTION_ABORTABLE),
]


@pytest.mark.parametrize("row", VERIFY, ids=[row.name for row in VERIFY])
def test_verify(row):
    assert verify_partitions(row.state, row.transient, *row.producer, [FOO]) == [row.error]


def test_verification_answers_for_each_partition_in_order():
    result = verify_partitions(build_state(S.ONGOING, FOO), NO_PENDING, PID, 5, [BAR, FOO, ("foo", 0)])
    assert result == [E.TRANSACTION_ABORTABLE, E.NONE, E.TRANSACTION_ABORTABLE]
