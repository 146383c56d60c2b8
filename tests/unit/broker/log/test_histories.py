"""Random histories: the state after a restart, and reads, compared with the second scanner."""

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ottla.broker.log.producer_state_manager import ProducerStateManager
from ottla.broker.log.replay import replay
from ottla.broker.log.results import FetchIsolation
from ottla.protocol.batch import read_marker
from ottla.protocol.batch_header import iter_batches
from ottla.protocol.errors import ErrorCode
from ottla.protocol.indexes import iter_aborted_txns
from ottla.protocol.records import iter_records
from ottla.testkit.scanner import scan_partition

IDS = st.integers(1, 4)
STEP = st.one_of(
    st.tuples(st.just("send"), IDS, st.integers(1, 4)),
    st.tuples(st.just("send"), IDS, st.integers(1, 4)),
    st.tuples(st.just("plain"), st.just(0), st.integers(1, 4)),
    st.tuples(st.just("again"), IDS, st.just(0)),
    st.tuples(st.just("commit"), IDS, st.booleans()),
    st.tuples(st.just("abort"), IDS, st.booleans()),
    st.tuples(st.sampled_from(["stop", "kill"]), st.just(0), st.just(0)),
)
SETTINGS = {"segment_bytes": 500, "index_interval_bytes": 150}


class History:
    """Producers that behave, on a partition with small segments. An `end` with `bump` is one of version 2."""

    def __init__(self, logs, produce, transactor):
        self.parts, self.produce, self.transactor = logs, produce, transactor
        self.partition = logs.partition(**SETTINGS)
        self.producers = {}
        self.last = {}
        self.ended = set()

    def producer(self, producer_id):
        if producer_id not in self.producers:
            self.producers[producer_id] = self.transactor(self.partition, producer_id)
        return self.producers[producer_id]

    def step(self, action, producer_id, argument):
        self.parts.clock.ms += 7
        getattr(self, action)(producer_id, argument)

    def plain(self, _, count):
        assert self.produce(self.partition, count).error == 0

    def send(self, producer_id, count):
        result = self.producer(producer_id).send(count, value=b"v" * 40)
        assert result.error == 0 and not result.duplicate
        self.last[producer_id] = count
        self.ended.discard(producer_id)

    def again(self, producer_id, _):
        producer = self.producer(producer_id)
        count = self.last.get(producer_id, 0)
        if count:
            producer.sequence -= count
            result = producer.send(count)
            # After the marker of its transaction no client waits for the answer to a batch.
            reused = producer_id in self.ended
            assert (result.duplicate, result.error) == (not reused, ErrorCode.UNKNOWN_PRODUCER_ID if reused else 0)

    def commit(self, producer_id, bump):
        self.end(producer_id, True, bump)

    def abort(self, producer_id, bump):
        self.end(producer_id, False, bump)

    def end(self, producer_id, commit, bump):
        producer = self.producer(producer_id)
        if bump:
            producer.epoch += 1
            producer.sequence = 0
            self.last[producer_id] = 0
        assert producer.end(commit, transaction_version=2 if bump else 1).error == 0
        self.ended.add(producer_id)

    def stop(self, *_):
        self.parts.stop()
        self.restart()

    def kill(self, *_):
        self.parts.kill()
        self.restart()

    def restart(self):
        before = self.partition
        self.parts.start()
        self.partition = after = self.parts.partition(**SETTINGS)
        assert after.offline is None
        assert after.log_end_offset == before.log_end_offset
        assert after.last_stable_offset == before.last_stable_offset
        assert state(after, last_batch_only=True) == state(before, last_batch_only=True)
        for producer in self.producers.values():
            producer.partition = after


def state(partition_or_producers, last_batch_only=False):
    producers = partition_or_producers
    if not isinstance(producers, ProducerStateManager):
        producers = producers.producers()
    result = {}
    for producer in producers:
        *rest, batches = producer.to_value()
        # A snapshot keeps of the last batch all but its timestamp, for which it has the producer's.
        kept = tuple(batch[:3] for batch in batches[-1:]) if last_batch_only else batches
        result[producer.producer_id] = (*rest, kept)
    return result


def committed_records(partition):
    """Return the records that a consumer delivers: KIP-98's filter with the list of aborted transactions."""
    found, position = [], 0
    while position < partition.last_stable_offset:
        piece = partition.read(position, 300, isolation=FetchIsolation.TXN_COMMITTED)
        waiting = sorted(piece.aborted, key=lambda entry: entry[1])
        aborted = set()
        for at, header in iter_batches(piece.records):
            position = header.next_offset
            while waiting and waiting[0][1] <= header.last_offset:
                aborted.add(waiting.pop(0)[0])
            if header.is_control:
                if read_marker(piece.records, header, at).control_type == 0:
                    aborted.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in aborted):
                found += [record.offset for record in iter_records(piece.records, header, at)]
    return found


@pytest.mark.slow
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(STEP, min_size=5, max_size=70))
def test_history(logs, produce, transactor, steps):
    logs.kill()
    logs.directory = Path(tempfile.mkdtemp(dir=logs.directory.parent))
    logs.start()
    history = History(logs, produce, transactor)
    for step in steps:
        history.step(*step)
    partition = history.partition

    scanned = scan_partition(logs.path())
    assert scanned.damages == []
    assert partition.last_stable_offset == scanned.last_stable_offset
    assert committed_records(partition) == [record.offset for record in scanned.records("read_committed")]

    # A replay of the whole log ends where the live partition is.
    replayed = ProducerStateManager()
    for header, batch in partition.scan(0):
        replay(replayed, header, batch)
    assert state(replayed, last_batch_only=True) == state(partition, last_batch_only=True)
    if not {"stop", "kill"} & {step[0] for step in steps}:
        assert state(replayed) == state(partition)

    # Recovery from nothing but the segments writes the same index files as the live broker did.
    logs.stop()
    files = indexes(logs)
    aborted = [tuple(entry) for name, data in files.items() if "txn" in name for entry in iter_aborted_txns(data)]
    assert aborted == scanned.aborted_index
    for path in logs.path().iterdir():
        if path.suffix != ".log" and path.name != "partition.metadata":
            path.unlink()
    (logs.directory / ".kafka_cleanshutdown").unlink()
    (logs.directory / "recovery-point-offset-checkpoint").unlink()
    logs.start()
    assert state(logs.partition(**SETTINGS)) == state(replayed)
    logs.stop()
    if not {"stop", "kill"} & {step[0] for step in steps}:
        # (a restart resets the count of bytes since the last entry, as in Kafka)
        assert indexes(logs) == files
    shutil.rmtree(logs.directory)
    logs.start()


def indexes(logs):
    return {path.name: path.read_bytes() for path in sorted(logs.path().iterdir()) if "index" in path.suffix}
