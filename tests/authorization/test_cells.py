"""Every right that an API requires, granted and not granted in every way."""

import pytest

from tests.authorization.cells import CELLS
from tests.authorization.grants import ways_of
from tests.authorization.guarded_broker import GuardedBroker


@pytest.fixture(scope="module")
def guarded_broker():
    made = GuardedBroker()
    yield made
    assert made.broker.bugs == []


@pytest.mark.parametrize("cell", CELLS, ids=[cell.name for cell in CELLS])
def test_requests_are_allowed_only_with_the_required_right(guarded_broker, cell):
    expected = {way.name: cell.allowed if way.expected else cell.denied for way in ways_of(cell)}
    assert {way.name: guarded_broker.play(cell, way) for way in ways_of(cell)} == expected


def test_names_of_cells_are_unique():
    names = [cell.name for cell in CELLS]
    assert len(set(names)) == len(names)
