"""`Deadline`: a timer that reads the sockets before it fires. `sleep`: a delay for handlers. pure"""

from collections.abc import Callable

from ottla.broker.ports.clock import Clock, Timer
from ottla.broker.turns import Turns, Wait


class Deadline:
    """A timer. `work` runs after `delay_ms` or later, and after the input that had arrived by then
    (`Turns.run_after_input`)."""

    __slots__ = ("_timer", "_turns", "_work")

    def __init__(self, clock: Clock, turns: Turns, delay_ms: float, work: Callable[[], None]) -> None:
        self._turns = turns
        self._work: Callable[[], None] | None = work
        self._timer: Timer | None = clock.call_later(delay_ms, self._is_due)

    def cancel(self) -> None:
        """Cancel the call, also while the sockets are read. Does nothing if the call has run."""
        self._work = None
        if self._timer is not None:
            self._timer.cancel()

    def _is_due(self) -> None:
        self._timer = None  # it refers to this, and both would stay until a garbage collection
        self._turns.run_after_input(self._run)

    def _run(self) -> None:
        work, self._work = self._work, None
        if work is not None:
            work()


async def sleep(turns: Turns, clock: Clock, delay_ms: float) -> None:
    """Suspend a handler for `delay_ms`. If the handler is discarded, the timer is cancelled."""
    wait: Wait[None] = Wait(turns)
    wait.on_discard = clock.call_later(delay_ms, lambda: wait.wake(None)).cancel
    await wait
