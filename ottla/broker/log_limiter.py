"""A limit on repeated log lines. pure"""

from collections.abc import Hashable
from typing import Final

LOG_AGAIN_MS: Final = 60_000.0
MOST_KEYS: Final = 1_000
"""Keys that are remembered. If there are more, a line of one of them may be logged again within the minute."""


class LogLimiter:
    """Limits repeated log lines to one a minute for each key, and counts the occurrences in between."""

    __slots__ = ("_seen",)

    def __init__(self) -> None:
        # By key: the time of the last line and the occurrences since then. The key that occurred longest ago is first.
        self._seen: dict[Hashable, tuple[float, int]] = {}

    def count(self, key: Hashable, now_ms: float) -> int:
        """Count an occurrence. Return the number since the last log line if a minute has passed, else 0."""
        logged_ms, count = self._seen.pop(key, (-LOG_AGAIN_MS, 0))
        if len(self._seen) >= MOST_KEYS:
            del self._seen[next(iter(self._seen))]
        if now_ms - logged_ms < LOG_AGAIN_MS:
            self._seen[key] = logged_ms, count + 1
            return 0
        self._seen[key] = now_ms, 0
        return count + 1


def describe_repeats(count: int) -> str:
    """Return the end of a log line about `count` occurrences since the previous such line; empty for one."""
    return f" ({count - 1} more since the previous such line)" if count > 1 else ""
