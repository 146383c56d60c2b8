"""The brokers that the scenario and the kill harness run against: ours, and a real Apache Kafka, 4.3.1 or 4.4.0.

Both are subprocesses over one directory that survives `kill` and `start`, on one port.
"""

import os
import random
import signal
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
TOOL_TIMEOUT_S = 300
LISTENING_PORTS = (15_000, 32_000)
KAFKA_SH = HERE / "apache-kafka" / "kafka.sh"
# Small coordinators load quickly; the scan for timed out transactions (default 10 s) comes every half second.
SCENARIO_OVERRIDES = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "offsets.topic.num.partitions": "4",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    "transaction.state.log.num.partitions": "4",
}


def free_port(span=1):
    """A port of 127.0.0.1 that is free together with its `span - 1` successors.

    Below those that the kernel gives to connections: until a JVM listens, a test run has opened many of them.
    """
    while True:
        port = random.randrange(*LISTENING_PORTS)
        try:
            for successor in range(port, port + span):
                with socket.socket() as probe:
                    probe.bind(("127.0.0.1", successor))
        except (OSError, OverflowError):
            continue
        return port


def answers_api_versions(bootstrap):
    """Whether a broker answers ApiVersions v0 there."""
    host, _, port = bootstrap.rpartition(":")
    request = struct.pack(">hhih", 18, 0, 1, -1)
    try:
        with socket.create_connection((host, int(port)), timeout=2) as sock:
            sock.sendall(struct.pack(">i", len(request)) + request)
            return len(sock.recv(16)) > 0
    except OSError:
        return False


def tool_command(name, *arguments, jvm=()):
    """A class or a file of Java with all of Kafka's jars; `jvm` has options of the JVM."""
    return ["bash", str(KAFKA_SH), "tool", *jvm, name, *map(str, arguments)]


def run_tool(name, *arguments, jvm=(), cwd=None):
    """A tool that has ended: its exit code and what it said."""
    return subprocess.run(
        tool_command(name, *arguments, jvm=jvm),
        capture_output=True,
        text=True,
        timeout=TOOL_TIMEOUT_S,
        cwd=cwd,
        env=os.environ | {"HEAP": "512m"},
    )


def tool_output(name, *arguments):
    """Return the output of a tool, which must succeed."""
    done = run_tool(name, *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


class Broker:
    """A broker process: `start`, `kill` (-9), `stop` (SIGTERM); `bootstrap`, `data_dir`, `log_file`."""

    name = "a broker"
    start_timeout_s = 60.0

    def __init__(self, directory, overrides=None):
        self.directory = directory
        self.directory.mkdir(parents=True, exist_ok=True)
        self.overrides = SCENARIO_OVERRIDES | (overrides or {})
        self.log_file = directory / "broker.log"
        self.process = None

    def spawn(self):
        """Start the process, and do not wait until it is ready: a node of a quorum waits for others."""
        with self.log_file.open("ab") as log:
            self.process = subprocess.Popen(
                self.command(), stdout=log, stderr=log, cwd=HERE.parent.parent, start_new_session=True
            )

    def start(self):
        self.spawn()
        deadline = time.monotonic() + self.start_timeout_s
        while not self.is_ready():
            if self.process.poll() is not None:
                raise AssertionError(f"{self.name} ended with {self.process.returncode}:\n{self.log_tail()}")
            if time.monotonic() > deadline:
                self.kill()
                raise AssertionError(f"{self.name} not ready within {self.start_timeout_s} s:\n{self.log_tail()}")
            time.sleep(0.02)
        return self

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self, timeout_s=30):
        """The exit code after SIGTERM; killed when it does not end in time."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                self.kill()
        return self.process.returncode

    def log_tail(self):
        return self.log_file.read_text(errors="replace")[-3000:]


def kafka_command(directory, release="4.3.1"):
    """The command that runs an Apache Kafka; kafka.sh replaces itself by the JVM, so that signals reach it."""
    heap = os.environ.get("HEAP", "512m")
    settings = [f"HEAP={heap}", "QUICK=1", f"APACHE_KAFKA_VERSION={release}"]
    return ["env", *settings, "bash", str(KAFKA_SH), "start", str(directory)]


class FromFile(Broker):
    """A broker whose properties stand in a file; `bootstrap` is the listener that says when it is ready."""

    start_timeout_s = 300.0

    def __init__(self, directory, properties, bootstrap):
        super().__init__(directory)
        self.data_dir = Path(properties["log.dirs"])
        self.properties = directory / "server.properties"
        self.properties.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
        self.bootstrap = bootstrap

    def is_ready(self):
        return answers_api_versions(self.bootstrap)


class OttlaFromFile(FromFile):
    name = "Ottla"
    more: tuple[str, ...] = ()

    def command(self):
        return [sys.executable, "-m", "ottla.cli.main", "serve", str(self.properties), *self.more]


class ApacheKafkaFromFile(FromFile):
    name = "Apache Kafka 4.3.1"

    def command(self):
        return kafka_command(self.directory)


class ApacheKafka(Broker):
    """A KRaft node; ready after about 3 s, 12 s after a crash. `features` are finalized at these levels."""

    release = "4.3.1"
    features: tuple[str, ...] = ()

    def __init__(self, directory, overrides=None, port=None):
        self.name = f"Apache Kafka {self.release}"
        super().__init__(directory, overrides)
        port = port or free_port(span=2)
        self.bootstrap = f"127.0.0.1:{port}"
        self.data_dir = directory / "data"
        properties = "".join(f"{key}={value}\n" for key, value in self.overrides.items())
        subprocess.run(
            ["bash", str(KAFKA_SH), "format", str(directory), str(port), *self.features],
            input=properties,
            text=True,
            capture_output=True,
            check=True,
            timeout=900,
            env=os.environ | {"APACHE_KAFKA_VERSION": self.release},
        )

    def command(self):
        return kafka_command(self.directory, self.release)

    def is_ready(self):
        return answers_api_versions(self.bootstrap)


class Ottla(Broker):
    """Our broker as users start it. The first start takes a free port, later ones the same."""

    name = "Ottla"

    def __init__(self, directory, overrides=None):
        super().__init__(directory, overrides)
        self.data_dir = directory / "data"
        self.ready_file = directory / "ready"
        self.bootstrap = "127.0.0.1:0"

    def command(self):
        self.ready_file.unlink(missing_ok=True)
        options = [
            *("--listen", self.bootstrap, "--data-dir", str(self.data_dir), "--ready-file", str(self.ready_file)),
            *(part for key, value in self.overrides.items() for part in ("--override", f"{key}={value}")),
        ]
        return [sys.executable, "-m", "ottla.cli.main", "serve", *options]

    def is_ready(self):
        if not self.ready_file.exists() or not self.ready_file.read_text().endswith("\n"):
            return False
        self.bootstrap = self.ready_file.read_text().strip().rpartition("//")[2]
        return True


class OttlaByOptions(Ottla):
    """Ours, with nothing but the options: `addresses` of its listeners by name, by the name in their certificate."""

    def command(self):
        command = super().command()
        at = command.index("--listen")
        return command[:at] + command[at + 2 :]

    def is_ready(self):
        if not super().is_ready():
            return False
        told = [line.split()[1].partition("://") for line in self.ready_file.read_text().splitlines()]
        self.addresses = {name: f"localhost:{address.rpartition(':')[2]}" for name, _, address in told}
        return True


class OttlaThree(Ottla):
    """Ours as three brokers; `bootstrap` names all of them."""

    name = "Ottla as three brokers"

    def command(self):
        self.bootstrap = self.bootstrap.partition(",")[0]
        return [*super().command(), "--brokers", "3"]

    def is_ready(self):
        if not super().is_ready():
            return False
        self.bootstrap = ",".join(line.rpartition("//")[2] for line in self.ready_file.read_text().splitlines())
        return True


class OttlaAtLevel(Ottla):
    """Ours with `transaction.version` below its default."""

    level = 2

    def __init__(self, directory, overrides=None):
        super().__init__(directory, (overrides or {}) | {"transaction.version": str(self.level)})
        self.name = f"Ottla at transaction.version {self.level}"


class OttlaV1(OttlaAtLevel):
    level = 1


class OttlaV0(OttlaAtLevel):
    level = 0


class ApacheKafkaV1(ApacheKafka):
    features = ("transaction.version=1",)


class ApacheKafkaNext(ApacheKafka):
    """The release after the one that the recordings are of."""

    release = "4.4.0"


TARGETS = {
    "ottla": Ottla,
    "ottla-three": OttlaThree,
    "ottla-v1": OttlaV1,
    "ottla-v0": OttlaV0,
    "apache": ApacheKafka,
    "apache-v1": ApacheKafkaV1,
    "apache-next": ApacheKafkaNext,
}
