"""Modules that are imported before the broker is ready, and those that follow."""

import json
import subprocess
import sys

import pytest

from ottla.broker.api.table import TABLE
from tests.timeout import EVENT_TIMEOUT_S

LATE = {
    *("kafka", "re2", "email", "tempfile", "importlib.metadata", "importlib.resources"),
    *("ottla.admin", "ottla.audit", "ottla.testkit", "ottla.wire", "numpy", "pyarrow", "h11", "yaml"),
    *("ottla.protocol.walker", "ottla.protocol.requests.writer", "ottla.protocol.java.jaas"),
    *("ottla.broker.events", "ottla.broker.log.cleaning", "ottla.broker.group.consumer.coordinator"),
    *("ottla.broker.cluster.links", "ottla.broker.ports.peers", "ottla.broker.ports.zookeeper"),
    *(f"ottla.broker.security.{name}" for name in ("acl", "certificates", "jwks", "oauth", "plain", "sasl", "tls")),
    *(f"ottla.broker.api.{api.key.name.lower()}" for api in TABLE.values()),
}
SCRIPT = """
import json, os, signal, sys
from ottla.broker import collector, server
from ottla.cli.main import main

print_ready = server._report_ready

def report(*ready):
    print_ready(*ready)
    print(json.dumps([*sys.modules]), flush=True)

def stop(_collector):
    print(json.dumps([*sys.modules]), flush=True)
    os.kill(os.getpid(), signal.SIGTERM)

server._report_ready = report
collector.Collector.start = stop
main()
"""


@pytest.fixture(scope="module")
def modules(tmp_path_factory):
    """Start a broker, and return the modules that are imported when it is ready, and when its start has finished."""
    directory = tmp_path_factory.mktemp("start") / "data"
    command = [sys.executable, "-c", SCRIPT, "serve", "--listen", "127.0.0.1:0", "--data-dir", str(directory)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=EVENT_TIMEOUT_S)
    assert done.returncode == 0, done.stderr
    ready, *lists = done.stdout.splitlines()
    assert ready.startswith("ready PLAINTEXT://")
    return [frozenset(json.loads(names)) for names in lists]


def test_a_plain_broker_is_ready_without_modules_that_it_does_not_need(modules):
    ready, _ = modules
    assert {name for name in ready if any(f"{name}.".startswith(f"{late}.") for late in LATE)} == set()


def test_handlers_and_messages_are_imported_after_the_broker_is_ready(modules):
    _, finished = modules
    handlers = {name for name in LATE if name.startswith("ottla.broker.api.")}
    messages = {"kafka.protocol.admin.topics", "kafka.protocol.consumer.group", "ottla.protocol.messages"}
    functions = {"ottla.protocol.walker", "ottla.broker.log.cleaning.log_cleaner"}
    assert handlers | messages | functions <= finished


def test_the_clients_of_kafka_python_are_never_imported(modules):
    assert not {"kafka.net", "kafka.producer", "kafka.consumer"} & modules[1]
