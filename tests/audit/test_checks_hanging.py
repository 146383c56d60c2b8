"""The verdict on an open transaction, from the coordinator's view and its age."""

import pytest

pytest.importorskip("numba", reason="the spark extra is not installed")

import numpy as np

from ottla.audit.checks import hanging, history
from ottla.audit.checks.hanging import Verdict
from ottla.protocol.hashing import coordinator_partition
from ottla.protocol.internal_topics.transaction_records import (
    TransactionValue,
    encode_transaction_value,
    transaction_key,
)
from ottla.scan.damage_log import Damage
from ottla.scan.fates import OpenTransaction

START_MS = 1_700_000_000_000
FOUND = OpenTransaction(producer_id=13, producer_epoch=2, first_offset=898, records=4, start_ms=START_MS)
ONGOING = TransactionValue(13, 2, 60_000, 1, (("ledger", (2,)),), START_MS, START_MS)


def known(*values, partitions=1, count=None):
    decoder = history.HistoryDecoder(0, 0)
    for offset, value in enumerate(values):
        decoder.add(offset, transaction_key("order-1"), encode_transaction_value(value))
    found = history.merge([decoder.result()], {}, dict.fromkeys(range(partitions), 0))
    found.count = partitions if count is None else count
    return found


TOO_LARGE = Damage("0.log", 100, 200, "larger than Ottla reads (batch at offset 1)", is_too_large=True)
CORRUPT = Damage("0.log", 100, 200, "the CRC is wrong at offset 1")


def known_in_part(value, damage):
    """Return the history where a batch of the coordinator's partition was not read."""
    decoder = history.HistoryDecoder(0, 0)
    if value is not None:
        decoder.add(0, transaction_key("order-1"), encode_transaction_value(value))
    found = history.merge([decoder.result()._replace(is_damaged=True)], {}, {0: 0})
    found.count, found.unread = 1, {0: (damage,)}
    return found


def judge(value, age_ms, found=FOUND, at_hand=True, undone=None, **settled):
    told = known(*([] if value is None else [value]), partitions=1 if at_hand else 0)
    return hanging.judge(("ledger", 2), found, told, undone or {}, START_MS + age_ms, **settled)


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
@pytest.mark.parametrize("age_ms", [61_000, 5_000, -86_400_000])
def test_transaction_that_its_coordinator_does_not_hold_is_forgotten(value, age_ms):
    found = judge(value, age_ms)
    assert found.verdict is Verdict.FORGOTTEN
    assert [one.severity for one in hanging.findings([found])] == ["error"]


@pytest.mark.parametrize(
    ("damage", "words"), [(TOO_LARGE, "a batch of __transaction_state-0 was not read"), (CORRUPT, "is damaged")]
)
@pytest.mark.parametrize(
    "value",
    [
        None,
        ONGOING,
        ONGOING._replace(status=0, partitions=None),
        ONGOING._replace(producer_epoch=3),
        ONGOING._replace(status=2),
    ],
)
def test_state_that_a_batch_may_have_that_was_not_read_is_unverifiable(value, damage, words):
    found = hanging.judge(("ledger", 2), FOUND, known_in_part(value, damage), {}, START_MS + 3_600_000)
    assert found.verdict is Verdict.UNVERIFIABLE
    assert words in found.explained
    assert [one.severity for one in hanging.findings([found])] == ["info"]


def test_commit_that_was_read_is_decided_despite_unread_records():
    committed = known_in_part(ONGOING._replace(status=4, producer_epoch=3), TOO_LARGE)
    found = hanging.judge(("ledger", 2), FOUND, committed, {}, START_MS)
    assert (found.verdict, found.decided) == (Verdict.DECIDED, "COMMIT")


def test_marker_without_a_decision_that_was_read_is_not_called_undecided():
    assert known_in_part(ONGOING._replace(status=2), TOO_LARGE).known_from_ms(13) == history.NEVER
    assert known_in_part(None, TOO_LARGE).known_from_ms(13) == history.NEVER
    assert known(ONGOING._replace(status=2)).known_from_ms(13) == 0


def test_young_transaction_is_unverifiable_if_files_changed_while_read():
    now_ms, younger_ms = START_MS + 70_000, START_MS + 70_000 - hanging.SETTLED_MS
    assert judge(None, 70_000, settled_ms=younger_ms).verdict is Verdict.FORGOTTEN
    young = FOUND._replace(start_ms=now_ms - 1_000)
    ahead = FOUND._replace(start_ms=now_ms + 86_400_000)
    without_time = FOUND._replace(start_ms=-1)
    for found in (young, ahead, without_time):
        one = judge(None, 70_000, found, settled_ms=younger_ms)
        assert (one.verdict, one.reason) == (Verdict.UNVERIFIABLE, hanging.CHANGED)
    # It was open for long, and its coordinator completed it just now: the marker may have come after the read.
    completed = ONGOING._replace(status=4, partitions=(), last_update_ms=now_ms - 1_000)
    assert judge(completed, 70_000, settled_ms=younger_ms).verdict is Verdict.UNVERIFIABLE


@pytest.mark.parametrize("grows", ["ledger", "busy", "nothing"])
def test_an_audit_of_files_that_grow_calls_no_transaction_forgotten_that_may_have_ended(grows, write_log, monkeypatch):
    from ottla.audit import pipeline
    from ottla.audit.request import Request
    from ottla.audit.runner import ThreadRunner
    from ottla.protocol.batch import build_record_batch

    logs = {"ledger": write_log("ledger"), "busy": write_log("busy")}
    logs["ledger"].data(1, producer_id=13, epoch=2, timestamp_ms=START_MS)
    logs["busy"].data(1)
    completed = ONGOING._replace(status=5, partitions=())
    record = transaction_key("order-1"), encode_transaction_value(completed), START_MS
    coordinator = write_log("__transaction_state")
    coordinator.append(build_record_batch(*record))
    look_again = pipeline.changed_since

    def grown(*arguments):
        if grows == "ledger":
            logs["ledger"].marker(13, commit=False, epoch=2)
        elif grows == "busy":
            logs["busy"].data(1)
        return look_again(*arguments)

    monkeypatch.setattr(pipeline, "changed_since", grown)
    found = pipeline.audit(ThreadRunner(1), Request((str(write_log.root),), (), START_MS + 1_000, ("hanging",)))
    verdicts = {one.topic: str(one.verdict) for one in found.open_transactions}
    assert verdicts == {"ledger": "unverifiable" if grows == "ledger" else "forgotten"}


def test_prepared_transaction_awaits_its_marker_though_the_epoch_was_fenced():
    found = judge(ONGOING._replace(status=3, producer_epoch=3), 70_000)
    assert (found.verdict, found.is_hanging) == (Verdict.ENDING, False)


def test_completed_commit_without_its_marker_must_not_be_aborted():
    prepared = ONGOING._replace(status=2)
    told = known(prepared, ONGOING._replace(status=4, partitions=()))
    (decision,) = told.for_place(("ledger", 2))
    finding = hanging.judge(("ledger", 2), FOUND, told, {13: decision}, START_MS + 61_000)
    assert (finding.verdict, finding.decided) == (Verdict.DECIDED, "COMMIT")
    assert "do not abort" in finding.action
    (told_finding,) = hanging.findings([finding])
    assert (told_finding.severity, told_finding.offset, told_finding.producer_id) == ("error", 898, 13)


LONG_AGO_MS = 30 * 86_400_000


@pytest.mark.parametrize("age_ms", [61_000, 921_000, LONG_AGO_MS])
def test_without_the_coordinators_log_there_is_no_verdict_and_no_abort(age_ms):
    found = judge(None, age_ms, at_hand=False)
    assert (found.verdict, found.is_hanging, found.timeout_ms) == (Verdict.UNVERIFIABLE, False, None)
    (finding,) = hanging.findings([found])
    assert finding.severity == "info" and "__transaction_state" in finding.message
    assert finding.action == "ottla txn why ledger 2 -b HOST:PORT"


SOME = {
    "a hole in the numbers": history.merge([], {}, {0: 0, 2: 0}),
    "one that may be of many": history.merge([], {}, {0: 0}),
    "fewer than the metadata have": known(count=50),
    "a log that begins later": history.merge([], {}, {0: 9}),
}


@pytest.mark.parametrize("some", SOME)
def test_unknown_producer_may_have_its_coordinator_elsewhere(some):
    found = hanging.judge(("ledger", 2), FOUND, SOME[some], {}, START_MS + LONG_AGO_MS)
    assert found.verdict is Verdict.UNVERIFIABLE and "__transaction_state" in found.reason


def test_completed_id_is_forgotten_though_other_partitions_are_missing():
    told = known(ONGOING._replace(status=4, partitions=()), count=50)
    assert hanging.judge(("ledger", 2), FOUND, told, {}, START_MS).verdict is Verdict.FORGOTTEN


def test_lost_records_of_the_coordinator_leave_no_proof():
    decoder = history.HistoryDecoder(0, 0)
    decoder.add(0, None, None)
    decoder.add(2, None, None)
    told = history.merge([decoder.result()], {}, {0: 0})
    told.count = 1
    assert hanging.judge(("ledger", 2), FOUND, told, {}, START_MS).verdict is Verdict.UNVERIFIABLE


def homes(names, count):
    found = {number: [] for number in range(count)}
    for name in names:
        found[coordinator_partition(name, count)].append(name)
    return found


def merge_partitions(by_partition):
    parts = []
    for number, names in by_partition.items():
        decoder = history.HistoryDecoder(number, 0)
        for offset, name in enumerate(names):
            decoder.add(offset, transaction_key(name), None)
        parts.append(decoder.result())
    return history.merge(parts, {}, dict.fromkeys(by_partition, 0))


def test_ids_prove_how_many_partitions_there_are():
    by_partition = homes([f"order-{number}" for number in range(40)], 4)
    assert merge_partitions(by_partition).whole
    first_two = {number: by_partition[number] for number in (0, 1)}
    assert not merge_partitions(first_two).whole
    assert merge_partitions(homes([], 50)).whole and not merge_partitions(homes([], 49)).whole


def test_a_begin_in_the_future_is_a_finding_and_not_in_time():
    found = judge(ONGOING, -86_400_000)
    assert (found.verdict, found.is_hanging, found.is_ahead) == (Verdict.UNVERIFIABLE, False, True)
    (finding,) = hanging.findings([found])
    assert finding.severity == "warning" and "clock" in finding.message
    assert finding.action.startswith("ottla txn why")
    # A producer whose clock is ahead: the coordinator's counts.
    assert judge(ONGOING, 59_000, FOUND._replace(start_ms=START_MS + 86_400_000)).verdict is Verdict.IN_TIME
    assert judge(ONGOING, 81_000, FOUND._replace(start_ms=START_MS + 86_400_000)).verdict is Verdict.OVERDUE


@pytest.mark.parametrize("value", [ONGOING, ONGOING._replace(status=2), ONGOING._replace(status=3, producer_epoch=3)])
@pytest.mark.parametrize("age_ms", [-86_400_000, 0, 59_000, 81_000, LONG_AGO_MS])
def test_no_abort_is_advised_for_a_transaction_its_coordinator_holds(value, age_ms):
    assert " abort " not in judge(value, age_ms).action


def test_previous_producer_id_still_names_the_transactional_id():
    assert judge(ONGOING._replace(producer_id=99, previous_producer_id=13), 1_000).transactional_id == "order-1"


def test_action_is_the_command_that_ends_it():
    assert "abort --topic ledger --partition 2 --start-offset 898" in judge(None, 61_000).action


def test_log_that_was_cut_at_an_offset_is_left_undecided():
    finding = hanging.omit_verdict(("ledger", 2), FOUND, known(ONGOING))
    assert (finding.verdict, finding.is_hanging, finding.transactional_id) == (Verdict.THEN, False, "order-1")


def test_no_decisions_are_no_rows():
    assert np.shape(known().for_place(("ledger", 2))) == (0, history.DECISION_COLUMNS)
