"""Brokers and clients of the conformance scenario, each started once and shared by the steps."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from clients import start_client
from scenario import STEPS, StepContext
from secured import SECURED, Administrator, security_of
from targets import TARGETS


class Ensemble:
    """The brokers and clients of one test session by name, started when first asked for.

    With a `protocol` a client connects so to a broker that has logins and an authorizer.
    """

    def __init__(self, directory, make_certificates):
        self.directory, self.brokers, self.clients, self.administrators = directory, {}, {}, {}
        self._make_certificates = make_certificates

    def broker(self, target):
        if target not in self.brokers:
            self.brokers[target] = TARGETS[target](self.directory / target).start()
        return self.brokers[target]

    def secured_broker(self, target):
        name = f"{target}-secured"
        if name not in self.brokers:
            broker = SECURED[target](self.directory / name, self._make_certificates()).start()
            self.brokers[name] = broker
            self.administrators[target] = Administrator(broker.addresses["PLAINTEXT"])
        return self.brokers[name]

    def client(self, target, name, protocol=None):
        client = self.clients.get((target, name, protocol))
        if client is None or not client.is_alive:
            client = self._start_client(target, name, protocol)
            self.clients[target, name, protocol] = client
        return client

    def _start_client(self, target, name, protocol):
        if protocol is None:
            return start_client(name, self.broker(target).bootstrap, self.directory)
        address = self.secured_broker(target).addresses[protocol]
        return start_client(name, address, self.directory, security=security_of(protocol, self._make_certificates()))

    def context(self, target, client, step, protocol=None):
        """Return the context of a step that this client plays."""

        def start_another():
            return self._start_client(target, client.name, protocol)

        return StepContext(client, step, start_another, self.administrators.get(target))

    def close_clients(self):
        while self.clients:
            self.clients.popitem()[1].close()

    def close(self):
        self.close_clients()
        for administrator in self.administrators.values():
            administrator.close()
        for broker in self.brokers.values():
            broker.stop()


@pytest.fixture(scope="session")
def ensemble(tmp_path_factory, request):
    ensemble = Ensemble(tmp_path_factory.mktemp("conformance"), lambda: request.getfixturevalue("certificates"))
    yield ensemble
    ensemble.close()


@pytest.fixture
def cell(record_property):
    """Return a function that names the application, on a target, whose cell of docs/compatibility.md the test is."""
    return lambda target, application: record_property("cell", f"{target}|{application}|application")


def pytest_collection_modifyitems(items):
    """Run the tests that read the files of the scenario after it."""
    items.sort(key=lambda item: "data_dir" in getattr(item, "fixturenames", ()))


@pytest.fixture(scope="session")
def data_dir(ensemble):
    """Return the data directory of the scenario after a clean stop. Run the scenario if no test did before."""
    if "ottla" not in ensemble.brokers:
        client = ensemble.client("ottla", "kafka-python")
        for step in STEPS:
            if not {step.feature, *step.needs} & {*client.missing}:
                step(ensemble.context("ottla", client, step.__name__.replace("_", "-")))
    ensemble.close_clients()
    broker = ensemble.brokers.pop("ottla")
    assert broker.stop() == 0, broker.log_tail()
    return broker.data_dir
