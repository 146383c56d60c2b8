"""Snapshots of many producers: they have the state at their roll, whatever is appended while they are written."""

from random import Random

import pytest

from ottla.broker.log import producer_state_manager as producers_module
from ottla.broker.log import snapshot_writer
from ottla.broker.turns import SHARE_US
from ottla.protocol.errors import ErrorCode
from ottla.protocol.snapshot import decode_snapshot

PRODUCERS = 12


class Crowd:
    """A partition with more producers than are written at once, and turns that the test runs."""

    def __init__(self, logs, transactor, seed=0):
        self.parts, self.transactor = logs, transactor
        self.random = Random(seed)
        self.turns = logs.later = []
        self.partition = logs.partition(segment_bytes=4_000)
        self.senders = {}
        self.at_roll = {}
        self.settle()

    def settle(self):
        while self.turns:
            self.pass_turn()

    def pass_turn(self):
        self.parts.turns.event(self.turns.pop(0))

    def state(self):
        return sorted(self.partition.log.producer_state.snapshot())

    def step(self, most_producers=PRODUCERS):
        """Append something. If it went into a new segment, `at_roll` has the producer state before it."""
        before, base = self.state(), self.base
        number = self.random.randrange(most_producers)
        sender = self.senders.setdefault(number, self.transactor(self.partition, number))
        if self.random.random() < 0.3:
            result = sender.end(self.random.random() < 0.5)
        else:
            result = sender.send(self.random.randint(1, 3))
        assert result.error is ErrorCode.NONE
        if self.base != base:
            self.at_roll[self.base] = before

    @property
    def base(self):
        return self.partition.log.segments.active.base_offset

    def roll(self):
        base = self.base
        while self.base == base:
            self.step()

    def snapshot_path(self, offset):
        return self.parts.path(f"{offset:020d}.snapshot")


@pytest.fixture(autouse=True)
def few_are_many(monkeypatch):
    """Make each turn write a single slice."""
    monkeypatch.setattr(snapshot_writer, "AT_ONCE", 3)
    monkeypatch.setattr(snapshot_writer, "RECORD_US", SHARE_US)
    monkeypatch.setattr(producers_module, "SNAPSHOT_SLICE", 2)


@pytest.mark.parametrize("seed", range(20))
def test_a_snapshot_holds_what_producers_were_at_its_roll(logs, transactor, seed):
    crowd = Crowd(logs, transactor, seed)
    crowd.roll()
    base = crowd.base
    turns = 0
    while crowd.turns:
        assert not crowd.snapshot_path(base).exists()
        assert str(crowd.snapshot_path(base)) not in crowd.partition.log.unsynced
        for _ in range(crowd.random.randrange(4)):
            crowd.step(most_producers=3 * PRODUCERS)
        crowd.pass_turn()
        turns += 1
    assert turns >= 2
    assert sorted(decode_snapshot(crowd.snapshot_path(base).read_bytes())) == crowd.at_roll[base]
    assert crowd.state() != crowd.at_roll[base]
    assert str(crowd.snapshot_path(base)) in crowd.partition.log.unsynced
    assert not list(logs.path().glob("*.tmp"))


def test_a_snapshot_includes_producers_that_expire_while_it_is_written(logs, transactor):
    crowd = Crowd(logs, transactor)
    crowd.roll()
    crowd.pass_turn()
    for sender in crowd.senders.values():
        sender.end(True)
    assert sum(crowd.partition.log.remove_expired_producers(logs.clock.ms + 10**9)) > 0
    assert crowd.state() == []
    crowd.settle()
    assert sorted(decode_snapshot(crowd.snapshot_path(crowd.base).read_bytes())) == crowd.at_roll[crowd.base]


def test_a_snapshot_has_the_state_at_its_roll_of_returning_producers(logs, transactor):
    crowd = Crowd(logs, transactor)
    crowd.roll()
    known = {each.producer_id for each in crowd.partition.producers()}
    assert sum(crowd.partition.log.remove_expired_producers(logs.clock.ms + 10**9)) > 0
    base = crowd.base
    for producer_id in known - {each.producer_id for each in crowd.partition.producers()}:
        back = transactor(crowd.partition, producer_id)
        for _ in range(2):
            assert back.send(1).error is ErrorCode.NONE
    crowd.settle()
    assert sorted(decode_snapshot(crowd.snapshot_path(base).read_bytes())) == crowd.at_roll[base]


def test_a_roll_while_a_snapshot_is_written_takes_none(logs, transactor):
    crowd = Crowd(logs, transactor)
    crowd.roll()
    first = crowd.base
    crowd.roll()
    second = crowd.base
    crowd.settle()
    crowd.roll()
    third = crowd.base
    crowd.settle()
    assert [crowd.snapshot_path(base).exists() for base in (first, second, third)] == [True, False, True]
    assert sorted(decode_snapshot(crowd.snapshot_path(third).read_bytes())) == crowd.at_roll[third]


@pytest.mark.parametrize("end", ["stop", "kill"])
@pytest.mark.parametrize("turns", [0, 1, 3])
def test_an_end_while_a_snapshot_is_written_loses_nothing(logs, transactor, end, turns):
    crowd = Crowd(logs, transactor)
    crowd.roll()
    for _ in range(turns):
        crowd.step()
        crowd.pass_turn()
    expected, base = crowd.state(), crowd.base
    getattr(logs, end)()
    crowd.settle()
    assert not crowd.snapshot_path(base).exists() or end == "stop"
    logs.start()
    crowd.partition = logs.partition(segment_bytes=4_000)
    assert crowd.state() == expected
    assert not list(logs.path().glob("*.tmp"))


def test_a_snapshot_that_cannot_be_written_takes_the_directory_offline(logs, transactor):
    crowd = Crowd(logs, transactor)
    crowd.roll()
    logs.disk.short_write = 5
    crowd.pass_turn()
    assert "No space left" in logs.manager.offline
    crowd.settle()
    assert not crowd.snapshot_path(crowd.base).exists()
