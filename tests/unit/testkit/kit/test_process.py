"""A process of a test that does not do what it is told: what is said of it."""

import sys
import time

import pytest

from ottla.testkit.kit import process
from ottla.testkit.kit.process import BrokerFailed, BrokerProcess
from tests.patience import PATIENCE_S

STUCK = """
import signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
def waits_for_nobody():
    print("serving", file=sys.stderr, flush=True)
    time.sleep(3600)
waits_for_nobody()
"""


class Stuck(BrokerProcess):
    """It says that it serves, and hears no SIGTERM."""

    def _command(self, ready):
        return [sys.executable, "-c", STUCK]

    def serves(self, ready=None):
        deadline = time.monotonic() + PATIENCE_S
        while "serving" not in self.log_tail():
            assert time.monotonic() < deadline
            time.sleep(0.005)


@pytest.fixture
def stuck(tmp_path):
    made = Stuck(tmp_path, {})
    yield made
    made.kill()


def test_a_broker_that_does_not_get_ready_says_where_it_stands(stuck, monkeypatch):
    monkeypatch.setattr(process, "START_TIMEOUT_S", 0)
    monkeypatch.setattr(process, "_ready_lines", stuck.serves)
    with pytest.raises(BrokerFailed, match=r"is not ready after 0 s:\n(?s:.*)in waits_for_nobody"):
        stuck.start()
    assert stuck.pid is None


def test_a_broker_that_does_not_stop_is_killed_and_says_where_it_stood(stuck, monkeypatch):
    monkeypatch.setattr(process, "STOP_TIMEOUT_S", 0.01)
    monkeypatch.setattr(stuck, "_await_ready", stuck.serves)
    stuck.start()
    with pytest.warns(RuntimeWarning, match=r"killed, 0.01 s after SIGTERM(?s:.*)in waits_for_nobody"):
        stuck.stop()
    assert stuck.pid is None
