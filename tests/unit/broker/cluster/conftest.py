"""A cluster over a real log directory, with a disk that refuses on request and turns that the test runs."""

import errno
from types import SimpleNamespace

import pytest

from lab.simulation.charged import ChargeMeter
from ottla.broker.cluster.metadata import Cluster
from ottla.broker.config import Config
from ottla.broker.log.log_config import LogConfig
from ottla.broker.log.log_manager import LogManager
from ottla.broker.ports.disk import RealDisk
from ottla.broker.turns import Turns


class StepClock:
    """A clock whose time stands still. Callbacks of the next turn wait until the test runs them."""

    def __init__(self):
        self.ms = 1_700_000_000_000
        self.next = []

    def now_ms(self):
        return self.ms

    def monotonic_ms(self):
        return float(self.ms)

    def call_later(self, delay_ms, callback):
        return SimpleNamespace(cancel=lambda: None)

    def next_turn(self, callback):
        self.next.append(callback)

    def from_thread(self, callback):
        self.next.append(callback)


class RefusingDisk(RealDisk):
    """A disk that refuses to make a directory whose path ends with `refused`, and to rename while `rename_fails`."""

    __slots__ = ("refused", "rename_fails")

    def __init__(self):
        super().__init__()
        self.refused = ()
        self.rename_fails = False

    def make_dir(self, path):
        if self.refused and path.endswith(self.refused):
            raise OSError(errno.ENOSPC, "No space left on device")
        super().make_dir(path)

    def rename(self, old, new):
        if self.rename_fails:
            raise OSError(errno.EIO, "Input/output error")
        super().rename(old, new)


class ClusterParts:
    """The parts of a broker that `server.py` builds, up to the cluster. Call `start` after `stop` or `kill`."""

    def __init__(self, directory):
        self.directory = directory
        self.clock = StepClock()
        self.disk = RefusingDisk()
        self.bugs = []
        self.ids = iter([bytes([n]) * 16 for n in range(1, 99)])
        self.start()

    def start(self, max_message_bytes=1_048_588):
        self.clock.next.clear()
        self.disk.now_ns = lambda: 0
        turns = self.turns = Turns(self.clock.next_turn, self.bugs.append)
        self.meter = ChargeMeter(turns, lambda *excess: self.bugs.append(excess))
        self.logs = LogManager(self.disk, self.clock, turns, Config(log_dirs=str(self.directory)))
        self.logs.open()
        self.cluster = Cluster(
            self.logs,
            self.clock,
            turns,
            1,
            self.ids.__next__,
            lambda own: LogConfig(max_message_bytes=int(own.get("size", max_message_bytes))),
            {"__transaction_state": (3, {"cleanup.policy": "compact"}, 1)},
            1,
        )
        try:
            self.cluster.open()
        except Exception:
            self.kill()
            raise

    def stop(self):
        self.logs.close()

    def kill(self):
        self.logs.abandon()

    def settle(self):
        """Run every later turn."""
        while self.clock.next:
            due, self.clock.next = self.clock.next, []
            for callback in due:
                self.turns.event(callback)

    def directories(self):
        return sorted(path.name for path in self.directory.iterdir() if path.is_dir())


@pytest.fixture
def parts(tmp_path):
    parts = ClusterParts(tmp_path / "data")
    yield parts
    parts.kill()
    assert parts.bugs == []
