"""Transitions between states: those in the documentation's table are valid, all others are refused."""

import itertools
from pathlib import Path

import pytest

from ottla.broker.txn.machine import Impossible, check_step, dead
from ottla.broker.txn.states import PENDING_ONLY, IllegalMove, check_move
from ottla.broker.txn.states import TransactionStatus as S
from ottla.broker.txn.values import TransactionState
from tests.tables.rows import LOGGED, PLACES, RESTING, build_state, rows

PAGE = Path(__file__).parents[2] / "docs" / "decision-tables.md"
BY_NAME = {status.wire_name: status for status in S}


def read_moves():
    """Return (row, state, states that may follow) of each row of the documentation."""
    lines = [line for line in PAGE.read_text().splitlines() if line.startswith("| MOVE-")]
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]


LEGAL = {
    BY_NAME[state]: {BY_NAME[name] for name in followers.split(", ") if name != "nothing"}
    for _, state, followers in read_moves()
}
MOVES = [(f"MOVE-{int(a)} {a.wire_name} to {b.wire_name}", a, b) for a, b in itertools.product(S, S)]


def test_the_table_has_every_state_with_its_name_and_its_number_in_the_log():
    assert [(row, state) for row, state, _ in read_moves()] == [(f"MOVE-{int(s)}", s.wire_name) for s in S]


@rows(MOVES)
def test_a_move_is_legal_only_if_the_table_has_it(case):
    _, current, target = case
    if target in LEGAL[current]:
        check_move(current, target)
    else:
        with pytest.raises(IllegalMove, match=f"^{current.wire_name} -> {target.wire_name}$"):
            check_move(current, target)


def follower(before, target):
    """Return a record of `target` whose fields are valid after `before`."""
    open_or_prepared = target not in RESTING and target not in PENDING_ONLY
    partitions = (before.partitions or PLACES) if target is S.ONGOING else before.partitions
    return before._replace(
        status=target,
        partitions=partitions if open_or_prepared else {},
        start_ms=-1 if target is S.EMPTY else max(before.start_ms, 0),
    )


LOGGED_MOVES = [(name, a, b) for name, a, b in MOVES if a in LOGGED and b in LOGGED]


@rows(LOGGED_MOVES)
def test_no_record_is_logged_for_an_illegal_move(case):
    """`check_step` runs before every append and checks whole records."""
    _, current, target = case
    before = build_state(current)
    if target in LEGAL[current]:
        check_step(before, follower(before, target))
    else:
        with pytest.raises(IllegalMove):
            check_step(before, follower(before, target))


@rows([(f"MOVE-{int(s)} {s.wire_name} is the first", s) for s in S if s not in (S.EMPTY, *PENDING_ONLY)])
def test_an_id_begins_empty(case):
    with pytest.raises(Impossible):
        check_step(None, build_state(case[1]))


@rows([(f"MOVE-{int(s)} {s.wire_name} dies", s) for s in LOGGED])
def test_only_ids_without_a_transaction_can_become_dead(case):
    _, status = case
    if status in RESTING:
        assert dead(build_state(status)) == build_state(status)._replace(status=S.DEAD)
    else:
        with pytest.raises(IllegalMove):
            dead(build_state(status))


IMPOSSIBLE = [
    ("MOVE-1 to another producer id", S.ONGOING, S.PREPARE_COMMIT, {"producer_id": 9}),
    ("MOVE-1 two epochs on", S.ONGOING, S.PREPARE_ABORT, {"producer_epoch": 7}),
    ("MOVE-1 an epoch back", S.ONGOING, S.ONGOING, {"producer_epoch": 4}),
    ("MOVE-1 that loses a partition", S.ONGOING, S.ONGOING, {"partitions": {("foo", 1): None}}),
    ("MOVE-1 that prepares other partitions", S.ONGOING, S.PREPARE_COMMIT, {"partitions": {}}),
    ("MOVE-1 with another timeout", S.ONGOING, S.PREPARE_COMMIT, {"timeout_ms": 1}),
    ("MOVE-2 with partitions left", S.PREPARE_COMMIT, S.COMPLETE_COMMIT, {"partitions": PLACES}),
    ("MOVE-3 without a start", S.PREPARE_ABORT, S.COMPLETE_ABORT, {"start_ms": -1}),
    ("MOVE-3 to an epoch of its own", S.PREPARE_ABORT, S.COMPLETE_ABORT, {"producer_epoch": 6}),
    ("MOVE-3 to an id that was not drawn", S.PREPARE_ABORT, S.COMPLETE_ABORT, {"producer_id": 9, "producer_epoch": 0}),
    ("MOVE-4 without a producer", S.COMPLETE_COMMIT, S.EMPTY, {"producer_id": -1}),
    ("MOVE-4 without an epoch", S.COMPLETE_COMMIT, S.EMPTY, {"producer_epoch": -1}),
    ("MOVE-0 with a start", S.EMPTY, S.EMPTY, {"start_ms": 5}),
    ("MOVE-0 with partitions", S.EMPTY, S.EMPTY, {"partitions": PLACES}),
]


@rows(IMPOSSIBLE)
def test_a_legal_move_with_impossible_fields_is_refused_too(case):
    _, current, target, wrong = case
    before: TransactionState = build_state(current)
    check_step(before, follower(before, target))
    with pytest.raises(Impossible):
        check_step(before, follower(before, target)._replace(**wrong))
