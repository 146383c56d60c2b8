"""Run Spark's Python workers with the interpreter of this process, unless another is configured. shell

Spark runs its Python workers, and the search for data sources, with the interpreter in PYSPARK_PYTHON, else with the
`python3` of the path (`PythonUtils.defaultPythonExec`, `SparkContext.pythonExec`). So a script that runs with the
interpreter of an environment which is not activated gets workers without the packages of the environment.
"""

import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WORKERS = "PYSPARK_PYTHON"
# The Python of the workers that find and plan data sources, if it is set.
_DRIVER = "PYSPARK_DRIVER_PYTHON"


def use_this_python() -> None:
    """Set this interpreter for Spark's local workers, and register the data source with a running session.

    If Spark is not started yet, it will read an environment variable. A configured interpreter, and the executors' own
    `python3` on a cluster, are not changed.
    """
    session = _running_session()
    if session is None:
        if not _is_configured() and "PYSPARK_GATEWAY_PORT" not in os.environ:
            os.environ[WORKERS] = sys.executable
        return
    context: Any = getattr(session, "sparkContext", None)
    if context is None:  # a client of Spark Connect: the workers are the server's
        return
    is_ours = (
        not _is_configured() and context.getConf().get("spark.pyspark.python") is None and _is_local(context.master)
    )
    if is_ours:
        context.pythonExec = sys.executable
    _register(session, again=is_ours)


def _is_configured() -> bool:
    """Return whether a Python is configured, or the `python3` of the path is this one."""
    found = shutil.which("python3")
    is_this = found is not None and Path(found).parent == Path(sys.executable).parent
    return is_this or not sys.executable or any(os.environ.get(name) for name in (WORKERS, _DRIVER))


def _is_local(master: str) -> bool:
    return master.startswith("local") and not master.startswith("local-cluster")


def _running_session() -> "SparkSession | None":
    """Return the session of this process, without loading Spark for it: executors import this."""
    loaded = sys.modules.get("pyspark.sql")
    return None if loaded is None else getattr(loaded, "SparkSession").getActiveSession()  # noqa: B009


def _register(session: Any, *, again: bool) -> None:
    """Register the source. Without `again`, skip a source that Spark has found itself: it would log a replacement."""
    from ottla.spark_jobs.source import OttlaSource

    if again or not session._jsparkSession.sessionState().dataSourceManager().dataSourceExists("ottla"):
        session.dataSource.register(OttlaSource)
