"""Recent rates and quantiles of growing counters, computed from earlier scrapes. pure

Prometheus computes rates itself. But Kafka exports decayed quantiles and rates of its own meters, and dashboards and
kafka-ui show those unchanged.
"""

from collections import deque
from math import exp
from typing import Final, NamedTuple

from ottla.broker.metrics import Histogram, Metrics

WINDOW_MS: Final = 300_000.0
BETWEEN_MS: Final = 30_000.0
"""Least time between two kept scrapes, however many scrapes there are."""
AVERAGED_MS: Final = 900_000.0


class Seen:
    """The counters at a scrape: counts by API, and the time that the loop was busy."""

    __slots__ = ("at_ms", "busy_ms", "counts")

    def __init__(self, metrics: Metrics, at_ms: float) -> None:
        self.at_ms = at_ms
        self.busy_ms = 0.0 if metrics.turns is None else metrics.turns.sum
        self.counts = {key: list(api.time.counts) for key, api in metrics.apis.items()}


class Recent:
    """The scrapes of the last minutes."""

    def __init__(self, metrics: Metrics, at_ms: float) -> None:
        self._metrics = metrics
        self._seen = deque((Seen(metrics, at_ms),))

    def begin_scrape(self, at_ms: float) -> None:
        """Begin a scrape."""
        if at_ms - self._seen[-1].at_ms >= BETWEEN_MS:
            self._seen.append(Seen(self._metrics, at_ms))
        while len(self._seen) > 1 and at_ms - self._seen[1].at_ms >= WINDOW_MS:
            self._seen.popleft()

    def requests(self, key: int) -> Histogram:
        """Return the durations of requests of one API since the oldest kept scrape."""
        now, before = self._metrics.apis[key].time, self._seen[0].counts.get(key)
        return now if before is None else now.since(before)

    def idle(self, at_ms: float) -> float:
        """Return the share of that time, 0 to 1, in which the loop was not busy."""
        first, turns = self._seen[0], self._metrics.turns
        passed_ms = at_ms - first.at_ms
        if turns is None or passed_ms <= 0:
            return 1.0
        return min(1.0, max(0.0, 1.0 - (turns.sum - first.busy_ms) / passed_ms))


class _Meter(NamedTuple):
    at_ms: float
    value: int
    rate: float


class Meters:
    """Rates of counters by their names, averaged like Kafka's meters."""

    def __init__(self, most: int) -> None:
        """Create meters. If there are more names than `most`, all meters are dropped, because some counters no
        longer exist."""
        self._most = most
        self._known: dict[tuple[str, str], _Meter] = {}

    def rate(self, of: tuple[str, str], count: int, at_ms: float) -> float:
        """Return the rate per second; 0 at the first call. The meter of a counter that was reset starts again."""
        before = self._known.get(of)
        if before is not None and at_ms <= before.at_ms:
            return before.rate
        rate = 0.0
        if before is not None and count >= before.value:
            passed_ms = at_ms - before.at_ms
            lately = (count - before.value) * 1000 / passed_ms
            rate = before.rate + (1 - exp(-passed_ms / AVERAGED_MS)) * (lately - before.rate) if before.rate else lately
        elif len(self._known) >= self._most:
            self._known.clear()
        self._known[of] = _Meter(at_ms, count, rate)
        return rate
