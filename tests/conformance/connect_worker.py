"""A worker of Kafka Connect in distributed mode, with exactly-once sources."""

import json
import subprocess
import urllib.error
import urllib.request
from pathlib import Path

from clients import QUICK_JVM, eventually, fetch_jars
from targets import free_port

from tests.timeout import EVENT_TIMEOUT_S

POM = Path(__file__).parent / "connect" / "pom.xml"
JARS = "kafka-connect-4.3.1"
TOPICS = ("config", "offset", "status")
FILES = "org.apache.kafka.connect.file.FileStream"


class Worker:
    """A worker of Kafka Connect, and requests to its REST port."""

    def __init__(self, bootstrap, directory, group="connect", factor=None):
        self.address = f"http://127.0.0.1:{free_port()}"
        self.log_file = directory / "connect.log"
        properties = directory / "connect.properties"
        converter = "org.apache.kafka.connect.storage.StringConverter"
        options = {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "key.converter": converter,
            "value.converter": converter,
            "exactly.once.source.support": "enabled",
            "listeners": self.address,
            **{f"{name}.storage.topic": f"{group}-{name}" for name in TOPICS},
            **{f"{name}.storage.replication.factor": str(factor) for name in TOPICS if factor is not None},
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

    def kill(self):
        self.process.kill()
        self.process.wait()


def read_lines(path):
    return path.read_text().splitlines() if path.exists() else []
