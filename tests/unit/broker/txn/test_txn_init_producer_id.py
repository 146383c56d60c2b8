"""InitProducerId: the decision table, one case per row."""

from typing import NamedTuple

import pytest

from ottla.broker.txn.machine import check_step, decide_init_producer_id
from ottla.broker.txn.states import TransactionStatus as S
from ottla.broker.txn.values import NEED_PRODUCER_ID, NO_PENDING, TransactionState, TransientState
from ottla.protocol.errors import ErrorCode as E

BUSY, FENCED = E.CONCURRENT_TRANSACTIONS, E.PRODUCER_FENCED
PID, OLD_PID, FRESH_PID, NOW = 4000, 3000, 5000, 1_700_000_000_000
PARTITIONS = {("foo", 1): None}


def build_state(status, epoch, *, previous=PID):
    """Return the state of the id before the request."""
    began = status not in (S.EMPTY,)
    partitions = PARTITIONS if status in (S.ONGOING, S.PREPARE_COMMIT, S.PREPARE_ABORT) else {}
    return TransactionState(PID, epoch, status, 60_000, partitions, NOW - 500 if began else -1, NOW - 400, previous)


class Row(NamedTuple):
    name: str
    state: TransactionState | None
    expected: tuple[int, int]  # producer id and epoch of the request
    error: E
    answer: tuple[int, int] = (-1, -1)
    record: tuple[S, int, int] | None = None  # status, producer id, epoch
    last_epoch: int = -1  # after the record
    transient: TransientState = NO_PENDING
    level: int = 1


NONE = (-1, -1)
PENDING = TransientState(pending=build_state(S.EMPTY, 7))
REST = (S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT)

ROWS = [
    *[Row(f"1 pending set, {s.name}", build_state(s, 5), NONE, BUSY, transient=PENDING) for s in list(S)[:6]],
    Row("1 pending set wins over an invalid id", build_state(S.EMPTY, 5), (9, 5), BUSY, transient=PENDING),
    Row("1 creation pending", None, NONE, BUSY, transient=PENDING),
    *[Row(f"2 another producer id, {s.name}", build_state(s, 5), (9, 5), FENCED) for s in list(S)[:6]],
    Row(
        "2 previous id with an epoch that was not exhausted",
        build_state(S.EMPTY, 0, previous=OLD_PID),
        (OLD_PID, 9),
        FENCED,
    ),
    *[
        Row(f"3 {s.name}, expected {e}", build_state(s, 5), e, BUSY)
        for s in (S.PREPARE_COMMIT, S.PREPARE_ABORT)
        for e in (NONE, (PID, 5), (PID, 4))
    ],
    Row("4 open, level 1", build_state(S.ONGOING, 5), NONE, BUSY, record=(S.PREPARE_ABORT, PID, 6)),
    Row("4 open, epoch is not checked", build_state(S.ONGOING, 5), (PID, 2), BUSY, record=(S.PREPARE_ABORT, PID, 6)),
    Row("4 open, level 0", build_state(S.ONGOING, 5), (PID, 5), BUSY, record=(S.PREPARE_ABORT, PID, 6), level=0),
    Row(
        "4 open, level 2 remembers the epoch",
        build_state(S.ONGOING, 5),
        (PID, 5),
        BUSY,
        record=(S.PREPARE_ABORT, PID, 6),
        last_epoch=5,
        level=2,
    ),
    Row(
        "4 open, epoch 32766, level 1", build_state(S.ONGOING, 32766), NONE, BUSY, record=(S.PREPARE_ABORT, PID, 32767)
    ),
    Row(
        "4 open after a failed fence: no second bump",
        build_state(S.ONGOING, 5),
        NONE,
        BUSY,
        record=(S.PREPARE_ABORT, PID, 6),
        transient=TransientState(fenced_epoch=6),
    ),
    Row("5 new id", None, NONE, E.NONE, (FRESH_PID, 0), (S.EMPTY, FRESH_PID, 0)),
    *[Row(f"5 {s.name}", build_state(s, 5), NONE, E.NONE, (PID, 6), (S.EMPTY, PID, 6)) for s in REST],
    Row(
        "5 epoch 32765 bumps to the last usable",
        build_state(S.EMPTY, 32765),
        NONE,
        E.NONE,
        (PID, 32766),
        (S.EMPTY, PID, 32766),
    ),
    *[
        Row(f"6 exhausted, {s.name}", build_state(s, 32766), NONE, E.NONE, (FRESH_PID, 0), (S.EMPTY, FRESH_PID, 0))
        for s in REST
    ],
    Row(
        "6 fenced at 32767", build_state(S.COMPLETE_ABORT, 32767), NONE, E.NONE, (FRESH_PID, 0), (S.EMPTY, FRESH_PID, 0)
    ),
    *[
        Row(f"7 expected is current, {s.name}", build_state(s, 5), (PID, 5), E.NONE, (PID, 6), (S.EMPTY, PID, 6), 5)
        for s in REST
    ],
    Row("7 new id with an expectation", None, (77, 3), E.NONE, (FRESH_PID, 0), (S.EMPTY, FRESH_PID, 0)),
    Row(
        "8 expected is current, exhausted",
        build_state(S.EMPTY, 32766),
        (PID, 32766),
        E.NONE,
        (FRESH_PID, 0),
        (S.EMPTY, FRESH_PID, 0),
        32766,
    ),
    Row(
        "9 repeated after 7",
        build_state(S.EMPTY, 6),
        (PID, 5),
        E.NONE,
        (PID, 6),
        (S.EMPTY, PID, 6),
        5,
        TransientState(last_epoch=5),
    ),
    Row(
        "9 repeated after a rotation",
        build_state(S.EMPTY, 0, previous=OLD_PID),
        (OLD_PID, 32766),
        E.NONE,
        (PID, 0),
        (S.EMPTY, PID, 0),
        32766,
        TransientState(last_epoch=32766),
    ),
    Row("10 lower", build_state(S.EMPTY, 6), (PID, 4), FENCED, transient=TransientState(last_epoch=5)),
    Row("10 higher", build_state(S.EMPTY, 6), (PID, 7), FENCED),
    Row("10 repeated, but the coordinator has restarted", build_state(S.EMPTY, 6), (PID, 5), FENCED),
    Row(
        "10 repeated after a rotation and a restart",
        build_state(S.EMPTY, 0, previous=OLD_PID),
        (OLD_PID, 32766),
        FENCED,
    ),
    Row("11 exhausted and not current", build_state(S.EMPTY, 32766), (PID, 32765), E.UNKNOWN_SERVER_ERROR),
    Row(
        "11 exhausted wins over a repetition",
        build_state(S.EMPTY, 32766),
        (PID, 32765),
        E.UNKNOWN_SERVER_ERROR,
        transient=TransientState(last_epoch=32765),
    ),
]


@pytest.mark.parametrize("row", ROWS, ids=[row.name for row in ROWS])
def test_init_producer_id(row):
    decision = decide_init_producer_id(row.state, row.transient, 90_000, *row.expected, row.level, NOW, FRESH_PID)
    assert decision.error == row.error
    assert (decision.producer_id, decision.producer_epoch) == row.answer
    if row.record is None:
        assert decision.record is None
        return
    record = decision.record
    assert (record.status, record.producer_id, record.producer_epoch) == row.record
    assert decision.last_epoch == row.last_epoch
    assert record.last_update_ms == NOW
    check_step(row.state, record)
    if record.status is S.EMPTY:
        assert (record.timeout_ms, record.partitions, record.start_ms) == (90_000, {}, -1)
        assert record.previous_producer_id == (row.state.producer_id if row.state else FRESH_PID)
    else:
        assert (record.timeout_ms, record.partitions, record.start_ms) == (60_000, PARTITIONS, NOW - 500)
        assert record.client_version == (2 if row.level == 2 else 0)


@pytest.mark.parametrize(
    ("state", "level"),
    [
        (None, 1),
        (build_state(S.EMPTY, 32766), 1),
        (build_state(S.COMPLETE_ABORT, 32767), 1),
        (build_state(S.ONGOING, 32766), 2),
    ],
    ids=["new id", "exhausted", "fenced at the end", "open and exhausted, level 2"],
)
def test_a_new_or_exhausted_id_needs_a_fresh_producer_id(state, level):
    assert decide_init_producer_id(state, NO_PENDING, 90_000, -1, -1, level, NOW) is NEED_PRODUCER_ID


def test_fence_at_level_2_draws_the_next_producer_id_when_exhausted():
    decision = decide_init_producer_id(build_state(S.ONGOING, 32766), NO_PENDING, 90_000, -1, -1, 2, NOW, FRESH_PID)
    assert decision.record.producer_epoch == 32767
    assert decision.record.next_producer_id == FRESH_PID
    assert decision.error is BUSY
    assert (decision.producer_id, decision.producer_epoch) == (-1, -1)
