"""The demo as a command."""

import contextlib
import re
import signal
import subprocess
import sys

import pytest
from click.testing import CliRunner

from ottla.cli.main import main
from ottla.scan.needs import lacking
from tests.pasted import Pasting
from tests.timeout import EVENT_TIMEOUT_S


def run_demo(*arguments):
    command = [sys.executable, "-m", "ottla", "demo", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=EVENT_TIMEOUT_S, check=False)


@pytest.mark.slow
def test_the_demo_succeeds_on_our_broker():
    done = run_demo("--no-audit")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "claims held" in done.stdout
    assert done.stderr == ""


@pytest.mark.slow
def test_the_kept_directory_has_a_torn_and_a_hanging_transaction(tmp_path):
    done = run_demo("--keep", str(tmp_path / "kept"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    assert ("it finds nothing else" in done.stdout) == (not lacking())
    _, _, printed = done.stdout.partition("Look at the same directory")
    commands = re.findall(r"^  (ottla .*)$", printed, re.MULTILINE)
    assert [command.split()[1] for command in commands] == ["audit", "inspect", "dump", "serve", "txn", "txn"]
    with contextlib.closing(Pasting(tmp_path)) as pasting:
        for command in commands[bool(lacking()) :]:
            pasting.run(command.replace("txn abort", "txn abort --yes"), "the end of the demo")


@pytest.mark.slow
def test_a_broker_that_is_not_there_is_a_failure_without_a_traceback():
    done = run_demo("--no-audit", "--bootstrap", "127.0.0.1:1")
    assert done.returncode == 1
    assert "127.0.0.1:1" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr


@pytest.mark.slow
def test_the_demo_ends_silently_on_a_broken_pipe():
    command = [sys.executable, "-m", "ottla", "demo", "--no-audit"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"\n"
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 128 + signal.SIGPIPE


@pytest.mark.parametrize("place", ["full", "full/file", "file-as-folder/below"])
def test_a_place_to_keep_that_is_no_empty_directory_is_refused(tmp_path, place):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("mine")
    (tmp_path / "file-as-folder").write_text("mine")
    done = CliRunner().invoke(main, ["demo", "--keep", str(tmp_path / place)])
    assert (done.exit_code, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert str(tmp_path / place) in line and "name a new or an empty directory" in line
    assert [each.name for each in (tmp_path / "full").iterdir()] == ["file"]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("--keep", "kept", "--bootstrap", "127.0.0.1:9092"), "it excludes --bootstrap"),
        (("--data-dir", "data"), "--data-dir needs --bootstrap"),
    ],
)
def test_options_that_exclude_each_other_are_refused(arguments, reason):
    done = CliRunner().invoke(main, ["demo", *arguments])
    assert done.exit_code == 2 and reason in done.stderr
