"""The audit and the data source on a standalone cluster: from a disk that all workers see, and from S3."""

import io
import json
import re
import shutil
import subprocess
import tarfile
from contextlib import ExitStack
from pathlib import Path

import pytest

pytest.importorskip("numba", reason="the spark extra is not installed")

import pyarrow.parquet as pq
import zstandard
from pyarrow import BufferReader, fs
from spark_cluster import spark_cluster

from ottla.scan.storage import locate
from ottla.spark_jobs import export
from ottla.spark_jobs.audit import main
from ottla.spark_jobs.session import pack_packages
from tests.s3_server import s3_server

pytestmark = [pytest.mark.conformance, pytest.mark.spark]

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "tests/data/kafka-4.3.1/clean.tar.zst"

TABLES = """
import json, sys
from pyspark.sql import SparkSession
from ottla.spark_jobs.source import OttlaSource
spark = SparkSession.builder.getOrCreate()
spark.dataSource.register(OttlaSource)  # Spark looks for sources among what is installed, not in archives
def where(_):
    import os, time, ottla
    time.sleep(1)
    yield ottla.__file__, os.getcwd()
context = spark.sparkContext
places = context.parallelize(range(8), 8).mapPartitions(where).collect()
def read(name, value):
    return spark.read.format("ottla").option(name, value).load(sys.argv[1])
found = [
    read("isolation.level", "read_committed").count(),
    read("isolation.level", "read_uncommitted").count(),
    read("view", "transactions").where("fate = 'open'").count(),
]
workers = sorted({part for _, folder in places for part in folder.split("/") if part.startswith("worker-")})
print(json.dumps([found, workers, sorted({path.split("/")[-3] for path, _ in places})]))
spark.stop()
"""


KERNELS = """
import json
from pyspark.sql import SparkSession
def compiled(_):
    import numpy as np, time
    from ottla.scan.compiled import kernels
    varint = kernels.varint.of_kind("compiled")
    varint(np.array([2], dtype=np.uint8), 0, 1)
    time.sleep(1)
    yield sum(varint.stats.cache_hits.values()), sum(varint.stats.cache_misses.values())
spark = SparkSession.builder.getOrCreate()
print(json.dumps(spark.sparkContext.parallelize(range(4), 4).mapPartitions(compiled).collect()))
spark.stop()
"""


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    folder = tmp_path_factory.mktemp("kafka-4.3.1")
    unpacked = zstandard.ZstdDecompressor().stream_reader(io.BytesIO(REFERENCE.read_bytes())).read()
    with tarfile.open(fileobj=io.BytesIO(unpacked)) as archive:
        archive.extractall(folder, filter="data")
    return folder / "clean"


@pytest.fixture(scope="module")
def s3_uri(directory):
    with s3_server() as (upload, _):
        yield upload(directory, "logs")


@pytest.fixture(scope="module")
def submit(tmp_path_factory):
    """`submit(script, *arguments)` on a cluster, with the package as an archive; (exit code, stdout, stderr)."""
    folder = tmp_path_factory.mktemp("cluster")
    archive = pack_packages(folder)
    with pytest.MonkeyPatch.context() as patch, ExitStack() as running:
        # Of driver, master and workers. Without any, Arrow sends bodies in a form that the server does not decode.
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            patch.setenv(name, "test")
        url, environment = running.enter_context(spark_cluster(folder))

        def run(script, *arguments):
            command = [f"{environment['SPARK_HOME']}/bin/spark-submit", "--master", url, "--py-files", archive, script]
            done = subprocess.run(
                [str(one) for one in [*command, *arguments]],
                capture_output=True,
                text=True,
                timeout=300,
                cwd=folder,
                env=environment,
                check=False,
            )
            said = "\n".join(line for line in done.stderr.splitlines() if " INFO " not in line)
            return done.returncode, done.stdout, said

        yield run


@pytest.fixture(params=["disk", "s3"])
def place(request):
    """A function that gives the directory: the S3 server is asked for where it is needed alone."""
    return request.getfixturevalue("directory" if request.param == "disk" else "s3_uri")


def findings(out, directory):
    """Without the directory's name, and how long ago something was."""
    base, _, query = str(directory).partition("?")
    out = re.sub(r"\b\d+ (d|h|min|s|ms)\b( \d+ (d|h|min|s|ms)\b)*", "TIME", out.replace(base, "DIR"))
    return [json.loads(line) for line in (out.replace("?" + query, "") if query else out).splitlines()]


def test_audit_by_the_script_and_an_archive_finds_what_it_finds_here(submit, directory, place, tmp_path, capsys):
    assert main([str(directory), "--format", "json"]) == 1
    here = findings(capsys.readouterr().out, directory)
    assert {one["transactional_id"] for one in here if one["severity"] != "info"} == {"hanging-01", "tv2-01"}
    script = shutil.copy(ROOT / "ottla/spark_jobs/audit.py", tmp_path)
    code, out, err = submit(script, place, "--format", "json")
    assert (code, findings(out, place)) == (1, here), err[-3000:]


def test_audit_runs_from_a_checkout_too(submit, directory):
    code, out, err = submit(ROOT / "ottla/spark_jobs/audit.py", directory, "--checks", "hanging", "--format", "json")
    assert code == 1, err[-3000:]
    assert [one["transactional_id"] for one in findings(out, directory)] == ["hanging-01", "tv2-01"]


def test_data_source_reads_on_both_workers_with_what_was_shipped(submit, place, tmp_path):
    script = tmp_path / "tables.py"
    script.write_text(TABLES, encoding="utf-8")
    code, out, err = submit(script, place)
    assert code == 0, err[-3000:]
    assert json.loads(out.splitlines()[-1]) == [[3988, 4996, 2], ["worker-0", "worker-1"], ["ottla.zip"]]


def test_workers_write_tables_and_records_to_s3(submit, directory, s3_uri, tmp_path, capsys):
    """Other tests compare the outputs of the driver alone (findings, partitions, the report)."""
    local = [str(tmp_path / "tables"), str(tmp_path / "records")]
    then = ("--as-of", "1795273900000")
    assert main([str(directory), "--output", local[0], *then]) == 1
    assert export.main([str(directory), local[1]]) == 0
    capsys.readouterr()
    base, _, query = s3_uri.partition("?")
    remote = [f"{base}-{name}?{query}" for name in ("tables", "records")]
    scripts = [ROOT / f"ottla/spark_jobs/{name}.py" for name in ("audit", "export")]
    code, out, err = submit(scripts[0], s3_uri, "--output", remote[0], *then)
    assert code == 1, err[-3000:]
    code, out, err = submit(scripts[1], s3_uri, remote[1])
    assert code == 0, err[-3000:]
    assert out.startswith("3,988 records in ")
    for here, there in zip(local, remote, strict=True):
        written = rows_of(there)
        assert written == rows_of(here)
        assert written


def rows_of(uri):
    """The rows of the Parquet files that tasks write, by the name of the file."""
    filesystem, root = locate(uri)
    found = filesystem.get_file_info(fs.FileSelector(root, recursive=True))
    names = [one.path for one in found if re.search(r"/part-\d{5,}-\d+\.parquet$", one.path)]
    whole = {name[len(root) :]: filesystem.open_input_stream(name).read() for name in names}
    return {name: pq.read_table(BufferReader(content)).to_pylist() for name, content in whole.items()}


def test_kernels_that_one_application_compiled_are_there_for_the_next(submit, tmp_path):
    script = tmp_path / "kernels.py"
    script.write_text(KERNELS, encoding="utf-8")
    for _ in range(2):
        code, out, err = submit(script)
        assert code == 0, err[-3000:]
    found = json.loads(out.splitlines()[-1])
    assert all(hits >= 1 and misses == 0 for hits, misses in found)
    assert len(found) == 4
