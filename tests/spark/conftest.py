"""The Spark session of the run."""

import os
import sys

import pytest

from tests.spark import early


@pytest.fixture(scope="session")
def spark(tmp_path_factory):
    """Return the local session of the run. Workers must be this Python, in UTC."""
    pytest.importorskip("numba", reason="the spark extra is not installed")
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = early.program(tmp_path_factory.mktemp("early"))
    os.environ["TZ"] = "UTC"
    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.python.unix.domain.socket.enabled", "true")
        .config("spark.executorEnv.PYTHONPATH", os.pathsep.join(path for path in sys.path if path))
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("FATAL")
    yield session
    session.stop()
