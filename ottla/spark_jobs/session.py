"""Spark sessions for the audit: a quiet local one, or the session of spark-submit, with Ottla's code shipped. shell"""

import importlib.util
import os
import shutil
import sys
import tempfile
import warnings
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from ottla.scan.needs import WorkerLacks, check_worker, lacking

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parents[2]
# The packages that an executor needs; an executor never loads the broker.
SHIPPED = ("ottla/protocol", "ottla/scan", "ottla/audit", "ottla/spark_jobs", "ottla/wire")

# Hides Spark's own start-up messages; errors still show.
_QUIET_LOG4J = """\
rootLogger.level = error
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n
"""


class NoSpark(Exception):
    """The JVM did not start; its output went to stderr, the text is one line."""


def under_spark_submit() -> bool:
    """Return whether spark-submit started this process, so that a JVM with its settings already runs."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def is_on_spark(run_on: str) -> bool:
    """Return whether a job with this `--run-on` runs on Spark: `auto` does if spark-submit started this process."""
    return run_on == "spark" or (run_on == "auto" and under_spark_submit())


def cannot_run(what: str, *, on_spark: bool) -> str:
    """Return why `what` cannot run here, in one line; empty if it can."""
    if on_spark and importlib.util.find_spec("pyspark") is None:
        return f"{what} on Spark needs PySpark: pip install 'ottla[spark]'"
    if on_spark and not (shutil.which("java") or os.environ.get("JAVA_HOME")):
        return f"{what} on Spark needs Java 17: no java on the path and no JAVA_HOME"
    if not on_spark and (lacks := lacking()):
        return f"{what} needs {', '.join(lacks)}: pip install 'ottla[audit]', or '.[audit]' in a checkout"
    try:
        check_worker()
    except WorkerLacks as error:
        return str(error)
    return ""


@contextmanager
def session(app_name: str) -> "Iterator[SparkSession]":
    """Yield the running session, else that of spark-submit, else a local one on all cores. Stop one that it started."""
    # Under spark-submit Python's warnings go to stdout, between the findings. Nothing here uses pandas.
    warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
    from pyspark.sql import SparkSession

    running = SparkSession.getActiveSession()
    if running is not None:
        yield running
        return
    with tempfile.TemporaryDirectory(prefix="ottla-audit-") as scratch:
        spark = _start(app_name, Path(scratch))
        try:
            yield spark
        finally:
            spark.stop()


def _with_java_home() -> str:
    home = os.environ.get("JAVA_HOME")
    return f" with JAVA_HOME={home}" if home else ""


def _start(app_name: str, scratch: Path) -> "SparkSession":
    from pyspark.errors import PySparkRuntimeError
    from pyspark.sql import SparkSession

    builder = (
        SparkSession.builder.appName(app_name)
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.ui.showConsoleProgress", str(sys.stderr.isatty()).lower())
    )
    if not under_spark_submit():
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        log4j = scratch / "log4j2.properties"
        log4j.write_text(_QUIET_LOG4J, encoding="utf-8")
        builder = (
            builder.master("local[*]")
            .config("spark.ui.enabled", "false")
            .config("spark.python.unix.domain.socket.enabled", "true")
            .config("spark.driver.extraJavaOptions", f"-Dlog4j2.configurationFile={log4j.as_uri()}")
        )
        try:
            with _own_stderr(scratch / "jvm.log"):
                spark: SparkSession = builder.getOrCreate()
        except PySparkRuntimeError as error:
            raise NoSpark(f"Spark, which needs Java 17, did not start{_with_java_home()}: {error}") from error
    else:
        spark = builder.getOrCreate()
    context = spark.sparkContext
    context.setLogLevel("ERROR")
    if context.master.startswith("local") and not context.master.startswith("local-cluster"):
        # Workers run on this machine and use its files, with their compiled kernels, so nothing is shipped.
        known = context.environment.get("PYTHONPATH")
        context.environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), *([known] if known else [])])
    elif not _is_shipped(context.getConf().get("spark.submit.pyFiles") or ""):
        context.addPyFile(str(pack_packages(scratch)))
    return spark


def _is_shipped(py_files: str) -> bool:
    """Return whether `--py-files` has the package: Spark refuses a second file of the same name."""
    return not (ROOT / "ottla").is_dir() or any(_has_package(Path(one)) for one in py_files.split(",") if one)


def _has_package(path: Path) -> bool:
    if not zipfile.is_zipfile(path):
        return False
    with zipfile.ZipFile(path) as archive:
        return "ottla/spark_jobs/__init__.py" in archive.namelist()


@contextmanager
def _own_stderr(path: Path) -> Iterator[None]:
    """Redirect stderr to `path` in the block, as the JVM starts with warnings. Show it if the block fails."""
    sys.stderr.flush()
    kept = os.dup(2)
    try:
        with path.open("wb") as file:
            os.dup2(file.fileno(), 2)
        yield
    except BaseException:
        os.write(kept, path.read_bytes())
        raise
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def pack_packages(folder: Path) -> Path:
    """Write a zip, in `folder`, of the packages that an executor needs."""
    path = folder / "ottla.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        files = [ROOT / "pyspark_ottla.py", *(ROOT / "ottla").glob("*.py")]
        for part in SHIPPED:
            files += (ROOT / part).rglob("*.py")
        for file in sorted(files):
            archive.write(file, file.relative_to(ROOT).as_posix())
    return path
