"""Arrow columns of numbers and times, for views and for the tables of an audit. pure"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

    from ottla.scan.compiled.kernels import Longs

_LARGEST_MS = (2**63 - 1) // 1000


def record_batch(schema: "pa.Schema", columns: Mapping[str, Any]) -> "pa.RecordBatch":
    """Return a record batch of `schema` from lists, numpy or Arrow arrays by name."""
    import pyarrow as pa

    def array(field: pa.Field) -> pa.Array:
        values = columns[field.name]
        return values.cast(field.type) if isinstance(values, pa.Array) else pa.array(values, field.type)

    return pa.RecordBatch.from_arrays([array(field) for field in schema], schema=schema)


def micros(time_ms: int | None) -> int | None:
    """Convert a time from ms to the microseconds of an Arrow timestamp; None for negative times, which mean no time."""
    return None if time_ms is None or time_ms < 0 else min(time_ms, _LARGEST_MS) * 1000


def numbers(values: "Longs") -> "pa.Array":
    """Return a column of integers. Negative values become null."""
    import pyarrow as pa

    return pa.array(values, pa.int64(), mask=values < 0)


def times(values_ms: "Longs") -> "pa.Array":
    """Return a column of timestamps from times in ms. Negative values become null."""
    import numpy as np
    import pyarrow as pa

    column = pa.array(np.minimum(values_ms, _LARGEST_MS) * 1000, pa.int64(), mask=values_ms < 0)
    return column.cast(pa.timestamp("us", tz="UTC"))
