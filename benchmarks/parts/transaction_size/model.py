"""Cost of a transaction: N records take N T_write + O_tx, fitted to the measurements. pure"""

import math
from collections.abc import Sequence
from typing import NamedTuple


class Fit(NamedTuple):
    """Fitted model: `write_ms` per record, `overhead_ms` per transaction.

    `residuals` are relative to the measured times, in their order.
    """

    write_ms: float
    overhead_ms: float
    residuals: tuple[float, ...]

    def ms(self, records: float) -> float:
        """Return the time of a transaction of this number of records."""
        return records * self.write_ms + self.overhead_ms

    def records_for(self, share: float) -> float:
        """Return the number of records with which a transaction reaches this share of the rate of an endless one.

        The share is N T / (N T + O), so the transaction takes O / (1 - share) ms.
        """
        return share / (1 - share) * self.overhead_ms / self.write_ms if self.write_ms else math.inf

    def rate_mb_s(self, records: float, record_bytes: int) -> float:
        """Return the MB (10^6 bytes) of records per second: N S / (N T_write + O_tx)."""
        return records * record_bytes / 1000 / self.ms(records)

    @property
    def root_mean_square(self) -> float:
        return math.sqrt(sum(residual**2 for residual in self.residuals) / len(self.residuals))

    @property
    def worst(self) -> float:
        return max(map(abs, self.residuals))


def fit(sizes: Sequence[int], times_ms: Sequence[float]) -> Fit:
    """Fit by least squares of the relative errors, because a time of 1 s must not outweigh one of 1 ms.

    Neither constant is negative: if the best value would be, it is 0 and the other is fitted alone. Raises ValueError
    for fewer than two sizes, or a time that is not positive.
    """
    if len(set(sizes)) < 2 or min(times_ms) <= 0:
        raise ValueError("two sizes at least, and times that have passed")
    # (N T + O) / t should be 1: a T + b O = 1 with a = N / t and b = 1 / t.
    rows = [(size / ms, 1 / ms) for size, ms in zip(sizes, times_ms, strict=True)]
    aa, ab, bb = (sum(row[i] * row[j] for row in rows) for i, j in ((0, 0), (0, 1), (1, 1)))
    a, b = (sum(row[i] for row in rows) for i in (0, 1))
    determinant = aa * bb - ab * ab
    write_ms, overhead_ms = (a * bb - b * ab) / determinant, (b * aa - a * ab) / determinant
    if write_ms < 0:
        write_ms, overhead_ms = 0.0, b / bb
    elif overhead_ms < 0:
        write_ms, overhead_ms = a / aa, 0.0
    residuals = tuple((size * write_ms + overhead_ms) / ms - 1 for size, ms in zip(sizes, times_ms, strict=True))
    return Fit(write_ms, overhead_ms, residuals)
