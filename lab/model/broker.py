"""The broker's own coordinator, handlers and partitions, driven by the events of a model's trace. free

The model replaces the shell modules (`coordinator.py`, `markers.py`, `api/produce.py`); this module runs them. Requests
go through their handlers, the transaction log becomes durable one record at a time, and a marker reaches its partition
when the trace delivers it. Only the network and the disk are simulated.
"""

from collections import deque
from collections.abc import Callable, Iterator
from random import Random
from types import SimpleNamespace
from typing import Any, Final, NamedTuple

from lab.model.coordinator import FIRST_PRODUCER_ID
from lab.model.explore import Leaf
from lab.model.values import PLACES, TIMEOUT_MS, TRANSACTIONAL_ID, V2, Bounds, Kind, Marker, Request
from lab.model.world import Event, State, World, partition_of
from ottla.broker.api.table import TABLE
from ottla.broker.cluster.image import TRANSACTION_STATE_TOPIC
from ottla.broker.config import Config
from ottla.broker.dispatch import Dispatcher
from ottla.broker.log.log_config import LogConfig
from ottla.broker.log.log_loader import new_log
from ottla.broker.log.long_work import LongWork
from ottla.broker.log.partition import Partition
from ottla.broker.log.results import AppendResult, FetchIsolation
from ottla.broker.metrics import Metrics
from ottla.broker.ports.workers import DeferredWorkers
from ottla.broker.quotas.quotas import QuotaManagers
from ottla.broker.request_observer import RequestObserver
from ottla.broker.security.session import Session
from ottla.broker.turns import Turns
from ottla.broker.txn.coordinator import TransactionCoordinator
from ottla.broker.txn.log import encode_change
from ottla.broker.txn.settings import TransactionSettings
from ottla.broker.txn.values import NO_PENDING
from ottla.protocol.batch import COMMIT, build_batch, read_marker
from ottla.protocol.batch_header import BatchHeader, assign_offsets, iter_batches, read_header
from ottla.protocol.errors import ErrorCode
from ottla.protocol.requests import codec
from ottla.protocol.values import ProducerIdAndEpoch, TransactionMarker
from ottla.testkit.in_memory import wire
from ottla.testkit.in_memory.disk import MemoryDisk
from ottla.testkit.in_memory.ports import PortCalls

START_MS: Final = 1_700_000_000_000
NEVER_MS: Final = 10**12
ROUND_MS: Final = 2000
"""Longer than the longest back-off between two rounds of markers."""


class Content(NamedTuple):
    """State to compare: (status, producer id, epoch) of the id, its pending status, and each partition's batches."""

    state: tuple[int, int, int] | None
    pending: int | None
    logs: tuple[tuple[tuple[int, int, int], ...], ...]


class HeldLog:
    """A partition of the transaction log whose records become durable one by one."""

    def __init__(self) -> None:
        self.index = 0
        self.offline: str | None = None
        self.leader_epoch = 0
        self.log_start_offset = 0
        self.high_watermark = 0
        self._batches: list[tuple[BatchHeader, memoryview]] = []
        self._waiting: deque[tuple[int, Callable[[ErrorCode], None]]] = deque()

    def append_own(self, batch: bytearray) -> AppendResult:
        assign_offsets(batch, len(self._batches), self.leader_epoch)
        self._batches.append((read_header(batch), memoryview(bytes(batch))))
        return AppendResult(ErrorCode.NONE, len(self._batches) - 1, len(self._batches) - 1)

    def when_durable(self, offset: int, callback: Callable[[ErrorCode], None]) -> None:
        self._waiting.append((offset, callback))

    def scan(self, from_offset: int) -> Iterator[tuple[BatchHeader, memoryview]]:
        return iter(self._batches[from_offset:])

    def make_durable(self, count: int) -> None:
        """Make the next `count` records durable."""
        self.high_watermark += count
        while self._waiting and self._waiting[0][0] < self.high_watermark:
            self._waiting.popleft()[1](ErrorCode.NONE)

    def crash(self, kept: int) -> None:
        """Lose the records that are not durable, except the first `kept`, and start a new leader epoch."""
        self.high_watermark += kept
        del self._batches[self.high_watermark :]
        self._waiting.clear()
        self.leader_epoch += 1


class StillClock:
    """A clock whose time passes only by `advance` and by changes of `wall_ms`."""

    def __init__(self) -> None:
        self.wall_ms = START_MS
        self.enter: Callable[[Callable[[], None]], None] = _run
        self._mono_ms = 0.0
        self._timers: list[tuple[float, SimpleNamespace]] = []
        self._next: list[Callable[[], None]] = []

    def now_ms(self) -> int:
        return self.wall_ms

    def monotonic_ms(self) -> float:
        return self._mono_ms

    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> Any:
        timer = SimpleNamespace(callback=callback)
        timer.cancel = lambda: setattr(timer, "callback", _nothing)
        self._timers.append((self._mono_ms + delay_ms, timer))
        return timer

    def next_turn(self, callback: Callable[[], None]) -> None:
        self._next.append(callback)

    from_thread = next_turn

    def settle(self) -> None:
        while self._next:
            ready, self._next = self._next, []
            for callback in ready:
                self.enter(callback)

    def advance(self, delay_ms: float) -> None:
        """Advance the monotonic time and fire each due timer once. The wall clock does not change."""
        self._mono_ms += delay_ms
        due = [timer for at, timer in self._timers if at <= self._mono_ms]
        self._timers = [(at, timer) for at, timer in self._timers if at > self._mono_ms]
        for timer in due:
            self.enter(timer.callback)
            self.settle()

    def forget(self) -> None:
        self._timers.clear()
        self._next.clear()


class RealBroker:
    """The real coordinator with two partitions. For the coordinator it is also the cluster and the marker sink."""

    def __init__(self, bounds: Bounds) -> None:
        self.bounds = bounds
        self.clock = StillClock()
        self.log = HeldLog()
        self.topics = {
            name: SimpleNamespace(partition_count=n) for name, n in (("ledger", 2), (TRANSACTION_STATE_TOPIC, 1))
        }
        self.bugs: list[Exception] = []
        self._next_id = FIRST_PRODUCER_ID
        self._heard: set[int] = set()
        disk = MemoryDisk(PortCalls(), Random(0), _run)
        self.partitions = [self._partition(disk, index) for _topic, index in PLACES]
        if bounds.first_epoch >= 0:
            self._give_past(bounds.first_epoch)
        self._start()

    # --- called by the coordinator: the cluster and the leaders

    def partition(self, topic: str, index: int) -> Any:
        return self.log if topic == TRANSACTION_STATE_TOPIC else self.partitions[index]

    async def get_or_open(self, topic: str, index: int) -> Any:
        return self.partition(topic, index)

    def is_unopened(self, topic: str, index: int) -> bool:
        return False

    def has_partition(self, topic: str, index: int) -> bool:
        return (topic, index) in PLACES

    async def producer_ids(self) -> bool:
        """Return True: there is always a free producer id."""
        return True

    def next_producer_id(self) -> int:
        self._next_id += 1
        return self._next_id - 1

    def feature(self, name: str) -> int:
        return self.bounds.level

    def write_marker(self, topic: str, index: int, marker: TransactionMarker) -> ErrorCode:
        if index not in self._heard:
            return ErrorCode.REQUEST_TIMED_OUT
        self._heard.clear()
        return self.partitions[index].append_marker(marker).error

    @property
    def flushing(self) -> bool:
        return False

    def when_durable(self, topic: str, index: int, callback: Callable[[ErrorCode], None]) -> None:
        callback(ErrorCode.NONE)

    # --- events

    def play(self, event: Event) -> None:
        """Apply one event of a trace to the broker."""
        message = event.message
        if isinstance(message, Marker):
            self._mark(message, late=event.name.endswith("late"))
        elif isinstance(message, Request):
            self._serve(message)
        elif event.name == "durable":
            self._turn(lambda: self.log.make_durable(1))
        elif event.name == "crashes":
            self.coordinator.stop()
            self.clock.forget()
            self.log.crash(event.detail[0])
            self._start()
        elif event.name == "times out":
            self.clock.wall_ms += TIMEOUT_MS + 1
            self._turn(self._abort_timed_out)

    def content(self) -> Content:
        """Return the state to compare with the model's."""
        (shard,) = self.coordinator.shards()
        state = shard.states.get(TRANSACTIONAL_ID)
        pending = shard.transient.get(TRANSACTIONAL_ID, NO_PENDING).pending
        return Content(
            None if state is None else (state.status, state.producer_id, state.producer_epoch),
            None if pending is None else pending.status,
            tuple(tuple(_batches(partition)) for partition in self.partitions),
        )

    # --- parts

    def _partition(self, disk: MemoryDisk, index: int) -> Partition:
        directory, settings = f"/ledger-{index}", LogConfig()
        disk.make_dirs(directory)
        loaded = new_log(disk, directory, settings, 0, START_MS)
        return Partition("ledger", index, bytes(16), 0, settings, loaded=loaded, disk=disk, clock=self.clock)

    def _give_past(self, epoch: int) -> None:
        world = World(self.bounds)
        state = world.coordinators.known[world.coordinators.first()].state
        assert state is not None
        self.log.append_own(encode_change(TRANSACTIONAL_ID, state, self.bounds.level, START_MS))
        self.log.make_durable(1)
        self._next_id += 1

    def _start(self) -> None:
        turns = Turns(self.clock.next_turn, self.bugs.append)
        self.clock.enter = turns.event
        settings = TransactionSettings(abort_interval_ms=NEVER_MS, expire_interval_ms=NEVER_MS, markers_wait_ms=0)
        cluster: Any = self
        self.coordinator = TransactionCoordinator(cluster, self, turns, self.clock, settings)
        self._turns = turns
        broker: Any = SimpleNamespace(
            config=Config(), clock=self.clock, turns=turns, cluster=self, transactions=self.coordinator,
            long_work=LongWork(turns, DeferredWorkers(turns.next_turn), 1 << 20), topics_by_id={},
            metrics=Metrics(), events=None, observer=RequestObserver(), authorizer=None, may=lambda *_: True,
            quotas=QuotaManagers(turns, self.clock.monotonic_ms),
        )  # fmt: skip
        self._dispatcher = Dispatcher(broker, TABLE)
        self._turn(self.coordinator.start)

    def _turn(self, work: Callable[[], None]) -> None:
        self._turns.event(work)
        self.clock.settle()

    def _abort_timed_out(self) -> None:
        self.coordinator.states.abort_timed_out(TRANSACTIONAL_ID)

    def _serve(self, request: Request) -> None:
        """Run one request through its handler. A write that waits is discarded: the trace delivers it again."""
        ask = self._ask(request)
        frame = memoryview(bytearray(codec.encode_request(ask.message, ask.version, 1, "model")))[4:]
        activities: list[Any] = []

        def serve() -> None:
            activities.append(self._dispatcher.start(frame, Session(peer="peer"), _ignore, self._refused))

        self._turn(serve)
        activity = activities[0]
        if activity is not None and request.kind is Kind.PRODUCE:
            self._turn(activity.discard)

    def _refused(self, reason: str) -> None:
        self.bugs.append(AssertionError(reason))

    def _mark(self, marker: Marker, *, late: bool) -> None:
        if late:
            sent = TransactionMarker(
                marker.producer_id, marker.epoch, marker.coordinator_epoch, marker.commit, marker.version
            )
            self.partitions[marker.place].append_marker(sent)
            return
        self._heard = {marker.place}
        self._turn(lambda: self.clock.advance(ROUND_MS))
        if self._heard:
            self.bugs.append(AssertionError(f"nobody sent {marker}"))

    def _ask(self, request: Request) -> wire.Ask:
        generation = wire.V2 if self.bounds.generations[request.client] == V2 else wire.V1
        producer = ProducerIdAndEpoch(request.producer_id, request.epoch)
        if request.kind is Kind.INIT:
            return wire.init_producer_id(TRANSACTIONAL_ID, TIMEOUT_MS, *producer)
        if request.kind is Kind.ADD:
            return wire.add_partitions(TRANSACTIONAL_ID, producer, PLACES)
        if request.kind is Kind.END:
            return wire.end_txn(generation, TRANSACTIONAL_ID, producer, request.commit)
        batch = build_batch(
            [(None, b"10")], timestamp_ms=START_MS, producer_id=request.producer_id, producer_epoch=request.epoch,
            base_sequence=request.sequence, transactional=True,
        )  # fmt: skip
        return wire.produce(generation, TRANSACTIONAL_ID, *PLACES[request.place], bytes(batch))


def expected(world: World, state: State) -> Content:
    """Return the content of a state of the model."""
    coordinator = world.coordinators.known[state[0]]
    last, pending = coordinator.state, coordinator.transient.pending
    logs = tuple(world.partitions.known[partition_of(state, place)].log for place in (0, 1))
    return Content(
        None if last is None else (last.status, last.producer_id, last.producer_epoch),
        None if pending is None else pending.status,
        tuple(
            tuple((e.producer_id, e.epoch, _marker_number(e.commit) if e.is_marker else e.sequence) for e in log)
            for log in logs
        ),
    )


def difference(world: World, leaf: Leaf) -> str | None:
    """Play a trace on the broker. Return the first step after which it differs from the model, or None."""
    broker = RealBroker(world.bounds)
    for number, (event, state) in enumerate(leaf.steps):
        broker.play(event)
        if broker.bugs:
            return f"step {number}, {leaf.trace[number]}: {broker.bugs[0]!r}"
        found, wanted = broker.content(), expected(world, state)
        if found != wanted:
            return f"step {number}, {leaf.trace[number]}: the broker has {found}, the model {wanted}"
    return None


def _batches(partition: Partition) -> Iterator[tuple[int, int, int]]:
    data = partition.read(0, 1 << 20, isolation=FetchIsolation.LOG_END).records
    assert isinstance(data, bytes)
    for position, header in iter_batches(memoryview(data)):
        marker = read_marker(data, header, position) if header.is_control else None
        number = header.base_sequence if marker is None else _marker_number(marker.control_type == COMMIT)
        yield header.producer_id, header.producer_epoch, number


def _marker_number(commit: bool) -> int:
    """Return the number that stands in the place of a marker's sequence."""
    return -2 if commit else -3


def _run(work: Callable[[], None]) -> None:
    work()


def _nothing() -> None:
    """Do nothing: the callback of a cancelled timer."""


def _ignore(buffers: object, _room: object = None) -> None:
    """Ignore a reply."""
