"""The same test over each client library: in real time, and with the same broker behind it."""

import pytest


def one_at_hand_others_slow(libraries):
    """Parameters for the names of libraries: the first as it is, with each other one the test is marked slow."""
    first, *others = libraries
    return [first, *(pytest.param(name, marks=pytest.mark.slow) for name in others)]
