"""What is not told each time that it happens. pure"""

from typing import Final

TELL_AGAIN_MS: Final = 60_000.0


class Seldom:
    """What happens again and again is told once a minute, with how often it happened."""

    __slots__ = ("_count", "_told_ms")

    def __init__(self) -> None:
        self._count = 0
        self._told_ms = -TELL_AGAIN_MS

    def times(self, now_ms: float) -> int:
        """It has happened: how often since it was told last, if it is to be told; else 0."""
        self._count += 1
        if now_ms - self._told_ms < TELL_AGAIN_MS:
            return 0
        count, self._count = self._count, 0
        self._told_ms = now_ms
        return count
