"""Figures of the speed benchmark, their goals, and the samples of several rounds. pure"""

import statistics
from collections.abc import Mapping, Sequence
from typing import NamedTuple

Figures = dict[str, float]
"""Figures of one broker in one round, by key."""
Samples = Mapping[str, Mapping[str, Sequence[float]]]
"""Figures of all rounds by column and key."""

FLOOR = "floor"
KFAKE = "kfake"


class Sizes(NamedTuple):
    """Amounts of work in a round."""

    megabytes: int
    seconds: float
    transactions: int
    connections: int
    passes: int

    def smaller(self) -> "Sizes":
        """Return smaller amounts, to warm up."""
        return Sizes(max(1, self.megabytes // 8), self.seconds / 3, max(1, self.transactions // 4), self.connections, 1)


class Row(NamedTuple):
    """Row of the table. `goal` is the upper limit of our median, or its lower limit if `higher_is_better`.

    `relative_to` is a (column, key): the values are then the figures of `of` in each round divided by those.
    """

    key: str
    label: str
    unit: str
    goal: float | None = None
    higher_is_better: bool = False
    relative_to: tuple[str, str] | None = None
    of: str = ""


def _relative_to_kfake(of: str, goal: float, higher_is_better: bool = False) -> Row:
    return Row(f"{of}_kfake", "relative to kfake's", "x", goal, higher_is_better, (KFAKE, of), of)


ROWS = (
    Row("produce_1k", "produce, records of 1 KiB, batches up to 1 MB", "s/GB"),
    Row("produce_1k_floor", "relative to receive + CRC + write", "x", 1.5, False, (FLOOR, "write"), "produce_1k"),
    _relative_to_kfake("produce_1k", 0.25),
    Row("produce_100", "produce, records of 100 bytes, batches up to 1 MB", "s/GB"),
    Row("consume", "consume, records of 1 KiB", "s/GB"),
    _relative_to_kfake("consume", 0.25),
    Row("tx_ms", "transaction of one record, one producer", "ms"),
    _relative_to_kfake("tx_ms", 1.2),
    Row("tx_v1_ms", "the same without a library, V1 (3 requests)", "ms"),
    Row("tx_v2_ms", "the same without a library, V2 (2 requests)", "ms"),
    Row("tx16_per_s", "transactions of one record, 16 producers", "/s", None, True),
    _relative_to_kfake("tx16_per_s", 0.8, True),
    Row("tx16_ms", "CPU of each", "ms"),
    Row("crowd_us", "Produce of one record, {connections:,} connections, one after the other", "us"),
    Row("crowd_at_once_us", "the same, a request on each at once", "us"),
)

FLOORS = {"recv + CRC + pwrite": "write", "pread + send": "read", "sendfile": "sendfile"}


class Spread(NamedTuple):
    least: float
    median: float
    most: float


def spread(values: Sequence[float]) -> Spread:
    return Spread(min(values), statistics.median(values), max(values))


def values_of(samples: Samples, column: str, row: Row) -> Sequence[float]:
    """Return a value for each round; none if its figure, or the figure it is relative to, was not measured."""
    if row.relative_to is None:
        return samples[column].get(row.key, ())
    other, key = row.relative_to
    base = samples.get(other, {}).get(key, ())
    if other == column:
        return ()
    return _divide(samples[column].get(row.of, ()), base)


def _divide(values: Sequence[float], base: Sequence[float]) -> list[float]:
    """Return the ratio in each round; none for a round whose divisor is too small to be measured."""
    return [value / other for value, other in zip(values, base, strict=False) if other]


def ratios_of(samples: Samples, base: str) -> dict[str, dict[str, float]]:
    """Return the median of the ratios to the figures of the column `base` in the same round, by column and key."""
    found: dict[str, dict[str, float]] = {}
    for column in (column for column in samples if column not in (base, FLOOR)):
        ratios = {key: _divide(values, samples[base].get(key, ())) for key, values in samples[column].items()}
        found[column] = {key: statistics.median(values) for key, values in ratios.items() if values}
    return found


def is_reached(row: Row, values: Sequence[float]) -> bool | None:
    """Return whether the median reaches the goal; None without a goal or a measurement."""
    if row.goal is None or not values:
        return None
    median = spread(values).median
    return median >= row.goal if row.higher_is_better else median <= row.goal
