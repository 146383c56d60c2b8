"""The kind of kernels that a test runs: by default a process chooses it by the amount of data that it has read."""

from contextlib import contextmanager

PLAIN, COMPILED = "plain", "compiled"


@contextmanager
def only(kind):
    """Use only kernels of this kind, for any amount of data."""
    from ottla.scan.compiled import kernels

    before = kernels.PLAIN_STEPS
    kernels.PLAIN_STEPS = 2**62 if kind == PLAIN else -1
    try:
        yield
    finally:
        kernels.PLAIN_STEPS = before
