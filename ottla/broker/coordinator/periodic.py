"""A scan that comes again and again, in shares and never on a request's path. shell"""

import logging
from collections.abc import Callable

from ottla.broker.deadline import Deadline
from ottla.broker.ports.clock import Clock
from ottla.broker.turns import Activity, Handler, Turns

log = logging.getLogger(__name__)


class Periodic:
    """`scan`, `interval_ms` after the start and after each of its ends. One that breaks is not the last."""

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
        """Begin to wait for the first."""
        if not self._stopped:
            self._timer = Deadline(self._clock, self._turns, self._interval_ms, self.run)

    def stop(self) -> None:
        """Take the timer back; a scan that is under way ends where it is."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
        if self._activity is not None:
            self._activity.discard()

    def run(self) -> None:
        """Scan once."""
        self._activity = self._turns.start(self.scan(), lambda _none: self.start(), self._failed)

    def _failed(self, error: Exception) -> None:
        log.error("The scan for %s failed; the next one comes as planned", self._name, exc_info=error)
        self.start()
