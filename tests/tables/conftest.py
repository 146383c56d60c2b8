"""Coordinators, partitions and groups for the decision tables: the builders of the unit tests."""

import pytest

from tests.unit.broker.group.conftest import Rig as GroupRig
from tests.unit.broker.log.conftest import logs
from tests.unit.broker.txn.conftest import ask, make_rig, parts, rig

__all__ = ["ask", "groups", "logs", "make_rig", "parts", "rig"]


@pytest.fixture
def groups():
    """A group coordinator on a virtual clock, with its offsets partitions in memory."""
    made = GroupRig()
    yield made
    assert made.bugs == []
