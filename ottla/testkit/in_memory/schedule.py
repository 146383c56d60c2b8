"""Events on virtual time, and the broker's clock. pure"""

from collections.abc import Callable
from functools import partial
from heapq import heappop, heappush
from typing import Final

from ottla.testkit.in_memory.ports import PortCalls

START_MS: Final = 1_700_000_000_000
"""Wall time at the start of every run, in ms."""


class Event:
    """A planned event; `cancel` removes it."""

    __slots__ = ("cancelled", "work")

    def __init__(self, work: Callable[[], None]) -> None:
        self.work = work
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class Schedule:
    """Events in order of their time. Events of one time are in the order in which they were planned."""

    __slots__ = ("_count", "_heap", "now_ms")

    def __init__(self) -> None:
        self.now_ms = 0.0
        self._heap: list[tuple[float, int, Event]] = []
        self._count = 0

    def after(self, delay_ms: float, work: Callable[[], None]) -> Event:
        return self.at(self.now_ms + delay_ms, work)

    def at(self, due_ms: float, work: Callable[[], None]) -> Event:
        event = Event(work)
        self._count += 1
        heappush(self._heap, (due_ms, self._count, event))
        return event

    def run_next(self) -> bool:
        """Run the earliest event; False when there is none left."""
        while self._heap:
            due_ms, _count, event = heappop(self._heap)
            if event.cancelled:
                continue
            if due_ms > self.now_ms:
                self.now_ms = due_ms
            event.work()
            return True
        return False


class VirtualClock:
    """The broker's clock for one run of the broker. Its timers do not fire once `alive` is False.

    With `call_ms` above 0, each read of the clock takes this long, so that work sliced by time is sliced often.
    """

    __slots__ = ("_ports", "_schedule", "alive", "call_ms", "enter", "guard")

    def __init__(
        self, schedule: Schedule, ports: PortCalls, call_ms: float, guard: Callable[[Callable[[], None]], None]
    ) -> None:
        self._schedule = schedule
        self._ports = ports
        self.call_ms = call_ms
        self.alive = True
        self.guard = guard
        self.enter: Callable[[Callable[[], None]], None] = _raise_unconnected

    def now_ms(self) -> int:
        return START_MS + int(self._schedule.now_ms)

    def monotonic_ms(self) -> float:
        self._schedule.now_ms += self.call_ms
        return self._schedule.now_ms

    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> Event:
        return self._schedule.after(delay_ms, partial(self._fire, "timer", callback))

    def from_thread(self, callback: Callable[[], None]) -> None:
        """Run the callback of a thread. The simulation calls this in a separate event."""
        self._fire("thread", callback)

    def next_turn(self, callback: Callable[[], None]) -> None:
        self._schedule.after(0.0, partial(self._fire, "turn", callback))

    def _fire(self, name: str, callback: Callable[[], None]) -> None:
        if self.alive:
            self.guard(partial(self._enter, name, callback))

    def _enter(self, name: str, callback: Callable[[], None]) -> None:
        self._ports.call(name)
        self.enter(callback)
        self._ports.call(name)


def _raise_unconnected(callback: Callable[[], None]) -> None:
    raise RuntimeError("the clock is not connected to a broker's turns yet")
