"""The verdict on an open transaction, from the coordinator's view and its age."""

import pytest

pytest.importorskip("numba", reason="the spark extra is not installed")

import numpy as np

from ottla.audit.checks import hanging, history
from ottla.audit.checks.hanging import Verdict
from ottla.protocol.transaction_records import TransactionValue, encode_transaction_value, transaction_key
from ottla.scan.fates import OpenTransaction

START_MS = 1_700_000_000_000
FOUND = OpenTransaction(producer_id=13, producer_epoch=2, first_offset=898, records=4, start_ms=START_MS)
ONGOING = TransactionValue(13, 2, 60_000, 1, (("ledger", (2,)),), START_MS, START_MS)


def known(*values, partitions=1):
    decoder = history.HistoryDecoder(0, 0)
    for offset, value in enumerate(values):
        decoder.add(offset, transaction_key("order-1"), encode_transaction_value(value))
    return history.merge([decoder.result()], {}, dict.fromkeys(range(partitions), 0))


def judge(value, age_ms, found=FOUND, at_hand=True, undone=None):
    told = known(*([] if value is None else [value]), partitions=1 if at_hand else 0)
    return hanging.judge(("ledger", 2), found, told, undone or {}, START_MS + age_ms)


def test_ongoing_within_its_timeout_is_in_time():
    finding = judge(ONGOING, 59_000)
    assert (finding.verdict, finding.is_hanging, finding.transactional_id) == (Verdict.IN_TIME, False, "order-1")
    assert (finding.age_ms, finding.timeout_ms) == (59_000, 60_000)
    assert hanging.findings([finding]) == []


def test_ongoing_beyond_its_timeout_is_overdue_once_the_coordinator_had_time_to_abort_it():
    assert judge(ONGOING, 75_000).verdict is Verdict.IN_TIME
    assert judge(ONGOING, 81_000).verdict is Verdict.OVERDUE


@pytest.mark.parametrize(
    "value",
    [
        None,
        ONGOING._replace(status=4),
        ONGOING._replace(status=0, partitions=None),
        ONGOING._replace(producer_epoch=3),
        ONGOING._replace(partitions=(("ledger", (0, 1)),)),
        ONGOING._replace(status=2, partitions=(("audit-log", (2,)),)),
    ],
)
def test_transaction_that_the_coordinator_does_not_hold_open_is_forgotten(value):
    assert judge(value, 61_000).verdict is Verdict.FORGOTTEN
    assert judge(value, 5_000).verdict is Verdict.IN_TIME


def test_prepared_transaction_awaits_its_marker_though_the_epoch_was_fenced():
    assert judge(ONGOING._replace(status=3, producer_epoch=3), 70_000).verdict is Verdict.IN_TIME


def test_completed_there_without_its_marker_here_is_decided_and_a_commit_must_not_be_aborted():
    prepared = ONGOING._replace(status=2)
    told = known(prepared, ONGOING._replace(status=4, partitions=()))
    (decision,) = told.for_place(("ledger", 2))
    finding = hanging.judge(("ledger", 2), FOUND, told, {13: decision}, START_MS + 61_000)
    assert (finding.verdict, finding.decided) == (Verdict.DECIDED, "COMMIT")
    assert "do not abort" in finding.action
    (told_finding,) = hanging.findings([finding])
    assert (told_finding.severity, told_finding.offset, told_finding.producer_id) == ("error", 898, 13)


def test_without_the_coordinators_log_only_the_largest_timeout_tells():
    finding = judge(None, 61_000, at_hand=False)
    assert (finding.verdict, finding.transactional_id, finding.timeout_ms) == (Verdict.IN_TIME, None, None)
    assert judge(None, 921_000, at_hand=False).verdict is Verdict.OVERDUE


def test_unknown_producer_may_have_its_coordinator_on_another_broker():
    some = history.merge([], {}, {0: 0, 2: 0})
    assert not some.whole
    assert hanging.judge(("ledger", 2), FOUND, some, {}, START_MS + 61_000).verdict is Verdict.IN_TIME


def test_previous_producer_id_still_names_the_transactional_id():
    assert judge(ONGOING._replace(producer_id=99, previous_producer_id=13), 1_000).transactional_id == "order-1"


def test_action_is_the_command_that_ends_it():
    assert "abort --topic ledger --partition 2 --start-offset 898" in judge(None, 61_000).action


def test_log_that_was_cut_at_an_offset_is_not_judged():
    finding = hanging.unjudged(("ledger", 2), FOUND, known(ONGOING))
    assert (finding.verdict, finding.is_hanging, finding.transactional_id) == (Verdict.THEN, False, "order-1")


def test_no_decisions_are_no_rows():
    assert np.shape(known().for_place(("ledger", 2))) == (0, history.DECISION_COLUMNS)
