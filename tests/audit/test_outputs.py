"""Outputs can be at any path or URI of a log directory, appear when complete, and replace nothing without a request."""

import itertools
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("numba", reason="the spark extra is not installed")

import pyarrow.dataset as ds
import pyarrow.parquet as pq
from pyarrow import fs

from ottla.audit import outputs, pipeline, tasks
from ottla.audit.outputs import SUCCESS, UNFINISHED, Folder, OutputFailed
from ottla.scan import storage
from ottla.spark_jobs import audit, export, row_groups
from tests.s3_server import s3_server
from tests.timeout import EVENT_TIMEOUT_S

ROOT = Path(__file__).parents[2]
# Ages are the same in all audits at this time.
THEN = ("--as-of", "1795273900000")


@pytest.fixture(scope="module")
def s3():
    """Yield (prefix, query) of a bucket `outputs`."""
    with s3_server() as (_, query):
        filesystem, _ = fs.FileSystem.from_uri(f"s3://outputs/{query}&allow_bucket_creation=true")
        filesystem.create_dir("outputs")
        yield "s3://outputs/", query


@pytest.fixture
def disk(tmp_path, monkeypatch):
    """Yield (prefix, query) of an Arrow file system in which files are renamed, as in HDFS."""
    storage._connect_once.cache_clear()
    (tmp_path / "kept").mkdir()
    tree = fs.SubTreeFileSystem(str(tmp_path / "kept"), fs.LocalFileSystem())
    monkeypatch.setattr(storage, "connect", lambda root: (tree, ""))
    yield "kept://disk/", ""
    storage._connect_once.cache_clear()


@pytest.fixture(params=["s3", "disk", "local", "file"])
def place(request, tmp_path):
    """Return a function `place(name)` that returns a path or URI to write to, of each kind."""
    if request.param in ("s3", "disk"):
        prefix, query = request.getfixturevalue(request.param)
        return lambda name: f"{prefix}{request.node.name.split('[')[0]}/{name}{query}"
    return lambda name: f"{'file://' if request.param == 'file' else ''}{tmp_path}/written/{name}"


def put(uri, name, content):
    outputs.write(storage.join(outputs.absolute(uri), name), content)


def tree(uri):
    """Return the files below, as path -> content."""
    filesystem, root = storage.locate(outputs.absolute(str(uri)))
    found = filesystem.get_file_info(fs.FileSelector(root, recursive=True, allow_not_found=True))
    names = [one.path for one in found if one.is_file]
    return {name[len(root) :].strip("/"): filesystem.open_input_stream(name).read() for name in names}


def refuse_to_scan(*_):
    raise AssertionError("nothing should be read")


def failing(monkeypatch, error, at=2):
    """Let the scan of the second partition fail, when the first has written its transactions."""
    numbers = itertools.count(1)

    def scan(work):
        number = next(numbers)  # others scan meanwhile
        result = tasks.scan(work)
        if number == at:
            raise error
        return result

    monkeypatch.setattr(pipeline, "tasks", SimpleNamespace(**{**vars(tasks), "scan": scan}))


def test_an_audit_writes_the_same_everywhere(reference, place, tmp_path, capsys):
    local = tmp_path / "local"
    for folder in (place("tables"), str(local)):
        report = storage.join(storage.parent(folder), "report.html")
        assert audit.main([str(reference("clean")), "--output", folder, "--report", report, *THEN]) == 1
        assert capsys.readouterr().err == ""
    written = tree(place("tables"))
    assert written == tree(local)
    assert written[SUCCESS] == b""
    assert UNFINISHED not in written
    assert len([name for name in written if name.startswith("transactions/part-")]) > 10
    beside = tree(storage.parent(place("tables")))
    assert [name for name in beside if "/" not in name] == ["report.html"]
    assert beside["report.html"] == (tmp_path / "report.html").read_bytes()


def test_an_export_writes_the_same_everywhere(reference, place, tmp_path, capsys):
    for folder in (place("records"), str(tmp_path / "local")):
        assert export.main([str(reference("unclean")), folder]) == 0
    written = tree(place("records"))
    assert written == tree(tmp_path / "local")
    rows = ds.dataset(tmp_path / "local", partitioning="hive").count_rows()
    assert capsys.readouterr().out.startswith(f"{rows:,} records in {len(written) - 1} files in ")


def test_an_export_that_fails_takes_back_what_it_wrote(write_log, place, capsys, monkeypatch):
    monkeypatch.setattr(row_groups, "ROW_GROUP_BYTES", 1)
    write_log("a").data(3)
    log = write_log("b")
    log.data(3)
    log.data(3)
    content = bytearray(log.path.read_bytes())
    content[-1] ^= 1
    log.path.write_bytes(content)
    log.roll()  # what is broken is no torn tail
    log.data(1)
    assert export.main([str(write_log.root), place("records")]) == 2
    assert "--on-damage report leaves the damage out" in capsys.readouterr().err
    assert tree(place("records")) == {}
    assert export.main([str(write_log.root), place("records"), "--on-damage", "report"]) == 0


@pytest.mark.parametrize(("error", "code"), [(KeyboardInterrupt(), 130), (RuntimeError("a bug"), None)])
def test_an_audit_that_ends_early_takes_back_what_it_wrote(reference, place, capsys, monkeypatch, error, code):
    failing(monkeypatch, error, at=12)
    run = [str(reference("clean")), "--output", place(f"tables-{code}")]
    if code is None:
        with pytest.raises(RuntimeError):
            audit.main(run)
    else:
        assert audit.main(run) == code
        assert capsys.readouterr().err == "ottla audit: interrupted\n"
    assert tree(place(f"tables-{code}")) == {}


def test_tables_are_replaced_only_with_overwrite_and_foreign_files_stay(write_log, place, capsys):
    write_log().data(1)
    folder = place("tables")
    run = [str(write_log.root), "--topics", "ledger", "--output", folder]
    put(folder, "notes.txt", b"mine")
    assert audit.main([*run, "--output-format", "json"]) == 0
    before = tree(folder)
    assert audit.main(run) == 2
    shown = storage.hide_secrets(outputs.absolute(folder))
    assert capsys.readouterr().err == f"ottla audit: --output {shown} is not empty: --overwrite replaces it\n"
    assert tree(folder) == before
    assert audit.main([*run, "--overwrite"]) == 0
    after = tree(folder)
    assert {name for name in after if name.endswith("json")} == set()
    assert {"notes.txt", "findings/part-0.parquet", SUCCESS} <= set(after)


def test_an_export_is_replaced_only_with_overwrite_and_no_foreign_files(write_log, place, capsys):
    write_log().data(2)
    folder = place("records")
    assert export.main([str(write_log.root), folder]) == 0
    assert export.main([str(write_log.root), folder]) == 2
    assert "is not empty: --overwrite replaces it" in capsys.readouterr().err
    assert export.main([str(write_log.root), folder, "--overwrite", "--columns", "offset"]) == 0
    put(folder, "notes.txt", b"mine")
    before = tree(folder)
    for more in ([], ["--overwrite"]):
        assert export.main([str(write_log.root), folder, *more]) == 2
        assert "is not empty, and notes.txt is not of ottla" in capsys.readouterr().err
        assert tree(folder) == before


def test_output_of_an_unfinished_run_is_refused_without_overwrite(write_log, place, capsys):
    write_log().data(1)
    put(place("records"), UNFINISHED, b"token")
    assert export.main([str(write_log.root), place("records")]) == 2
    assert "has the output of a run that did not finish, or still runs: --overwrite" in capsys.readouterr().err
    assert export.main([str(write_log.root), place("records"), "--overwrite"]) == 0
    assert UNFINISHED not in tree(place("records"))


def test_unwritable_output_paths_are_refused_before_reading(write_log, tmp_path, capsys, monkeypatch):
    write_log().data(1)
    monkeypatch.setattr(pipeline, "audit_listing", refuse_to_scan)
    monkeypatch.setattr(export, "_write_range", refuse_to_scan)
    (tmp_path / "file").touch()
    path = f"{tmp_path}/file/below"
    why = "cannot be written: Not a directory"
    for option in ("--output", "--report"):
        assert audit.main([str(write_log.root), option, path]) == 2
        assert capsys.readouterr().err == f"ottla audit: {option} {path}: {why}\n"
    assert export.main([str(write_log.root), path]) == 2
    assert capsys.readouterr().err == f"ottla export: {path}: {why}\n"
    assert audit.main([str(write_log.root), "--report", str(tmp_path)]) == 2
    assert capsys.readouterr().err == f"ottla audit: --report {tmp_path}: Is a directory\n"


def test_missing_buckets_and_secrets_in_uris_are_refused_before_reading(write_log, s3, capsys, monkeypatch):
    write_log().data(1)
    monkeypatch.setattr(pipeline, "audit_listing", refuse_to_scan)
    query = s3[1]
    assert audit.main([str(write_log.root), "--output", f"s3://no-such/tables{query}"]) == 2
    assert capsys.readouterr().err == ("ottla audit: --output s3://no-such/tables: cannot be written: no such bucket\n")
    assert audit.main([str(write_log.root), "--report", f"s3://no-such/report.html{query}"]) == 2
    assert "s3://no-such/report.html" in (told := capsys.readouterr().err)
    assert told.endswith("cannot be written: no such bucket\n")
    assert audit.main([str(write_log.root), "--output", f"s3://key:hidden@outputs/tables{query}"]) == 2
    assert "the URI has a secret, which findings show: leave it out" in (told := capsys.readouterr().err)
    assert "hidden" not in told


def test_a_directory_that_cannot_be_audited_leaves_no_output(tmp_path, capsys):
    assert audit.main([str(tmp_path / "none"), "--output", str(tmp_path / "tables")]) == 2
    assert not (tmp_path / "tables").exists()


def test_the_report_of_yesterday_stays_if_todays_fails(write_log, tmp_path, monkeypatch, capsys):
    write_log().data(1)
    report = tmp_path / "report.html"
    report.write_text("yesterday")
    failing(monkeypatch, KeyboardInterrupt(), at=1)
    assert audit.main([str(write_log.root), "--report", str(report)]) == 130
    assert report.read_text() == "yesterday"
    monkeypatch.undo()
    assert audit.main([str(write_log.root), "--report", str(report)]) == 0
    assert report.read_text().startswith("<!DOCTYPE html>")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["log", "report.html"]


def test_tasks_find_out_that_the_folder_is_not_the_drivers(write_log, tmp_path, monkeypatch, capsys):
    """The tasks run as on another machine, where the folder of that name is a different one."""
    write_log("a").data(1)
    folder = tmp_path / "tables"

    def elsewhere(work):
        (folder / UNFINISHED).write_text("another run\n")
        return tasks.scan(work)

    monkeypatch.setattr(pipeline, "tasks", SimpleNamespace(**{**vars(tasks), "scan": elsewhere}))
    assert audit.main([str(write_log.root), "--output", str(folder)]) == 2
    told = capsys.readouterr().err
    assert f"{folder} on {platform.node()} is not the folder that the driver created" in told
    assert "s3://BUCKET/FOLDER" in told
    with pytest.raises(OutputFailed, match="is not the folder that the driver created"):
        outputs.check_here(Folder(str(tmp_path / "nowhere"), "token"))


def test_a_table_without_rows_has_its_columns(write_log, tmp_path):
    write_log().data(1)
    assert audit.main([str(write_log.root), "--topics", "ledger", "--output", str(tmp_path / "tables")]) == 0
    assert "producerId" in pq.read_table(tmp_path / "tables/transactions").column_names


def test_a_report_shows_uris_without_their_options(reference, disk, capsys, tmp_path):
    shutil.copytree(reference("clean"), tmp_path / "kept" / "logs")
    path = tmp_path / "kept" / "logs" / "plain-0" / f"{0:020d}.log"
    content = bytearray(path.read_bytes())
    content[300] ^= 1
    path.write_bytes(content)
    run = [f"{disk[0]}logs?region=eu-north-1", "--checks", "damage", "--report", f"{tmp_path}/report.html"]
    assert audit.main(run) == 1
    out = capsys.readouterr().out
    assert out.startswith("Audit of kept://disk/logs\n")
    assert "in kept://disk/logs/plain-0/00000000000000000000.log position" in out
    assert "eu-north-1" not in out + (tmp_path / "report.html").read_text()


@pytest.mark.slow
def test_a_closed_pipe_is_no_failure_of_the_audit(reference):
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "ottla", "audit", str(reference("clean")), "--checks", "hanging"]
    done = subprocess.run(
        command, stdout=write, stderr=subprocess.PIPE, text=True, cwd=ROOT, check=False, timeout=EVENT_TIMEOUT_S
    )
    os.close(write)
    assert (done.returncode, done.stderr) == (1, "")
