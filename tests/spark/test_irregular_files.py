"""The data source on special files and on batches of gigabytes: the reason in one line, in bounded memory."""

import os
import shutil
import subprocess
import sys

import pytest

pytest.importorskip("numba", reason="the spark extra is not installed")

from pyspark.errors import PySparkException

from ottla.spark_jobs import alert
from tests.irregular_files import CASE, KINDS, LOG, TERABYTE, WORDS, failing_after, replace, write_log_directory
from tests.timeout import EVENT_TIMEOUT_S
from tests.unusual_frames import bomb

pytestmark = pytest.mark.spark

# The files that a view reads, and a view that reads them.
READ_BY = {
    f"{LOG}.log": "records",
    "recovery-point-offset-checkpoint": "records",
    "log-start-offset-checkpoint": "records",
    "replication-offset-checkpoint": "partitions",
    "cleaner-offset-checkpoint": "transactions",
    f"{LOG}.txnindex": "records",
    f"{LOG}.index": "segments",
    f"{LOG}.timeindex": "segments",
    f"{LOG}.snapshot": "segments",
}
UNFIT = [
    *((f"{LOG}.log", kind) for kind in KINDS if kind != "sparse"),
    *(("recovery-point-offset-checkpoint", kind) for kind in KINDS),
    *((name, kind) for name in list(READ_BY)[2:] for kind in ("fifo", "device", "sparse")),
]
MEMORY_LIMIT_KB = 300 * 1024


@pytest.fixture(autouse=True)
def _no_test_hangs():
    with failing_after(EVENT_TIMEOUT_S):
        yield


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    return write_log_directory(tmp_path_factory.mktemp("sound"))


@pytest.fixture
def directory(sound, tmp_path):
    return shutil.copytree(sound, tmp_path / "log")


def reasons(error):
    """Return the lines with the reason from Spark's output about a failed Python data source."""
    return {line.partition(": ")[2] for line in str(error).splitlines() if line.startswith("ottla.")}


@pytest.mark.parametrize(("name", "kind"), UNFIT)
def test_a_file_that_is_none_is_named_in_one_line(spark, directory, name, kind):
    replace(directory / name, kind)
    with pytest.raises(PySparkException) as raised:
        spark.read.format("ottla").option("view", READ_BY[name]).load(str(directory)).collect()
    (said,) = reasons(raised.value)
    assert said.startswith(f"{directory / name}: ") and WORDS[kind] in said


def in_latin1(folder):
    """Return a path in `folder` with a name that is not UTF-8."""
    path = folder / os.fsdecode(b"caf\xe9-0")
    try:
        path.touch()
    except OSError:
        pytest.skip("the file system takes names in UTF-8 only")
    path.unlink()
    return path


def test_names_that_are_not_utf8_are_passed_over(spark, directory):
    rows = spark.read.format("ottla").load(str(directory)).count()
    for folder in (directory, directory / f"{CASE}-0"):
        shutil.copytree(directory / f"{CASE}-0", in_latin1(folder))
    assert spark.read.format("ottla").load(str(directory)).count() == rows


def test_a_directory_that_is_not_utf8_is_read_by_a_link(spark, sound, tmp_path, capsys):
    """An error of a task that names such a path crashes Spark's worker, and the query waits forever."""
    named = in_latin1(tmp_path)
    shutil.copytree(sound, named)
    url = f"{tmp_path.as_uri()}/caf%E9-0"
    with pytest.raises(PySparkException) as raised:
        spark.read.format("ottla").load(url).collect()
    said = "the path is not UTF-8, which Spark needs; name a link to it (ln -s)"
    assert reasons(raised.value) == {f"{url}: {said}"}
    assert alert.main([str(named)]) == 2
    assert capsys.readouterr().err == f"ottla alert: {tmp_path}/caf\\udce9-0: {said}\n"
    (tmp_path / "link").symlink_to(named)
    assert spark.read.format("ottla").load(str(tmp_path / "link")).count() == 3


READ = """
import sys, threading, time
from pathlib import Path
import ottla.spark_jobs
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
spark = builder.config("spark.python.unix.domain.socket.enabled", "true").getOrCreate()
spark.sparkContext.setLogLevel("FATAL")


def field(status, name):
    return next((int(line.split()[1]) for line in status if line.startswith(name)), 0)


def peaks_of_python():
    "Peak memory in KiB of the processes below this one that run Python, by process id."
    found = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            program = (entry / "exe").readlink().name
            status = (entry / "status").read_text().splitlines()
        except OSError:  # it ended
            continue
        found[int(entry.name)] = field(status, "PPid:"), field(status, "VmHWM:"), program
    below = {os_id for os_id in found if found[os_id][2] == "java"}
    for _ in range(4):
        below |= {os_id for os_id, (parent, _, _) in found.items() if parent in below}
    return {os_id: found[os_id][1] for os_id in below if found[os_id][2].startswith("python")}


peaks, ended = {}, threading.Event()


def watch():
    while not ended.wait(0.05):
        for os_id, peak in peaks_of_python().items():
            peaks[os_id] = max(peak, peaks.get(os_id, 0))


watcher = threading.Thread(target=watch)
watcher.start()
for view in sys.argv[2].split(","):
    for on_damage in ("fail", "report"):
        reader = spark.read.format("ottla").options(**{"view": view, "on.damage": on_damage})
        try:
            print(f"{view} {on_damage}|{reader.load(sys.argv[1]).count()}")
        except PySparkException as error:
            lines = {line for line in str(error).splitlines() if line.startswith("ottla.")}
            print(f"{view} {on_damage}", *lines, sep="|")
ended.set()
watcher.join()
print("processes", len(peaks), max(peaks.values(), default=0))
"""


def read_apart(root, *views):
    """Return a separate session's output for each view, failing on damage and reporting it, in bounded memory."""
    command = [sys.executable, "-c", READ, str(root), ",".join(views)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=EVENT_TIMEOUT_S)
    assert done.returncode == 0, done.stderr
    *said, last = done.stdout.splitlines()
    if sys.platform == "linux":
        _, processes, peak_kb = last.split()
        assert int(processes) > 0 and int(peak_kb) < MEMORY_LIMIT_KB
    return said


@pytest.mark.slow
def test_records_that_unpack_to_gigabytes(write_log):
    log = write_log("bombs")
    for _ in range(3):
        log.data(3)
        log.append(bytearray(bomb().batch))
    failed, reported, *others = read_apart(write_log.root, "records", "batches", "transactions", "damage")
    assert failed.startswith(f"records fail|ottla.scan.damage_log.BatchTooLarge: {log.path}: ")
    assert failed.count("|") == 1 and "larger than Ottla reads: the zstd records take more than 256 MiB" in failed
    assert reported == "records report|9"
    assert others == [
        *("batches fail|6", "batches report|6"),
        *("transactions fail|0", "transactions report|0"),
        *("damage fail|0", "damage report|0"),
    ]


@pytest.mark.slow
def test_a_segment_of_a_terabyte_of_holes(write_log):
    log = write_log("sparse")
    log.data(3)
    end, path = log.path.stat().st_size, log.path
    os.truncate(path, TERABYTE)
    log.roll().data(2)
    said = read_apart(write_log.root, "records", "batches", "segments", "damage")
    for view, failed in zip(("records", "batches", "segments"), said[::2], strict=False):
        assert failed.startswith(
            f"{view} fail|ottla.scan.damage_log.DamagedSegment: {path}: position {end} to {TERABYTE}"
        )
        assert failed.count("|") == 1
    assert said[1::2] == ["records report|5", "batches report|2", "segments report|2", "damage report|1"]
    assert said[6] == "damage fail|1"
