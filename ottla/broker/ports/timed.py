"""System calls that are charged with their measured duration, which depends on the machine. shell"""

import time
from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")
Self = TypeVar("Self", bound="Timed")


def ignore_cost(cost_us: float) -> None:
    """Ignore the cost: no client waits for the event loop of a tool, or of a broker that is being assembled."""


class Timed:
    """Base class of ports with methods that `charge_duration` decorates; `charge` adds microseconds to the turn."""

    __slots__ = ("charge", "now_ns")

    def __init__(self) -> None:
        self.charge: Callable[[float], None] = ignore_cost
        self.now_ns: Callable[[], int] = time.monotonic_ns

    def charge_since(self, began_ns: int, cost_us: float) -> None:
        """Charge a call for the time since it began, and at least `cost_us`."""
        self.charge(max(cost_us, (self.now_ns() - began_ns) / 1_000))


def charge_duration(
    cost_us: float, included: bool = False
) -> Callable[[Callable[Concatenate[Self, P], R]], Callable[Concatenate[Self, P], R]]:
    """Decorate a method: charge its duration, and at least `cost_us`, also if it raises.

    `included`: the caller's costs contain `cost_us`, so charge only a duration above it.
    """

    def decorate(call: Callable[Concatenate[Self, P], R]) -> Callable[Concatenate[Self, P], R]:
        @wraps(call)
        def call_and_charge(self: Self, /, *arguments: P.args, **options: P.kwargs) -> R:
            began_ns = self.now_ns()
            try:
                return call(self, *arguments, **options)
            finally:
                took_us = (self.now_ns() - began_ns) / 1_000
                if took_us > cost_us or not included:
                    self.charge(max(cost_us, took_us))

        return call_and_charge

    return decorate
