"""A meter of the charged cost of each event: virtual time does not pass, so the charges are checked. free"""

from collections.abc import Callable
from typing import Final

from ottla.broker.turns import Turns

MOST_EVENT_US: Final = 20_000.0
"""The highest charge of one event: ten turn budgets, for the work of a loop between two checks of its budget, and for
the work that follows a handler in its turn."""


class ChargeMeter:
    """An `EventMeter` that calls `on_excess(what, cost_us)` for each event with a charge above `MOST_EVENT_US`."""

    __slots__ = ("_before_us", "_on_excess", "_turns", "most_us")

    def __init__(self, turns: Turns, on_excess: Callable[[str, float], None]) -> None:
        """Measure the events of these turns from now on."""
        self._turns = turns
        self._on_excess = on_excess
        self._before_us = 0.0
        self.most_us = 0.0
        """The highest charge of one event so far."""
        turns.meter = self

    def begin(self) -> None:
        self._before_us = self._turns.charged_us

    def end(self, work: Callable[[], None]) -> None:
        cost_us = self._turns.charged_us - self._before_us
        if cost_us > self.most_us:
            self.most_us = cost_us
        if cost_us > MOST_EVENT_US:
            self._on_excess(getattr(work, "__qualname__", repr(work)), cost_us)
