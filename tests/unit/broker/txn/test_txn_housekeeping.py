"""Transactions that time out and ids that expire."""

import pytest

from ottla.broker.turns import SHARE_US
from ottla.broker.txn import housekeeping
from ottla.broker.txn.states import TransactionStatus as S
from ottla.protocol.errors import ErrorCode as E
from ottla.protocol.records import iter_records

FOO, BAR = ("foo", 1), ("bar", 0)
DAY_MS, HOUR_MS = 86_400_000, 3_600_000


def test_a_transaction_that_times_out_is_aborted_and_its_producer_fenced(rig):
    producer = rig.producer(timeout_ms=5000)
    rig.add("t", producer, FOO)
    rig.clock.advance(10_001)
    assert rig.state()[:3] == (4000, 1, S.COMPLETE_ABORT)
    assert [(marker.producer_epoch, marker.commit) for _, _, marker in rig.sink.written] == [(1, False)]
    assert rig.add("t", producer, FOO) is E.PRODUCER_FENCED
    assert rig.end("t", producer, commit=True).error is E.PRODUCER_FENCED
    assert rig.end("t", producer, commit=False).error is E.PRODUCER_FENCED
    assert rig.init(expected=producer).error is E.PRODUCER_FENCED
    assert rig.producer("t") == (4000, 2)


def test_after_a_timeout_at_level_2_the_producer_can_go_on(make_rig):
    rig = make_rig(2).start()
    producer = rig.producer(timeout_ms=5000)
    rig.add("t", producer, FOO)
    rig.clock.advance(10_001)
    assert rig.add("t", producer, FOO) is E.PRODUCER_FENCED
    assert rig.end("t", producer, commit=True, v2=True).error is E.INVALID_TXN_STATE
    answer = rig.end("t", producer, commit=False, v2=True)
    assert (answer.error, answer.producer_id, answer.producer_epoch) == (E.NONE, 4000, 1)
    resumed = rig.init(expected=producer)
    assert (resumed.error, resumed.producer_epoch) == (E.NONE, 1)


def test_the_time_runs_from_the_first_partition_and_not_from_the_last(rig):
    producer = rig.producer(timeout_ms=15_000)
    rig.clock.advance(9_000)
    rig.add("t", producer, FOO)
    rig.clock.advance(14_000)
    rig.add("t", producer, BAR)
    rig.clock.advance(999)
    assert rig.state().status is S.ONGOING
    rig.clock.advance(10_000)
    assert rig.state().status is S.COMPLETE_ABORT


@pytest.mark.parametrize("commit", [True, False])
def test_a_prepared_transaction_does_not_time_out(rig, commit):
    producer = rig.producer(timeout_ms=5000)
    rig.add("t", producer, FOO)
    rig.sink.answers[FOO] = [E.NOT_LEADER_OR_FOLLOWER] * 99
    rig.end("t", producer, commit)
    assert rig.shard_of().open == {}
    rig.clock.advance(60_000)
    assert rig.state()[1:3] == (0, S.PREPARE_COMMIT if commit else S.PREPARE_ABORT)


def test_a_transaction_whose_outcome_is_being_logged_does_not_time_out(rig):
    producer = rig.producer(timeout_ms=5000)
    rig.add("t", producer, FOO)
    rig.log_of("t").hold = True
    answer = rig.begin(rig.coordinator.end("t", *producer, True, v2=False))
    rig.clock.advance(60_000)
    rig.turns.event(rig.log_of("t").release)
    assert answer[0].error is E.NONE
    assert rig.state()[1:3] == (0, S.COMPLETE_COMMIT)


def test_an_abort_that_cannot_be_logged_is_tried_again_without_a_second_bump(rig):
    producer = rig.producer(timeout_ms=5000)
    rig.add("t", producer, FOO)
    rig.log_of("t").refuse = E.NOT_ENOUGH_REPLICAS
    rig.clock.advance(30_000)
    assert rig.state()[1:3] == (0, S.ONGOING)
    assert rig.add("t", producer, BAR) is E.PRODUCER_FENCED
    rig.log_of("t").refuse = E.NONE
    rig.clock.advance(10_000)
    assert rig.state()[1:3] == (1, S.COMPLETE_ABORT)


def test_many_timeouts_are_spread_over_turns(rig, monkeypatch):
    names = [f"t{number}" for number in range(100)]
    for name in names:
        rig.add(name, rig.producer(name, timeout_ms=1000), FOO)
    rig.clock.advance(9_990)
    monkeypatch.setattr(housekeeping, "LOOKUP_US", SHARE_US / 8)
    # The scan begins after the sockets were read once. Nothing else has run yet.
    timer = min(rig.clock._timers)[2]
    rig.turns.event(timer.callback)
    for _ in range(2):
        rig.clock.one_turn()
    first = sum(rig.state(name).status is not S.ONGOING for name in names)
    assert 0 < first < 20
    rig.clock.settle()
    rig.clock.advance(20_000)
    assert {rig.state(name).status for name in names} == {S.COMPLETE_ABORT}


def test_an_idle_id_expires_with_a_tombstone(rig):
    producer = rig.producer()
    rig.clock.advance(7 * DAY_MS - HOUR_MS)
    assert rig.state() is not None
    rig.clock.advance(2 * HOUR_MS)
    assert rig.state() is None
    header, batch = rig.log_of("t").batches[-1]
    assert [(record.key, record.value) for record in iter_records(batch, header)] == [(b"\x00\x00\x00\x01t", None)]
    assert rig.shard_of().transient == {}
    assert rig.add("t", producer, FOO) is E.INVALID_PRODUCER_ID_MAPPING
    rig.restart()
    assert rig.state() is None


def test_an_expired_id_gets_a_new_producer_id_and_refuses_the_old_one(rig):
    zombie = rig.producer()
    rig.clock.advance(7 * DAY_MS + 2 * HOUR_MS)
    assert rig.end("t", zombie).error is E.INVALID_PRODUCER_ID_MAPPING
    assert rig.producer() == (4001, 0)
    assert rig.init(expected=zombie).error is E.PRODUCER_FENCED


def test_a_used_id_does_not_expire(rig):
    producer = rig.producer(timeout_ms=900_000)
    for _ in range(10):
        rig.clock.advance(DAY_MS)
        assert rig.add("t", producer, FOO) is E.NONE
        assert rig.end("t", producer).error is E.NONE
    assert rig.state() is not None


def test_an_id_in_its_marker_phase_does_not_expire(rig):
    producer = rig.producer()
    rig.add("t", producer, FOO)
    rig.sink.answers[FOO] = [E.KAFKA_STORAGE_ERROR] * 10**6
    rig.end("t", producer)
    rig.settings = rig.settings._replace(id_expiration_ms=1)
    rig.coordinator.settings = rig.settings
    rig.clock.advance(2 * HOUR_MS)
    assert rig.state().status is S.PREPARE_COMMIT


def test_an_id_is_busy_while_its_tombstone_is_logged(rig):
    producer = rig.producer()
    rig.clock.advance(7 * DAY_MS - 1)
    rig.log_of("t").hold = True
    rig.clock.advance(HOUR_MS)
    assert rig.add("t", producer, FOO) is E.CONCURRENT_TRANSACTIONS
    assert rig.init().error is E.CONCURRENT_TRANSACTIONS
    assert rig.coordinator.describe("t").error is E.TRANSACTIONAL_ID_NOT_FOUND
    rig.turns.event(rig.log_of("t").release)
    assert rig.state() is None
    assert rig.producer() == (4001, 0)


def test_a_tombstone_that_cannot_be_logged_leaves_the_id(rig):
    producer = rig.producer()
    rig.log_of("t").refuse = E.KAFKA_STORAGE_ERROR
    rig.clock.advance(8 * DAY_MS)
    rig.log_of("t").refuse = E.NONE
    assert rig.add("t", producer, FOO) is E.NONE


@pytest.mark.parametrize("turns", range(3))
def test_an_id_used_while_the_expiration_scan_pauses_does_not_expire(rig, monkeypatch, turns):
    names = (f"t{number}" for number in range(5_000))
    of_one_shard = [name for name in names if rig.log_of(name) is rig.log_of("t")][:80]
    producers = {name: rig.producer(name) for name in of_one_shard}
    rig.clock.advance(7 * DAY_MS - 1)
    assert len(rig.durable()) == len(producers)
    monkeypatch.setattr(housekeeping, "LOOKUP_US", SHARE_US / 8)
    rig.clock.pass_timers(HOUR_MS)
    before_us = rig.turns.charged_us
    while rig.turns.charged_us == before_us:
        assert rig.clock.one_turn(), "the scan has not begun"
    for _ in range(turns):
        assert rig.clock.one_turn(), "the scan is not done"
    used = {name for name, producer in producers.items() if rig.add(name, producer, FOO) is E.NONE}
    assert 0 < len(used) < len(producers)
    rig.clock.settle()
    assert {rig.state(name).status for name in used} == {S.ONGOING}
    assert set(rig.durable()) == used


def test_tombstones_share_batches_of_8_kib(rig):
    names = [f"transactional-id-{number:04}" for number in range(2000)]
    for name in names:
        rig.producer(name)
    before = sum(len(each.batches) for each in rig.cluster.logs)
    rig.clock.advance(8 * DAY_MS)
    assert rig.durable() == {}
    batches = [batch for each in rig.cluster.logs for header, batch in each.batches if header.record_count > 1]
    assert max(len(batch) for batch in batches) <= 8192
    assert sum(len(each.batches) for each in rig.cluster.logs) - before <= 30


def test_stop_takes_the_timers_back(rig):
    assert rig.clock.armed == 2
    rig.coordinator.stop()
    assert rig.clock.armed == 0


def test_scans_leave_a_log_alone_that_is_offline(rig, caplog):
    rig.add("t", rig.producer(timeout_ms=5000), FOO)
    log = rig.log_of("t")
    log.offline, log.refuse = "the disk is gone", E.KAFKA_STORAGE_ERROR
    rig.clock.advance(60_000)
    assert rig.state().status is S.ONGOING
    assert not caplog.records


def test_a_commit_received_during_a_stall_is_handled_before_the_timeout(rig):
    producer, silent = rig.producer(timeout_ms=5_000), rig.producer("silent", timeout_ms=5_000)
    rig.add("t", producer, FOO)
    rig.add("silent", silent, FOO)
    committed = rig.coordinator.end("t", *producer, True, v2=False)
    rig.clock.stall(20_000, lambda: rig.turns.start(committed, lambda _: None, rig.bugs.append))
    assert rig.state().status is S.COMPLETE_COMMIT
    assert rig.state("silent").status is S.COMPLETE_ABORT
