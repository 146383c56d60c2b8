"""A coordinator on a virtual clock, with logs and partition leaders in memory."""

import heapq
import itertools
from types import SimpleNamespace
from typing import NamedTuple

import pytest

from lab.metadata import create_internal_topic, create_topic, reserve_producer_ids
from ottla.broker.api.context import Broker
from ottla.broker.api.request import Request
from ottla.broker.api.table import TABLE
from ottla.broker.cluster.marker_writer import MarkerWriter
from ottla.broker.cluster.metadata import Cluster
from ottla.broker.config import Config
from ottla.broker.group.coordinator import GroupCoordinator
from ottla.broker.log.log_config import LogConfig
from ottla.broker.log.log_manager import LogManager
from ottla.broker.log.results import FetchIsolation
from ottla.broker.memory import Memory
from ottla.broker.ports.disk import RealDisk
from ottla.broker.security.session import Session
from ottla.broker.turns import Turns
from ottla.broker.txn.coordinator import TransactionCoordinator
from ottla.protocol.batch import build_batch
from ottla.protocol.batch_header import assign_offsets, iter_batches, read_header
from ottla.protocol.errors import ErrorCode
from ottla.protocol.hashing import coordinator_partition
from ottla.protocol.requests import codec
from ottla.protocol.requests.frames import is_flexible
from ottla.protocol.requests.produced import check_produced_batch
from tests.broker_stub import broker_of
from tests.engine import require_plain

STATE_TOPIC = "__transaction_state"


class Appended(NamedTuple):
    error: ErrorCode
    last_offset: int = -1
    base_offset: int = -1


class FakeLog:
    """A partition of the transaction log. `hold` keeps appends from becoming durable, `refuse` fails them."""

    def __init__(self, index):
        require_plain()
        self.index = index
        self.leader_epoch = 3
        self.offline = None
        self.log_start_offset = 0
        self.high_watermark = 0
        self.batches = []
        self.hold = False
        self.refuse = ErrorCode.NONE
        self._waiting = []

    @property
    def log_end_offset(self):
        return self.batches[-1][0].next_offset if self.batches else 0

    def append_own(self, batch):
        if self.refuse:
            return Appended(self.refuse)
        assign_offsets(batch, self.log_end_offset, self.leader_epoch)
        header = read_header(batch)
        self.batches.append((header, memoryview(bytes(batch))))
        if not self.hold:
            self.high_watermark = self.log_end_offset
        return Appended(ErrorCode.NONE, header.last_offset)

    def when_durable(self, offset, callback):
        self._waiting.append(callback)

    def release(self):
        self.hold = False
        self.high_watermark = self.log_end_offset
        waiting, self._waiting = self._waiting, []
        for callback in waiting:
            callback(ErrorCode.NONE)

    def crash(self):
        """Drop all batches that are not durable, and the waiting callbacks."""
        self.batches = [(h, b) for h, b in self.batches if h.last_offset < self.high_watermark]
        self.hold, self.refuse, self._waiting = False, ErrorCode.NONE, []

    def scan(self, from_offset):
        return iter(list(self.batches))


class FakeClock:
    """Virtual time."""

    def __init__(self):
        self.wall_ms = 1_700_000_000_000
        self.mono_ms = 0.0
        self.enter = None
        self._timers = []
        self._next = []
        self._order = itertools.count()

    def now_ms(self):
        return int(self.wall_ms)

    def monotonic_ms(self):
        return self.mono_ms

    def call_later(self, delay_ms, callback):
        timer = SimpleNamespace(callback=callback)
        timer.cancel = lambda: setattr(timer, "callback", None)
        heapq.heappush(self._timers, (self.wall_ms + delay_ms, next(self._order), timer))
        return timer

    def next_turn(self, callback):
        self._next.append(callback)

    @property
    def armed(self):
        return sum(timer.callback is not None for _, _, timer in self._timers)

    def one_turn(self):
        """Run the callbacks of the next turn. Return whether there were any."""
        ready, self._next = self._next, []
        for callback in ready:
            self.enter(callback)
        return bool(ready)

    def settle(self):
        while self.one_turn():
            pass

    def stall(self, delay_ms, *arrived):
        """Stop the process for a while. Afterwards, timers run before the input that `arrived` in the sockets."""
        self.pass_timers(delay_ms)
        self._next += arrived
        self.settle()

    def pass_timers(self, delay_ms):
        """Run the timers that became due, but not the callbacks that they schedule."""
        self.wall_ms += delay_ms
        self.mono_ms += delay_ms
        while self._timers and self._timers[0][0] <= self.wall_ms:
            callback = heapq.heappop(self._timers)[2].callback
            if callback is not None:
                self.enter(callback)

    def advance(self, delay_ms):
        until = self.wall_ms + delay_ms
        self.settle()
        while self._timers and self._timers[0][0] <= until:
            at, _, timer = heapq.heappop(self._timers)
            self.mono_ms += max(0, at - self.wall_ms)
            self.wall_ms = max(self.wall_ms, at)
            if timer.callback is not None:
                self.enter(timer.callback)
                self.settle()
        self.mono_ms += until - self.wall_ms
        self.wall_ms = until


class FakeSink:
    """Partition leaders. `answers[(topic, index)]` is a list of codes to give first; then all is well.

    While `flushing`, what is written becomes durable when the test calls what it finds in `undurable`.
    """

    def __init__(self):
        self.written = []
        self.answers = {}
        self.flushing = False
        self.undurable = {}

    def when_durable(self, topic, index, callback):
        if self.flushing:
            self.undurable[topic, index] = callback
        else:
            callback(ErrorCode.NONE)

    def write_marker(self, topic, index, marker):
        waiting = self.answers.get((topic, index))
        if waiting:
            answer = waiting.pop(0)
            if isinstance(answer, Exception):
                raise answer
            if answer:
                return answer
        self.written.append((topic, index, marker))
        return ErrorCode.NONE


class FakeCluster:
    """Topics foo (4 partitions), bar (1) and the transaction log; producer ids from 4000."""

    def __init__(self, level=1, shards=5):
        self.level = level
        self.topics = {name: SimpleNamespace(partition_count=n) for name, n in (("foo", 4), ("bar", 1))}
        self.topics[STATE_TOPIC] = SimpleNamespace(partition_count=shards)
        self.logs = [FakeLog(index) for index in range(shards)]
        self.next_id = 4000
        self.no_ids = False

    def partition(self, topic, index):
        if topic == STATE_TOPIC:
            return self.logs[index]
        return SimpleNamespace(offline=None) if self.has_partition(topic, index) else None

    async def get_or_open(self, topic, index):
        return self.partition(topic, index)

    def has_partition(self, topic, index):
        return topic in self.topics and 0 <= index < self.topics[topic].partition_count

    def next_producer_id(self):
        if self.no_ids:
            return None
        self.next_id += 1
        return self.next_id - 1

    async def producer_ids(self):
        return not self.no_ids

    def feature(self, name):
        assert name == "transaction.version"
        return self.level


class Rig:
    """The coordinator under test and its surroundings. Requests that meet markers are answered, unless `waits`."""

    def __init__(self, level=1, waits=False):
        self.clock = FakeClock()
        self.cluster = FakeCluster(level)
        self.sink = FakeSink()
        self.bugs = []
        self.config = Config() if waits else Config(transaction_markers_wait_ms=0)
        self.markers_delay_ms = 0
        self.turns = Turns(self.clock.next_turn, self.bugs.append)
        self.clock.enter = self.turns.event
        self.coordinator = self._build()

    def _build(self):
        return TransactionCoordinator(
            self.cluster, self.sink, self.turns, self.clock, self.config, self.markers_delay_ms
        )

    def start(self):
        self.turns.event(self.coordinator.start)
        return self

    def restart(self):
        """Restart after kill -9: drop everything that was not durable or was only in memory."""
        self.coordinator.stop()
        self.clock._next.clear()
        self.clock._timers.clear()
        for each in self.cluster.logs:
            each.crash()
        self.turns = Turns(self.clock.next_turn, self.bugs.append)
        self.clock.enter = self.turns.event
        self.coordinator = self._build()
        return self.start()

    def begin(self, coroutine):
        """Run one request as an event; a list that gets its result."""
        results = []
        self.turns.event(lambda: self.turns.start(coroutine, results.append, self.bugs.append))
        return results

    def ask(self, coroutine):
        (result,) = self.begin(coroutine)
        return result

    def init(self, name="t", timeout_ms=60_000, expected=(-1, -1)):
        return self.ask(self.coordinator.init_producer_id(name, timeout_ms, *expected))

    def add(self, name, producer, *partitions):
        return self.ask(self.coordinator.add_partitions(name, *producer, partitions))

    def end(self, name, producer, commit=True, v2=False):
        return self.ask(self.coordinator.end(name, *producer, commit, v2=v2))

    def producer(self, name="t", **more):
        answer = self.init(name, **more)
        assert not answer.error, answer
        return answer.producer_id, answer.producer_epoch

    def log_of(self, name):
        return self.cluster.logs[coordinator_partition(name, len(self.cluster.logs))]

    def state(self, name="t"):
        return self.shard_of(name).states.get(name)

    def shard_of(self, name="t"):
        return self.coordinator.states.shards[self.log_of(name).index]

    def durable(self):
        """Return the durable state of every id."""
        return {name: state for shard in self.coordinator.shards() for name, state in shard.states.items()}


@pytest.fixture
def rig():
    made = Rig().start()
    yield made
    assert made.bugs == []


@pytest.fixture
def make_rig():
    made = []

    def make(level=1, waits=False):
        made.append(Rig(level, waits))
        return made[-1]

    yield make
    for each in made:
        assert each.bugs == []


HEADER_BYTES = {False: 10, True: 11}


@pytest.fixture
def ask(rig):
    """Send one request of a version through encoder, reader, handler and back; the response message."""
    groups = SimpleNamespace(offsets=SimpleNamespace(partition_for=lambda group_id: len(group_id)))
    rig.cluster.topics["__consumer_offsets"] = SimpleNamespace(partition_count=50)
    parts = broker_of(
        transactions=rig.coordinator,
        cluster=rig.cluster,
        clock=rig.clock,
        turns=rig.turns,
        groups=groups,
        memory=Memory(rig.turns, 1 << 28),
    )

    def send(api_key, version, **fields):
        sent = codec.request_class(api_key)(version=version, **fields)
        frame = codec.encode_request(sent, version, 7, "")
        body = codec.decode_request(api_key, version, frame[4 + HEADER_BYTES[is_flexible(api_key, version)] :])
        replies = rig.begin(TABLE[api_key].handle(parts, Request(api_key, version, 7, "", Session(), body)))
        rig.clock.settle()
        (reply,) = replies
        framed = b"".join(reply.buffers)
        assert int.from_bytes(framed[:4], "big") == len(framed) - 4
        send.pieces = reply.buffers
        correlation_id, message = codec.decode_response(api_key, version, framed[4:])
        assert correlation_id == 7
        return message

    return send


class DeafSink:
    """Leaders that write the first `hearing` markers, and refuse all later ones."""

    def __init__(self, leaders, hearing):
        self.leaders = leaders
        self.completed_by = leaders.completed_by
        self.hearing = hearing
        self.flushing = False

    def write_marker(self, topic, index, marker):
        if self.hearing == 0:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        self.hearing -= 1
        return self.leaders.write_marker(topic, index, marker)

    def when_durable(self, topic, index, callback):
        self.leaders.when_durable(topic, index, callback)


class TransactionParts:
    """The parts of a broker that `server.py` builds, without sockets, on a virtual clock."""

    def __init__(self, directory, clock):
        self.directory, self.clock = directory, clock
        self.bugs = []
        self.logs = None
        self.start()

    def start(self, hearing=-1, **options):
        self.config = Config(**options)
        turns = self.turns = Turns(self.clock.next_turn, self.bugs.append)
        self.clock.enter = turns.event
        self.logs = LogManager(RealDisk(), self.clock, turns, Config(log_dirs=str(self.directory)))
        self.logs.open()
        self.cluster = Cluster(
            self.logs,
            self.clock,
            turns,
            1,
            iter([bytes([n]) * 16 for n in range(1, 99)]).__next__,
            lambda own: LogConfig(),
            {name: (3, {"cleanup.policy": "compact"}, 1) for name in ("__transaction_state", "__consumer_offsets")},
            1,
            self.config.transaction_version,
        )
        self.cluster.open()
        reserve_producer_ids(self.cluster)
        self.sink = DeafSink(MarkerWriter(self.cluster, self.logs.flusher), hearing)
        self.coordinator = TransactionCoordinator(self.cluster, self.sink, turns, self.clock, self.config)
        leaders = self.sink.leaders
        self.groups = GroupCoordinator(self.cluster, turns, self.clock, self.config)
        leaders.completed_by["__consumer_offsets"] = self.groups.complete_transaction
        self.context = Broker(
            self.config, self.clock, turns, self.logs, self.cluster, self.coordinator, self.groups, {}
        )
        turns.event(self.groups.open)
        turns.event(self.coordinator.start)
        self.clock.settle()

    def kill(self):
        self.coordinator.stop()
        self.groups.stop()
        self.clock._next.clear()
        self.clock._timers.clear()
        self.logs.abandon()

    def ask(self, coroutine):
        results = []
        self.turns.event(lambda: self.turns.start(coroutine, results.append, self.bugs.append))
        return results[0]

    def begin(self, key, version, body):
        """Send one request, decoded; a list that gets the reply."""
        replies = []
        request = Request(key, version, 1, "", Session(), body)
        handler = TABLE[key].handle(self.context, request)
        self.turns.event(lambda: self.turns.start(handler, replies.append, self.bugs.append))
        return replies

    def write(self, producer, sequence, place):
        producer_id, epoch = producer
        assert self.coordinator.verify("t", producer_id, epoch, [place]) == [ErrorCode.NONE]
        batch = memoryview(
            build_batch(
                [(b"Account-123", b"10")],
                timestamp_ms=self.clock.now_ms(),
                producer_id=producer_id,
                producer_epoch=epoch,
                base_sequence=sequence,
                transactional=True,
            )
        )
        return self.cluster.partition(*place).append_from_client(check_produced_batch(batch), batch)

    def offsets(self, place):
        partition = self.cluster.partition(*place)
        return partition.last_stable_offset, partition.log_end_offset

    def markers(self, place):
        partition = self.cluster.partition(*place)
        data = partition.read(0, 1 << 20, isolation=FetchIsolation.LOG_END).records
        return sum(header.is_control for _, header in iter_batches(memoryview(data)))


@pytest.fixture
def parts(tmp_path, make_rig):
    """A broker on real logs with the topic `ledger` of four partitions."""
    parts = TransactionParts(tmp_path / "data", make_rig().clock)
    create_topic(parts.cluster, "ledger", 4)
    create_internal_topic(parts.cluster, "__transaction_state")
    parts.clock.settle()
    yield parts
    parts.kill()
    assert parts.bugs == []
