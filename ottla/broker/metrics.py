"""What a broker counts while it runs: plain numbers, added to where the thing happens. pure

Nothing is made, named or formatted when something is counted, and nothing here grows with what clients send: what is
counted by API has an entry for each API that was served, an error one for each of Kafka's codes, and what is counted by
topic stands in the partition itself (`Partition.bytes_in`), so it goes with it. Whoever reads collects: the page for
Prometheus, the overview of the admin port.

Durations are measured once somebody can read them (`Metrics.measure`), with the machine's clock, wherever the broker's
own may stand. Until then `now_ms` is 0, and what asks more often than a transaction does asks `measured` first.
"""

from bisect import bisect_left
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeVar

from ottla.broker.security.session import Session
from ottla.broker.turns import Turns

REQUEST_MS: Final = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10000, 30000)
TURN_MS: Final = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 250)
SYNC_MS: Final = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1000)
SYNC_BATCHES: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256)
MOST_VERSIONS: Final = 32
"""No API of Kafka has more."""


R = TypeVar("R")


class Accepted(Protocol):
    """A connection that is there."""

    @property
    def session(self) -> Session:
        """Whose it is."""


Now = Callable[[], float]
"""Milliseconds that never go back."""


def not_measured() -> float:
    """Nobody can read durations."""
    return 0.0


class Histogram:
    """How many values were at most each of the `bounds`, which go up; one more count is for what is above them all."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        """One more value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    @property
    def count(self) -> int:
        """How many values there were."""
        return sum(self.counts)

    def since(self, counts: Sequence[int]) -> "Histogram":
        """Of the values that have come since it had these `counts`; without a sum."""
        found = Histogram(self.bounds)
        found.counts = [now - before for now, before in zip(self.counts, counts, strict=True)]
        return found

    def quantile(self, share: float) -> float:
        """The value that this share (0 to 1) of all does not exceed, between two bounds as Prometheus' own
        `histogram_quantile` has it; the last bound for what is above, 0 where nothing is."""
        wanted = share * self.count
        below = 0
        for at, count in enumerate(self.counts[:-1]):
            if count and below + count >= wanted:
                lower = self.bounds[at - 1] if at else 0.0
                return lower + (self.bounds[at] - lower) * (wanted - below) / count
            below += count
        return self.bounds[-1] if below < self.count else 0.0


class ApiMetrics:
    """The requests of one API: how many in each version, how long they took, and how many of its answers were errors.

    An error is counted by its code, once for each row that has it, as Kafka's `ErrorsPerSec` is.
    """

    __slots__ = ("errors", "time", "versions")

    def __init__(self) -> None:
        self.versions = [0] * MOST_VERSIONS
        self.errors: dict[int, int] = {}
        self.time = Histogram(REQUEST_MS)
        """Milliseconds from the whole request to its reply, waits included."""

    @property
    def requests(self) -> int:
        """How many there were, in all versions."""
        return sum(self.versions)

    def failed(self, error_code: int, times: int = 1) -> None:
        """One more row, or a whole reply, has this error."""
        self.errors[error_code] = self.errors.get(error_code, 0) + times

    def rows_failed(self, error_codes: Sequence[int]) -> None:
        """Many rows, each with its error: there are few kinds of them."""
        for error_code in {*error_codes}:
            self.failed(error_code, error_codes.count(error_code))


class _Apis(dict[int, ApiMetrics]):
    """Whoever asks for an API finds it."""

    def __missing__(self, key: int) -> ApiMetrics:
        found = self[key] = ApiMetrics()
        return found


@dataclass(slots=True)
class Waits:
    """Requests that waited for one cause, and for how many milliseconds those did that went on."""

    now_ms: Now = not_measured
    begun: int = 0
    ms: float = 0.0

    def begin(self) -> float:
        """One more waits; what `end` must be given."""
        self.begun += 1
        return self.now_ms()

    def end(self, began_ms: float) -> None:
        """It goes on."""
        self.ms += self.now_ms() - began_ms


@dataclass(slots=True)
class TransactionMetrics:
    """What has become of transactions since the start; what is open is known to the coordinator itself."""

    begun: int = 0
    committed: int = 0
    aborted: int = 0
    """Those that timed out too."""
    timed_out: int = 0
    marker_phase: Histogram = field(default_factory=lambda: Histogram(REQUEST_MS))
    """Milliseconds from the durable outcome to the last marker."""
    waits: Waits = field(default_factory=Waits)
    """Requests that waited for the markers of the transaction before."""
    now_ms: Now = not_measured


@dataclass(slots=True)
class SyncMetrics:
    """The syncs that produced batches waited for."""

    time: Histogram = field(default_factory=lambda: Histogram(SYNC_MS))
    batches: Histogram = field(default_factory=lambda: Histogram(SYNC_BATCHES))
    """How many batches each of them covered."""
    failed: int = 0
    now_ms: Now = not_measured


class Metrics:
    """All that one broker counts. Its rooms have their own part of it, which they make: `transactions`, `syncs`."""

    __slots__ = (
        "apis",
        "bytes_in",
        "bytes_out",
        "connections",
        "connections_accepted",
        "differing_duplicates",
        "duplicates",
        "fenced",
        "measured",
        "now_ms",
        "records_in",
        "reused_sequences",
        "sequence_gaps",
        "syncs",
        "transactions",
        "turns",
        "waits",
    )

    def __init__(self, transactions: TransactionMetrics | None = None, syncs: SyncMetrics | None = None) -> None:
        self.measured = False
        self.now_ms: Now = not_measured
        self.transactions = transactions or TransactionMetrics()
        self.syncs = syncs or SyncMetrics()
        self.turns: Histogram | None = None
        """Milliseconds of each event of the loop, where they are measured."""
        self.apis = _Apis()
        """By key, of those that were asked for."""
        self.connections: Collection[Accepted] = ()
        """Those that are there."""
        self.connections_accepted = 0
        self.bytes_in = 0
        """Of batches that were appended for clients."""
        self.records_in = 0
        self.bytes_out = 0
        """Of batches that were answered to Fetch."""
        self.duplicates = 0
        """Batches that are in the log already, and were answered with their place there."""
        self.differing_duplicates = 0
        """Of those the ones with other keys, values or headers than the batch in the log."""
        self.sequence_gaps = 0
        """Batches refused with OUT_OF_ORDER_SEQUENCE_NUMBER."""
        self.reused_sequences = 0
        """Transactional batches refused for sequences of a transaction that had ended, or behind such a batch."""
        self.fenced = 0
        """Requests of whoever another has taken the place of."""
        self.waits = {
            "data": Waits(),
            "last_stable_offset": Waits(),
            "markers": self.transactions.waits,
            "sync": Waits(),
        }
        """By cause: a Fetch for something to read, or for the end of a transaction before it; a request for the markers
        of the transaction before; a reply until what it promises is on the device."""

    def timed(self, key: int, finish: Callable[[R], None]) -> Callable[[R], None]:
        """`finish`, and how long it took from now on until it was called with the reply to a request of this API."""
        time, now_ms = self.apis[key].time, self.now_ms
        began_ms = now_ms()

        def timed_finish(reply: R) -> None:
            finish(reply)
            time.observe(now_ms() - began_ms)

        return timed_finish

    def measure(self, now_ms: Now, turns: Histogram | None = None) -> None:
        """Measure durations from now on: somebody can read them."""
        self.measured = True
        self.now_ms = self.transactions.now_ms = self.syncs.now_ms = now_ms
        for waits in self.waits.values():
            waits.now_ms = now_ms
        self.turns = turns


class MeasuredTurns(Turns):
    """Turns whose events are timed, in milliseconds."""

    __slots__ = ("_now_ms", "time")

    def __init__(
        self, next_turn: Callable[[Callable[[], None]], None], on_bug: Callable[[Exception], None], now_ms: Now
    ) -> None:
        super().__init__(next_turn, on_bug)
        self._now_ms = now_ms
        self.time = Histogram(TURN_MS)

    def event(self, work: Callable[[], None]) -> None:
        if self._running:
            self._ready.append(work)
            return
        began_ms = self._now_ms()
        super().event(work)
        self.time.observe(self._now_ms() - began_ms)
