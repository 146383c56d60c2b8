"""The demo as a command."""

import signal
import subprocess
import sys

import pytest

from tests.timeout import EVENT_TIMEOUT_S


def run_demo(*arguments):
    command = [sys.executable, "-m", "ottla.demo", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=EVENT_TIMEOUT_S, check=False)


@pytest.mark.slow
def test_the_demo_succeeds_on_our_broker():
    done = run_demo("--no-audit")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "claims held" in done.stdout
    assert done.stderr == ""


@pytest.mark.slow
def test_a_broker_that_is_not_there_is_a_failure_without_a_traceback():
    done = run_demo("--no-audit", "--bootstrap", "127.0.0.1:1")
    assert done.returncode == 1
    assert "127.0.0.1:1" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr


@pytest.mark.slow
def test_the_demo_ends_silently_on_a_broken_pipe():
    command = [sys.executable, "-m", "ottla.demo", "--no-audit"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"\n"
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 128 + signal.SIGPIPE
