"""A coordinator on a virtual clock, with logs and partition leaders in memory."""

import heapq
import itertools
from types import SimpleNamespace
from typing import NamedTuple

import pytest

from ottla.broker.turns import Turns
from ottla.broker.txn.coordinator import TransactionCoordinator, TransactionSettings
from ottla.protocol.batch import assign_offsets, read_header
from ottla.protocol.errors import ErrorCode
from ottla.protocol.hashing import coordinator_partition

STATE_TOPIC = "__transaction_state"


class Appended(NamedTuple):
    error: ErrorCode
    last_offset: int = -1


class FakeLog:
    """A partition of the transaction log. `hold` keeps appends from becoming durable, `refuse` fails them."""

    def __init__(self, index):
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
            callback()

    def crash(self):
        """What was not durable is gone."""
        self.batches = [(h, b) for h, b in self.batches if h.last_offset < self.high_watermark]
        self.hold, self.refuse, self._waiting = False, ErrorCode.NONE, []

    def scan(self, from_offset):
        return iter(list(self.batches))


class FakeClock:
    """Virtual time. `monotonic_ms` also moves by `tick_ms` at each look, so that budgets run out."""

    def __init__(self):
        self.wall_ms = 1_700_000_000_000
        self.mono_ms = 0.0
        self.tick_ms = 0.0
        self.enter = None
        self._timers = []
        self._next = []
        self._order = itertools.count()

    def now_ms(self):
        return int(self.wall_ms)

    def monotonic_ms(self):
        self.mono_ms += self.tick_ms
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
        """Run what was put off to the next turn; whether there was anything."""
        ready, self._next = self._next, []
        for callback in ready:
            self.enter(callback)
        return bool(ready)

    def settle(self):
        while self.one_turn():
            pass

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
    """Partition leaders. `answers[(topic, index)]` is a list of codes to give first; then all is well."""

    def __init__(self):
        self.written = []
        self.answers = {}

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
        assert topic == STATE_TOPIC
        return self.logs[index]

    def next_producer_id(self):
        if self.no_ids:
            raise OSError("the metadata log is full")
        self.next_id += 1
        return self.next_id - 1

    def feature(self, name):
        assert name == "transaction.version"
        return self.level


class Rig:
    """The coordinator under test and its surroundings."""

    def __init__(self, level=1):
        self.clock = FakeClock()
        self.cluster = FakeCluster(level)
        self.sink = FakeSink()
        self.bugs = []
        self.settings = TransactionSettings()
        self.turns = Turns(self.clock.next_turn, self.bugs.append)
        self.clock.enter = self.turns.event
        self.coordinator = self._build()

    def _build(self):
        return TransactionCoordinator(self.cluster, self.sink, self.turns, self.clock, self.settings)

    def start(self):
        self.turns.event(self.coordinator.start)
        return self

    def restart(self):
        """kill -9: what was not durable is gone, and so is all that lived in memory."""
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
        return self.coordinator._shards[self.log_of(name).index]

    def durable(self):
        """Every id's durable state."""
        return {name: state for shard in self.coordinator.shards() for name, state in shard.states.items()}


@pytest.fixture
def rig():
    made = Rig().start()
    yield made
    assert made.bugs == []


@pytest.fixture
def make_rig():
    made = []

    def make(level=1):
        made.append(Rig(level))
        return made[-1]

    yield make
    for each in made:
        assert each.bugs == []
