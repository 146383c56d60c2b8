"""Rates and durations of a broker in the last ten seconds, computed from growing counters. pure

Each call stores a sample, and later calls compare with it. So the result covers ten seconds while a client polls, and
a longer time at the first call after a pause; the result has this time.
"""

from collections import deque
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from ottla.broker.metrics import TURN_MS, Histogram, Metrics
from ottla.protocol.api_keys import ApiKey

SPAN_MS: Final = 10_000.0
BETWEEN_MS: Final = 900.0
"""Least time between two samples."""
TIMED: Final = {"produce": ApiKey.PRODUCE, "fetch": ApiKey.FETCH, "end_txn": ApiKey.END_TXN}
RATES: Final = (
    "requests",
    "produced_bytes",
    "fetched_bytes",
    "produced_records",
    "transactions_committed",
    "transactions_aborted",
    "errors",
)
SAMPLE_US: Final = 60.0


class _Sample(NamedTuple):
    at_ms: float
    counts: tuple[int, ...]
    durations: list[list[int]]


class Recent:
    """Recent samples of one broker's counters. `now_ms` is a monotonic clock in milliseconds."""

    def __init__(self, metrics: Metrics, now_ms: Callable[[], float]) -> None:
        self._metrics = metrics
        self._now_ms = now_ms
        self._samples = deque([self._sample()])

    def compute(self) -> dict[str, Any]:
        """Return rates per second and durations in milliseconds, with the time `over_ms` that they cover."""
        now, samples = self._sample(), self._samples
        while len(samples) > 1 and samples[1].at_ms <= now.at_ms - SPAN_MS:
            samples.popleft()
        since = samples[0]
        if now.at_ms - samples[-1].at_ms >= BETWEEN_MS:
            samples.append(now)
        over_ms = now.at_ms - since.at_ms
        per_second = 1_000 / over_ms if over_ms else 0.0
        grown = [count - before for count, before in zip(now.counts, since.counts, strict=True)]
        *apis, turns, syncs = [
            each.since(before) for each, before in zip(self._histograms(), since.durations, strict=True)
        ]
        return {
            "over_ms": round(over_ms),
            "rates": {name: round(count * per_second, 3) for name, count in zip(RATES, grown, strict=True)},
            "latency_ms": {
                name: {"p50": _quantile(0.5, times), "p99": _quantile(0.99, times)}
                for name, times in zip(TIMED, apis, strict=True)
            },
            "turn_p99_ms": _quantile(0.99, turns),
            "sync_p99_ms": _quantile(0.99, syncs),
        }

    def _histograms(self) -> list[Histogram]:
        metrics = self._metrics
        turns = Histogram(TURN_MS) if metrics.turns is None else metrics.turns
        times = {key: metrics.apis[key].time for key in TIMED.values()} | {ApiKey.FETCH: metrics.fetch_work}
        return [*times.values(), turns, metrics.syncs.time]

    def _sample(self) -> _Sample:
        metrics = self._metrics
        apis = list(metrics.apis.values())
        counts = (
            sum(each.requests for each in apis),
            metrics.bytes_in,
            metrics.bytes_out,
            metrics.records_in,
            metrics.transactions.committed,
            metrics.transactions.aborted,
            sum(sum(each.errors.values()) for each in apis),
        )
        return _Sample(self._now_ms(), counts, [each.counts[:] for each in self._histograms()])


def _quantile(share: float, times: Histogram) -> float | None:
    """Return the quantile; None if nothing was measured."""
    return round(times.quantile(share), 3) if times.count else None
