"""The client library that a recipe is played with."""

import pytest

from tests.wire.testkit.faces import EACH_LIBRARY, face


@pytest.fixture(params=EACH_LIBRARY)
def client(request, ottla_broker):
    """Yield producers and consumers of each library by the same names; they are closed after the test."""
    made = face(request.param, ottla_broker.bootstrap)
    yield made
    made.close()
