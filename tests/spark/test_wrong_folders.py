"""A folder that is no log directory, and a glob that matches no topic: the data source and the jobs of spark-submit."""

import pytest

pytest.importorskip("numba", reason="the spark extra is not installed")

from pyspark.errors import PySparkException

from ottla.scan.listing import UnreadableDirectory
from ottla.spark_jobs import alert, audit, export
from ottla.spark_jobs.options import read_options
from ottla.spark_jobs.stream.watch import Watch
from tests.spark.streaming import Stream, read_to_end
from tests.wrong_folders import FOLDERS, TOPIC, make_wrong_folder, write_log_directory

pytestmark = pytest.mark.spark

JOBS = {
    "alert": (alert, ["DIR"]),
    "audit": (audit, ["DIR", "--run-on", "spark"]),
    "export": (export, ["DIR", "out", "--run-on", "spark"]),
}
UNMATCHED = f"no topic matches leger-*; there are {TOPIC}, __transaction_state"


@pytest.fixture(scope="module")
def log_directory(tmp_path_factory):
    return write_log_directory(tmp_path_factory.mktemp("corpus"))


@pytest.fixture(params=FOLDERS, ids=lambda make: make.__name__)
def wrong(request, log_directory, tmp_path):
    return make_wrong_folder(request.param, tmp_path / "place", log_directory)


def reason(error):
    """Return the end of the line with the reason from Spark's output about a failed Python data source."""
    assert "Traceback" not in str(error)
    return next(line for line in str(error).splitlines() if "ottla.scan.listing.UnreadableDirectory: " in line)


@pytest.mark.parametrize("view", ["records", "partitions", "hanging"])
def test_a_read_fails_with_what_is_below(spark, view, wrong):
    with pytest.raises(PySparkException) as raised:
        spark.read.format("ottla").option("view", view).load(str(wrong.path)).collect()
    said = reason(raised.value)
    assert f"{wrong.path}: {wrong.why}" in said and said.endswith(wrong.below)


def test_a_stream_fails_with_what_is_below(wrong):
    with pytest.raises(UnreadableDirectory) as raised:
        Stream().run(path=str(wrong.path))
    said = str(raised.value)
    assert said.startswith(f"{wrong.path}: {wrong.why}") and said.endswith(wrong.below)


def test_a_stream_fails_on_spark_with_what_is_below(spark, log_directory, tmp_path):
    wrong = make_wrong_folder(next(iter(FOLDERS)), tmp_path / "place", log_directory)
    with pytest.raises(PySparkException) as raised:
        read_to_end(spark.readStream.format("ottla").load(str(wrong.path)), tmp_path / "checkpoint")
    said = reason(raised.value)
    assert f"{wrong.path}: {wrong.why}" in said and said.endswith(wrong.below)


@pytest.mark.parametrize("job", JOBS)
def test_a_job_refuses_a_wrong_folder_in_one_line(spark, job, wrong, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    module, arguments = JOBS[job]
    before = sorted(tmp_path.rglob("*"))
    assert module.main([str(wrong.path) if argument == "DIR" else argument for argument in arguments]) == 2
    out, err = capsys.readouterr()
    (said,) = err.splitlines()
    assert out == "" and said.startswith(f"ottla {job}: {wrong.path}: {wrong.why}") and said.endswith(wrong.below)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("job", ["audit", "export"])
def test_a_job_refuses_a_glob_that_matches_no_topic(spark, job, log_directory, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    module, arguments = JOBS[job]
    given = [str(log_directory) if argument == "DIR" else argument for argument in arguments]
    assert module.main([*given, "--topics", "leger-*"]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.endswith(f"{log_directory}: {UNMATCHED}\n")


def test_a_single_alert_names_a_glob_that_matches_no_topic_once(log_directory, capsys, caplog):
    assert alert.main([str(log_directory), "--once", "--topics", "leger-*"]) == 0
    assert [record.getMessage() for record in caplog.records] == [f"{log_directory}: {UNMATCHED}"]
    assert capsys.readouterr() == ("", "")


def test_repeated_checks_name_a_glob_that_matches_no_topic_once(log_directory, caplog):
    """A topic may be created between two looks."""
    watch = Watch(read_options({"path": str(log_directory), "view": "hanging", "topics": "leger-*"}))
    assert [watch.find_hanging(0), watch.find_hanging(1)] == [[], []]
    assert [record.getMessage() for record in caplog.records] == [f"{log_directory}: {UNMATCHED}"]


def test_a_continuous_alert_names_a_glob_that_matches_no_topic(spark, log_directory, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(alert, "_watch", lambda *_: None)
    assert alert.main([str(log_directory), "--topics", "leger-*"]) == 0
    assert capsys.readouterr() == ("", f"ottla alert: {UNMATCHED}\n")


@pytest.mark.slow
def test_a_glob_that_matches_no_topic_is_in_the_log_of_the_driver(log_directory, reader_process):
    counted, _peak_kb = reader_process.count(log_directory, topics=f"leger-*,{TOPIC}")
    assert counted == "4"
    assert f"{log_directory}: {UNMATCHED}\n" in reader_process.log
