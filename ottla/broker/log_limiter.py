"""Limits on repeated log lines. pure"""

from collections.abc import Hashable
from typing import Final

LOG_AGAIN_MS: Final = 60_000.0


class LogLimiter:
    """Limits a repeated log line to one a minute, and counts the occurrences in between."""

    __slots__ = ("_count", "_logged_ms")

    def __init__(self) -> None:
        self._count = 0
        self._logged_ms = -LOG_AGAIN_MS

    def count(self, now_ms: float) -> int:
        """Count an occurrence. Return the number since the last log line if a minute has passed, else 0."""
        self._count += 1
        if now_ms - self._logged_ms < LOG_AGAIN_MS:
            return 0
        count, self._count = self._count, 0
        self._logged_ms = now_ms
        return count


class LogLimiters:
    """A `LogLimiter` for each key.

    The last `most` keys are remembered. With more keys, a line may be logged again within the minute.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        # The key that occurred longest ago is first.
        self._limiters: dict[Hashable, LogLimiter] = {}

    def count(self, key: Hashable, now_ms: float) -> int:
        """Count an occurrence of the key (`LogLimiter.count`)."""
        limiter = self._limiters.pop(key, None) or LogLimiter()
        if len(self._limiters) >= self._most:
            del self._limiters[next(iter(self._limiters))]
        self._limiters[key] = limiter
        return limiter.count(now_ms)


def describe_repeats(count: int) -> str:
    """Return the end of a log line about `count` occurrences since the previous such line; empty for one."""
    return f" ({count - 1} more since the previous such line)" if count > 1 else ""
