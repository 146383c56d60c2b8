"""Kills and power losses at the port calls of a scripted workload; `python -m ottla.testkit.crash states` takes all."""

import pytest

from ottla.broker.log.partition import Partition
from ottla.testkit.crash.states import sample


@pytest.mark.parametrize("flushing", [True, False], ids=["flushed", "unflushed"])
def test_no_crash_state_breaks_a_promise(flushing):
    """Flushed: nothing acknowledged is lost, nothing is torn. Unflushed: so after kills; else the logs are sound."""
    tally = sample(1, flushing, every=4)
    assert tally.problems == []
    assert len(tally.states) == 3
    assert tally.states.total() > 600
    assert bool(tally.losses) is not flushing


def test_a_broker_that_acknowledges_before_the_flush_is_noticed(monkeypatch):
    monkeypatch.setattr(Partition, "_written", lambda self: self._advance(self.log_end_offset))
    assert any("lost" in problem for problem in sample(1, flushing=True, every=40).problems)


def test_a_broker_that_does_not_sync_what_recovery_found_is_noticed(monkeypatch):
    """A kill, then a power loss before the first sync after recovery: what was found there was not durable."""
    monkeypatch.setattr("ottla.testkit.simulation.disk.MemoryFile.sync", lambda self: None)
    assert sample(1, flushing=True, every=10).problems
