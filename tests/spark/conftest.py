"""The Spark session of the run, and a Spark in a process of its own."""

import os
import sys

import pytest

from tests.spark import early
from tests.spark.reader_process import reader_process

__all__ = ["reader_process"]
# A JVM of a few tests is not worth the second compiler, which takes a quarter of its time.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")


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
