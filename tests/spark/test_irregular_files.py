"""The data source on special files and on batches of gigabytes: the reason in one line, in bounded memory."""

import os
import re
import shutil
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
MEMORY_LIMIT_KB = 350 * 1024


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
    return set(re.findall(r"\bottla(?:\.\w+)+: (.*)", str(error)))


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


def count_rows(process, root, *views):
    """Return what the process says of each view, failing on damage and reporting it. Its memory is bounded."""
    said = []
    for view in views:
        for on_damage in ("fail", "report"):
            counted, peak_kb = process.count(root, view=view, **{"on.damage": on_damage})
            said.append(f"{view} {on_damage}|{counted}")
            if sys.platform == "linux":
                assert 0 < peak_kb < MEMORY_LIMIT_KB
    return said


@pytest.mark.slow
def test_records_that_unpack_to_gigabytes(write_log, reader_process):
    log = write_log("bombs")
    for _ in range(3):
        log.data(3)
        log.append(bytearray(bomb().batch))
    failed, reported, *others = count_rows(
        reader_process, write_log.root, "records", "batches", "transactions", "damage"
    )
    assert failed.startswith(f"records fail|ottla.scan.damage_log.BatchTooLarge: {log.path}: ")
    assert failed.count("|") == 1 and "larger than Ottla reads: the zstd records take more than 256 MiB" in failed
    assert reported == "records report|9"
    assert others == [
        *("batches fail|6", "batches report|6"),
        *("transactions fail|0", "transactions report|0"),
        *("damage fail|0", "damage report|0"),
    ]


@pytest.mark.slow
def test_a_segment_of_a_terabyte_of_holes(write_log, reader_process):
    log = write_log("sparse")
    log.data(3)
    end, path = log.path.stat().st_size, log.path
    os.truncate(path, TERABYTE)
    log.roll().data(2)
    said = count_rows(reader_process, write_log.root, "records", "batches", "segments", "damage")
    for view, failed in zip(("records", "batches", "segments"), said[::2], strict=False):
        assert failed.startswith(
            f"{view} fail|ottla.scan.damage_log.DamagedSegment: {path}: position {end} to {TERABYTE}"
        )
        assert failed.count("|") == 1
    assert said[1::2] == ["records report|5", "batches report|2", "segments report|2", "damage report|1"]
    assert said[6] == "damage fail|1"
