"""Directories of random transactional logs as Ottla's broker writes them, and what its Fetch gives a consumer.

Every log keeps a ledger: what was appended at which offset, and how its transaction ended. That is the naive model: it
never reads a file.
"""

import heapq
import random
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

from ottla.broker.api import fetch
from ottla.broker.api.request import Request
from ottla.broker.config import Config
from ottla.broker.log.log_config import LogConfig
from ottla.broker.log.log_manager import LogManager
from ottla.broker.log.long_work import LongWork
from ottla.broker.ports.disk import RealDisk
from ottla.broker.ports.workers import DeferredWorkers
from ottla.broker.security.session import Session
from ottla.broker.turns import Turns
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.batch import build_batch, read_marker
from ottla.protocol.batch_header import iter_batches
from ottla.protocol.errors import ErrorCode
from ottla.protocol.records import iter_records
from ottla.protocol.requests import codec
from ottla.protocol.requests.produced import check_produced_batch
from ottla.protocol.values import TransactionMarker
from tests.broker_stub import broker_of

TOPIC = "ledger"
TOPIC_ID = bytes(range(16))
ISOLATIONS = ("read_uncommitted", "read_committed")
FETCH_VERSION = 11


class UnsyncedDisk(RealDisk):
    """A disk that syncs nothing, because these tests have no power loss."""

    __slots__ = ()

    def sync(self, paths):
        del paths

    def sync_dir(self, path):
        del path


class Clock:
    """A clock that only the test advances; timers never fire."""

    def __init__(self):
        self.ms = 1_700_000_000_000

    def now_ms(self):
        return self.ms

    def monotonic_ms(self):
        return float(self.ms)

    def call_later(self, delay_ms, callback):
        del delay_ms, callback
        return SimpleNamespace(cancel=lambda: None)

    def next_turn(self, callback):
        self.enter(callback)

    from_thread = next_turn


@dataclass
class Ledger:
    """The history of a partition. `fates`: offset -> (key, value, transaction or None); transactions by number."""

    rows: dict = field(default_factory=dict)
    fates: dict = field(default_factory=dict)  # transaction -> committed, aborted, open
    first: dict = field(default_factory=dict)  # transaction -> first offset
    suspected: list = field(default_factory=list)  # (commit of nothing behind an abort, the aborted batch): offsets
    log_start: int = 0
    end: int = 0

    def visible(self, isolation):
        """Return offset -> (key, value) of the records that a consumer of the whole partition receives."""
        stable = min((self.first[one] for one, fate in self.fates.items() if fate == "open"), default=self.end)
        limit = max(stable, self.log_start) if isolation == "read_committed" else self.end
        hidden = ("aborted", "open") if isolation == "read_committed" else ()
        return {
            offset: (key, value)
            for offset, (key, value, transaction) in self.rows.items()
            if self.log_start <= offset < limit and self.fates.get(transaction) not in hidden
        }


class LogWriter:
    """Producers of both transaction versions and plain ones, on one partition."""

    def __init__(self, chance):
        self.chance, self.ledger, self.count = chance, Ledger(), 0
        self.partition = None
        self.producers = {
            pid: SimpleNamespace(epoch=0, sequence=0, open=None, written=0, aborted=None)
            for pid in range(chance.randrange(1, 5))
        }
        # A start after a kill does not find what is checkpointed late, and forgets producers below its log start.
        self.may_raise_start = self.may_drop = True

    def step(self, clock):
        chance = self.chance
        clock.ms += chance.choice([1, 50])
        pid = chance.choice(list(self.producers))
        producer = self.producers[pid]
        dice = chance.random()
        if dice < 0.3 and producer.open is not None:
            self.end(pid, producer)
        elif dice < 0.33 and producer.open is None:
            marker = self.mark(pid, producer.epoch, True, 1)  # it ends nothing
            if producer.aborted is not None:
                self.ledger.suspected.append((marker, producer.aborted))
            producer.aborted = None
        elif dice < 0.36:
            self.produce(-1, None, False)
        elif dice < 0.39 and self.may_raise_start:
            # Where nothing is left, a start forgets the producers and what they have open.
            self.partition.raise_log_start(chance.randrange(max(self.ledger.end, 1)))
            self.ledger.log_start = self.partition.log_start_offset
        elif dice < 0.41 and self.may_drop:
            self.drop_segments()
        else:
            self.produce(pid, producer, producer.open is not None or chance.random() < 0.8)

    def produce(self, pid, producer, transactional):
        chance, ledger = self.chance, self.ledger
        records = [
            (chance.choice([None, b"k%d" % chance.randrange(9)]), chance.choice([None, b"", chance.randbytes(9)]))
            for _ in range(chance.choice([1, 1, 2, 5]))
        ]
        ids = {} if producer is None else {
            "producer_id": pid,
            "producer_epoch": producer.epoch,
            "base_sequence": producer.sequence,
            "transactional": transactional,
        }  # fmt: skip
        batch = build_batch(
            records, timestamp_ms=1_700_000_000_000, compression=chance.choice([0, 0, 0, 1, 2, 3, 4]), **ids
        )
        data = memoryview(batch)
        result = self.partition.append_from_client(check_produced_batch(data), data)
        assert result.error == ErrorCode.NONE, result
        if producer is not None:
            producer.sequence += len(records)
            producer.written, producer.aborted = result.base_offset, None
        if transactional and producer.open is None:
            producer.open = self.count
            ledger.fates[self.count], ledger.first[self.count] = "open", result.base_offset
            self.count += 1
        for index, (key, value) in enumerate(records):
            ledger.rows[result.base_offset + index] = (key, value, producer.open if transactional else None)
        ledger.end = result.last_offset + 1

    def end(self, pid, producer):
        commit, version = self.chance.random() < 0.6, self.chance.choice([1, 2])
        epoch = producer.epoch
        if version == 2 or self.chance.random() < 0.1:
            producer.epoch, producer.sequence = producer.epoch + 1, 0
        self.mark(pid, producer.epoch, commit, version)
        self.ledger.fates[producer.open] = "committed" if commit else "aborted"
        producer.open = None
        producer.aborted = None if commit or producer.epoch != epoch else producer.written

    def mark(self, pid, epoch, commit, version):
        result = self.partition.append_marker(TransactionMarker(pid, epoch, 0, commit, version))
        assert result.error == ErrorCode.NONE, result
        self.ledger.end = result.last_offset + 1
        return result.last_offset

    def drop_segments(self):
        """Remove the oldest segments and their files, as retention does."""
        below = [
            one
            for one in self.partition.log.segments
            if one.base_offset < self.partition.log.segments.active.base_offset
        ]
        if not below:
            return
        for segment in self.partition.drop_oldest(self.chance.randrange(len(below) + 1)):
            segment.close()
            for path in (*segment.paths, segment.log_path[: -len("log")] + "snapshot"):
                Path(path).unlink(missing_ok=True)
        self.ledger.log_start = self.partition.log_start_offset


def write_directory(root, seed, partitions):
    """Write a log directory. Returns the ledgers by partition, and the broker to fetch from, still running.

    It may have been stopped, or killed, and started again half-way; `stop` ends it.
    """
    chance, clock = random.Random(seed), Clock()
    turns = Turns(clock.next_turn, None)
    clock.enter = turns.event
    writers = [LogWriter(random.Random(f"{seed}-{index}")) for index in range(partitions)]
    lives = chance.choice([("close",), ("close", "close"), ("abandon", "close"), ("close", "abandon")])
    for number, end in enumerate(lives):
        manager = LogManager(UnsyncedDisk(2_000), clock, turns, Config(log_dirs=str(root)))
        manager.open()
        for index, writer in enumerate(writers):
            sizes = {"segment_bytes": writer.chance.choice([400, 1_500, 10_000]), "index_interval_bytes": 200}
            writer.partition = manager.open_partition(TOPIC, index, TOPIC_ID, 0, LogConfig(**sizes))
            assert writer.partition.log_start_offset == writer.ledger.log_start
            writer.may_raise_start = end == "close"
            writer.may_drop = end == "close" or number == len(lives) - 1
            for _ in range(writer.chance.choice([2, 10, 30])):
                writer.step(clock)
        stop = manager.close if end == "close" else manager.abandon
        if number < len(lives) - 1:
            stop()
    cluster = SimpleNamespace(partition=manager.get, is_unopened=lambda *_: False)
    long_work = LongWork(turns, DeferredWorkers(turns.next_turn), 1 << 26)
    broker = broker_of(
        cluster=cluster,
        clock=clock,
        turns=turns,
        long_work=long_work,
        stop=stop,
    )
    return [writer.ledger for writer in writers], broker


def consume(broker, index, isolation, chance):
    """Return offset -> (key, value) of the records that a consumer receives, through Fetch messages as bytes."""
    partition = broker.cluster.partition(TOPIC, index)
    position, rows = partition.log_start_offset, {}
    limit = partition.last_stable_offset if isolation == "read_committed" else partition.high_watermark
    while position < limit:
        answer = _fetch(broker, index, position, isolation, chance.choice([1, 300, 5_000]))
        assert answer.error_code == 0
        assert answer.last_stable_offset == partition.last_stable_offset
        found, position = _filter_answer(answer, position)
        rows.update(found)
    assert not _fetch(broker, index, limit, isolation, 5_000).records
    return rows


def _filter_answer(answer, position):
    """Return the records that the Java consumer keeps of an answer (`CompletedFetch`), and its next position."""
    aborted = [(one.first_offset, one.producer_id) for one in answer.aborted_transactions or ()]
    heapq.heapify(aborted)
    hidden, rows = set(), {}
    data = memoryview(answer.records)
    for at, header in iter_batches(data):
        while aborted and aborted[0][0] <= header.last_offset:
            hidden.add(heapq.heappop(aborted)[1])
        if header.is_control:
            if read_marker(data, header, at).control_type == 0:
                hidden.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in hidden):
            for record in iter_records(data, header, at):
                if record.offset >= position:
                    rows[record.offset] = (record.key, record.value)
        after = header.next_offset
    return rows, after


def _fetch(broker, index, offset, isolation, max_bytes):
    request = codec.request_class(ApiKey.FETCH)
    row = request.FetchTopic.FetchPartition(
        version=FETCH_VERSION,
        partition=index,
        current_leader_epoch=-1,
        fetch_offset=offset,
        log_start_offset=-1,
        partition_max_bytes=max_bytes,
    )
    body = request(
        version=FETCH_VERSION,
        replica_id=-1,
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=1 << 20,
        isolation_level=int(isolation == "read_committed"),
        session_id=0,
        session_epoch=-1,
        topics=[request.FetchTopic(version=FETCH_VERSION, topic=TOPIC, partitions=[row])],
        forgotten_topics_data=[],
        rack_id="",
    )
    handled = fetch.handle(broker, Request(ApiKey.FETCH, FETCH_VERSION, 1, "", Session(), body))
    replies, bugs = [], []
    broker.turns.event(lambda: broker.turns.start(handled, replies.append, bugs.append))
    assert not bugs
    (reply,) = replies  # it rests, and need not wait
    frame = b"".join(bytes(part) for part in reply.buffers)
    _, answer = codec.decode_response(ApiKey.FETCH, FETCH_VERSION, frame[4:])
    return answer.responses[0].partitions[0]
