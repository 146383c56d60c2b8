"""Wrappers that the simulation puts between two parts of the broker. free"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from typing import TYPE_CHECKING, Any, Final

from lab.simulation import promises
from ottla.broker.api.context import Broker
from ottla.broker.api.table import TABLE
from ottla.broker.assembly import Assembly
from ottla.broker.dispatch import Dispatcher
from ottla.broker.ports.clock import Clock
from ottla.broker.ports.peers import MemoryPeers
from ottla.broker.ports.workers import DeferredWorkers, Job, OnEnd
from ottla.broker.security.session import Session
from ottla.broker.turns import Activity
from ottla.protocol.errors import ErrorCode
from ottla.protocol.internal_topics.metadata_records import NO_LEADER
from ottla.protocol.values import TransactionMarker

if TYPE_CHECKING:
    from lab.simulation.world import World

MARKER_ERRORS: Final = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
)
LATEST_MARKER_MS: Final = 3000.0
PEER_MS: Final = 3.0
"""The longest time of a message between two brokers that is not stalled."""
PEER_STALL: Final = 0.04
PEER_STALL_MS: Final = 1000.0


def report_requests(broker: Broker, world: "World") -> Dispatcher:
    """Return a dispatcher of the broker whose requests are reported to the world before they are served."""
    dispatcher = Dispatcher(broker, TABLE)

    def start(frame: memoryview, session: Session, *rest: Any) -> Activity[Any] | None:
        if world.assembly is not None:
            world.causes.mark_late(broker, frame, session.peer)
        return dispatcher.start(frame, session, *rest)

    dispatcher.steered_by = start
    return dispatcher


class PeerLink:
    """The link from a coordinator to the leaders of partitions, as if these were other brokers.

    At times leaders refuse markers or their answers are lost. Some markers are lost or arrive again seconds later.
    """

    def __init__(self, broker: Broker, world: "World") -> None:
        sink: Any = broker.transactions.sink
        self._deliver = sink.write_marker
        self._world = world
        sink.write_marker = self.write_marker

    def write_marker(self, topic: str, index: int, marker: TransactionMarker) -> ErrorCode:
        world, faults = self._world, self._world.faults
        world.violations.extend(promises.of_marker(world, marker))
        if faults.bad_markers > 0:
            faults.bad_markers -= 1
            if world.random.random() < 0.5:
                self._deliver(topic, index, marker)
            return world.random.choice(MARKER_ERRORS)
        loss = world.profile.lost_markers
        if not loss or world.resting or faults.random.random() >= loss:
            return self._deliver(topic, index, marker)  # type: ignore[no-any-return]
        world.note("marker lost", b"")
        what = faults.random.random()
        world.met["marker replies lost" if what < 0.4 else "marker requests lost"] += 1
        if what < 0.4:
            self._deliver(topic, index, marker)
        elif what < 0.7:  # the request is late: it was sent again before it arrives
            delay_ms = faults.random.random() ** 2 * LATEST_MARKER_MS
            world.schedule.after(delay_ms, lambda: self._arrive_late(topic, index, marker))
        return ErrorCode.REQUEST_TIMED_OUT

    def _arrive_late(self, topic: str, index: int, marker: TransactionMarker) -> None:
        world, assembly = self._world, self._world.assembly
        if assembly is None or assembly.broker.logs.offline is not None:
            return  # the leader is down
        world.note("late marker", b"")
        world.met["late markers"] += 1
        leader, _ = assembly.broker.cluster.leader_of(topic, index)
        if leader == NO_LEADER:
            return
        # It has crossed its link. Over another one it might arrive in a transaction that `causes` has not seen.
        world.causes.on_delivered(assembly, topic, index, marker)
        receiver = world.peers[leader - world.first_id]
        world.run_in_turn(lambda: receiver.receive(topic, index, marker))

    def receive(self, topic: str, index: int, marker: TransactionMarker) -> None:
        """Deliver a marker and ignore its answer."""
        self._deliver(topic, index, marker)


class SlowPeers(MemoryPeers):
    """Connections between brokers. Their bytes take a random time, in order in each direction."""

    def __init__(self, world: "World", clock: Clock, random: Random) -> None:
        super().__init__(self._direction, self._accept_peer)
        self._world = world
        self._clock = clock
        self._random = random
        self._ends: list[asyncio.Protocol] = []

    def connect(self, node_id: int, end: asyncio.Protocol) -> None:
        self._ends.append(end)
        super().connect(node_id, end)

    def reset_one(self) -> None:
        """End a random connection; what is on its way arrives before, if it is faster than the reset."""
        transports = [getattr(end, "transport", None) for end in self._ends]
        open_ones = [each for each in transports if each is not None and not each.is_closing()]
        if open_ones:
            self._world.met["connections between brokers reset"] += 1
            self._random.choice(open_ones).abort()

    def _accept_peer(self, node_id: int) -> asyncio.BufferedProtocol | None:
        assembly = self._world.assembly
        return None if assembly is None else assembly.accept_peer(node_id)

    def _direction(self) -> Callable[[Callable[[], None]], None]:
        not_before_ms = 0.0
        schedule = self._world.schedule

        def deliver(work: Callable[[], None]) -> None:
            nonlocal not_before_ms
            not_before_ms = max(not_before_ms, schedule.now_ms + self._draw_ms())
            schedule.at(not_before_ms, lambda: self._clock.next_turn(work))

        return deliver

    def _draw_ms(self) -> float:
        if not self._world.resting and self._random.random() < PEER_STALL:
            self._world.met["messages between brokers stalled"] += 1
            return self._random.random() * PEER_STALL_MS
        return self._random.random() ** 2 * PEER_MS


class CountedWorkers(DeferredWorkers):
    """Workers that run every call, however short, and end it after a delay. `met` counts the calls."""

    __slots__ = ("_met",)

    def __init__(self, defer: Callable[[Callable[[], None]], None], clock: Clock, met: Counter[str]) -> None:
        super().__init__(lambda work: defer(lambda: clock.from_thread(work)), least_us=-1.0)
        self._met = met

    def start(self, call: Callable[[], Any], on_end: OnEnd, *, slow: bool) -> Job:
        self._met["calls of workers"] += 1
        return _CountedJob(super().start(call, on_end, slow=slow), self._met)


class _CountedJob:
    __slots__ = ("_job", "_met")

    def __init__(self, job: Job, met: Counter[str]) -> None:
        self._job = job
        self._met = met

    def cancel(self) -> bool:
        self._met["calls of workers given up"] += 1
        return self._job.cancel()


def count_forgotten(assembly: Assembly, met: Counter[str]) -> None:
    """Count the producers that partitions remove. Call it before housekeeping starts."""
    watched: Any = assembly
    expire = watched._expire_producers

    def expire_and_count() -> None:
        before = _known_producers(assembly)
        expire()
        met["producers forgotten"] += before - _known_producers(assembly)

    watched._expire_producers = expire_and_count


def _known_producers(assembly: Assembly) -> int:
    return sum(1 for partition in assembly.broker.cluster.partitions() for _ in partition.producers())


class ErrorLog(logging.Handler):
    """A log handler that reports each error in the broker's log."""

    def __init__(self, complained: Callable[[str], None]) -> None:
        super().__init__(logging.ERROR)
        self._complained = complained

    @contextmanager
    def watch(self) -> Iterator[None]:
        """Report errors to this handler alone."""
        logger = logging.getLogger("ottla")
        propagate, level = logger.propagate, logger.level
        logger.addHandler(self)
        logger.propagate = False
        logger.setLevel(logging.ERROR)
        try:
            yield
        finally:
            logger.removeHandler(self)
            logger.propagate = propagate
            logger.setLevel(level)

    def emit(self, record: logging.LogRecord) -> None:
        self._complained(record.getMessage())
