"""Seeds of the tests: OTTLA_SEEDS of them from OTTLA_SEED on, which the Makefile takes from the commit."""

import os

SEEDS = int(os.environ.get("OTTLA_SEEDS") or 400)
FIRST = int(os.environ.get("OTTLA_SEED") or 0)
AT_ONCE = 100
"""So many are a test: two processes share them, and a failure is told before the last one has run."""


def pytest_generate_tests(metafunc):
    if "seeds" in metafunc.fixturenames:
        windows = [range(at, min(at + AT_ONCE, SEEDS)) for at in range(0, SEEDS, AT_ONCE)]
        seeds = [range(FIRST + window.start, FIRST + window.stop) for window in windows]
        # A test has the same name in every commit.
        metafunc.parametrize("seeds", seeds, ids=[f"{window.start}-{window.stop - 1}" for window in windows])
