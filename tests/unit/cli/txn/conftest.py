import pytest

from ottla.wire import brokers
from ottla.wire import cluster as asked
from tests.unit.cli.txn.world import World


@pytest.fixture
def world(monkeypatch):
    world = World()
    monkeypatch.setattr(brokers, "BlockingConnection", world.connect)
    monkeypatch.setattr(asked, "RETRY_S", 0.001)
    monkeypatch.setattr(asked, "RETRY_FOR_S", 0.03)
    return world
