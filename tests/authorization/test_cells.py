"""Every right that an API requires, granted and not granted in every way."""

import pytest

from tests.authorization.cells import CELLS
from tests.authorization.grants import ways_of
from tests.authorization.guarded_broker import Stage


@pytest.fixture(scope="module")
def stage():
    made = Stage()
    yield made
    assert made.broker.bugs == []


@pytest.mark.parametrize("cell", CELLS, ids=[cell.name for cell in CELLS])
def test_requests_are_allowed_only_with_the_required_right(stage, cell):
    expected = {way.name: cell.allowed if way.expected else cell.denied for way in ways_of(cell)}
    assert {way.name: stage.play(cell, way) for way in ways_of(cell)} == expected


def test_names_of_cells_are_unique():
    names = [cell.name for cell in CELLS]
    assert len(set(names)) == len(names)
