"""A log directory on a real disk, with a clock that the test moves and a disk that fails on request."""

import errno
from types import SimpleNamespace

import pytest

from ottla.broker.config import Config
from ottla.broker.log.log_config import LogConfig
from ottla.broker.log.log_manager import LogManager
from ottla.broker.ports.disk import RealDisk, RealFile
from ottla.broker.turns import Turns
from ottla.protocol.batch import build_batch
from ottla.protocol.requests.produced import check_produced_batch
from ottla.protocol.values import TransactionMarker

NOW_MS = 1_700_000_000_000
TOPIC_ID = bytes(range(16))


class ManualClock:
    def __init__(self):
        self.ms = NOW_MS
        self.timers = []

    def now_ms(self):
        return self.ms

    def monotonic_ms(self):
        return float(self.ms)

    def call_later(self, delay_ms, callback):
        self.timers.append((self.ms + delay_ms, callback))
        return SimpleNamespace(cancel=lambda: None)

    def next_turn(self, callback):
        self.enter(callback)

    def from_thread(self, callback):
        self.enter(callback)

    def advance(self, ms):
        self.ms += ms
        due = [timer for timer in self.timers if timer[0] <= self.ms]
        self.timers = [timer for timer in self.timers if timer[0] > self.ms]
        for _, callback in due:
            callback()


class FaultyFile(RealFile):
    __slots__ = ("disk",)

    def append(self, buffers):
        if self.disk.short_write is not None:
            # What a full disk does: a part is written, then nothing more.
            cut, self.disk.short_write = self.disk.short_write, None
            super().append([bytes(buffers[0])[:cut]])
            if not self.disk.keep_short_write:
                self.truncate(self.size_bytes - cut)
            raise OSError(errno.ENOSPC, "No space left on device")
        super().append(buffers)


class FaultyDisk(RealDisk):
    __slots__ = ("fail_sync", "held", "keep_short_write", "short_write")

    def __init__(self):
        super().__init__()
        self.held = None
        self.short_write = None
        self.keep_short_write = False
        self.fail_sync = False

    def open(self, path, create=False):
        file = FaultyFile(path, create)
        file.disk = self
        return file

    def start_sync(self, paths, on_end=None):
        """Sync at once. With a list in `held`, the sync ends when the test calls `end()` of its entry."""
        job = SimpleNamespace(done=False, error=None, paths=paths)

        def end():
            job.done = True
            if self.fail_sync:
                job.error = OSError(errno.EIO, "Input/output error")
            if on_end is not None:
                on_end()

        job.end = end
        if self.held is None:
            end()
        else:
            self.held.append(job)
        return job


class LogsOnDisk:
    """A log manager that can be closed, killed and started again on the same directory."""

    def __init__(self, directory):
        self.directory = directory
        self.clock = ManualClock()
        self.disk = FaultyDisk()
        self.disk.now_ns = lambda: 0
        self.bugs = []
        self.settings = {}
        self.manager = None
        self.later = None
        """A list that a test puts here gets what is left for later turns; else it runs at once."""
        self.start()

    def start(self, truncate_damaged=frozenset(), **options):
        turns = Turns(self.next_turn, self.bugs.append)
        self.turns = turns
        self.clock.enter = turns.event
        self.manager = LogManager(
            self.disk, self.clock, turns, Config(log_dirs=str(self.directory), **options), truncate_damaged
        )
        self.manager.open()
        return self.manager

    def next_turn(self, callback):
        if self.later is None:
            self.clock.next_turn(callback)
        else:
            self.later.append(callback)

    def partition(self, topic="t", index=0, leader_epoch=0, **settings):
        return self.manager.open_partition(topic, index, TOPIC_ID, leader_epoch, LogConfig(**settings))

    def path(self, name="", topic="t", index=0):
        return self.directory / f"{topic}-{index}" / name

    def stop(self):
        self.manager.close()

    def kill(self):
        self.manager.abandon()


@pytest.fixture
def logs(tmp_path):
    logs = LogsOnDisk(tmp_path / "data")
    yield logs
    logs.kill()
    assert logs.bugs == []


def _produce(partition, records=1, *, timestamp_ms=NOW_MS, value=b"value", **batch):
    """Append a batch of a client. `records` is a number or a list of (key, value[, headers[, timestamp]])."""
    if isinstance(records, int):
        records = [(b"key", value)] * records
    data = memoryview(build_batch(records, timestamp_ms=timestamp_ms, **batch))
    return partition.append_from_client(check_produced_batch(data), data)


@pytest.fixture
def produce():
    return _produce


class Transactor:
    """A producer that counts its sequence, like a client of transaction version 1."""

    def __init__(self, partition, producer_id, epoch=0):
        self.partition = partition
        self.producer_id = producer_id
        self.epoch = epoch
        self.sequence = 0

    def send(self, records=1, *, transactional=True, **batch):
        count = records if isinstance(records, int) else len(records)
        result = _produce(
            self.partition,
            records,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=self.sequence,
            transactional=transactional,
            **batch,
        )
        self.sequence += count
        return result

    def end(self, commit, coordinator_epoch=0, transaction_version=1):
        marker = TransactionMarker(self.producer_id, self.epoch, coordinator_epoch, commit, transaction_version)
        return self.partition.append_marker(marker)


@pytest.fixture
def transactor():
    return Transactor
