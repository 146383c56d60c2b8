"""Turns that tell what each event was charged: virtual time costs nothing, the ledger does. free"""

from collections.abc import Callable
from typing import Final

from ottla.broker.turns import Turns

MOST_EVENT_US: Final = 20_000.0
"""What one event may cost everybody else: ten shares, for what a loop does between two questions, and for the rest that
follows a handler in its turn."""


class ChargedTurns(Turns):
    """`on_excess(what, cost_us)` hears of every event that was charged more than `MOST_EVENT_US`."""

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
        """The dearest event so far."""

    def event(self, work: Callable[[], None]) -> None:
        if self._running:
            super().event(work)
            return
        before_us = self.charged_us
        super().event(work)
        cost_us = self.charged_us - before_us
        self.most_us = max(self.most_us, cost_us)
        if cost_us > MOST_EVENT_US:
            self._on_excess(getattr(work, "__qualname__", repr(work)), cost_us)

    def alone(self, work: Callable[[], None]) -> None:
        """An event while nobody is there who could wait."""
        super().event(work)
