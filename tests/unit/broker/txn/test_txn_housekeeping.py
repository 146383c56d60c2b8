"""Transactions that time out and ids that expire."""

import pytest

from ottla.broker.turns import SHARE_US
from ottla.broker.txn import housekeeping
from ottla.broker.txn.states import TransactionStatus as S
from ottla.protocol.errors import ErrorCode as E

FOO, BAR = ("foo", 1), ("bar", 0)
DAY_MS, HOUR_MS = 86_400_000, 3_600_000


@pytest.mark.parametrize("commit", [True, False])
def test_a_prepared_transaction_does_not_time_out(rig, commit):
    producer = rig.producer(timeout_ms=5000)
    rig.add("t", producer, FOO)
    rig.sink.answers[FOO] = [E.NOT_LEADER_OR_FOLLOWER] * 99
    rig.end("t", producer, commit)
    assert rig.shard_of().open == {}
    rig.clock.advance(60_000)
    assert rig.state()[1:3] == (0, S.PREPARE_COMMIT if commit else S.PREPARE_ABORT)


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
    monkeypatch.setattr(housekeeping, "CHECK_ID_US", SHARE_US / 8)
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


@pytest.mark.slow
@pytest.mark.parametrize("turns", range(3))
def test_an_id_used_while_the_expiration_scan_pauses_does_not_expire(rig, monkeypatch, turns):
    names = (f"t{number}" for number in range(5_000))
    of_one_shard = [name for name in names if rig.log_of(name) is rig.log_of("t")][:80]
    producers = {name: rig.producer(name) for name in of_one_shard}
    rig.clock.advance(7 * DAY_MS - 1)
    assert len(rig.durable()) == len(producers)
    monkeypatch.setattr(housekeeping, "CHECK_ID_US", SHARE_US / 8)
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
