"""Recovery: crash points, replay equality, loading in slices, records that cannot be read."""

import random

import pytest

from ottla.broker.turns import SHARE_US
from ottla.broker.txn import housekeeping
from ottla.broker.txn.log import encode_change, read_changes
from ottla.broker.txn.machine import check_step
from ottla.broker.txn.shard import Shard
from ottla.broker.txn.states import PREPARED
from ottla.broker.txn.states import TransactionStatus as S
from ottla.broker.txn.values import TransactionState
from ottla.protocol.batch import build_batch
from ottla.protocol.errors import ErrorCode as E

PARTITIONS = [("foo", 0), ("foo", 1), ("bar", 0), ("foo", 3)]
OUTCOMES = [(True, S.COMPLETE_COMMIT), (False, S.COMPLETE_ABORT)]


def open_transaction(rig, *partitions):
    producer = rig.producer()
    assert rig.add("t", producer, *(partitions or PARTITIONS)) is E.NONE
    return producer


def markers(rig):
    return [(topic, index, marker.producer_epoch, marker.commit) for topic, index, marker in rig.sink.written]


def replay_logs(rig):
    """Return the states in the durable part of the logs, read as the loader does."""
    states = {}
    for each in rig.cluster.logs:
        each = type("Durable", (), {**vars(each), "leader_epoch": 9})()
        each.scan = lambda start, log=each: ((h, b) for h, b in log.batches if h.last_offset < log.high_watermark)
        shard = Shard(each)
        for header, batch in each.scan(0):
            shard.replay(header, batch)
        states.update(shard.states)
    return states


@pytest.mark.parametrize(("commit", "complete"), OUTCOMES)
def test_a_crash_before_complete_is_durable_writes_all_markers_again(rig, commit, complete):
    """The crashes between two markers are in `test_txn_on_real_logs.py`."""
    producer = open_transaction(rig)
    rig.sink.answers[PARTITIONS[-1]] = [E.NOT_LEADER_OR_FOLLOWER]
    rig.end("t", producer, commit)
    rig.log_of("t").hold = True
    rig.clock.advance(20)
    assert len(rig.sink.written) == len(PARTITIONS)
    assert rig.state().status in PREPARED
    rig.sink.written.clear()
    for each in rig.cluster.logs:
        each.leader_epoch = 4
    rig.restart()
    assert sorted(markers(rig)) == sorted((topic, index, 0, commit) for topic, index in PARTITIONS)
    assert {marker.coordinator_epoch for _, _, marker in rig.sink.written} == {4}
    assert rig.state().status is complete
    assert rig.end("t", producer, commit).error is E.NONE
    assert rig.add("t", producer, *PARTITIONS) is E.NONE


@pytest.mark.parametrize(("commit", "complete"), OUTCOMES)
def test_a_crash_before_prepare_is_durable_leaves_the_transaction_open(rig, commit, complete):
    producer = open_transaction(rig)
    rig.log_of("t").hold = True
    answer = rig.begin(rig.coordinator.end("t", *producer, commit, v2=False))
    rig.restart()
    assert answer == []
    assert rig.state().status is S.ONGOING
    assert rig.sink.written == []
    assert rig.end("t", producer, commit).error is E.NONE
    assert rig.state().status is complete


def test_a_recovered_prepared_transaction_is_busy_until_its_markers_are_written(rig):
    producer = open_transaction(rig)
    rig.sink.answers[PARTITIONS[0]] = [E.KAFKA_STORAGE_ERROR] * 3
    rig.end("t", producer)
    rig.restart()
    assert rig.add("t", producer, PARTITIONS[0]) is E.CONCURRENT_TRANSACTIONS
    assert rig.end("t", producer).error is E.CONCURRENT_TRANSACTIONS
    rig.clock.advance(100)
    assert rig.state().status is S.COMPLETE_COMMIT


def test_a_recovered_open_transaction_times_out_from_its_stored_start(rig):
    open_transaction(rig)
    rig.clock.advance(55_000)
    rig.restart()
    rig.clock.advance(10_000)
    assert rig.state().status is S.COMPLETE_ABORT
    assert rig.state().producer_epoch == 1


def test_a_deleted_partition_does_not_stop_recovery(rig):
    producer = open_transaction(rig, ("bar", 0), ("foo", 0))
    rig.sink.answers[("bar", 0)] = [E.KAFKA_STORAGE_ERROR] * 99
    rig.end("t", producer)
    del rig.cluster.topics["bar"]
    rig.restart()
    assert rig.state().status is S.COMPLETE_COMMIT


def test_a_stopped_coordinator_writes_no_markers_and_no_records(rig, monkeypatch):
    names = [f"id-{number}" for number in range(100)]
    for name in names:
        rig.add(name, rig.producer(name, timeout_ms=1000), ("foo", 0))
    rig.sink.answers[("foo", 0)] = [E.NOT_LEADER_OR_FOLLOWER] * 30
    rig.clock.advance(9_999)
    monkeypatch.setattr(housekeeping, "CHECK_ID_US", SHARE_US / 8)
    timer = min(rig.clock._timers)[2]
    scan, timer.callback = timer.callback, None
    rig.turns.event(scan)
    for _ in range(2):
        rig.clock.one_turn()  # the sockets are read; then it pauses half way
    assert 0 < sum(each.status is S.ONGOING for each in rig.durable().values()) < 100
    rig.coordinator.stop()
    before = (len(rig.sink.written), [len(each.batches) for each in rig.cluster.logs])
    rig.clock.advance(10_000)
    assert (len(rig.sink.written), [len(each.batches) for each in rig.cluster.logs]) == before


def test_records_of_unknown_kinds_are_skipped_with_a_warning(rig, caplog):
    producer = rig.producer()
    known = rig.state()
    log = rig.log_of("t")
    log.append_own(build_batch([(b"\x00\x00\x00\x01t", b"\x00\x07whatever")]))
    log.append_own(build_batch([(b"\x00\x09\x00\x01t", b"other kind of key")]))
    log.append_own(build_batch([(b"\x00\x00\x00\x01t", b"\x00\x01cut")]))
    log.append_own(build_batch([(None, b"\x00\x01no key")]))
    rig.restart()
    assert rig.state() == known
    warned = [record.getMessage() for record in caplog.records if record.name == "ottla.broker.txn.log"]
    assert [line.split()[2] for line in warned] == ["1", "3", "4"]
    assert rig.add("t", producer, ("foo", 0)) is E.NONE


def test_the_level_may_rise_between_two_records(make_rig):
    rig = make_rig(0).start()
    producer = rig.producer()
    rig.cluster.level = 1
    rig.add("t", producer, ("foo", 0))
    before = rig.state()
    rig.restart()
    assert rig.state() == before


class Walk:
    """A random history of three ids: valid and invalid requests, failing logs and leaders, time, crashes."""

    def __init__(self, rig, seed):
        self.rig = rig
        self.random = random.Random(seed)
        self.producers = {name: [(1, 1)] for name in "abc"}

    def step(self):
        name = self.random.choice("abc")
        recent = self.producers[name]
        producer = recent[-1] if self.random.random() < 0.8 else self.random.choice(recent[-3:])
        do = self.random.choice(
            [self.init, self.resume, *[self.add] * 6, *[self.end] * 6, self.hold, self.refuse, self.deafen, self.wait]
        )
        do(name, producer)
        if self.random.random() < 0.2:
            self.rig.log_of(name).refuse = E.NONE
            self.rig.turns.event(self.rig.log_of(name).release)
        if self.random.random() < 0.02:
            self.rig.restart()
            self.rig.clock.settle()

    def _born(self, name):
        def add_producer(answer):
            if not answer.error and answer.producer_id >= 0:
                self.producers[name].append((answer.producer_id, answer.producer_epoch))

        return add_producer

    def _go(self, coroutine, answered=lambda answer: None):
        self.rig.turns.event(lambda: self.rig.turns.start(coroutine, answered, self.rig.bugs.append))

    def init(self, name, producer):
        self._go(self.rig.coordinator.init_producer_id(name, self.random.choice((50, 60_000))), self._born(name))

    def resume(self, name, producer):
        self._go(self.rig.coordinator.init_producer_id(name, 60_000, *producer), self._born(name))

    def add(self, name, producer):
        partitions = [(self.random.choice(("foo", "bar", "gone")), self.random.randrange(3))]
        self._go(self.rig.coordinator.add_partitions(name, *producer, partitions))

    def end(self, name, producer):
        v2 = self.rig.cluster.level == 2 and self.random.random() < 0.7
        commit = self.random.random() < 0.6
        self._go(self.rig.coordinator.end(name, *producer, commit, v2=v2), self._born(name))

    def hold(self, name, producer):
        log = self.rig.log_of(name)
        if log.hold:
            self.rig.turns.event(log.release)
        else:
            log.hold = True

    def refuse(self, name, producer):
        self.rig.log_of(name).refuse = self.random.choice([E.NONE, E.NONE, E.NOT_ENOUGH_REPLICAS, E.MESSAGE_TOO_LARGE])

    def deafen(self, name, producer):
        self.rig.sink.answers[("foo", self.random.randrange(3))] = [E.NOT_LEADER_OR_FOLLOWER] * self.random.randrange(4)

    def wait(self, name, producer):
        self.rig.clock.advance(self.random.choice((1, 1, 25, 25, 400, 11_000)))


def comparable(states, level):
    """Value version 0 does not hold the last three fields."""
    return {name: state if level else state[:7] for name, state in states.items()}


@pytest.mark.parametrize("level", [0, 1, 2])
@pytest.mark.parametrize("seed", range(8))
def test_the_state_is_the_log_replayed_after_any_history(make_rig, level, seed):
    rig = make_rig(level)
    # One id is a few transactions away from the end of its epochs.
    old = TransactionState(77, 32760, S.EMPTY, 60_000, {}, -1, rig.clock.now_ms(), 77)
    rig.log_of("c").append_own(encode_change("c", old, level, 0))
    rig.start()
    walk = Walk(rig, seed)
    walk.producers["c"].append((77, 32760))
    for number in range(400):
        walk.step()
        rig.clock.settle()
        if number % 10 == 0:
            assert comparable(rig.durable(), level) == comparable(replay_logs(rig), level)
    for each in rig.cluster.logs:
        each.refuse = E.NONE
        rig.turns.event(each.release)
    rig.sink.answers.clear()
    rig.clock.advance(100_000)
    assert comparable(rig.durable(), level) == comparable(replay_logs(rig), level)
    for shard in rig.coordinator.shards():
        assert shard.open == {}
        assert [each for each in shard.transient.items() if each[1].pending is not None] == []
    before, seen = {}, set()
    for each in rig.cluster.logs:
        for header, batch in each.batches:
            for name, state in read_changes(header, batch, "test"):
                if state != old:
                    check_step(before.get(name), state)
                before[name] = state
                seen.add(state.status)
    assert {S.COMPLETE_COMMIT, S.COMPLETE_ABORT} <= seen, "the walk went nowhere"
