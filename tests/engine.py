"""The form of the engine that the tests run on: plain Python, or compiled (`make test-compiled`)."""

import pytest

from ottla.protocol import varints

IS_COMPILED = not str(varints.__file__).endswith(".py")


def require_plain():
    """Skip a test that gives the engine a double of one of its own objects."""
    if IS_COMPILED:
        pytest.skip("the engine is compiled, and takes no double of its own objects")
