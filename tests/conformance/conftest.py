"""Brokers and clients of the conformance scenario, each started once and shared by the steps."""

import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from clients import java_is_missing, start_client
from targets import TARGETS

AGAINST_APACHE = "OTTLA_CONFORMANCE"


def needs_apache():
    """Why a real Apache Kafka is not started, or None."""
    if os.environ.get(AGAINST_APACHE) != "1":
        return f"against Apache Kafka only with {AGAINST_APACHE}=1 (make conformance)"
    return java_is_missing()


class Ensemble:
    """The brokers and clients of one test session by name, started when first asked for."""

    def __init__(self, directory):
        self.directory, self.brokers, self.clients = directory, {}, {}

    def broker(self, target):
        if target not in self.brokers:
            reason = needs_apache() if target == "apache" else None
            if reason:
                pytest.skip(reason)
            self.brokers[target] = TARGETS[target](self.directory / target).start()
        return self.brokers[target]

    def client(self, target, name):
        if name == "java" and (reason := java_is_missing()):
            pytest.skip(f"the Java client: {reason}")
        client = self.clients.get((target, name))
        if client is None or not client.is_alive:
            client = start_client(name, self.broker(target).bootstrap, self.directory)
            self.clients[target, name] = client
        return client

    def close_clients(self, target):
        for key in [key for key in self.clients if key[0] == target]:
            self.clients.pop(key).close()

    def close(self):
        for client in self.clients.values():
            client.close()
        for broker in self.brokers.values():
            broker.stop()


@pytest.fixture(scope="session")
def ensemble(tmp_path_factory):
    ensemble = Ensemble(tmp_path_factory.mktemp("conformance"))
    yield ensemble
    ensemble.close()
