"""Limit the log lines about denied requests to one a minute for each denial. pure"""

from typing import Final, NamedTuple

from ottla.broker.log_limiter import LogLimiter

MOST_DENIALS: Final = 500
"""Most denials that are remembered. With more, some are logged again within the minute; the log has its own limits."""


class Denial(NamedTuple):
    """A denied operation of a principal on a resource."""

    principal: str
    host: str
    operation: int
    resource_type: int
    name: str


class Denials:
    """The recent denials."""

    __slots__ = ("_seen",)

    def __init__(self) -> None:
        # The denial that occurred longest ago is first.
        self._seen: dict[Denial, LogLimiter] = {}

    def times(self, denial: Denial, now_ms: float) -> int:
        """Count a denial. Return the number since its last log line if it is to be logged now, else 0."""
        limiter = self._seen.pop(denial, None)
        if limiter is None:
            limiter = LogLimiter()
            if len(self._seen) >= MOST_DENIALS:
                del self._seen[next(iter(self._seen))]
        self._seen[denial] = limiter
        return limiter.count(now_ms)
