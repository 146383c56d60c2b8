"""Control of the broker's clock by a test. free"""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from ottla.testkit.kit.admin import Admin

__tracebackhide__ = True  # pytest then shows the line of the test and the message


class BrokerClock:
    """Control of the broker's clock: transaction timeouts, id expiry, sessions, retention and waiting fetches use it.

    The clients' clocks do not change. A jump is like waking from sleep: each timer that is due runs once, at the new
    time, before `advance` returns. Work that waits for a client or a disk continues afterwards.
    """

    def __init__(self, admin: Callable[[], Admin]) -> None:
        self._admin = admin

    def advance(self, delta: timedelta | None = None, **of: float) -> datetime:
        """Advance the clock by a timedelta, or as in `advance(days=7)`; return the new time. ValueError if negative."""
        try:
            by = (delta or timedelta()) + timedelta(**of)
        except TypeError as error:
            raise TypeError(f"advance() takes what timedelta takes, such as days=7 or seconds=1.5: {error}") from None
        if by < timedelta():
            raise ValueError("a broker's time goes forward only")
        return _time(self._admin().post("/v1/clock/advance", {"ms": by / timedelta(milliseconds=1)}))

    def freeze(self) -> datetime:
        """Stop the clock; `advance` still works."""
        return _time(self._admin().post("/v1/clock/freeze"))

    def resume(self) -> datetime:
        """Start a stopped clock again, from its current time."""
        return _time(self._admin().post("/v1/clock/resume"))

    def reset(self) -> datetime:
        """Set the clock back to the machine's time."""
        return _time(self._admin().post("/v1/clock/reset"))

    def now(self) -> datetime:
        """Return the broker's current time."""
        return _time(self._admin().get("/v1/clock"))


def _time(answer: dict[str, int]) -> datetime:
    return datetime.fromtimestamp(answer["now_ms"] / 1000, UTC)
