"""Clients that send the largest requests: no event delays the others, and every client keeps its guarantees."""

from functools import partial

from lab.simulation.faults import PROFILES
from lab.simulation.outcome import run_seed
from ottla.broker.turns import Turns

GREEDY = PROFILES["greedy"]


def test_large_requests_do_not_delay_other_clients():
    asked = 0
    for seed in range(6):
        outcome = run_seed(seed, GREEDY)
        assert outcome.problems == [], seed
        asked += outcome.met["greedy requests"]
    assert asked > 100


def test_handlers_that_never_yield_are_detected(monkeypatch):
    """Also those that ask the ledger themselves, as Produce does."""
    monkeypatch.setattr(Turns, "must_yield", False)
    problems = map(partial(run_seed, profile=GREEDY), range(25))
    assert any(line.startswith("held: ") for outcome in problems for line in outcome.problems)
