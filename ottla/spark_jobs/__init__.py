"""The Spark data source over segment files, the audit jobs, functions for notebooks (`tables`), `load`, `cached`. free

`from ottla.spark_jobs import hanging, torn` loads Spark's functions; a plain import of the package does not,
because executors import it. The import sets the workers' Python to that of this process (`interpreter`).
"""

from typing import TYPE_CHECKING, Any

from ottla.spark_jobs.interpreter import use_this_python

if TYPE_CHECKING:
    from ottla.spark_jobs.cache.reading import cached
    from ottla.spark_jobs.loading import load
    from ottla.spark_jobs.tables import gaps, hanging, sequence, shape, throughput, torn, zombie

__all__ = ["cached", "gaps", "hanging", "load", "sequence", "shape", "throughput", "torn", "zombie"]

use_this_python()


def __getattr__(name: str) -> Any:
    if name == "cached":
        from ottla.spark_jobs.cache.reading import cached

        return cached
    if name == "load":
        from ottla.spark_jobs.loading import load

        return load
    if name in __all__:
        from ottla.spark_jobs import tables

        return getattr(tables, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
