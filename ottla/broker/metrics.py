"""Counters of a running broker: plain numbers, incremented where the event happens. pure

Nothing is created, named or formatted when an event is counted, and no structure here grows with the requests of
clients. Counters by API have an entry for each API that was served, and error counters one for each of Kafka's codes.
Counters by topic are in the partition itself (`Partition.bytes_in`) and are deleted with it. The readers collect the
numbers: the page for Prometheus, the overview of the admin port.

Durations are measured once a reader exists (`Metrics.measure`), with the machine's clock, whatever the broker's clock
is. Until then `now_ms` returns 0. Code that runs more often than once for each transaction checks `measured` first.
"""

from bisect import bisect_left
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeVar

from ottla.broker.security.session import Session

REQUEST_MS: Final = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10000, 30000)
TURN_MS: Final = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 250)
SYNC_MS: Final = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1000)
SYNC_BATCHES: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256)
MOST_VERSIONS: Final = 32
"""More than any API of Kafka has."""


R = TypeVar("R")


class Accepted(Protocol):
    """An open connection."""

    @property
    def session(self) -> Session:
        """The session of the connection."""


Now = Callable[[], float]
"""Returns monotonic milliseconds."""


def read_no_clock() -> float:
    """Return 0: durations are not measured."""
    return 0.0


class Histogram:
    """Counts of values by upper bound, in ascending `bounds`. The last count is of values above all bounds."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        """Add a value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    @property
    def count(self) -> int:
        """The number of values."""
        return sum(self.counts)

    def since(self, counts: Sequence[int]) -> "Histogram":
        """Return a histogram, without a sum, of the values added since `counts` was read."""
        found = Histogram(self.bounds)
        found.counts = [now - before for now, before in zip(self.counts, counts, strict=True)]
        return found

    def quantile(self, share: float) -> float:
        """Return the value that this share (0 to 1) of all values does not exceed, interpolated between two bounds as
        in Prometheus' `histogram_quantile`; the last bound if it is above that, 0 if there are no values."""
        rank = share * self.count
        below = 0
        for at, count in enumerate(self.counts[:-1]):
            if count and below + count >= rank:
                lower = self.bounds[at - 1] if at else 0.0
                return lower + (self.bounds[at] - lower) * (rank - below) / count
            below += count
        return self.bounds[-1] if below < self.count else 0.0


class ApiMetrics:
    """The requests of one API: counts by version, durations, and counts of errors.

    An error is counted by its code, once for each row that has it, as in Kafka's `ErrorsPerSec`.
    """

    def __init__(self) -> None:
        self.versions = [0] * MOST_VERSIONS
        self.errors: dict[int, int] = {}
        self.time = Histogram(REQUEST_MS)
        """Milliseconds from the complete request to its reply, waits included."""

    @property
    def requests(self) -> int:
        """The number of requests, in all versions."""
        return sum(self.versions)

    def count_error(self, error_code: int, times: int = 1) -> None:
        """Count an error of a row or of a whole reply."""
        self.errors[error_code] = self.errors.get(error_code, 0) + times


class _Apis(dict[int, ApiMetrics]):
    """Metrics by API key, created at the first access."""

    def __missing__(self, key: int) -> ApiMetrics:
        found = self[key] = ApiMetrics()
        return found


@dataclass(slots=True)
class Waits:
    """Requests that waited for one cause, and the total milliseconds of those that resumed."""

    now_ms: Now = read_no_clock
    begun: int = 0
    ms: float = 0.0

    def begin(self) -> float:
        """Count a waiting request and return the start time."""
        self.begun += 1
        return self.now_ms()

    def end(self, began_ms: float) -> float:
        """Add the time that a request waited, and return it."""
        waited_ms = self.now_ms() - began_ms
        self.ms += waited_ms
        return waited_ms


@dataclass(slots=True)
class TransactionMetrics:
    """Outcomes of transactions since the start. The coordinator itself knows the open ones."""

    begun: int = 0
    committed: int = 0
    aborted: int = 0
    """Includes those that timed out."""
    timed_out: int = 0
    marker_phase: Histogram = field(default_factory=lambda: Histogram(REQUEST_MS))
    """Milliseconds from the durable outcome to the last marker."""
    waits: Waits = field(default_factory=Waits)
    """Requests that waited for the markers of the previous transaction."""
    now_ms: Now = read_no_clock


@dataclass(slots=True)
class SyncMetrics:
    """Syncs that produced batches waited for."""

    time: Histogram = field(default_factory=lambda: Histogram(SYNC_MS))
    batches: Histogram = field(default_factory=lambda: Histogram(SYNC_BATCHES))
    """The number of batches that each sync covered."""
    failed: int = 0
    now_ms: Now = read_no_clock


class Metrics:
    """All counters of one broker. The coordinator and the flusher make their own part: `transactions`, `syncs`."""

    def __init__(self, transactions: TransactionMetrics | None = None, syncs: SyncMetrics | None = None) -> None:
        self.measured = False
        self.now_ms: Now = read_no_clock
        self.transactions = transactions or TransactionMetrics()
        self.syncs = syncs or SyncMetrics()
        self.turns: Histogram | None = None
        """Milliseconds of each event of the loop, if they are measured."""
        self.apis = _Apis()
        """By API key, of those that were requested."""
        self.fetch_work = Histogram(REQUEST_MS)
        """Milliseconds of Fetch requests without the time in which they wait for data."""
        self.connections: Collection[Accepted] = ()
        """The open connections."""
        self.connections_accepted = 0
        self.bytes_in = 0
        """Bytes of batches appended for clients."""
        self.records_in = 0
        self.bytes_out = 0
        """Bytes of batches returned by Fetch."""
        self.duplicates = 0
        """Batches that were in the log already and were answered with their offset there."""
        self.differing_duplicates = 0
        """Those of the duplicates that have other keys, values or headers than the batch in the log."""
        self.sequence_gaps = 0
        """Batches refused with OUT_OF_ORDER_SEQUENCE_NUMBER."""
        self.reused_sequences = 0
        """Transactional batches refused because they reuse sequences of an ended transaction, or follow such a
        batch."""
        self.fenced = 0
        """Requests of producers and members that were fenced."""
        self.waits = {
            "data": Waits(),
            "last_stable_offset": Waits(),
            "markers": self.transactions.waits,
            "sync": Waits(),
        }
        """By cause: a Fetch waits for data, or for the end of a transaction before it; a request waits for the markers
        of the previous transaction; a reply waits for a sync."""

    def time_reply(self, key: int, finish: Callable[[R], None]) -> Callable[[R], None]:
        """Return a function that calls `finish` and records the time from now until it is called with the reply."""
        time, now_ms = self.apis[key].time, self.now_ms
        began_ms = now_ms()

        def timed_finish(reply: R) -> None:
            finish(reply)
            time.observe(now_ms() - began_ms)

        return timed_finish

    def measure(self, now_ms: Now, turns: Histogram | None = None) -> None:
        """Measure durations from now on, because a reader exists."""
        self.measured = True
        self.now_ms = self.transactions.now_ms = self.syncs.now_ms = now_ms
        for waits in self.waits.values():
            waits.now_ms = now_ms
        self.turns = turns


class TurnTimer:
    """An `EventMeter` that records the duration of each event, in milliseconds."""

    def __init__(self, now_ms: Now) -> None:
        self._now_ms = now_ms
        self._began_ms = 0.0
        self.time = Histogram(TURN_MS)

    def begin(self) -> None:
        self._began_ms = self._now_ms()

    def end(self, work: Callable[[], None]) -> None:
        self.time.observe(self._now_ms() - self._began_ms)
