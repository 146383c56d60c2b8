"""The time port: wall clock, monotonic clock, timers. shell"""

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol


class Timer(Protocol):
    """A pending call."""

    def cancel(self) -> None:
        """Cancel the call; no effect if it has run."""


class Clock(Protocol):
    """The broker's only access to time. Every callback runs as an event in a turn of its own."""

    def now_ms(self) -> int:
        """Return the wall-clock time in milliseconds since 1970 (record timestamps, transaction starts)."""

    def monotonic_ms(self) -> float:
        """Return milliseconds of a clock that never goes backwards (budgets, intervals)."""

    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> Timer:
        """Run `callback` once after `delay_ms`."""

    def next_turn(self, callback: Callable[[], None]) -> None:
        """Run `callback` as the next event."""

    def from_thread(self, callback: Callable[[], None]) -> None:
        """Run `callback` as an event soon; the only method that another thread may call."""


class LoopClock:
    """The real clock, on an asyncio event loop. `enter` is `Turns.event` of the broker that it serves."""

    __slots__ = ("_loop", "enter")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.enter: Callable[[Callable[[], None]], None] = _fail_without_broker

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> float:
        return time.monotonic_ns() / 1_000_000

    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> Timer:
        return self._loop.call_later(delay_ms / 1000, self.enter, callback)

    def next_turn(self, callback: Callable[[], None]) -> None:
        self._loop.call_soon(self.enter, callback)

    def from_thread(self, callback: Callable[[], None]) -> None:
        with suppress(RuntimeError):  # the loop is closed, so no caller waits any more
            self._loop.call_soon_threadsafe(self.enter, callback)


def _fail_without_broker(callback: Callable[[], None]) -> None:
    raise RuntimeError("the clock is not connected to a broker's turns yet")
