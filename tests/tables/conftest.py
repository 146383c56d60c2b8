"""Coordinators, partitions and groups for the decision tables: the builders of the unit tests."""

import pytest

from tests.unit.broker.group.conftest import Rig as GroupRig
from tests.unit.broker.log.conftest import Broker as LogBroker
from tests.unit.broker.txn.conftest import ask, broker, make_rig, rig

__all__ = ["ask", "broker", "groups", "logs", "make_rig", "rig"]


@pytest.fixture
def logs(tmp_path):
    """A log directory on a real disk, with a clock that the test moves."""
    made = LogBroker(tmp_path / "data")
    yield made
    made.kill()
    assert made.bugs == []


@pytest.fixture
def groups():
    """A group coordinator on a virtual clock, with its offsets partitions in memory."""
    made = GroupRig()
    yield made
    assert made.bugs == []
