"""What a Python worker must have to scan segments, told in one line. free"""

import functools
import gc
import importlib.util
import os
import platform
import shutil
import sys

# Module -> the distribution that has it.
MODULES = {
    "numpy": "numpy",
    "pyarrow": "pyarrow",
    "numba": "numba",
    "crc32c": "crc32c",
    "cramjam": "cramjam",
    "lz4": "lz4",
    "zstandard": "zstandard",
}


class WorkerLacks(Exception):
    """This Python lacks a library; the text is one line that names the host and what to install."""


@functools.cache
def lacking() -> tuple[str, ...]:
    """The distributions that this Python lacks."""
    return tuple(name for module, name in MODULES.items() if importlib.util.find_spec(module) is None)


def check_worker() -> None:
    """Raise WorkerLacks unless everything is there; every task of Spark begins with it."""
    if "pyspark.worker" in sys.modules:
        # Spark's worker collects garbage behind every task: 70 ms once numba and Arrow are loaded, 1 ms if what is
        # loaded is left alone.
        gc.freeze()
    if missing := lacking():
        raise WorkerLacks(
            f"Python {platform.python_version()} on {platform.node()} lacks {', '.join(missing)}: "
            f"pip install 'ottla[spark]' there, or pip install {' '.join(missing)}"
        )


def cannot_run(what: str, *, on_spark: bool) -> str:
    """Why `what` cannot run here, in one line; empty if it can."""
    if on_spark and importlib.util.find_spec("pyspark") is None:
        return f"{what} needs PySpark: pip install 'ottla[spark]'"
    if on_spark and not (shutil.which("java") or os.environ.get("JAVA_HOME")):
        return f"{what} needs Java 17: no java on the path and no JAVA_HOME"
    try:
        check_worker()
    except WorkerLacks as error:
        return str(error)
    return ""
