"""Paths that are not regular files, and files that are far too large: refused at once, in one line."""

import os

import pytest
from click.testing import CliRunner

from ottla import files
from ottla.cli.main import main
from tests.irregular_files import CASE, KINDS, LOG, TERABYTE, WORDS, failing_after, replace, write_log_directory

SECONDS = 60
OF_THE_DIRECTORY = ("meta.properties", "recovery-point-offset-checkpoint", "replication-offset-checkpoint")
OF_A_PARTITION = (f"{LOG}.index", f"{LOG}.timeindex", f"{LOG}.snapshot", f"{CASE}-0/leader-epoch-checkpoint")


@pytest.fixture(autouse=True)
def _no_test_hangs():
    with failing_after(SECONDS):
        yield


@pytest.fixture
def directory(tmp_path):
    return write_log_directory(tmp_path)


def run(*arguments):
    done = CliRunner().invoke(main, [str(each) for each in arguments])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    assert "Traceback" not in done.output
    return done


@pytest.mark.parametrize("kind", KINDS)
def test_reading_an_unfit_file_is_a_one_line_error_with_its_path(tmp_path, kind):
    path = tmp_path / "small"
    KINDS[kind](path)
    with pytest.raises(OSError, match=WORDS[kind]) as raised:
        files.read(str(path))
    assert str(path) in str(raised.value)
    assert len(str(raised.value).splitlines()) == 1


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", OF_THE_DIRECTORY)
@pytest.mark.parametrize("command", ["inspect", "repair"])
def test_a_file_of_the_directory_is_refused(directory, command, name, kind):
    replace(directory / name, kind)
    done = run(command, directory)
    assert done.exit_code == 2
    if kind not in ("dangling", "circular") or command == "inspect":
        assert WORDS[kind] in done.stderr
        assert name in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("kind", KINDS)
def test_dump_names_each_unfit_file_and_continues(directory, kind):
    for name in (*OF_THE_DIRECTORY, *OF_A_PARTITION):
        replace(directory / name, kind)
    done = run("dump", directory)
    assert done.exit_code == 2
    told = done.stderr.splitlines()
    for name in (*OF_THE_DIRECTORY, *OF_A_PARTITION):
        assert [line for line in told if f"{directory / name}: " in line and WORDS[kind] in line], name
    assert "baseOffset: 0" in done.stdout


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "sparse"])
@pytest.mark.parametrize("command", ["inspect", "repair"])
def test_a_segment_that_is_no_file_is_refused(directory, command, kind):
    replace(directory / f"{LOG}.log", kind)
    done = run(command, directory)
    assert done.exit_code == 2
    assert f"{LOG}.log: " in done.stderr
    assert WORDS[kind] in done.stderr


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "sparse"])
def test_a_segment_that_is_no_file_is_never_clean(directory, kind):
    pytest.importorskip("numba", reason="the audit extra is not installed")
    replace(directory / f"{LOG}.log", kind)
    for command in (["audit", directory], ["export", directory, directory.parent / "out"]):
        done = run(*command)
        assert done.exit_code == 2, command
        assert WORDS[kind] in done.stderr


def test_a_segment_of_a_terabyte_of_holes_is_damaged_at_its_end(directory):
    pytest.importorskip("numba", reason="the audit extra is not installed")
    size_bytes = (directory / f"{LOG}.log").stat().st_size
    os.truncate(directory / f"{LOG}.log", TERABYTE)
    done = run("audit", directory, "--format", "json")
    assert done.exit_code == 1
    assert f'"position": {size_bytes}' in done.stdout
    assert run("dump", directory / f"{LOG}.log").exit_code == 1
    assert run("repair", directory, "--dry-run").exit_code == 1
    assert run("inspect", directory, "--verify").exit_code == 1
