"""The audit on Spark, and the code that it ships to executors: the findings are those of this process."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("numba", reason="the spark extra is not installed")

from ottla.audit.pipeline import audit
from ottla.audit.request import Request
from ottla.audit.runner import ThreadRunner
from ottla.spark_jobs.spark_runner import SparkRunner
from tests.audit.test_audit import wrong
from tests.audit.test_checks_reused import NOW_MS, unpack
from tests.timeout import EVENT_TIMEOUT_S

ROOT = Path(__file__).parents[2]


@pytest.mark.spark
def test_spark_and_this_process_give_the_same(spark, run_audit, reference, tmp_path):
    arguments = ("--format", "json", "--copies", "ledger=audit-log,key", "--as-of", "1795253900000")
    results = {}
    for where in ("here", "spark"):
        folder = tmp_path / where
        results[where] = run_audit(reference("clean"), *arguments, "--run-on", where, "--output", folder)
        names = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*.parquet"))
        results[where] += (names, [(folder / name).read_bytes() for name in names])
    assert results["here"] == results["spark"]
    assert len(results["here"][3]) > 10


@pytest.mark.slow
def test_a_failed_start_of_java_is_reported_in_the_last_line(reference, tmp_path):
    command = [sys.executable, ROOT / "ottla/spark_jobs/audit.py", reference("clean"), "--run-on", "spark"]
    environment = {**os.environ, "JAVA_HOME": str(tmp_path)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=EVENT_TIMEOUT_S, env=environment)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    last = done.stderr.splitlines()[-1]
    assert last.startswith(f"ottla audit: Spark, which needs Java 17, did not start with JAVA_HOME={tmp_path}: ")


def test_the_shipped_zip_works_without_the_installed_package(tmp_path, reference):
    """The zip scans a directory in an interpreter without our package."""
    from ottla.spark_jobs.session import pack_packages

    program = f"""
import sys
sys.path.insert(0, {str(pack_packages(tmp_path))!r})
import ottla, pyspark_ottla
from ottla.audit.pipeline import audit
from ottla.audit.request import Request
from ottla.audit.runner import ThreadRunner
assert "ottla.zip" in ottla.__file__ and "ottla.zip" in pyspark_ottla.__file__
found = audit(ThreadRunner(1), Request(({str(reference("clean"))!r},), (), 1795253827000))
print(sum(one.aborted.transactions for one in found.partitions))
"""
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "numba")}
    done = subprocess.run(
        [sys.executable, "-I", "-c", program], capture_output=True, text=True, timeout=EVENT_TIMEOUT_S, env=environment
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 300


@pytest.mark.spark
@pytest.mark.slow
def test_spark_submit_runs_the_script_from_a_checkout(reference, tmp_path):
    submit = shutil.which("spark-submit", path=str(Path(sys.executable).parent)) or shutil.which("spark-submit")
    assert submit, "pyspark brings spark-submit"
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    done = subprocess.run(
        [submit, "--master", "local[2]", ROOT / "ottla/spark_jobs/audit.py", reference("clean"), "--format", "json"],
        capture_output=True,
        text=True,
        timeout=EVENT_TIMEOUT_S,
        cwd=tmp_path,
        env=environment,
    )
    assert done.returncode == 1, done.stderr
    assert {one["transactional_id"] for one in wrong(done.stdout)} == {"hanging-01", "tv2-01"}


@pytest.mark.spark
def test_spark_finds_what_an_abort_hid(spark, tmp_path):
    request = Request((str(unpack(tmp_path)),), (), NOW_MS)
    found = audit(SparkRunner(spark), request).findings
    assert "reused" in {one.check for one in found}
    assert found == audit(ThreadRunner(1), request).findings
