"""Limit the log lines about denied requests to one a minute for each denial. pure"""

from typing import NamedTuple

from ottla.broker.log_limiter import LogLimiter


class Denial(NamedTuple):
    """A denied operation of a principal on a resource."""

    principal: str
    host: str
    operation: int
    resource_type: int
    name: str


class Denials:
    """The recent denials."""

    __slots__ = ("_limiter",)

    def __init__(self) -> None:
        self._limiter = LogLimiter()

    def times(self, denial: Denial, now_ms: float) -> int:
        """Count a denial. Return the number since its last log line if it is to be logged now, else 0."""
        return self._limiter.count(denial, now_ms)
