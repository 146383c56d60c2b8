"""A scan that runs periodically, in turns of its own, never as part of a request. shell"""

import logging
from collections.abc import Callable

from ottla.broker.deadline import Deadline
from ottla.broker.ports.clock import Clock
from ottla.broker.turns import Activity, Handler, Turns

log = logging.getLogger(__name__)


class Periodic:
    """A timer that runs `scan` `interval_ms` after `start` and after the end of each scan, also of one that failed."""

    def __init__(
        self, name: str, interval_ms: float, scan: Callable[[], Handler[None]], turns: Turns, clock: Clock
    ) -> None:
        self._name = name
        self._interval_ms = interval_ms
        self.scan = scan
        self._turns = turns
        self._clock = clock
        self._timer: Deadline | None = None
        self._activity: Activity[None] | None = None
        self._stopped = False

    def start(self) -> None:
        """Start the timer of the next scan."""
        if not self._stopped:
            self._timer = Deadline(self._clock, self._turns, self._interval_ms, self.run)

    def stop(self) -> None:
        """Cancel the timer, and a scan in progress."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
        if self._activity is not None:
            self._activity.discard()

    def run(self) -> None:
        """Run one scan, then start the timer again."""
        self._activity = self._turns.start(self.scan(), lambda _none: self.start(), self._restart_after_error)

    def _restart_after_error(self, error: Exception) -> None:
        log.error("The scan for %s failed; the next scan starts at its usual time", self._name, exc_info=error)
        self.start()
