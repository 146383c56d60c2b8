"""Packages and versions that a Python worker needs to scan segments. free"""

import functools
import gc
import importlib.util
import platform
import sys

# Modules, which are named like their distributions.
MODULES = ("numpy", "pyarrow", "numba", "crc32c", "cramjam")


class WorkerLacks(Exception):
    """This Python lacks a library; the text is one line that names the host and what to install."""


@functools.cache
def lacking() -> tuple[str, ...]:
    """Return the distributions that this Python lacks."""
    return tuple(module for module in MODULES if importlib.util.find_spec(module) is None)


def check_worker() -> None:
    """Raise WorkerLacks if a package is missing. Every task of Spark calls it first."""
    if "pyspark.worker" in sys.modules:
        # Spark's worker collects garbage after every task: 70 ms once numba and Arrow are loaded, 1 ms if the loaded
        # objects are excluded.
        gc.freeze()
    if missing := lacking():
        raise WorkerLacks(
            f"Python {platform.python_version()} on {platform.node()} lacks {', '.join(missing)}: "
            f"pip install 'ottla[spark]' there, or pip install {' '.join(missing)}"
        )


def check_planner() -> None:
    """Raise WorkerLacks if Spark has found the data source in a Python that cannot run it.

    This is mostly the `python3` of the path, which finds the package in the current directory.
    """
    if importlib.util.find_spec("pyarrow") is None:
        raise WorkerLacks(
            f"Spark starts {sys.executable}, Python {platform.python_version()} on {platform.node()}, which lacks "
            "pyarrow: import ottla.spark_jobs in the script, or set PYSPARK_PYTHON to the Python with ottla[spark]"
        )
