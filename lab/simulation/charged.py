"""Turns that report the charged cost of each event: virtual time does not pass, so the charges are checked. free"""

from collections.abc import Callable
from typing import Final

from ottla.broker.turns import Turns

MOST_EVENT_US: Final = 20_000.0
"""The highest charge of one event: ten turn budgets, for the work of a loop between two checks of its budget, and for
the work that follows a handler in its turn."""


class ChargedTurns(Turns):
    """Turns that call `on_excess(what, cost_us)` for each event that was charged more than `MOST_EVENT_US`."""

    __slots__ = ("_on_excess", "most_us")

    def __init__(
        self,
        next_turn: Callable[[Callable[[], None]], None],
        on_bug: Callable[[Exception], None],
        on_excess: Callable[[str, float], None],
    ) -> None:
        super().__init__(next_turn, on_bug)
        self._on_excess = on_excess
        self.most_us = 0.0
        """The highest charge of one event so far."""

    def event(self, work: Callable[[], None]) -> None:
        if self._running:
            super().event(work)
            return
        before_us = self.charged_us
        super().event(work)
        cost_us = self.charged_us - before_us
        if cost_us > self.most_us:
            self.most_us = cost_us
        if cost_us > MOST_EVENT_US:
            self._on_excess(getattr(work, "__qualname__", repr(work)), cost_us)

    def alone(self, work: Callable[[], None]) -> None:
        """Run an event without a limit: no client is connected yet that could wait."""
        super().event(work)
