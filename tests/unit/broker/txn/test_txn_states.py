"""The transition table: every legal move, and every other move refused."""

import itertools

import pytest

from ottla.broker.txn.states import (
    ALLOWED_PREVIOUS,
    COMPLETION_OF,
    PREPARED,
    IllegalMove,
    TransactionStatus,
    check_move,
)

# Written out again, from Kafka's side of the table: from -> to.
LEGAL = {
    "EMPTY": {"EMPTY", "ONGOING", "PREPARE_ABORT", "DEAD"},
    "ONGOING": {"ONGOING", "PREPARE_COMMIT", "PREPARE_ABORT", "PREPARE_EPOCH_FENCE"},
    "PREPARE_COMMIT": {"COMPLETE_COMMIT"},
    "PREPARE_ABORT": {"COMPLETE_ABORT"},
    "COMPLETE_COMMIT": {"EMPTY", "ONGOING", "PREPARE_ABORT", "DEAD"},
    "COMPLETE_ABORT": {"EMPTY", "ONGOING", "PREPARE_ABORT", "DEAD"},
    "DEAD": set(),
    "PREPARE_EPOCH_FENCE": {"PREPARE_ABORT"},
}
MOVES = list(itertools.product(TransactionStatus, TransactionStatus))


@pytest.mark.parametrize(("current", "target"), MOVES, ids=[f"{a.name}-to-{b.name}" for a, b in MOVES])
def test_a_move_is_allowed_only_if_the_table_has_it(current, target):
    if target.name in LEGAL[current.name]:
        check_move(current, target)
    else:
        with pytest.raises(IllegalMove, match=f"{current.wire_name} -> {target.wire_name}"):
            check_move(current, target)


def test_numbers_are_those_of_the_transaction_log():
    assert {status.name: int(status) for status in TransactionStatus} == {
        "EMPTY": 0,
        "ONGOING": 1,
        "PREPARE_COMMIT": 2,
        "PREPARE_ABORT": 3,
        "COMPLETE_COMMIT": 4,
        "COMPLETE_ABORT": 5,
        "DEAD": 6,
        "PREPARE_EPOCH_FENCE": 7,
    }


def test_names_are_those_of_list_transactions():
    assert [status.wire_name for status in TransactionStatus] == [
        "Empty",
        "Ongoing",
        "PrepareCommit",
        "PrepareAbort",
        "CompleteCommit",
        "CompleteAbort",
        "Dead",
        "PrepareEpochFence",
    ]


def test_a_prepared_state_leads_to_its_own_completion_alone():
    for prepared in PREPARED:
        followers = {target for target, previous in ALLOWED_PREVIOUS.items() if prepared in previous}
        assert followers == {COMPLETION_OF[prepared]}
