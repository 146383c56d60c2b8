"""The broker's time, in a test's hand. free"""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from ottla.testkit.kit.admin import Admin

__tracebackhide__ = True  # pytest then shows the line of the test, and what it was told


class BrokerClock:
    """Moves every timer of the broker: transaction timeouts, expiry of ids, sessions, retention, fetches that wait.

    The clients' clocks stay. A jump is like waking from sleep: what was due meanwhile runs once, with the new time on
    the clock, and has run when `advance` returns; what waits for a client or a disk goes on afterwards.
    """

    def __init__(self, admin: Callable[[], Admin]) -> None:
        self._admin = admin

    def advance(self, delta: timedelta | None = None, **of: float) -> datetime:
        """Jump ahead: `advance(days=7)`, with the names of `timedelta`, or one of those. The new time. ValueError."""
        try:
            by = (delta or timedelta()) + timedelta(**of)
        except TypeError as error:
            raise TypeError(f"advance() takes what timedelta takes, such as days=7 or seconds=1.5: {error}") from None
        if by < timedelta():
            raise ValueError("a broker's time goes forward only")
        return _time(self._admin().post("/v1/clock/advance", {"ms": by / timedelta(milliseconds=1)}))

    def freeze(self) -> datetime:
        """Let time stand still; `advance` moves it still."""
        return _time(self._admin().post("/v1/clock/freeze"))

    def resume(self) -> datetime:
        """Let time go on from where it stands."""
        return _time(self._admin().post("/v1/clock/resume"))

    def reset(self) -> datetime:
        """The machine's time again."""
        return _time(self._admin().post("/v1/clock/reset"))

    def now(self) -> datetime:
        """The time that the broker stamps."""
        return _time(self._admin().get("/v1/clock"))


def _time(answer: dict[str, int]) -> datetime:
    return datetime.fromtimestamp(answer["now_ms"] / 1000, UTC)
