"""Random transactional logs, compacted again and again, against a naive model over the second scanner."""

from random import Random

import pytest

from ottla.broker.log.cleaning.log_cleaner import LogCleaner
from ottla.broker.log.producer_state_manager import ProducerStateManager
from ottla.broker.log.replay import replay
from ottla.broker.log.results import FetchIsolation
from ottla.protocol.batch import read_marker
from ottla.protocol.batch_header import iter_batches
from ottla.protocol.records import iter_records
from ottla.testkit.scanner import scan_partition

RETENTION_MS = 1_000
SETTINGS = {
    "segment_bytes": 700,
    "index_interval_bytes": 150,
    "cleanup_policy": "compact,delete",
    "min_cleanable_dirty_ratio": 0.0,
    "delete_retention_ms": RETENTION_MS,
}
KEYS = (b"a", b"b", b"c", b"d" * 40, b"e" * 33)
ACTIONS = ("send", "send", "send", "plain", "idempotent", "end", "end", "end", "clean", "stop", "kill")


def draw(random):
    """Return the name and the arguments of a random step."""
    action = random.choice(ACTIONS)
    producer_id = random.randint(1, 3)
    if action in ("send", "plain", "idempotent"):
        keys = [(random.choice(KEYS), random.random() < 0.7) for _ in range(random.randint(1, 4))]
        return action, producer_id, keys, random.choice((0, 0, 1, 2, 3, 4))
    if action == "end":
        return action, producer_id, random.random() < 0.5, random.random() < 0.5
    if action == "clean":
        return action, random.choice((1, RETENTION_MS)), random.randint(3, 50)
    return (action,)


class History:
    """Well-behaved producers on a compacted partition. `expected` is the records that must be left of theirs."""

    def __init__(self, logs, produce, transactor):
        self.logs, self.produce, self.transactor = logs, produce, transactor
        self.partition = logs.partition(**SETTINGS)
        self.producers = {}
        self.number = 0
        self.marker_epochs = {}

    def producer(self, producer_id):
        if producer_id not in self.producers:
            self.producers[producer_id] = self.transactor(self.partition, producer_id)
        return self.producers[producer_id]

    def step(self, action, *arguments):
        self.logs.clock.ms += 7
        getattr(self, action)(*arguments)

    def records(self, keys):
        self.number += 1
        return [(key, b"%d" % self.number if has_value else None) for key, has_value in keys]

    def plain(self, _, keys, codec):
        result = self.produce(self.partition, self.records(keys), compression=codec, timestamp_ms=self.logs.clock.ms)
        assert result.error == 0

    def send(self, producer_id, keys, codec):
        result = self.producer(producer_id).send(self.records(keys), compression=codec, timestamp_ms=self.logs.clock.ms)
        assert result.error == 0 and not result.duplicate

    def idempotent(self, producer_id, keys, codec):
        producer = self.producer(10 + producer_id)
        result = producer.send(
            self.records(keys), compression=codec, transactional=False, timestamp_ms=self.logs.clock.ms
        )
        assert result.error == 0 and not result.duplicate

    def end(self, producer_id, commit, bump):
        producer = self.producer(producer_id)
        if bump:
            producer.epoch += 1
            producer.sequence = 0
        assert producer.end(commit, transaction_version=2 if bump else 1).error == 0

    def clean(self, later_ms, keys_max):
        self.logs.clock.ms += later_ms
        partition, disk = self.partition, self.logs.disk
        before, producers = scan_partition(self.logs.path()), state(partition)
        was_dirty_from = self.logs.manager.first_dirty_offset(partition)
        cleaner = LogCleaner(self.logs.manager, disk, self.logs.clock, self.logs.turns, keys_max * 200)
        cleaner.start()
        assert self.logs.bugs == [] and self.logs.manager.offline is None and partition.offline is None
        end_offset = self.logs.manager.first_dirty_offset(partition)
        assert end_offset <= min(before.last_stable_offset, partition.log.segments.active.base_offset)
        after = scan_partition(self.logs.path())
        assert after.damages == []
        if end_offset == was_dirty_from:
            assert after == before
        else:
            check_records(before, after, end_offset, self.logs.clock.ms)
        assert state(partition) == producers
        assert partition.last_stable_offset == after.last_stable_offset == before.last_stable_offset
        assert committed_records(partition) == [record.offset for record in after.records("read_committed")]
        scanned = [(header.base_offset, header.last_offset) for header, _ in partition.scan(0)]
        assert scanned == [(batch.base_offset, batch.last_offset) for batch in after.batches]
        assert not [name for name in disk.list(str(self.logs.path())) if name.endswith((".cleaned", ".swap"))]

    def stop(self):
        self.logs.stop()
        self.restart()

    def kill(self):
        self.logs.kill()
        self.restart()

    def restart(self):
        before = self.partition
        self.logs.start()
        self.partition = after = self.logs.partition(**SETTINGS)
        assert after.offline is None
        assert after.log_end_offset == before.log_end_offset
        assert after.last_stable_offset == before.last_stable_offset
        check_reload(state(after), state(before))
        for producer in self.producers.values():
            producer.partition = after


def check_records(before, after, end_offset, now_ms):
    """Check that all records from `end_offset` on are left, and below it the last committed or plain record of a key.

    Where the key map was full, it may contain later records of a key.
    """
    last, later = {}, set()
    for record in before.records():
        if record.offset < end_offset and record.fate != "aborted":
            last[record.key] = record.offset
        elif record.fate != "aborted":
            later.add(record.key)
    old = {record.offset: record for record in before.records()}
    new = {record.offset: record for record in after.records()}
    assert new == {offset: old[offset] for offset in new}
    batch_of = {record.offset: batch for batch in before.batches for record in batch.records()}
    for offset, record in old.items():
        if offset >= end_offset:
            assert offset in new
        elif record.fate == "aborted" or last[record.key] != offset:
            assert offset not in new
        elif record.key in later and offset not in new:
            continue
        elif record.value is not None:
            assert offset in new
        else:
            batch = batch_of[offset]
            expired = batch.attributes & 0x40 and batch.base_timestamp <= now_ms
            assert (offset in new) == (not expired)
    assert set(last) >= {record.key for record in new.values() if record.offset < end_offset}


def state(partition_or_producers):
    """Return the producer states, without the timestamp of the last batch: a snapshot stores the producer's instead."""
    producers = partition_or_producers
    if not isinstance(producers, ProducerStateManager):
        producers = producers.producers()
    result = {}
    for producer in producers:
        *rest, batches = producer.to_value()
        result[producer.producer_id] = (*rest, tuple(batch[:3] for batch in batches[-1:]))
    return result


def check_reload(found, live):
    """Check that reloading finds the live state again. Only a marker holds the coordinator's epoch, and the time of a
    producer without batches; both are lost if the marker is removed or emptied."""
    assert found.keys() == live.keys()
    for producer_id, (epoch, coordinator_epoch, last_ms, start, batches) in found.items():
        known = live[producer_id]
        assert (epoch, start, batches) == (known[0], *known[3:])
        assert coordinator_epoch in (-1, known[1])
        assert last_ms == known[2] or not batches


def committed_records(partition):
    """Return the records that a consumer delivers: KIP-98's filter with the list of aborted transactions."""
    found, position = [], 0
    while position < partition.last_stable_offset:
        piece = partition.read(position, 300, isolation=FetchIsolation.TXN_COMMITTED)
        if not piece.records:
            break
        waiting = sorted(piece.aborted, key=lambda entry: entry[1])
        aborted = set()
        for at, header in iter_batches(piece.records):
            position = header.next_offset
            while waiting and waiting[0][1] <= header.last_offset:
                aborted.add(waiting.pop(0)[0])
            if header.is_control:
                marker = read_marker(piece.records, header, at)
                if marker is not None and marker.control_type == 0:
                    aborted.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in aborted):
                found += [record.offset for record in iter_records(piece.records, header, at)]
    return found


@pytest.mark.parametrize("seed", range(30))
def test_history(logs, produce, transactor, seed):
    random = Random(seed)
    history = History(logs, produce, transactor)
    for _ in range(random.randint(20, 120)):
        history.step(*draw(random))
    history.clean(RETENTION_MS, 50)

    # A replay of the remaining records ends in the state of the live partition.
    replayed = ProducerStateManager()
    for header, batch in history.partition.scan(0):
        replay(replayed, header, batch)
    check_reload(state(replayed), state(history.partition))
