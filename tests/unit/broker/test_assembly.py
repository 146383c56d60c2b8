"""The housekeeping of a broker, on a clock that the test moves: what it begins, and that a stop ends all of it."""

import pytest

from ottla.broker.assembly import Assembly
from ottla.broker.config import Config
from ottla.broker.ports.disk import RealDisk
from ottla.broker.turns import Turns
from ottla.protocol.batch import build_batch
from ottla.protocol.produced import check_produced_batch


class Timer:
    def __init__(self, clock, callback):
        self.clock = clock
        self.callback = callback

    def cancel(self):
        self.clock.timers.discard(self)


class Clock:
    """Timers and turns wait until the test runs them."""

    def __init__(self):
        self.timers = set()
        self.turns = []

    def now_ms(self):
        return 1_700_000_000_000

    def monotonic_ms(self):
        return 0.0

    def call_later(self, delay_ms, callback):
        timer = Timer(self, callback)
        self.timers.add(timer)
        return timer

    def next_turn(self, callback):
        self.turns.append(callback)

    from_thread = next_turn

    def run_turns(self, most=1000):
        """Run what waits for a turn, and what that asks for; a few turns only, if the test wants it under way."""
        while self.turns and most:
            most -= 1
            self.enter(self.turns.pop(0))

    def fire(self):
        """Every timer there is, once."""
        due, self.timers = self.timers, set()
        for timer in due:
            self.enter(timer.callback)


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def assembly(tmp_path, clock):
    bugs = []
    turns = Turns(clock.next_turn, bugs.append)
    clock.enter = turns.event
    yield Assembly(Config(log_dirs=str(tmp_path / "data")), clock, RealDisk(), turns)
    assert bugs == []


def test_housekeeping_comes_again_and_again(assembly, clock):
    assembly.start_housekeeping()
    clock.run_turns()
    for _ in range(3):
        assert len(clock.timers) >= 5
        clock.fire()
        clock.run_turns()
    assembly.close()


@pytest.mark.parametrize("turns", [0, 1, 2, 1000])
def test_nothing_fires_behind_a_stop(assembly, clock, turns, tmp_path):
    cluster = assembly.broker.cluster
    cluster.create_topic("ledger", 3, {})
    cluster.create_topic("gone", 3, {})
    clock.run_turns()
    cluster.delete_topic(cluster.topics["gone"])
    data = memoryview(build_batch([(b"k", b"v")], timestamp_ms=1, producer_id=7, producer_epoch=0, base_sequence=0))
    assert not cluster.partition("ledger", 0).append_produced(check_produced_batch(data), data).error
    cluster.ensure_internal_topic("__transaction_state")
    assembly.start_housekeeping()
    clock.run_turns(turns)
    clock.fire()
    clock.run_turns(turns)
    assembly.close()
    assert clock.timers == set()
    names = sorted(path.name for path in (tmp_path / "data").rglob("*"))
    clock.run_turns()
    assert clock.timers == set()
    assert sorted(path.name for path in (tmp_path / "data").rglob("*")) == names
