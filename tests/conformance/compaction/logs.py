"""Random transactional logs, cleaned by ours and by Apache Kafka 4.3.1's own cleaner at the same time of day."""

import os
import subprocess
import threading
from pathlib import Path
from random import Random
from types import SimpleNamespace

from ottla.broker.config import Config
from ottla.broker.log.cleaning.log_cleaner import LogCleaner
from ottla.broker.log.log_config import LogConfig
from ottla.broker.log.log_manager import LogManager
from ottla.broker.log.retention import Retention
from ottla.broker.ports.disk import RealDisk
from ottla.broker.turns import Turns
from ottla.protocol.batch import build_batch
from ottla.protocol.requests.produced import check_produced_batch
from ottla.protocol.values import TransactionMarker
from ottla.testkit.scanner import scan_partition

HERE = Path(__file__).parent
CLEAN_LOG = HERE / "CleanLog.java"
KAFKA_SH = HERE.parent / "apache-kafka" / "kafka.sh"
NOW_MS = 1_700_000_000_000
DELETE_RETENTION_MS = 1_000
SEGMENT_BYTES = 1_000
# Between writing and the first cleaning, and between the first and the second.
LATER_MS = 2_000
KEPT_SUFFIXES = {".log", ".index", ".timeindex", ".txnindex", ".snapshot"}
SETTINGS = LogConfig(
    segment_bytes=SEGMENT_BYTES,
    cleanup_policy="compact,delete",
    min_cleanable_dirty_ratio=0.0,
    delete_retention_ms=DELETE_RETENTION_MS,
)
KEYS = (b"a", b"b", b"c", b"d" * 40, b"e")
HORIZON = 0x40


class Log:
    """The log `t-0` in a directory of its own, opened by our log manager at a time of day."""

    def __init__(self, directory, now_ms, settings=SETTINGS):
        self.ms = now_ms
        self.bugs = []
        clock = SimpleNamespace(
            now_ms=lambda: self.ms,
            monotonic_ms=lambda: float(self.ms),
            call_later=lambda delay_ms, callback: SimpleNamespace(cancel=lambda: None),
            next_turn=lambda callback: self.turns.event(callback),
            from_thread=lambda callback: self.turns.event(callback),
        )
        self.turns = Turns(clock.next_turn, self.bugs.append)
        self.disk = DiskThatSyncsAtOnce()
        self.manager = LogManager(self.disk, clock, self.turns, Config(log_dirs=str(directory)))
        self.manager.open()
        self.clock = clock
        self.partition = self.manager.open_partition("t", 0, bytes(range(16)), 0, settings)
        assert self.partition.offline is None

    def clean(self):
        """Clean all of it, as if nothing had been cleaned before; the first offset that was not."""
        self.manager.done_cleaning(self.partition, 0)
        LogCleaner(self.manager, self.disk, self.clock, self.turns, 1 << 20).start()
        assert self.bugs == []
        return self.manager.first_dirty_offset(self.partition)

    def retain(self):
        """Delete the segments that may go; the start of the log."""
        manager = self.manager
        retention = Retention(lambda: manager, self.disk, self.clock, self.turns, manager.deleter, manager.fail)
        self.turns.start(retention.run(), lambda result: None, self.bugs.append)
        return self.partition.log_start_offset

    def close(self):
        self.manager.close()
        assert self.bugs == []


class DiskThatSyncsAtOnce(RealDisk):
    def start_sync(self, paths, on_end=None):
        ended = threading.Event()
        job = super().start_sync(paths, ended.set)
        ended.wait()
        if on_end is not None:
            on_end()
        return job


def write_log(directory, seed, steps=140):
    """Transactions of both versions, idempotent and plain batches, of all codecs; one transaction stays open."""
    random = Random(seed)
    log = Log(directory, NOW_MS)
    producers = {producer_id: [0, 0] for producer_id in range(1, 7)}  # epoch, sequence
    number = 0

    def send(producer_id=-1, *, transactional=False):
        nonlocal number
        records = []
        for _ in range(random.randint(1, 4)):
            number += 1
            records.append((random.choice(KEYS), b"%d" % number if random.random() < 0.75 else None))
        epoch, sequence = producers.get(producer_id, (-1, -1))
        batch = memoryview(
            build_batch(
                records,
                timestamp_ms=log.ms,
                producer_id=producer_id,
                producer_epoch=epoch,
                base_sequence=sequence,
                transactional=transactional,
                compression=random.choice((0, 0, 1, 2, 3, 4)),
            )
        )
        assert log.partition.append_from_client(check_produced_batch(batch), batch).error == 0
        if producer_id >= 0:
            producers[producer_id][1] += len(records)

    def end(producer_id, version):
        if version == 2:
            producers[producer_id] = [producers[producer_id][0] + 1, 0]
        commit, epoch = random.random() < 0.5, producers[producer_id][0]
        assert log.partition.append_marker(TransactionMarker(producer_id, epoch, 0, commit, version)).error == 0

    for _ in range(steps):
        log.ms += random.randint(1, 10)
        kind = random.choice(("plain", "idempotent", "send", "send", "send", "end", "end", "end"))
        if kind == "plain":
            send()
        elif kind == "idempotent":
            send(random.choice((5, 6)))
        elif kind == "send":
            send(random.choice((1, 2, 3)), transactional=True)
        else:
            end(random.choice((1, 2, 3)), 1 + seed % 2)
    for producer_id in (1, 2, 3):
        end(producer_id, 1 + seed % 2)
    send(4, transactional=True)
    log.close()
    return log.ms


def clean_with_ottla(directory, now_ms):
    """The first offset that was not cleaned."""
    log = Log(directory, now_ms)
    first_dirty = log.clean()
    log.close()
    return first_dirty


def run_java(*arguments):
    """Run a Java class or file. Return its output and then its log lines, which would otherwise mix with the output."""
    command = ["bash", str(KAFKA_SH), "tool", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"HEAP": "256m"})
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def clean_with_kafka(directories, now_ms):
    """The first offset of each that was not cleaned."""
    partitions = [directory / "t-0" for directory in directories]
    printed = run_java(CLEAN_LOG, "clean", now_ms, DELETE_RETENTION_MS, SEGMENT_BYTES, *partitions)
    return [int(line) for line in printed.splitlines() if line.isdigit()]


def batches_of(partition):
    """All of each batch but the bytes of compressed records, which depend on the build of the codec."""
    found = []
    for batch in scan_partition(partition).batches:
        header = (
            *(batch.base_offset, batch.last_offset, batch.leader_epoch, batch.attributes),
            *(batch.base_timestamp, batch.max_timestamp),
            *(batch.producer_id, batch.producer_epoch, batch.base_sequence, batch.record_count),
        )
        records = [(r.offset, r.timestamp, r.key, r.value, r.headers, r.sequence) for r in batch.records()]
        found.append((*header, records, batch.marker, batch.coordinator_epoch))
    return found


def ends_of_segments(partition):
    """Base offsets of the empty batches that end a segment: ours keeps them all, Kafka that of a whole round."""
    last = {batch.path: batch for batch in scan_partition(partition).batches}
    return {batch.base_offset for batch in last.values() if batch.record_count == 0}


def kinds_of(partition):
    """Return the kinds of batches and records after a cleaning, to check that a comparison compares something."""
    kinds = set()
    for batch in scan_partition(partition).batches:
        if batch.record_count == 0:
            kinds.add("empty marker" if batch.is_control else "empty batch")
        elif batch.attributes & HORIZON:
            kinds.add("marker with horizon" if batch.is_control else "tombstones with horizon")
        elif batch.record_count <= batch.last_offset - batch.base_offset:
            kinds.add("thinned batch")
            kinds |= {"thinned compressed batch"} if batch.attributes & 7 else set()
    return kinds


def segments_of(partition):
    return sorted(file.name for file in partition.glob("*.log"))


def aborted_of(partition):
    """The entries of all transaction indexes."""
    return b"".join(file.read_bytes() for file in sorted(partition.glob("*.txnindex")))
