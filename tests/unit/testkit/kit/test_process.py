"""Broker processes of tests that hang: the error messages, and restarts."""

import os
import signal
import sys
import time

import pytest

from ottla.testkit.kit import process
from ottla.testkit.kit.process import BrokerFailed, BrokerProcess
from tests.timeout import EVENT_TIMEOUT_S

STUCK = """
import signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
def waits_for_nobody():
    print("serving", file=sys.stderr, flush=True)
    time.sleep(3600)
waits_for_nobody()
"""


class Stuck(BrokerProcess):
    """A broker process that logs that it serves, and ignores SIGTERM."""

    def _command(self, ready):
        return [sys.executable, "-c", STUCK]

    def serves(self, ready=None):
        deadline = time.monotonic() + EVENT_TIMEOUT_S
        while "serving" not in self.log_tail():
            assert time.monotonic() < deadline
            time.sleep(0.005)


@pytest.fixture
def stuck(tmp_path):
    made = Stuck(tmp_path, {})
    yield made
    made.kill()


def test_a_broker_that_is_not_ready_in_time_is_reported_with_its_stack(stuck, monkeypatch):
    monkeypatch.setattr(process, "START_TIMEOUT_S", 0)
    monkeypatch.setattr(process, "_ready_lines", stuck.serves)
    with pytest.raises(BrokerFailed, match=r"is not ready after 0 s:\n(?s:.*)in waits_for_nobody"):
        stuck.start()
    assert stuck.pid is None


def test_a_broker_that_does_not_stop_is_killed_and_its_stack_reported(stuck, monkeypatch):
    monkeypatch.setattr(process, "STOP_TIMEOUT_S", 0.01)
    monkeypatch.setattr(stuck, "_await_ready", stuck.serves)
    stuck.start()
    with pytest.warns(RuntimeWarning, match=r"killed, 0.01 s after SIGTERM(?s:.*)in waits_for_nobody"):
        stuck.stop()
    assert stuck.pid is None


@pytest.fixture
def serving(stuck, monkeypatch):
    """A process that runs until it is killed."""
    monkeypatch.setattr(stuck, "_await_ready", stuck.serves)
    stuck.start()
    return stuck


def test_a_planned_restart_happens_once(serving):
    serving.plan_restart()
    os.kill(serving.pid, signal.SIGKILL)
    assert serving.wait_ended(EVENT_TIMEOUT_S) == -signal.SIGKILL
    assert serving.starts == 2
    os.kill(serving.pid, signal.SIGKILL)
    assert serving.wait_ended(EVENT_TIMEOUT_S) == -signal.SIGKILL
    assert (serving.starts, serving.pid) == (2, None)


def test_a_broker_that_still_runs_is_not_waited_for_longer(serving):
    serving.plan_restart()
    assert not serving.await_restart(exit_s=0)
    with pytest.raises(TimeoutError, match="still runs after 0 s"):
        serving.wait_ended(0)


@pytest.mark.parametrize("end", ["kill", "forget_restart"])
def test_a_restart_that_is_no_longer_planned_does_not_happen(serving, end):
    serving.plan_restart()
    planned = serving._planned
    getattr(serving, end)()
    serving.kill()
    serving._restart_at_end(planned)
    assert (serving.starts, serving.pid) == (1, None)


def test_a_restart_that_fails_is_reported_to_the_test(serving, monkeypatch):
    monkeypatch.setattr(serving, "_command", lambda ready: [sys.executable, "-c", "raise SystemExit('no disk')"])
    monkeypatch.setattr(serving, "_await_ready", lambda ready: BrokerProcess._await_ready(serving, ready))
    serving.plan_restart()
    os.kill(serving.pid, signal.SIGKILL)
    for _ in range(2):
        with pytest.raises(BrokerFailed, match=r"ended with 1:(?s:.*)no disk"):
            serving.wait_ended(EVENT_TIMEOUT_S)
