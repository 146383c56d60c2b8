"""Kills and power losses at the port calls of a scripted workload; `python -m lab.crash states` runs all."""

import pytest

from lab.crash.plants import EVERY, SEED
from lab.crash.states import sample
from lab.crash.verdicts import Crash


@pytest.mark.parametrize(
    ("flushing", "seed", "every"),
    [(True, SEED, EVERY), (True, 2, 32), (False, SEED, 24), (False, 2, 20)],
    ids=["flushed-narrow", "flushed-wide", "unflushed-narrow", "unflushed-wide"],
)
def test_sampled_crash_states_violate_no_guarantee(flushing, seed, every):
    """Flushed: nothing acknowledged is lost, nothing is torn. Unflushed: so after kills; else the logs are sound."""
    tally = sample(seed, flushing, every)
    assert tally.problems == []
    assert len(tally.states) == len(Crash)
    assert tally.states.total() > 120
    assert bool(tally.losses) is not flushing
