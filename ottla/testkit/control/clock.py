"""A clock that tests move: it can stand still, and be seven days ahead in one call. shell

Both of the broker's clocks, the one on the wall and the one that never goes back, are moved at once, and every timer
with them. A move is a jump, as when a machine wakes from sleep: all that became due meanwhile runs once, in the order
in which it was due, with the new time on the clock. What that starts anew is due from then on.
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
    """The clock port over another clock."""

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
        """Whether time stands still."""
        return self._frozen is not None

    @property
    def ahead_ms(self) -> int:
        """How far the wall clock is ahead of the machine's; below 0 when time stood still."""
        return self.now_ms() - self._real.now_ms()

    def advance(self, by_ms: float) -> int:
        """Jump; how many timers that made due. They run as events of their own, soon."""
        if self._frozen is not None:
            self._frozen.wall_ms += int(by_ms)
            self._frozen.monotonic_ms += by_ms
        else:
            self._ahead_ms += by_ms
            self._wall_ahead_ms += by_ms
        return self._run_due()

    def freeze(self) -> None:
        """Let time stand still: no timer is due until it is advanced or resumed."""
        if self._frozen is None:
            self._frozen = _Frozen(self.now_ms(), self.monotonic_ms())
            self._disarm()

    def resume(self) -> None:
        """Let time go on from where it stands."""
        if self._frozen is not None:
            frozen, self._frozen = self._frozen, None
            self._wall_ahead_ms = frozen.wall_ms - self._real.now_ms()
            self._ahead_ms = frozen.monotonic_ms - self._real.monotonic_ms()
            self._arm()

    def reset(self) -> None:
        """The time of the machine again. The clock of timers only ever goes forward, so it stays where it is."""
        self.resume()
        self._wall_ahead_ms = 0.0

    def _arm(self) -> None:
        """Have the real clock call when the first timer is due."""
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
    """What runs a timer unless it is cancelled before its turn comes."""

    def run() -> None:
        callback, timer.callback = timer.callback, None
        if callback is not None:
            callback()

    return run
