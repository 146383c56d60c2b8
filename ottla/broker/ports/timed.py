"""Calls of the system that are charged for what they took: how long they need only the machine knows. shell"""

import time
from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")
Self = TypeVar("Self", bound="Timed")


def charge_nobody(cost_us: float) -> None:
    """Nobody waits for the loop: a tool, or a broker that is being put together."""


class Timed:
    """What makes such calls; `charge` enters microseconds in the ledger."""

    __slots__ = ("charge", "now_ns")

    def __init__(self) -> None:
        self.charge: Callable[[float], None] = charge_nobody
        self.now_ns: Callable[[], int] = time.monotonic_ns

    def charge_since(self, began_ns: int, cost_us: float) -> None:
        """Charge a call for the time since it began, and at least `cost_us`."""
        self.charge(max(cost_us, (self.now_ns() - began_ns) / 1_000))


def timed(
    cost_us: float, included: bool = False
) -> Callable[[Callable[Concatenate[Self, P], R]], Callable[Concatenate[Self, P], R]]:
    """Charge a method for what it took, and at least `cost_us`, also if it fails.

    What is `included` in the costs of what it is a part of is charged only if it took longer than `cost_us`.
    """

    def decorate(call: Callable[Concatenate[Self, P], R]) -> Callable[Concatenate[Self, P], R]:
        @wraps(call)
        def wrapped(self: Self, /, *arguments: P.args, **options: P.kwargs) -> R:
            began_ns = self.now_ns()
            try:
                return call(self, *arguments, **options)
            finally:
                took_us = (self.now_ns() - began_ns) / 1_000
                if took_us > cost_us or not included:
                    self.charge(max(cost_us, took_us))

        return wrapped

    return decorate
