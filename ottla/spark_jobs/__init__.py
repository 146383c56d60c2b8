"""The Spark data source over segment files, the audit jobs, and functions for notebooks (`tables`). free

`from ottla.spark_jobs import transactions, hanging` loads Spark's functions then, not before: an executor imports this.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ottla.spark_jobs.tables import gaps, hanging, sequence, shape, throughput, torn, transactions, zombie

__all__ = ["gaps", "hanging", "sequence", "shape", "throughput", "torn", "transactions", "zombie"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        from ottla.spark_jobs import tables

        return getattr(tables, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
