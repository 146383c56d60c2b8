"""A broker with an in-memory disk and virtual time, and a client that waits for each reply. free"""

from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from ottla.broker.assembly import Assembly
from ottla.broker.config import Config
from ottla.broker.log.partition import Partition
from ottla.broker.ports.disk import Disk
from ottla.broker.security.session import Session
from ottla.broker.turns import Turns
from ottla.protocol.requests import codec
from ottla.testkit.in_memory.ports import PortCalls
from ottla.testkit.in_memory.schedule import Schedule, VirtualClock
from ottla.testkit.in_memory.wire import Request

R = TypeVar("R")

TIMEOUT_MS: Final = 20_000.0


class NoAnswer(Exception):
    """The broker closed the connection, or did not answer in time."""


class BrokerInMemory:
    """A broker from start to stop. `bugs` are unexpected exceptions."""

    def __init__(
        self, disk: Disk, ports: PortCalls, schedule: Schedule, config: Config, *, frozen: bool = False
    ) -> None:
        """Raise the broker's error if it cannot start."""
        self.schedule = schedule
        self.bugs: list[Exception] = []
        self._correlation_id = 0
        self.clock = VirtualClock(schedule, ports, 0.0, _run)
        turns = Turns(self.clock.next_turn, self.bugs.append)
        self.clock.enter = turns.event
        self._turns = turns
        self.assembly = Assembly(config, self.clock, disk, turns, frozen=frozen)

    def partitions(self) -> list[Partition]:
        """All partitions. After a clean stop they are opened on demand."""
        cluster = self.assembly.broker.cluster
        found = [
            cluster.partition(topic.name, index)
            for topic in cluster.topics.values()
            for index in range(topic.partition_count)
        ]
        return [partition for partition in found if partition is not None]

    def call(self, request: Request) -> Any:
        """Send a request and return the reply. Raises NoAnswer."""
        replies: list[Any] = []
        self.call_all([request], lambda _at, reply: replies.append(reply))
        return replies[0]

    def call_all(
        self,
        requests: Sequence[Request],
        on_reply: Callable[[int, Any], None],
        meanwhile: Callable[[], object] | None = None,
    ) -> None:
        """Send requests at once, and pass the number and reply of each to the callback. Raises NoAnswer.

        `meanwhile` is broker code that runs before the replies arrive.
        """
        waiting = set(range(len(requests)))
        refusals: list[str] = []

        def receive(at: int, buffers: Any) -> None:
            data = b"".join(bytes(buffer) for buffer in buffers)
            waiting.discard(at)
            on_reply(at, codec.decode_response(requests[at].api_key, requests[at].version, data[4:])[1])

        for at, request in enumerate(requests):
            self._correlation_id += 1
            frame = memoryview(bytearray(request.frame(self._correlation_id, "script")))[4:]
            self._turns.event(partial(self._start, frame, partial(receive, at), refusals.append))
        if meanwhile is not None:
            self.run_in_turn(meanwhile)
        self._run_until(lambda: bool(refusals) or not waiting)
        if waiting:
            raise NoAnswer(refusals[0] if refusals else "silence")

    def _start(self, frame: memoryview, send: Callable[[Any], None], refuse: Callable[[str], None]) -> None:
        self.assembly.dispatchers[0].start(frame, Session(peer="script"), lambda parts, _room: send(parts), refuse)

    def complete(self, work: Coroutine[Any, Any, R]) -> R:
        """Run a handler of the broker to its end, and return its result. Raises NoAnswer."""
        results: list[R] = []
        self.run_in_turn(lambda: self._turns.start(work, results.append, self.bugs.append))
        self._run_until(lambda: bool(results or self.bugs))
        if not results:
            raise NoAnswer("the handler did not end")
        return results[0]

    def run_in_turn(self, work: Callable[[], object]) -> None:
        """Run broker code in a turn of its own."""
        self._turns.event(lambda: _ignore(work()))

    def advance(self, for_ms: float) -> None:
        """Advance the virtual time."""
        until_ms = self.schedule.now_ms + for_ms
        self.schedule.at(until_ms, _nothing)
        self._run_until(lambda: self.schedule.now_ms >= until_ms, for_ms)

    def stop(self) -> None:
        """Stop the broker cleanly."""
        self._run_until(lambda: not self.assembly.broker.logs.flusher.busy)
        self.assembly.close()
        self.clock.alive = False

    def kill(self) -> None:
        """End the broker as a killed process."""
        self.clock.alive = False

    def _run_until(self, done: Callable[[], bool], timeout_ms: float = TIMEOUT_MS) -> None:
        deadline_ms = self.schedule.now_ms + timeout_ms
        while not done() and self.schedule.now_ms <= deadline_ms and self.schedule.run_next():
            pass


def _run(work: Callable[[], None]) -> None:
    work()


def _ignore(result: object) -> None:
    """Ignore the result."""


def _nothing() -> None:
    """Do nothing: an event that only advances the time."""
