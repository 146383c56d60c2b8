"""Decoded records as row groups of a Parquet file, for exports and the cache. shell"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ottla.scan import schemas

if TYPE_CHECKING:
    import pyarrow as pa

    from ottla.scan.damage_log import DamageLog
    from ottla.spark_jobs.views.planned_range import PlannedRange

ROW_GROUP_BYTES = 64 * 1024 * 1024
# Columns whose values are in the names of the folders.
IN_FOLDERS = ("topic", "partition")
# Columns whose values are mostly unique.
UNIQUE = ("key", "value", "offset", "headers", "sequence")


def row_groups(planned: "PlannedRange", columns: Sequence[str], log: "DamageLog") -> "Iterator[pa.Table]":
    """Yield the visible records of a range, in offset order. Raises DamagedSegment if `log` refuses damage, OSError."""
    import pyarrow as pa

    from ottla.scan.records import RecordScan, uncommitted_visibility

    schema = schemas.arrow_schema(schemas.RECORDS, [(name, True) for name in columns])
    held: list[Any] = []
    size = 0
    visible = planned.visible or uncommitted_visibility(planned.part.log_start)
    for batch in RecordScan(schema, log).read(planned.part, visible, planned.read_filter):
        held.append(batch)
        size += batch.nbytes
        if size >= ROW_GROUP_BYTES:
            yield pa.Table.from_batches(held)
            held, size = [], 0
    if held:
        yield pa.Table.from_batches(held)


def parquet_options(columns: Sequence[str], compression: str, *, unique: Sequence[str] = UNIQUE) -> dict[str, Any]:
    """Return the options of Arrow's writer. A dictionary of a `unique` column would cost time and save nothing."""
    return {"compression": compression, "use_dictionary": [name for name in columns if name not in unique]}
