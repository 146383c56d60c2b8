"""A cleaning that is killed, or loses power, at any call of the disk leaves the old segments or the new one."""

from random import Random

import pytest

from lab.in_memory.disk import MemoryDisk
from ottla.broker.config import Config
from ottla.broker.log.cleaning.log_cleaner import LogCleaner
from ottla.broker.log.log_config import LogConfig
from ottla.broker.log.log_manager import LogManager
from ottla.broker.turns import Turns
from ottla.protocol.batch import build_batch
from ottla.protocol.requests.produced import check_produced_batch
from ottla.protocol.values import TransactionMarker
from ottla.testkit.in_memory.ports import Killed, PortCalls
from ottla.testkit.scanner import scan_contents

NOW_MS = 1_700_000_000_000
TOPIC_ID = bytes(range(16))
SETTINGS = LogConfig(
    segment_bytes=900,
    index_interval_bytes=200,
    cleanup_policy="compact,delete",
    min_cleanable_dirty_ratio=0.0,
    delete_retention_ms=1,
)


class Clock:
    """A clock whose later turns run in order when `drain` is called."""

    def __init__(self):
        self.ms = NOW_MS
        self.queue = []

    def now_ms(self):
        return self.ms

    def monotonic_ms(self):
        return float(self.ms)

    def call_later(self, delay_ms, callback):
        self.queue.append(callback)

    def next_turn(self, callback):
        self.queue.append(callback)

    def from_thread(self, callback):
        self.queue.append(callback)

    def drain(self, limit=1_000_000):
        while self.queue and limit:
            limit -= 1
            self.enter(self.queue.pop(0))


class Process:
    """A log manager over a disk in memory, from its start to a kill."""

    def __init__(self, disk):
        self.disk = disk
        self.clock = Clock()
        disk._defer = self.clock.queue.append
        self.bugs = []
        self.turns = Turns(self.clock.next_turn, self.bugs.append)
        self.clock.enter = self.turns.event
        self.manager = LogManager(disk, self.clock, self.turns, Config(log_dirs="/data"))
        self.manager.open()
        self.partition = self.manager.open_partition("t", 0, TOPIC_ID, 0, SETTINGS)

    def send(self, producer_id, sequence, keys, number):
        records = [(key, b"%d" % number if number % 4 else None) for key in keys]
        data = memoryview(
            build_batch(
                records,
                timestamp_ms=self.clock.ms,
                producer_id=producer_id,
                producer_epoch=0,
                base_sequence=sequence,
                transactional=True,
                compression=number % 5,
            )
        )
        result = self.partition.append_from_client(check_produced_batch(data), data)
        assert result.error == 0

    def write(self, random, steps):
        sequences = {1: 0, 2: 0}
        for producer in self.partition.producers():
            sequences[producer.producer_id] = producer.last_sequence + 1
        for number in range(steps):
            producer_id = random.randint(1, 2)
            if random.random() < 0.4:
                commit = random.random() < 0.5
                assert self.partition.append_marker(TransactionMarker(producer_id, 0, 0, commit, 1)).error == 0
                continue
            keys = [random.choice((b"a", b"b", b"c")) for _ in range(random.randint(1, 4))]
            self.send(producer_id, sequences[producer_id], keys, number)
            sequences[producer_id] += len(keys)
        for producer_id in (1, 2):
            assert self.partition.append_marker(TransactionMarker(producer_id, 0, 0, True, 1)).error == 0
        self.send(1, sequences[1], [b"open"], steps)

    def clean(self):
        cleaner = LogCleaner(self.manager, self.disk, self.clock, self.turns, 1 << 20)
        self.turns.event(cleaner.start)
        self.clock.drain()
        assert self.bugs == []
        assert self.manager.offline is None and self.partition.offline is None


def contents(disk):
    return {path: data for path, data in disk.files_under("/data/t-0").items() if path.endswith(".log")}


def visible(disk):
    """Return {segment: its batches}, and the records that both kinds of readers see."""
    log_files = contents(disk)
    scanned = scan_contents([(path, data) for path, data in sorted(log_files.items())])
    assert scanned.damages == []
    return (
        log_files,
        [record.offset for record in scanned.records("read_committed")],
        scanned.last_stable_offset,
        scanned.log_end_offset,
    )


def known(partition):
    return {producer.producer_id: (producer.epoch, producer.last_sequence) for producer in partition.producers()}


def prepare_disk(seed):
    """Return a disk with a closed log of several segments, some of them cleaned before, that can be cleaned again."""
    disk = MemoryDisk(PortCalls(), Random(seed), lambda work: work())
    disk.torn_writes = False
    disk.make_dirs("/data")
    process = Process(disk)
    random = Random(seed)
    process.write(random, 25)
    process.clean()
    process.write(random, 25)
    process.manager.close()
    return disk


def restart(disk):
    process = Process(disk)
    assert process.partition.offline is None
    return process


def after_cleaning(seed, power_loss, kill_at):
    """Return the state after a cleaning that ends at a port call, or None if it finished before that call."""
    disk = prepare_disk(seed)
    process = restart(disk)
    old = visible(disk)
    disk.ports.kill_at = disk.ports.count + kill_at
    try:
        process.clean()
        ended = True
    except Killed:
        ended = False
    disk.ports.kill_at = -1
    if power_loss:
        disk.lose_power()
    leftovers = sorted(path for path in disk.files_under("/data/t-0") if path.endswith((".cleaned", ".swap")))
    again = restart(disk)
    result = visible(disk), known(again.partition), leftovers
    names = disk.files_under("/data/t-0")
    assert not [name for name in names if name.endswith((".cleaned", ".swap", ".deleted"))] or ended
    assert again.partition.log_end_offset == old[3]
    assert again.partition.last_stable_offset == old[2]
    return old, result, ended


@pytest.mark.slow
@pytest.mark.parametrize("power_loss", [False, True], ids=["kill", "power-loss"])
@pytest.mark.parametrize("seed", [1])
def test_a_cleaning_that_ends_anywhere_leaves_old_or_new(seed, power_loss):
    disk = prepare_disk(seed)
    process = restart(disk)
    old, producers = visible(disk), known(process.partition)
    process.clean()
    new = visible(disk)
    assert new[0] != old[0] and len(new[0]) < len(old[0])
    old_ones = dict(old[0])
    seen, interrupted, kill_at, ended = set(), set(), 1, False
    while not ended:
        _, (found, found_producers, leftovers), ended = after_cleaning(seed, power_loss, kill_at)
        log_files = found[0]
        # Each group is either in its old or in its final state.
        cut = max((base for base in log_files if log_files[base] != old_ones.get(base)), default="")
        for base, data in log_files.items():
            assert data == (new[0].get(base) if base <= cut else old_ones.get(base)), (kill_at, base)
        # The last replaced segment extends to the base offset of the next segment in the final state.
        behind = min((base for base in new[0] if base > cut), default="") if cut else ""
        left = [base for base in old_ones if base >= behind]
        assert [*log_files] == [base for base in new[0] if base <= cut] + left, kill_at
        assert found_producers == producers
        seen.add(log_files == old[0])
        interrupted |= {path.rpartition(".")[2] for path in leftovers}
        kill_at += 1
    assert seen == {True, False}
    assert "cleaned" in interrupted
    if not power_loss:
        assert "swap" in interrupted
