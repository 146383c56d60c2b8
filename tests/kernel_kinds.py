"""Which kind of kernels a test runs: by itself a process takes one or the other by how much it has read."""

from contextlib import contextmanager

PLAIN, COMPILED = "plain", "compiled"


@contextmanager
def only(kind):
    """Kernels of this kind alone, however much is read."""
    from ottla.scan import kernels

    before = kernels.PLAIN_BYTES
    kernels.PLAIN_BYTES = 2**62 if kind == PLAIN else -1
    try:
        yield
    finally:
        kernels.PLAIN_BYTES = before
