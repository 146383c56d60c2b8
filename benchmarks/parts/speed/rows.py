"""What is measured, what is to be reached, and what several rounds gave. pure"""

import statistics
from collections.abc import Mapping, Sequence
from typing import NamedTuple

Figures = dict[str, float]
"""What one broker took in one round."""
Samples = Mapping[str, Mapping[str, Sequence[float]]]
"""Column to key to a figure of each round."""

FLOOR = "floor"
KFAKE = "kfake"


class Sizes(NamedTuple):
    """How much of each is done in a round."""

    megabytes: int
    seconds: float
    transactions: int
    connections: int
    passes: int

    def smaller(self) -> "Sizes":
        """To warm up with."""
        return Sizes(max(1, self.megabytes // 8), self.seconds / 3, max(1, self.transactions // 4), self.connections, 1)


class Row(NamedTuple):
    """`goal` is the most that the median of ours may be, the least where `higher_is_better`.

    With `relative_to` it is (column, key): the figures of `of` in each round over those.
    """

    key: str
    label: str
    unit: str
    goal: float | None = None
    higher_is_better: bool = False
    relative_to: tuple[str, str] | None = None
    of: str = ""


ROWS = (
    Row("produce_1k", "produce, records of 1 KiB, batches up to 1 MB", "s/GB", 0.8),
    Row("produce_1k_floor", "relative to receive + CRC + write", "x", 1.5, False, (FLOOR, "write"), "produce_1k"),
    Row("produce_100", "produce, records of 100 bytes, batches up to 1 MB", "s/GB", 1.0),
    Row("consume", "consume, records of 1 KiB", "s/GB", 0.4),
    Row("tx_ms", "transaction of one record, one producer", "ms", 0.22),
    Row("tx_v1_ms", "the same without a library, V1 (3 requests)", "ms"),
    Row("tx_v2_ms", "the same without a library, V2 (2 requests)", "ms"),
    Row("tx16_per_s", "transactions of one record, 16 producers", "/s", None, True),
    Row("tx16_kfake", "relative to kfake's", "x", 0.8, True, (KFAKE, "tx16_per_s"), "tx16_per_s"),
    Row("tx16_ms", "CPU of each", "ms"),
    Row("crowd_us", "Produce of one record, {connections:,} connections, one after the other", "us", 50),
    Row("crowd_at_once_us", "the same, a request on each at once", "us", 50),
)

FLOORS = {"recv + CRC + pwrite": "write", "pread + send": "read", "sendfile": "sendfile"}


class Spread(NamedTuple):
    least: float
    median: float
    most: float


def spread(values: Sequence[float]) -> Spread:
    return Spread(min(values), statistics.median(values), max(values))


def values_of(samples: Samples, column: str, row: Row) -> Sequence[float]:
    """A figure for each round; nothing where it or what it is relative to was not measured."""
    if row.relative_to is None:
        return samples[column].get(row.key, ())
    other, key = row.relative_to
    base = samples.get(other, {}).get(key, ())
    if other == column:
        return ()
    return [ours / theirs for ours, theirs in zip(samples[column].get(row.of, ()), base, strict=False)]


def reached(row: Row, values: Sequence[float]) -> bool | None:
    """Whether the median reaches the goal; None where there is no goal, or nothing was measured."""
    if row.goal is None or not values:
        return None
    median = spread(values).median
    return median >= row.goal if row.higher_is_better else median <= row.goal
