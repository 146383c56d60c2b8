"""A group coordinator on a virtual clock, with its offsets partitions in memory."""

import dataclasses
import heapq
import itertools
from types import SimpleNamespace
from uuid import UUID

import pytest

from lab.simulation.charged import ChargeMeter
from ottla.broker.config import Config
from ottla.broker.group.coordinator import GroupCoordinator
from ottla.broker.group.members import Caller, JoinAsk, Timeouts
from ottla.broker.log.results import AppendResult
from ottla.broker.turns import Turns
from ottla.protocol.batch import build_marker
from ottla.protocol.batch_header import assign_offsets, read_header
from ottla.protocol.errors import ErrorCode
from ottla.protocol.hashing import coordinator_partition
from ottla.protocol.values import TransactionMarker
from tests.engine import require_plain

PARTITIONS = 4
CHECK_MS = 600_000
RANGE = (("range", b"sub"),)


class FakeLog:
    """A partition of `__consumer_offsets`. `refuse` is the error of appends."""

    log_start_offset = 0
    offline = None

    def __init__(self, index):
        require_plain()
        self.index = index
        self.batches = []
        self.refuse = ErrorCode.NONE

    @property
    def log_end_offset(self):
        return self.batches[-1][0].next_offset if self.batches else 0

    high_watermark = log_end_offset

    def append_own(self, batch):
        if self.refuse:
            return AppendResult(self.refuse)
        assign_offsets(batch, self.log_end_offset, 0)
        header = read_header(batch)
        self.batches.append((header, memoryview(bytes(batch))))
        return AppendResult(ErrorCode.NONE, header.base_offset, header.last_offset)

    def append_marker(self, marker):
        producer_id, producer_epoch, coordinator_epoch, commit, _version = marker
        return self.append_own(bytearray(build_marker(producer_id, producer_epoch, coordinator_epoch, commit, 0)))

    def scan(self, from_offset):
        return iter([*self.batches])


class FakeCluster:
    def __init__(self):
        self.logs = [FakeLog(index) for index in range(PARTITIONS)]
        self.topics = {"__consumer_offsets": SimpleNamespace(partition_count=PARTITIONS)}
        self.on_topic_deleted = []

    def internal_partition_count(self, name):
        return self.topics[name].partition_count

    def partition(self, topic, index):
        return self.logs[index]

    async def get_or_open(self, topic, index):
        return self.logs[index]


class FakeClock:
    """Virtual time. `advance` runs the timers that are due. `wall_steps_ms` is the sum of all steps of the clock."""

    def __init__(self):
        self.ms = 0.0
        self.wall_steps_ms = 0
        self.enter = None
        self._timers = []
        self._next = []
        self._order = itertools.count()

    def now_ms(self):
        return 1_700_000_000_000 + int(self.ms) + self.wall_steps_ms

    def monotonic_ms(self):
        return self.ms

    def call_later(self, delay_ms, callback):
        timer = SimpleNamespace(callback=callback)
        timer.cancel = lambda: setattr(timer, "callback", None)
        heapq.heappush(self._timers, (self.ms + delay_ms, next(self._order), timer))
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

    def stall(self, ms, *arrived):
        """Stop the process for a while. Afterwards, timers run before the input that `arrived` in the sockets."""
        self.ms += ms
        while self._timers and self._timers[0][0] <= self.ms:
            callback = heapq.heappop(self._timers)[2].callback
            if callback is not None:
                self.enter(callback)
        self._next += arrived
        self.settle()

    def advance(self, ms=0.0):
        until = self.ms + ms
        self.settle()
        while self._timers and self._timers[0][0] <= until:
            self.ms, _, timer = heapq.heappop(self._timers)
            if timer.callback is not None:
                self.enter(timer.callback)
            self.settle()
        self.ms = until


class Rig:
    def __init__(self, **config):
        defaults = {
            "group_member_max_metadata_bytes": 1_000,
            "offset_metadata_max_bytes": 10,
            "offsets_retention_minutes": 100,
            "offsets_retention_check_interval_ms": CHECK_MS,
        }
        self.config = SimpleNamespace(**(dataclasses.asdict(Config()) | defaults | config))
        self.cluster, self.clock, self.bugs = FakeCluster(), FakeClock(), []
        self.drawn = itertools.count(1)
        self.restart()

    def restart(self, settle=True):
        """Start a new broker on the same logs. Nothing of the old one continues."""
        self.clock._timers.clear()
        self.clock._next.clear()
        self.cluster.on_topic_deleted.clear()
        self.turns = Turns(self.clock.next_turn, self.bugs.append)
        self.meter = ChargeMeter(self.turns, lambda *excess: self.bugs.append(excess))
        self.clock.enter = self.turns.event
        self.groups = GroupCoordinator(
            self.cluster, self.turns, self.clock, self.config, lambda: UUID(int=next(self.drawn))
        )
        self.turns.event(self.groups.open)
        if settle:
            self.clock.advance()
        return self

    @property
    def known(self):
        """Return every loaded group by its id."""
        return {each.group.group_id: each for each in self.groups._manager.groups()}

    def shard_of(self, group_id="g"):
        return self.groups._manager.shards[self.log_of(group_id).index]

    @property
    def commits(self):
        return self.groups.offsets

    def log_of(self, group_id="g"):
        return self.cluster.logs[coordinator_partition(group_id, PARTITIONS)]

    def group(self, group_id="g"):
        return self.known[group_id].group

    def begin(self, coroutine):
        """Run a request as an event. Return a list that gets its result. The list has the request's `activity`."""
        results = Results()

        def start():
            results.activity = self.turns.start(coroutine, results.append, self.bugs.append)

        self.turns.event(start)
        return results

    def join(self, member_id="", instance=None, *, group_id="g", protocols=RANGE, known_id=False, skip=True, **more):
        ask = JoinAsk(
            group_id,
            member_id,
            instance,
            more.get("client_id", "client"),
            "/127.0.0.1",
            Timeouts(more.get("rebalance_ms", 60_000), more.get("session_ms", 10_000)),
            more.get("protocol_type", "consumer"),
            protocols,
            known_id,
            skip,
        )
        return self.begin(self.groups.join(ask))

    def sync(self, reply, assignments=(), instance=None, protocol=(None, None), group_id="g"):
        caller = Caller(group_id, reply.generation, reply.member_id, instance)
        return self.begin(self.groups.sync(caller, protocol, assignments))

    def heartbeat(self, reply, instance=None):
        asked = self.groups.heartbeat(Caller("g", reply.generation, reply.member_id, instance))
        with pytest.raises(StopIteration) as done:
            asked.send(None)
        return done.value.value

    def leave(self, *who):
        (result,) = self.begin(self.groups.leave("g", who))
        return result

    def stable(self, count=1, instances=(), **more):
        """Return a stable group: the replies to JoinGroup, leader first."""
        instances = [*instances, *[None] * (count - len(instances))]
        waiting = []
        for instance in instances:
            waiting.append(self.join("", instance, **more))
        self.clock.advance()
        replies = [results[0] for results in waiting]
        replies.sort(key=lambda reply: reply.member_id != reply.leader)
        given = [(reply.member_id, reply.member_id.encode()) for reply in replies]
        for reply in reversed(replies):
            shares = given if reply.member_id == reply.leader else ()
            self.sync(reply, shares, group_id=more.get("group_id", "g"))
        return replies

    def finish(self, coroutine):
        """Return the result of a request that may take several turns, but does not wait for other requests."""
        results = self.begin(coroutine)
        self.clock.settle()
        (result,) = results
        return result

    def delete_group(self, group_id="g"):
        return self.finish(self.groups.deletion.delete_group(group_id))

    def delete_offsets(self, group_id, topics):
        return self.finish(self.groups.deletion.delete_offsets(group_id, topics))

    def mark(self, producer_id, commit=True, group_id="g"):
        return self.groups.complete_transaction(self.log_of(group_id), TransactionMarker(producer_id, 0, 0, commit, 1))


class Results(list):
    activity = None


@pytest.fixture
def rig():
    made = Rig()
    yield made
    assert made.bugs == []


@pytest.fixture
def make_rig():
    made = []

    def make(**config):
        made.append(Rig(**config))
        return made[-1]

    yield make
    for each in made:
        assert each.bugs == []


@pytest.fixture(scope="session")
def rig_class():
    return Rig
