"""The oracle of the kill harness detects violations: each test plants one in a sound run."""

import copy

import pytest
from oracle import ABORTED, COMMITTED, PLAIN, UNKNOWN, Findings, Partition, Transaction, Write, violations

LEDGER, AUDIT = Partition("financial-ledger", 0), Partition("audit-log", 1)
ORDERS, RECEIPTS = Partition("orders", 0), Partition("receipts", 0)


def sound_run():
    """Return a run with a transaction of each outcome and three orders, two billed; markers have the other offsets."""
    history = [
        Transaction("a", COMMITTED, [Write(LEDGER, "a1", 0), Write(AUDIT, "a2", 0)]),
        Transaction("b", ABORTED, [Write(LEDGER, "b1", 2), Write(AUDIT, "b2")]),
        Transaction("c", UNKNOWN, [Write(LEDGER, "c1", 4), Write(AUDIT, "c2", 2)]),
        Transaction("feeder", PLAIN, [Write(ORDERS, f"o{n}", n) for n in range(3)] + [Write(ORDERS, "never arrived")]),
        Transaction("biller", COMMITTED, [Write(RECEIPTS, "r0", 0, "o0"), Write(RECEIPTS, "r1", 1, "o1")]),
        Transaction("biller", ABORTED, [Write(RECEIPTS, "r2", 3, "o2")]),
    ]
    uncommitted = {
        LEDGER: [(0, "a1"), (2, "b1"), (4, "c1")],
        AUDIT: [(0, "a2"), (2, "c2")],
        ORDERS: [(0, "o0"), (1, "o1"), (2, "o2")],
        RECEIPTS: [(0, "r0"), (1, "r1"), (3, "r2")],
    }
    committed = copy.deepcopy(uncommitted)
    committed[LEDGER].remove((2, "b1"))
    committed[RECEIPTS].remove((3, "r2"))
    ends = {LEDGER: (6, 6), AUDIT: (4, 4), ORDERS: (3, 3), RECEIPTS: (5, 5)}
    return history, Findings(committed, uncommitted, ends, {ORDERS: 2}, [(LEDGER, 0, "a1"), (AUDIT, 2, "c2")])


def test_a_sound_run_has_no_violations():
    assert violations(*sound_run()) == []


def test_an_unknown_commit_may_be_absent_altogether():
    history, findings = sound_run()
    findings.committed[LEDGER].remove((4, "c1"))
    findings.committed[AUDIT].remove((2, "c2"))
    findings.seen.clear()
    assert violations(history, findings) == []


def lose_a_committed_record(history, findings):
    findings.committed[LEDGER].remove((0, "a1"))
    findings.seen.clear()


def lose_a_whole_commit(history, findings):
    findings.committed[LEDGER].remove((0, "a1"))
    findings.committed[AUDIT].remove((0, "a2"))
    findings.seen.clear()


def show_an_aborted_record(history, findings):
    findings.committed[LEDGER].insert(1, (2, "b1"))


def half_commit_an_unknown_transaction(history, findings):
    findings.committed[LEDGER].remove((4, "c1"))


def lose_an_acknowledged_plain_record(history, findings):
    findings.committed[ORDERS].remove((1, "o1"))
    findings.uncommitted[ORDERS].remove((1, "o1"))


def keep_a_record_twice(history, findings):
    findings.uncommitted[LEDGER].append((5, "a1"))
    findings.committed[LEDGER].append((5, "a1"))


def invent_a_record(history, findings):
    findings.uncommitted[AUDIT].append((3, "nobody sent this"))


def store_a_record_in_the_wrong_partition(history, findings):
    findings.uncommitted[AUDIT].remove((2, "c2"))
    findings.uncommitted[ORDERS].append((3, "c2"))


def reuse_an_offset(history, findings):
    history[3].writes.append(Write(ORDERS, "o9", 1))


def overwrite_an_acknowledged_offset(history, findings):
    history[2].writes[0].offset = 2


def change_what_a_reader_saw(history, findings):
    findings.seen.append((LEDGER, 4, "something else"))


def deliver_a_record_twice(history, findings):
    findings.seen.append((LEDGER, 0, "a1"))


def let_the_views_disagree(history, findings):
    findings.committed[AUDIT][0] = (0, "c2")


def go_back_in_the_log(history, findings):
    findings.uncommitted[ORDERS].reverse()


def leave_a_transaction_open(history, findings):
    findings.ends[LEDGER] = (6, 4)


def skip_an_input(history, findings):
    findings.positions[ORDERS] = 3


def process_an_input_twice(history, findings):
    history[4].writes[1].source = "o0"


def keep_an_output_of_an_uncommitted_position(history, findings):
    findings.positions[ORDERS] = 1


@pytest.mark.parametrize(
    ("plant", "kind"),
    [
        (lose_a_committed_record, "torn-txn"),
        (lose_a_whole_commit, "lost-write"),
        (show_an_aborted_record, "G1a"),
        (half_commit_an_unknown_transaction, "torn-txn"),
        (lose_an_acknowledged_plain_record, "lost-write"),
        (keep_a_record_twice, "duplicate"),
        (invent_a_record, "phantom"),
        (store_a_record_in_the_wrong_partition, "phantom"),
        (reuse_an_offset, "offset-reused"),
        (overwrite_an_acknowledged_offset, "offset-reused"),
        (change_what_a_reader_saw, "inconsistent-offsets"),
        (deliver_a_record_twice, "nonmonotonic-poll"),
        (let_the_views_disagree, "inconsistent-offsets"),
        (go_back_in_the_log, "nonmonotonic-poll"),
        (leave_a_transaction_open, "hanging-txn"),
        (skip_an_input, "skipped-input"),
        (process_an_input_twice, "reprocessed"),
        (keep_an_output_of_an_uncommitted_position, "uncommitted-output"),
    ],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_the_oracle_catches(plant, kind):
    history, findings = sound_run()
    plant(history, findings)
    assert kind in {violation.kind for violation in violations(history, findings)}
