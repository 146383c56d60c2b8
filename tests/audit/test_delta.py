"""Delta tables of an audit and of an export, as delta-rs reads them; and the message without it."""

import importlib.util

import pytest

pytest.importorskip("numba", reason="the spark extra is not installed")

from ottla.audit import delta
from ottla.scan import storage
from ottla.spark_jobs import audit, export
from tests.s3_server import s3_server


@pytest.fixture
def table():
    """Return a function `table(uri)` that returns the rows of a Delta table."""
    deltalake = pytest.importorskip("deltalake", reason="the delta extra (deltalake) is not installed")

    def read(uri):
        path = uri.partition("?")[0] if storage.is_remote(uri) else uri
        return deltalake.DeltaTable(path, storage_options=delta._options(uri)).to_pyarrow_table()

    return read


@pytest.fixture(params=["local", "s3"])
def place(request, tmp_path):
    """Return a function `place(name)` that returns a path or URI to write to."""
    if request.param == "local":
        yield lambda name: str(tmp_path / name)
        return
    with s3_server() as (upload, query):
        (tmp_path / "empty").mkdir()
        upload(tmp_path / "empty", "tables")
        yield lambda name: f"s3://tables/{name}{query}"


def test_tables_of_an_audit_are_delta_tables(reference, place, table, capsys):
    run = [str(reference("clean")), "--output", place("audit"), "--output-format", "delta", "--format", "json"]
    assert audit.main(run) == 1
    out, err = capsys.readouterr()
    assert err == ""
    assert table(storage.join(place("audit"), "findings")).num_rows == len(out.splitlines())
    transactions = table(storage.join(place("audit"), "transactions")).to_pylist()
    ledger = [row["fate"] for row in transactions if (row["topic"], row["partition"]) == ("ledger", 2)]
    assert [ledger.count(fate) for fate in ("committed", "aborted", "open")] == [223, 64, 1]
    assert table(storage.join(place("audit"), "partitions")).num_rows == 22
    assert audit.main(run) == 2
    assert audit.main([*run, "--overwrite"]) == 1
    assert table(storage.join(place("audit"), "partitions")).num_rows == 22


def test_an_export_is_a_delta_table_with_the_folders_columns(reference, place, table, capsys):
    assert export.main([str(reference("clean")), place("records"), "--format", "delta"]) == 0
    rows = table(place("records"))
    assert capsys.readouterr().out.startswith(f"{rows.num_rows:,} records in ")
    assert rows.num_rows == 3988
    assert {"topic", "partition", "offset", "key", "headers"} <= set(rows.column_names)
    assert {(row["topic"], row["partition"]) for row in rows.to_pylist()} >= {("ledger", 0), ("ledger-tv2", 1)}


def test_a_table_without_rows_is_a_delta_table(write_log, tmp_path, table):
    write_log()
    assert export.main([str(write_log.root), str(tmp_path / "records"), "--format", "delta"]) == 0
    assert table(str(tmp_path / "records")).num_rows == 0
    run = [str(write_log.root), "--topics", "ledger", "--output", str(tmp_path / "audit"), "--output-format", "delta"]
    assert audit.main(run) == 0
    assert table(str(tmp_path / "audit/transactions")).num_rows == 0


def test_an_export_that_fails_is_no_delta_table(write_log, tmp_path, capsys):
    pytest.importorskip("deltalake", reason="the delta extra (deltalake) is not installed")
    log = write_log()
    position = log.data(1)
    log.data(1)
    content = bytearray(log.path.read_bytes())
    content[position + 70] ^= 1
    log.path.write_bytes(content)
    assert export.main([str(write_log.root), str(tmp_path / "records"), "--format", "delta"]) == 2
    assert not list((tmp_path / "records").rglob("*"))


def find_deltalake(monkeypatch, found):
    """Replace only the search for deltalake; other libraries are found as usual and cached."""
    look = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: found if name == "deltalake" else look(name))


def test_without_deltalake_the_extra_is_named_before_anything_is_written(write_log, tmp_path, monkeypatch, capsys):
    write_log().data(1)
    find_deltalake(monkeypatch, None)
    output = tmp_path / "out"
    assert audit.main([str(write_log.root), "--output", str(output), "--output-format", "delta"]) == 2
    assert export.main([str(write_log.root), str(output), "--format", "delta"]) == 2
    said = "the format delta needs deltalake: pip install 'ottla[delta]'"
    assert capsys.readouterr().err == f"ottla audit: {said}\nottla export: {said}\n"
    assert not output.exists()


@pytest.mark.parametrize(
    ("uri", "said"),
    [
        ("hdfs://name/logs", "hdfs://name/logs: the format delta is for local folders and s3://; use parquet"),
        ("s3://logs/x?allow_bucket_creation=true", "has no URI option allow_bucket_creation"),
    ],
)
def test_delta_output_to_an_unsupported_uri_is_refused(write_log, monkeypatch, capsys, uri, said):
    write_log().data(1)
    find_deltalake(monkeypatch, object())
    assert audit.main([str(write_log.root), "--output", uri, "--output-format", "delta"]) == 2
    assert said in capsys.readouterr().err


def test_options_of_an_s3_uri_are_delta_rs_own():
    assert delta._options("s3://b/x?endpoint_override=127.0.0.1:9000&scheme=http&region=eu-north-1") == {
        "AWS_ENDPOINT_URL": "http://127.0.0.1:9000",
        "AWS_REGION": "eu-north-1",
        "AWS_ALLOW_HTTP": "true",
    }
    assert delta._options("/data/what?scheme=http") == {}
