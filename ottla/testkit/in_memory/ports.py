"""Counter of a broker's port calls, the points at which it can be killed. pure"""

from collections.abc import Callable


class Killed(BaseException):
    """The broker's process ends here. Not an Exception: no handler of the broker may catch it."""


class PortCalls:
    """Counts the calls of one run. Each call of a port counts twice, before and after its effect."""

    __slots__ = ("count", "kill_at", "on_kill")

    def __init__(self) -> None:
        self.count = 0
        self.kill_at = -1
        self.on_kill: Callable[[str], None] = _ignore

    def call(self, name: str) -> None:
        """Count a port call before or after its effect. Raises Killed at the planned call."""
        self.count += 1
        if 0 <= self.kill_at <= self.count:
            self.kill_at = -1
            self.on_kill(name)
            raise Killed(name)


def _ignore(name: str) -> None:
    """Ignore the place of the kill."""
