"""Statistics of transactions: sizes, durations, aborts, marker overhead, the gain of a larger size. pure

The model is effective throughput = N S / (N T_write + O_tx): N records of S bytes in a transaction, T_write for each
record, O_tx for each transaction. A duration is the time from the first batch to the marker in one partition.
"""

import operator
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from ottla.audit.checks import once
from ottla.audit.checks.finding import Finding
from ottla.audit.checks.words import count
from ottla.protocol.batch import ABORT, COMMIT
from ottla.protocol.times import duration
from ottla.scan import events, headers
from ottla.scan.compiled.kernels import Longs

# Sizes have one bin per power of two, durations four.
SIZE_BINS = 32
DURATION_BINS = 160
_PER_OCTAVE = 4
# A bin of fewer transactions is not used for the fit.
_LEAST = 5
# Bytes of the batch of a marker. Each partition of a transaction gets one.
_MARKERS_ARE_SMALL = 0.1


class Shape(NamedTuple):
    """Histograms of the transactions of one range, or of all ranges.

    `grid`: committed transactions by bin of size and of duration. `records`: their records by bin of size.
    """

    grid: Longs
    records: Longs
    committed: int
    aborted: int
    committed_bytes: int
    aborted_bytes: int
    marker_bytes: int
    data_bytes: int

    def plus(self, other: "Shape") -> "Shape":
        return Shape(*map(operator.add, self, other))


class Packed(NamedTuple):
    """A shape in compact form: `cells` are rows (index in the grid, transactions) of the bins that are not empty."""

    cells: Longs
    records: Longs
    rest: tuple[int, ...]


class Model(NamedTuple):
    """The fitted model: times in milliseconds, and the size of a record in bytes."""

    write_ms: float
    overhead_ms: float
    record_bytes: float

    def bytes_per_second(self, records: float) -> float:
        """Return the effective throughput of one producer with transactions of `records` records."""
        return 1000 * records * self.record_bytes / (records * self.write_ms + self.overhead_ms)

    @property
    def half_speed_records(self) -> float:
        """Records in a transaction at which its fixed cost is half of its time."""
        return self.overhead_ms / self.write_ms


def empty() -> Shape:
    return Shape(
        np.zeros((SIZE_BINS, DURATION_BINS), dtype=np.int64), np.zeros(SIZE_BINS, dtype=np.int64), 0, 0, 0, 0, 0, 0
    )


def of_step(rows: Longs, ended: Longs) -> Shape:
    """Return the shape of one step of a walk."""
    return measure_ends(ended, *count_bytes(rows))


def count_bytes(rows: Longs) -> tuple[int, int]:
    """Return the bytes of the control batches and of the data batches among header rows."""
    sizes = rows[:, headers.SIZE]
    marker_bytes = int(sizes[rows[:, headers.CONTROL_TYPE] != headers.NOT_CONTROL].sum())
    return marker_bytes, int(sizes.sum()) - marker_bytes


def measure_ends(ended: Longs, marker_bytes: int, data_bytes: int) -> Shape:
    """Return the shape of rows of a walk's `ended`, and of batches of these sizes."""
    known = ended[(ended[:, events.ENDED_BATCHES] > 0) & (ended[:, events.ENDED_RECORDS] > 0)]
    committed = known[known[:, events.ENDED_FATE] == COMMIT]
    aborted = known[known[:, events.ENDED_FATE] == ABORT]
    grid = np.zeros((SIZE_BINS, DURATION_BINS), dtype=np.int64)
    records = np.zeros(SIZE_BINS, dtype=np.int64)
    timed = committed[(committed[:, events.ENDED_START_MS] >= 0)]
    duration_ms = timed[:, events.ENDED_END_MS] - timed[:, events.ENDED_START_MS]
    timed, duration_ms = timed[duration_ms >= 0], duration_ms[duration_ms >= 0]
    size_bin = _size_bin(timed[:, events.ENDED_RECORDS])
    np.add.at(grid, (size_bin, _duration_bin(duration_ms)), 1)
    np.add.at(records, size_bin, timed[:, events.ENDED_RECORDS])
    return Shape(
        grid,
        records,
        len(committed),
        len(aborted),
        int(committed[:, events.ENDED_BYTES].sum()),
        int(aborted[:, events.ENDED_BYTES].sum()),
        marker_bytes,
        data_bytes,
    )


def pack_shape(shape: Shape) -> Packed:
    """Return the shape in some hundred bytes, as each range sends one."""
    at = np.flatnonzero(shape.grid)
    return Packed(np.stack([at, shape.grid.ravel()[at]], axis=1), shape.records, tuple(shape[2:]))


def merge(parts: Iterable[Packed]) -> Shape:
    """Return the sum of the shapes."""
    total = empty()
    rest = np.zeros(len(total) - 2, dtype=np.int64)
    for one in parts:
        np.add.at(total.grid.reshape(-1), one.cells[:, 0], one.cells[:, 1])
        np.add(total.records, one.records, out=total.records)
        rest += one.rest
    return Shape(total.grid, total.records, *rest.tolist())


def fit(shape: Shape) -> Model | None:
    """Fit the model to the median duration of each size; None if there are too few sizes, or size does not matter.

    Medians, because one transaction that stayed open for minutes says nothing about the cost of the others.
    """
    many = shape.grid.sum(axis=1)
    voting = many >= _LEAST
    if np.count_nonzero(voting) < 2:
        return None
    sizes = shape.records[voting] / many[voting]
    durations = np.array([quantile(row, 0.5) for row in shape.grid[voting]])
    # A duration of 1 ms has the same relative error as one of 1 s.
    weights = np.sqrt(many[voting]) / np.maximum(durations, 1.0)
    system = np.stack([sizes, np.ones_like(sizes)], axis=1) * weights[:, None]
    (write_ms, overhead_ms), *_ = np.linalg.lstsq(system, durations * weights, rcond=None)
    if write_ms <= 0 or overhead_ms <= 0:
        return None
    return Model(float(write_ms), float(overhead_ms), shape.committed_bytes / max(int(shape.records.sum()), 1))


def quantile(histogram: Longs, share: float) -> float:
    """Return the milliseconds below which `share` of a histogram of durations lies."""
    total = int(histogram.sum())
    if not total:
        return 0.0
    index = int(np.searchsorted(np.cumsum(histogram), share * total))
    return duration_of(min(index, DURATION_BINS - 1))


def duration_of(index: int) -> float:
    """Return the middle of a bin, in ms."""
    return 0.0 if index == 0 else float(2 ** ((index - 0.5) / _PER_OCTAVE))


def findings(shape: Shape, outcome: once.Outcome) -> list[Finding]:
    """Return information on all transactions together."""
    ended = shape.committed + shape.aborted
    if not ended:
        return []
    durations = shape.grid.sum(axis=0)
    sizes = shape.grid.sum(axis=1)
    per_transaction = int(shape.records.sum()) / max(int(sizes.sum()), 1)
    marker_share = shape.marker_bytes / max(shape.marker_bytes + shape.data_bytes, 1)
    message = (
        f"{', '.join(once.phrases(outcome))}; of {count(ended, 'end')} in partitions {shape.aborted / ended:.1%} are "
        f"aborts, {per_transaction:,.1f} records each, {duration(round(quantile(durations, 0.5)))} at the median, "
        f"{duration(round(quantile(durations, 0.99)))} at the 99th percentile; markers take {marker_share:.1%} of "
        "the bytes"
    )
    found = [Finding("shape", "info", None, None, None, None, None, message, _advice(marker_share))]
    model = fit(shape)
    if model is not None:
        found.append(_make_finding(model, per_transaction))
    return found


def _make_finding(model: Model, now: float) -> Finding:
    message = (
        f"N S / (N T_write + O_tx) fits with S = {model.record_bytes:,.0f} bytes, T_write = {model.write_ms:.3g} ms, "
        f"O_tx = {model.overhead_ms:.3g} ms: {_rate(model.bytes_per_second(now))} for one producer at {now:,.0f} "
        f"records, {_rate(model.bytes_per_second(10 * now))} at ten times as many"
    )
    action = f"half of the time is the fixed cost at {model.half_speed_records:,.0f} records a transaction"
    return Finding("shape", "info", None, None, None, None, None, message, action)


def _advice(marker_share: float) -> str:
    if marker_share < _MARKERS_ARE_SMALL:
        return "nothing to do"
    return "transactions are small for their fixed cost: commit more records at once"


def _rate(bytes_per_second: float) -> str:
    for unit, scale in (("MB/s", 1e6), ("kB/s", 1e3)):
        if bytes_per_second >= scale:
            return f"{bytes_per_second / scale:,.3g} {unit}"
    return f"{bytes_per_second:,.3g} B/s"


def _size_bin(records: Longs) -> Longs:
    bins: Longs = np.minimum(np.log2(np.maximum(records, 1)).astype(np.int64), SIZE_BINS - 1)
    return bins


def _duration_bin(duration_ms: Longs) -> Longs:
    bins = np.zeros(len(duration_ms), dtype=np.int64)
    some = duration_ms > 0
    bins[some] = 1 + np.floor(_PER_OCTAVE * np.log2(duration_ms[some])).astype(np.int64)
    bounded: Longs = np.minimum(bins, DURATION_BINS - 1)
    return bounded
