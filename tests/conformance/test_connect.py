"""Kafka Connect with its default factors of 3 runs unchanged on three brokers of one process.

A worker in distributed mode copies the lines of a file into a topic, in transactions (`exactly.once.source.support`),
and the records of the topic into another file.
"""

import contextlib
import json
import subprocess
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from clients import QUICK_JVM, eventually, fetch_jars
from kafka import KafkaAdminClient
from targets import free_port

from tests.timeout import EVENT_TIMEOUT_S

pytestmark = [pytest.mark.conformance, pytest.mark.maven, pytest.mark.ottla(brokers=3)]

POM = Path(__file__).parent / "connect" / "pom.xml"
JARS = "kafka-connect-4.3.1"
TOPICS = {name: f"connect-{name}" for name in ("config", "offset", "status")}
FILES = "org.apache.kafka.connect.file.FileStream"


class Worker:
    """A worker of Kafka Connect, and requests to its REST port."""

    def __init__(self, bootstrap, directory):
        self.address = f"http://127.0.0.1:{free_port()}"
        self.log_file = directory / "connect.log"
        properties = directory / "connect.properties"
        converter = "org.apache.kafka.connect.storage.StringConverter"
        options = {
            "bootstrap.servers": bootstrap,
            "group.id": "connect",
            "key.converter": converter,
            "value.converter": converter,
            "exactly.once.source.support": "enabled",
            "listeners": self.address,
            **{f"{name}.storage.topic": topic for name, topic in TOPICS.items()},
        }
        properties.write_text("".join(f"{key}={value}\n" for key, value in options.items()))
        command = ["java", "-Xmx256m", *QUICK_JVM, "-cp", f"{fetch_jars(POM, JARS)}/*"]
        with self.log_file.open("w") as log:
            self.process = subprocess.Popen(
                [*command, "org.apache.kafka.connect.cli.ConnectDistributed", str(properties)], stdout=log, stderr=log
            )

    def request(self, method, path, body=None):
        """Return the reply to a request; None if the worker does not listen yet, or refuses it for the moment."""
        request = urllib.request.Request(
            self.address + path,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=EVENT_TIMEOUT_S) as response:
                return json.load(response)
        except (urllib.error.URLError, ConnectionError):
            assert self.process.poll() is None, self.log_file.read_text()[-3000:]
            return None

    def run_connector(self, name, kind, **config):
        """Create or change a connector with one task, and wait until both run."""
        body = {"connector.class": f"{FILES}{kind}Connector", "tasks.max": "1", **config}
        eventually(lambda: self.request("PUT", f"/connectors/{name}/config", body), name, EVENT_TIMEOUT_S)
        eventually(lambda: self.runs(name), f"{name} runs", EVENT_TIMEOUT_S)

    def runs(self, name):
        status = self.request("GET", f"/connectors/{name}/status")
        return bool(status and status["tasks"] and {task["state"] for task in status["tasks"]} == {"RUNNING"})


@pytest.fixture
def worker(ottla_broker, tmp_path):
    started = Worker(ottla_broker.bootstrap, tmp_path)
    with contextlib.ExitStack() as at_the_end:
        at_the_end.callback(started.process.wait)
        at_the_end.callback(started.process.kill)
        yield started


def list_factors(broker):
    """Return the replication factor of each topic."""
    with contextlib.closing(KafkaAdminClient(bootstrap_servers=broker.bootstrap)) as admin:
        return {topic["name"]: len(topic["partitions"][0]["replica_nodes"]) for topic in admin.describe_topics()}


def read_lines(path):
    return path.read_text().splitlines() if path.exists() else []


def test_connect_copies_each_line_once_while_leaders_move_and_brokers_stop(worker, ottla_broker, tmp_path):
    source, copy, written = tmp_path / "source.txt", tmp_path / "copy.txt", []

    def write(what):
        lines = [f"{what} {number}" for number in range(50)]
        with source.open("a") as file:
            file.writelines(f"{line}\n" for line in lines)
        written.extend(lines)

    def wait_for_copy(what):
        eventually(lambda: set(read_lines(copy)) >= set(written), f"{what}: all lines are copied", EVENT_TIMEOUT_S)

    write("first")
    factors = {"topic.creation.default.replication.factor": "3", "topic.creation.default.partitions": "1"}
    worker.run_connector("source", "Source", file=str(source), topic="lines", **factors)
    eventually(lambda: "lines" in list_factors(ottla_broker), "the connector creates its topic", EVENT_TIMEOUT_S)
    worker.run_connector("sink", "Sink", file=str(copy), topics="lines")
    wait_for_copy("first")
    assert set(list_factors(ottla_broker).values()) == {3}

    # A worker that has lost its membership starts its tasks again, which then ask for leaders and coordinators.
    ottla_broker.move_leader("lines", 0, to=2, optional=True)
    ottla_broker.move_coordinator("connect-source-0", to=2, optional=True)
    write("moved")
    wait_for_copy("moved")
    for broker in (1, 2, 3):
        ottla_broker.stop_broker(broker)
        write(f"without broker {broker}")
        wait_for_copy(f"without broker {broker}")
        ottla_broker.start_broker(broker)
    assert worker.runs("source") and worker.runs("sink")
    ottla_broker.assert_committed("lines", written)
