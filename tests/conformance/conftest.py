"""Brokers and clients of the conformance scenario, each started once and shared by the steps."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from clients import start_client
from scenario import STEPS, StepContext
from targets import TARGETS


class Ensemble:
    """The brokers and clients of one test session by name, started when first asked for."""

    def __init__(self, directory):
        self.directory, self.brokers, self.clients = directory, {}, {}

    def broker(self, target):
        if target not in self.brokers:
            self.brokers[target] = TARGETS[target](self.directory / target).start()
        return self.brokers[target]

    def client(self, target, name):
        client = self.clients.get((target, name))
        if client is None or not client.is_alive:
            client = start_client(name, self.broker(target).bootstrap, self.directory)
            self.clients[target, name] = client
        return client

    def close_clients(self):
        while self.clients:
            self.clients.popitem()[1].close()

    def close(self):
        self.close_clients()
        for broker in self.brokers.values():
            broker.stop()


@pytest.fixture(scope="session")
def ensemble(tmp_path_factory):
    ensemble = Ensemble(tmp_path_factory.mktemp("conformance"))
    yield ensemble
    ensemble.close()


def pytest_collection_modifyitems(items):
    """Run the tests that read the files of the scenario after it."""
    items.sort(key=lambda item: "data_dir" in getattr(item, "fixturenames", ()))


@pytest.fixture(scope="session")
def data_dir(ensemble):
    """Return the data directory of the scenario after a clean stop. Run the scenario if no test did before."""
    if "ottla" not in ensemble.brokers:
        client = ensemble.client("ottla", "kafka-python")
        for step in STEPS:
            if step.needs not in client.missing:
                step(StepContext(client, step.__name__.replace("_", "-")))
    ensemble.close_clients()
    broker = ensemble.brokers.pop("ottla")
    assert broker.stop() == 0, broker.log_tail()
    return broker.data_dir
