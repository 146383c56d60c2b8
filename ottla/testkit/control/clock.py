"""A clock that tests can stop and advance. shell

The wall clock and the monotonic clock of the broker move together, and so do all timers. A move is a jump, as when a
machine wakes from sleep: each timer that became due runs once, in the order of the due times, at the new time. Timers
that these start count from the new time.
"""

from collections.abc import Callable
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count
from typing import Final

from ottla.broker.ports.clock import Clock, Timer

MOST_AHEAD_MS: Final = 100 * 365 * 86_400_000.0


class _Timer:
    __slots__ = ("callback",)

    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        self.callback = None


@dataclass(slots=True)
class _Frozen:
    wall_ms: int
    monotonic_ms: float


class MovableClock:
    """The `Clock` port, based on another clock."""

    __slots__ = ("_ahead_ms", "_alarm", "_due", "_frozen", "_numbers", "_real", "_wall_ahead_ms")

    def __init__(self, real: Clock) -> None:
        self._real = real
        self._ahead_ms = 0.0
        self._wall_ahead_ms = 0.0
        self._frozen: _Frozen | None = None
        self._due: list[tuple[float, int, _Timer]] = []
        self._numbers = count()
        self._alarm: tuple[float, Timer] | None = None

    def now_ms(self) -> int:
        if self._frozen is not None:
            return self._frozen.wall_ms
        return self._real.now_ms() + int(self._wall_ahead_ms)

    def monotonic_ms(self) -> float:
        if self._frozen is not None:
            return self._frozen.monotonic_ms
        return self._real.monotonic_ms() + self._ahead_ms

    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> Timer:
        timer = _Timer(callback)
        heappush(self._due, (self.monotonic_ms() + max(0.0, delay_ms), next(self._numbers), timer))
        self._arm()
        return timer

    def next_turn(self, callback: Callable[[], None]) -> None:
        self._real.next_turn(callback)

    def from_thread(self, callback: Callable[[], None]) -> None:
        self._real.from_thread(callback)

    @property
    def frozen(self) -> bool:
        """Return whether the clock is stopped."""
        return self._frozen is not None

    @property
    def ahead_ms(self) -> int:
        """Milliseconds between this wall clock and the machine's; negative after the clock was stopped."""
        return self.now_ms() - self._real.now_ms()

    def advance(self, by_ms: float) -> int:
        """Advance the clock; return the number of timers now due. Each runs soon, in a turn of its own."""
        if self._frozen is not None:
            self._frozen.wall_ms += int(by_ms)
            self._frozen.monotonic_ms += by_ms
        else:
            self._ahead_ms += by_ms
            self._wall_ahead_ms += by_ms
        return self._run_due()

    def freeze(self) -> None:
        """Stop the clock: no timer becomes due until `advance` or `resume`."""
        if self._frozen is None:
            self._frozen = _Frozen(self.now_ms(), self.monotonic_ms())
            self._disarm()

    def resume(self) -> None:
        """Start a stopped clock again, from its current time."""
        if self._frozen is not None:
            frozen, self._frozen = self._frozen, None
            self._wall_ahead_ms = frozen.wall_ms - self._real.now_ms()
            self._ahead_ms = frozen.monotonic_ms - self._real.monotonic_ms()
            self._arm()

    def reset(self) -> None:
        """Set the wall clock to the machine's time. The monotonic clock cannot go back, so it stays ahead."""
        self.resume()
        self._wall_ahead_ms = 0.0

    def _arm(self) -> None:
        """Set a timer of the real clock for the first timer that is due."""
        while self._due and self._due[0][2].callback is None:
            heappop(self._due)
        if not self._due or self._frozen is not None:
            return
        first_ms = self._due[0][0]
        if self._alarm is not None:
            if self._alarm[0] <= first_ms:
                return
            self._alarm[1].cancel()
        self._alarm = first_ms, self._real.call_later(max(0.0, first_ms - self.monotonic_ms()), self._ring)

    def _disarm(self) -> None:
        if self._alarm is not None:
            self._alarm[1].cancel()
            self._alarm = None

    def _ring(self) -> None:
        self._alarm = None
        self._run_due()

    def _run_due(self) -> int:
        now_ms, ran = self.monotonic_ms(), 0
        while self._due and self._due[0][0] <= now_ms:
            timer = heappop(self._due)[2]
            if timer.callback is not None:
                self._real.next_turn(_once(timer))
                ran += 1
        self._disarm()
        self._arm()
        return ran


def _once(timer: _Timer) -> Callable[[], None]:
    """Return a function that runs the timer if it is not cancelled by then."""

    def run() -> None:
        callback, timer.callback = timer.callback, None
        if callback is not None:
            callback()

    return run
