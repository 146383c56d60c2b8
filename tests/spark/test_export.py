"""The export: Parquet files with the same records as the data source."""

import pytest

pytest.importorskip("numba", reason="the spark extra is not installed")

import pyarrow.dataset as ds

from ottla.spark_jobs import export
from ottla.testkit.corpus.case import files_of
from ottla.testkit.corpus.case_run import BEGIN_MS
from ottla.testkit.corpus.catalogue import CASES
from tests.corpus import KEEPING, write_files
from tests.thread_broker import ThreadBroker


def read_export(path):
    table = ds.dataset(path, partitioning="hive").to_table().sort_by([("topic", "ascending"), ("offset", "ascending")])
    return table.to_pylist()


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_exported_files_have_the_records_of_kafkas_consumer(reference, consume, tmp_path, isolation, capsys):
    out = tmp_path / "out"
    assert export.main([str(reference("unclean")), str(out), "--isolation-level", isolation]) == 0
    expected = consume(isolation)[1]
    assert capsys.readouterr().out.startswith(f"{len(expected):,} records")

    def place(row):
        return row["topic"], int(row["partition"]), row["offset"]

    rows = {place(row): row for row in read_export(out)}
    assert rows.keys() == {place(row) for row in expected}
    for row in expected:
        mine = rows[place(row)]
        assert len(mine["value"] or b"") == max(row["value_len"], 0)
        assert (mine["key"] or b"").decode() == (row["key"] or "")
        assert mine["timestampType"] == row["timestamp_type"]
    assert (out / "_SUCCESS").exists()
    assert not list(out.rglob("_part*"))


def test_columns_are_those_that_are_named(reference, tmp_path):
    assert export.main([str(reference("clean")), str(tmp_path / "out"), "--columns", "offset,topic,key"]) == 0
    assert {*read_export(tmp_path / "out")[0]} == {"offset", "key", "topic", "partition"}


@pytest.mark.spark
def test_spark_reads_what_spark_tasks_wrote(spark, reference, tmp_path):
    out = tmp_path / "out"
    assert export.main([str(reference("clean")), str(out), "--run-on", "spark", "--topics", "ledger*"]) == 0
    table = spark.read.parquet(str(out))
    mine = spark.read.format("ottla").option("topics", "ledger*").load(str(reference("clean")))
    columns = [name for name in mine.columns if name != "headers"]
    assert table.select(columns).exceptAll(mine.select(columns)).isEmpty()
    assert table.count() == mine.count()


@pytest.mark.parametrize("folder", [".", "out", "ledger-0/out"])
def test_output_inside_a_log_directory_is_refused(write_log, monkeypatch, capsys, folder):
    from ottla.spark_jobs import audit

    write_log().data(1)
    before = sorted(write_log.root.rglob("*"))
    monkeypatch.chdir(write_log.root.parent)
    assert export.main(["log", f"log/{folder}", "--overwrite"]) == 2
    assert audit.main(["log", "--output", f"log/{folder}", "--overwrite"]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.count(f"is in the log directory {write_log.root}") == 2
    assert sorted(write_log.root.rglob("*")) == before
    assert audit.main(["log", "--output", "logs"]) == 0


def test_damage_ends_the_export_without_success(write_log, tmp_path, capsys):
    log = write_log()
    log.data(1)
    position = log.data(1)
    log.data(1)
    content = bytearray(log.path.read_bytes())
    content[position + 70] ^= 1
    log.path.write_bytes(content)
    assert export.main([str(write_log.root), str(tmp_path / "out")]) == 2
    told = capsys.readouterr().err
    assert f"position {position}" in told
    assert "--on-damage report" in told
    assert not (tmp_path / "out" / "_SUCCESS").exists()
    assert export.main([str(write_log.root), str(tmp_path / "again"), "--on-damage", "report"]) == 0
    assert len(read_export(tmp_path / "again")) == 2


@pytest.mark.parametrize(("columns", "words"), [("offset,nothing", "no column nothing"), ("topic", "name another")])
def test_columns_that_cannot_be(write_log, tmp_path, capsys, columns, words):
    write_log().data(1)
    assert export.main([str(write_log.root), str(tmp_path / "out"), "--columns", columns]) == 2
    assert words in capsys.readouterr().err


def test_topics_that_match_nothing_are_not_exported_as_no_records(write_log, tmp_path, capsys):
    write_log("ledger").data(1)
    assert export.main([str(write_log.root), str(tmp_path / "out"), "--topics", "ledgre"]) == 2
    assert "no topic matches ledgre" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_a_cluster_is_exported_as_its_files_are(tmp_path, isolation):
    case = next(case for case in CASES if case.name == "interleaved-transactions")
    root = write_files(files_of(case), tmp_path) / "data"
    arguments = ["--isolation-level", isolation, "--run-on", "here"]
    assert export.main([str(root), str(tmp_path / "files"), *arguments]) == 0
    with ThreadBroker(root, now_ms=BEGIN_MS, **KEEPING) as broker:
        assert export.main([f"kafka://{broker.bootstrap}", str(tmp_path / "wire"), *arguments]) == 0
    wire, files = ([row | {"segment": None} for row in read_export(tmp_path / name)] for name in ("wire", "files"))
    assert wire
    assert wire == files


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["kafka://127.0.0.1:1"], "ottla export: kafka://127.0.0.1:1: 127.0.0.1:1: nothing listens there"),
        (["kafka://127.0.0.1:1", "--command-config", "/no/such/file"], "/no/such/file"),
        (["kafka://user:secret@127.0.0.1:1"], "an address has no user, secret or option; --command-config FILE has"),
        (["/tmp", "--command-config", "/no/such/file"], "--command-config FILE is for clusters"),
    ],
)
def test_a_cluster_that_cannot_be_exported_is_one_line_and_exit_2(tmp_path, capsys, arguments, error):
    place, *options = arguments
    assert export.main([place, str(tmp_path / "out"), *options, "--run-on", "here"]) == 2
    written = capsys.readouterr().err
    assert error in written
    assert "secret@" not in written
    assert len(written.splitlines()) == 1
