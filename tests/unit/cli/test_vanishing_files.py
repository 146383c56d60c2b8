"""Retention deletes the first segment between listing and reading: no error, and the other segments are read."""

import pytest
from click.testing import CliRunner

from ottla.cli.dump import command as dump_command
from ottla.cli.inspect.overlay_disk import OverlayDisk
from ottla.cli.main import main
from ottla.testkit.corpus.case import write_case
from ottla.testkit.corpus.catalogue import CASES

CASE = "transactions-across-segments"
FIRST = "00000000000000000000"


@pytest.fixture
def directory(tmp_path):
    (case,) = (each for each in CASES if each.name == CASE)
    write_case(case, tmp_path)
    return tmp_path / CASE / "data"


def delete_first_segment(directory):
    found = list((directory / f"{CASE}-0").glob(f"{FIRST}.*"))
    for file in found:
        file.unlink()
    return bool(found)


def deleting_after(function, directory, deleted, only=""):
    """Return the function with a deletion by retention after its first call."""

    def call(*arguments, **options):
        result = function(*arguments, **options)
        if not deleted and any(only in str(each) for each in arguments):
            deleted.append(delete_first_segment(directory))
        return result

    return call


@pytest.mark.parametrize("options", [[], ["--isolation-level", "read_uncommitted"]])
def test_an_export_is_planned_again(directory, tmp_path, monkeypatch, options):
    pytest.importorskip("numba", reason="the audit extra is not installed")
    from ottla.spark_jobs import export

    deleted = []
    monkeypatch.setattr(export, "_tasks", deleting_after(export._tasks, directory, deleted))
    done = CliRunner().invoke(main, ["export", str(directory), str(tmp_path / "out"), *options])
    assert deleted == [True]
    assert done.exit_code == 0, done.output
    assert "records in" in done.stdout
    assert not list(tmp_path.glob("out/*unfinished*"))


def test_a_dump_leaves_it_out(directory, monkeypatch):
    def files(path, list_files=dump_command._files):
        listed = list(list_files(path))
        delete_first_segment(directory)
        yield from listed

    monkeypatch.setattr(dump_command, "_files", files)
    done = CliRunner().invoke(main, ["dump", str(directory)])
    assert done.exit_code == 0, done.output
    assert f"{FIRST}.log was deleted after it was listed" in done.stderr


def test_inspect_succeeds_when_a_segment_is_deleted_meanwhile(directory, monkeypatch):
    deleted = []
    monkeypatch.setattr(OverlayDisk, "list", deleting_after(OverlayDisk.list, directory, deleted, only=f"{CASE}-0"))
    done = CliRunner().invoke(main, ["inspect", str(directory)])
    assert deleted == [True]
    assert done.exit_code == 0, done.output
    assert CASE in done.stdout
