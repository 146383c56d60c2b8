"""Unusual but sound logs without findings, and unusual logs with findings."""

import shutil

import pytest

pytest.importorskip("numba", reason="the spark extra is not installed")

from ottla.audit.pipeline import audit
from ottla.audit.request import Request
from ottla.audit.runner import ThreadRunner
from ottla.protocol.batch import build_record_batch
from ottla.protocol.internal_topics.transaction_records import (
    TransactionValue,
    encode_transaction_value,
    transaction_key,
)
from ottla.protocol.values import NEVER_TIMES_OUT_MS
from tests.segment_files import LogWriter

T0 = 1_700_000_000_000
DAY_MS = 86_400_000
PLACES = (("ledger", (0,)),)
ONGOING, PREPARE_COMMIT, PREPARE_ABORT, COMPLETE_COMMIT, COMPLETE_ABORT = 1, 2, 3, 4, 5


def wrong(*roots, now_ms=T0 + 30 * DAY_MS):
    found = audit(ThreadRunner(1), Request(tuple(map(str, roots)), (), now_ms)).at_least("warning")
    return [(one.check, one.place, one.message) for one in found]


class Coordinator:
    """Writes `__transaction_state-0`, for order-1 if no other id is named."""

    def __init__(self, root):
        self.log = LogWriter(root, "__transaction_state")

    def state(self, status, now_ms, producer_id=7, epoch=0, places=PLACES, name="order-1", timeout_ms=60_000):
        value = TransactionValue(producer_id, epoch, timeout_ms, status, places, now_ms, now_ms)
        if status >= COMPLETE_COMMIT:
            value = value._replace(partitions=())
        batch = build_record_batch(transaction_key(name), encode_transaction_value(value), now_ms)
        return self.log.append(batch)

    def transaction(self, now_ms, commit=True, **more):
        """Write a transaction that is decided and completed within 20 ms; its marker belongs at `now_ms` + 11."""
        self.state(ONGOING, now_ms, **more | {"epoch": more.pop("data_epoch", more.get("epoch", 0))})
        self.state(PREPARE_COMMIT if commit else PREPARE_ABORT, now_ms + 10, **more)
        self.state(COMPLETE_COMMIT if commit else COMPLETE_ABORT, now_ms + 15, **more)


@pytest.fixture
def coordinator(write_log):
    return Coordinator(write_log.root)


def test_a_producer_upgraded_from_v1_to_v2_has_no_findings(write_log, coordinator):
    log, now = write_log(), T0
    for number in range(3):
        coordinator.transaction(now, epoch=3)
        log.data(1, producer_id=7, epoch=3, base_sequence=number, timestamp_ms=now)
        log.marker(7, True, epoch=3, timestamp_ms=now + 11)
        now += 1_000
    for number in range(3):
        coordinator.transaction(now, commit=number != 1, epoch=4 + number, data_epoch=3 + number)
        log.data(1, producer_id=7, epoch=3 + number, base_sequence=0 if number else 3, timestamp_ms=now)
        log.marker(7, number != 1, epoch=4 + number, timestamp_ms=now + 11)
        now += 1_000
    # The epochs are exhausted: the coordinator continues with another producer id.
    coordinator.transaction(now, epoch=32_767, data_epoch=32_766)
    log.data(1, producer_id=7, epoch=32_766, timestamp_ms=now)
    log.marker(7, True, epoch=32_767, timestamp_ms=now + 11)
    coordinator.transaction(now + 1_000, producer_id=9, epoch=1, data_epoch=0)
    log.data(1, producer_id=9, epoch=0, timestamp_ms=now + 1_000)
    log.marker(9, True, epoch=1, timestamp_ms=now + 1_011)
    assert wrong(write_log.root) == []


@pytest.mark.parametrize("sequence", [0, 5, 9])
def test_a_producer_that_the_broker_had_forgotten_begins_anywhere(write_log, sequence):
    log = write_log()
    log.data(5, producer_id=7, transactional=False, timestamp_ms=T0)
    log.data(1, producer_id=7, transactional=False, base_sequence=sequence, timestamp_ms=T0 + 2 * DAY_MS)
    assert wrong(write_log.root) == []


def test_an_epoch_that_is_raised_begins_at_zero_and_sequences_wrap(write_log):
    log = write_log()
    log.data(3, producer_id=7, transactional=False, timestamp_ms=T0)
    log.data(2, producer_id=7, epoch=1, base_sequence=0, transactional=False, timestamp_ms=T0)
    log.data(2, producer_id=7, epoch=1, base_sequence=2, transactional=False, timestamp_ms=T0)
    log.data(3, producer_id=8, transactional=False, base_sequence=2**31 - 2, timestamp_ms=T0)
    log.data(2, producer_id=8, transactional=False, base_sequence=1, timestamp_ms=T0)
    log.data(3, producer_id=9, transactional=False, base_sequence=2**31 - 3, timestamp_ms=T0)
    log.data(2, producer_id=9, transactional=False, base_sequence=0, timestamp_ms=T0)
    assert wrong(write_log.root) == []


def test_compaction_takes_data_and_markers_of_a_compacted_topic(write_log, coordinator):
    log, now = write_log(), T0
    (write_log.root / "cleaner-offset-checkpoint").write_text("0\n1\nledger 0 12\n")
    for number in range(6):
        coordinator.transaction(now)
        if number in (1, 2, 3):
            log.next_offset += 2
        else:
            log.data(2, producer_id=7, base_sequence=2 * number, timestamp_ms=now)
        if number == 1:
            log.next_offset += 1
        else:
            log.marker(7, True, timestamp_ms=now + 11)
        now += 10_000
    assert wrong(write_log.root) == []


@pytest.mark.parametrize("log_start", [3, 5, 8, 9, 11])
def test_records_deleted_from_within_a_transaction(write_log, coordinator, log_start):
    log = write_log()
    coordinator.transaction(T0)
    log.data(5, producer_id=7, timestamp_ms=T0)
    log.data(3, producer_id=7, base_sequence=5, timestamp_ms=T0 + 3)
    log.marker(7, True, timestamp_ms=T0 + 11)
    log.data(2, timestamp_ms=T0 + 1_000)
    (write_log.root / "log-start-offset-checkpoint").write_text(f"0\n1\nledger 0 {log_start}\n")
    assert wrong(write_log.root) == []


def test_retention_took_the_beginning_or_all_of_a_transaction(write_log, coordinator):
    log = write_log(base_offset=50)
    coordinator.transaction(T0 - DAY_MS)
    coordinator.transaction(T0)
    log.data(1, producer_id=7, base_sequence=40, timestamp_ms=T0)
    log.marker(7, True, timestamp_ms=T0 + 11)
    assert wrong(write_log.root) == []


@pytest.mark.parametrize("event_ms", [T0 + DAY_MS, 1_000, T0 - 300 * DAY_MS])
def test_a_topic_that_was_made_again_lacks_no_markers_of_the_old_one(write_log, coordinator, event_ms):
    """The result is the same for every timestamp of its producers."""
    log = write_log()
    coordinator.transaction(T0)
    coordinator.transaction(T0 + DAY_MS)
    log.data(1, timestamp_ms=event_ms)
    log.data(1, producer_id=7, timestamp_ms=event_ms)
    log.marker(7, True, timestamp_ms=T0 + DAY_MS + 11)
    assert wrong(write_log.root) == []


@pytest.mark.parametrize("spacing_ms", [20, 500, 60_000])
def test_a_broker_clock_slower_than_the_coordinators_has_no_findings(write_log, coordinator, spacing_ms):
    log, now = write_log(), T0
    for number in range(200):
        coordinator.transaction(now)
        log.data(1, producer_id=7, base_sequence=number, timestamp_ms=now)
        log.marker(7, True, timestamp_ms=now + 10 - 700)
        now += spacing_ms
    assert wrong(write_log.root) == []


def test_an_older_copy_of_the_coordinator_log_causes_no_findings(write_log, coordinator, tmp_path):
    log = write_log()
    for now in (T0, T0 + DAY_MS):
        coordinator.transaction(now)
        log.data(1, producer_id=7, base_sequence=int(now > T0), timestamp_ms=now)
        log.marker(7, True, timestamp_ms=now + 11)
        if now == T0:
            other = tmp_path / "other"
            shutil.copytree(write_log.root, other, ignore=shutil.ignore_patterns("ledger-*"))
    shutil.rmtree(coordinator.log.folder)
    assert wrong(write_log.root, other) == []


def test_a_replica_that_was_down_lacks_what_came_since(write_log, coordinator, tmp_path):
    log = write_log()
    for now in (T0, T0 + DAY_MS):
        coordinator.transaction(now)
        log.data(1, producer_id=7, base_sequence=int(now > T0), timestamp_ms=now)
        if now > T0:
            # The follower stopped in the middle of a transaction.
            shutil.copytree(write_log.root, tmp_path / "other", ignore=shutil.ignore_patterns("__*"))
        log.marker(7, True, timestamp_ms=now + 11)
    assert wrong(write_log.root, tmp_path / "other") == []


def test_a_missing_marker_is_found_in_a_log_without_any_marker(write_log, coordinator):
    log = write_log()
    coordinator.transaction(T0)
    log.data(1, producer_id=7, timestamp_ms=T0 + 5)
    assert {(check, place) for check, place, _ in wrong(write_log.root)} == {
        ("hanging", "ledger-0@0"),
        ("torn", "ledger-0@0"),
    }


class TwoPhaseCommit(Coordinator):
    """Writes the states of an id whose transactions never time out."""

    def state(self, status, now_ms, timeout_ms=NEVER_TIMES_OUT_MS, **more):
        return super().state(status, now_ms, timeout_ms=timeout_ms, **more)


DECIDED_MS = T0 + 20 * DAY_MS


@pytest.fixture
def two_phase_commit(write_log):
    """Return the coordinator of a transaction that was committed after 20 days."""
    coordinator = TwoPhaseCommit(write_log.root)
    coordinator.state(ONGOING, T0)
    coordinator.state(PREPARE_COMMIT, DECIDED_MS)
    coordinator.state(COMPLETE_COMMIT, DECIDED_MS + 5)
    return coordinator


def test_a_transaction_of_two_phase_commit_may_take_and_be_open_for_weeks(write_log, two_phase_commit):
    log = write_log()
    log.data(1, producer_id=7, timestamp_ms=T0)
    log.marker(7, True, timestamp_ms=DECIDED_MS + 1)
    two_phase_commit.state(ONGOING, DECIDED_MS + 10)
    log.data(1, producer_id=7, base_sequence=1, timestamp_ms=DECIDED_MS + 11)
    year_later_ms = DECIDED_MS + 365 * DAY_MS
    assert wrong(write_log.root, now_ms=year_later_ms) == []
    (one,) = audit(ThreadRunner(1), Request((str(write_log.root),), (), year_later_ms)).open_transactions
    assert one.explained == "in time: it never times out (two-phase commit)"


def test_the_missing_marker_of_a_transaction_of_weeks_is_found(write_log, two_phase_commit):
    write_log().data(1, producer_id=7, timestamp_ms=T0)
    assert {(check, place) for check, place, _ in wrong(write_log.root)} == {
        ("hanging", "ledger-0@0"),
        ("torn", "ledger-0@0"),
    }


def test_a_commit_lost_while_a_transaction_of_two_phase_commit_was_open_is_found(write_log, two_phase_commit):
    two_phase_commit.transaction(T0 + DAY_MS, producer_id=9, name="order-2", timeout_ms=60_000)
    log = write_log()
    log.data(1, producer_id=7, timestamp_ms=T0)
    log.marker(7, True, timestamp_ms=DECIDED_MS + 1)
    ((check, _, message),) = wrong(write_log.root)
    assert check == "torn" and "order-2" in message
