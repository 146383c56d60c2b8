"""The image without an engine: its scripts in a folder of its own, started as compose files and testcontainers do it.

What the modules do is in `modules/kafka` of testcontainers-java, -go and -python: environment, command, the script that
is put into the container when its ports are known, and the line that is waited for. Ports are drawn here.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from kafka import KafkaConsumer, KafkaProducer

from ottla.broker.loggers import parse_levels
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.requests import codec
from ottla.wire.connection import BlockingConnection
from tests.timeout import EVENT_TIMEOUT_S

DOCKER = Path(__file__).parents[3] / "docker"
PLACES = {"kafka": "etc/kafka/docker", "confluent": "etc/confluent/docker", "bin": "usr/local/bin"}
PATHS = re.compile(r"(?<![\w.])/(?=(etc|tmp|usr/sbin|tc-start|testcontainers_start))")
CLUSTER = "4L6g3nShT-eMCtK--X86sw"
RUNNING = r".*Transitioning from RECOVERY to RUNNING.*"

pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="no bash here")

OF_KRAFT = {
    "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "BROKER:PLAINTEXT,PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "KAFKA_PROCESS_ROLES": "broker,controller",
    "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
    "KAFKA_NODE_ID": "1",
    "KAFKA_LISTENERS": "PLAINTEXT://127.0.0.1:0,BROKER://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
}
OF_ALL = {
    "KAFKA_INTER_BROKER_LISTENER_NAME": "BROKER",
    "KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR": "1",
    "KAFKA_OFFSETS_TOPIC_NUM_PARTITIONS": "1",
    "KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS": "0",
}
OF_TRANSACTIONS = {
    "KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR": "1",
    "KAFKA_TRANSACTION_STATE_LOG_MIN_ISR": "1",
    "KAFKA_LOG_FLUSH_INTERVAL_MESSAGES": str(2**63 - 1),
}
ADVERTISED = "PLAINTEXT://127.0.0.1:0,BROKER://container:9093"
FORMAT = "kafka-storage format --ignore-formatted -t {} -c /etc/kafka/kafka.properties"

JAVA = OF_KRAFT | OF_ALL | OF_TRANSACTIONS | {"CLUSTER_ID": CLUSTER}
GO = (
    OF_KRAFT
    | OF_ALL
    | OF_TRANSACTIONS
    | {
        "KAFKA_REST_BOOTSTRAP_SERVERS": OF_KRAFT["KAFKA_LISTENERS"],
        "KAFKA_BROKER_ID": "1",
        "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@localhost:9094",
    }
)
PYTHON = OF_ALL | {
    "KAFKA_LISTENERS": "PLAINTEXT://127.0.0.1:0,BROKER://127.0.0.1:0",
    "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "BROKER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
    "KAFKA_BROKER_ID": "1",
    "KAFKA_LOG_FLUSH_INTERVAL_MESSAGES": "10000000",
}
JAVA_WAITS = "while [ ! -f {0}.ready ]; do sleep 0.1; done; {0}"
GO_WAITS = "while [ ! -f {0} ]; do sleep 0.1; done; bash {0}"
PYTHON_WAITS = "while [ ! -f {0} ]; do sleep 0.1; done; sh {0}"
SED = "sed -i '/KAFKA_ZOOKEEPER_CONNECT/d' /etc/confluent/docker/configure"

# Environment, command, script and its path, the line to wait for, the cluster id if it is known.
MODULES = {
    "java, KafkaContainer": (
        JAVA,
        JAVA_WAITS,
        "/tmp/testcontainers_start.sh",
        f"#!/bin/bash\nexport KAFKA_ADVERTISED_LISTENERS={ADVERTISED}\n/etc/kafka/docker/run \n",
        RUNNING,
        CLUSTER,
    ),
    "java, ConfluentKafkaContainer": (
        JAVA,
        JAVA_WAITS,
        "/tmp/testcontainers_start.sh",
        f"#!/bin/bash\nexport KAFKA_ADVERTISED_LISTENERS={ADVERTISED}\n/etc/confluent/docker/run \n",
        RUNNING,
        CLUSTER,
    ),
    "go": (
        GO,
        GO_WAITS,
        "/usr/sbin/testcontainers_start.sh",
        f"""#!/bin/bash
source /etc/confluent/docker/bash-config
export KAFKA_ADVERTISED_LISTENERS="{ADVERTISED}${{EXTRA_ADVERTISED_LISTENERS:+,${{EXTRA_ADVERTISED_LISTENERS}}}}"
echo Starting Kafka KRaft mode
{SED}
echo '{FORMAT.format('"$(kafka-storage random-uuid)"')}' >> /etc/confluent/docker/configure
echo '' > /etc/confluent/docker/ensure
/etc/confluent/docker/configure
/etc/confluent/docker/launch""",
        RUNNING,
        None,
    ),
    "python, with_kraft": (
        OF_KRAFT
        | PYTHON
        | {"KAFKA_LISTENERS": OF_KRAFT["KAFKA_LISTENERS"], "CLUSTER_ID": "q+/0qqqqSqqqqqqqqqqqqg=="}
        | {"KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": OF_KRAFT["KAFKA_LISTENER_SECURITY_PROTOCOL_MAP"]},
        PYTHON_WAITS,
        "/tc-start.sh",
        f"""#!/bin/bash

{SED}
echo '{FORMAT.format("q+/0qqqqSqqqqqqqqqqqqg==")}' >> /etc/confluent/docker/configure

export KAFKA_ADVERTISED_LISTENERS={ADVERTISED}
. /etc/confluent/docker/bash-config
/etc/confluent/docker/configure
/etc/confluent/docker/launch""",
        r".*Kafka Server started.*",
        "q+/0qqqqSqqqqqqqqqqqqg==",
    ),
    "python": (
        PYTHON,
        PYTHON_WAITS,
        "/tc-start.sh",
        f"""#!/bin/bash

echo 'clientPort=2181' > zookeeper.properties
zookeeper-server-start zookeeper.properties &
export KAFKA_ZOOKEEPER_CONNECT='localhost:2181'

export KAFKA_ADVERTISED_LISTENERS={ADVERTISED}
. /etc/confluent/docker/bash-config
/etc/confluent/docker/configure
/etc/confluent/docker/launch""",
        r".*\[KafkaServer id=\d+\] started.*",
        None,
    ),
}


class Image:
    """The files of the image below a folder, and what runs there."""

    def __init__(self, root):
        self.root = root
        for source, place in PLACES.items():
            shutil.copytree(DOCKER / source, root / place)
        for place in ("tmp", "usr/sbin", "mnt/shared/config"):
            (root / place).mkdir(parents=True, exist_ok=True)
        ottla = root / "usr/local/bin/ottla"
        ottla.write_text(f'#!/bin/sh\nexec {sys.executable} -m ottla.cli.main "$@"\n')
        ottla.chmod(0o755)
        self.process = None
        self.said = []

    def inside(self, text):
        """Replace the image's paths in a text by those of this folder."""
        return PATHS.sub(f"{self.root}/", text)

    def start(self, command, **environment):
        """Run a command in the folder, with the image's environment and this."""
        kept = {key: text for key, text in os.environ.items() if not key.startswith(("KAFKA_", "CLUSTER_ID", "OTTLA_"))}
        path = f"{self.root / PLACES['bin']}:{kept['PATH']}"
        self.process = subprocess.Popen(
            [self.inside(word) for word in command],
            cwd=self.root,
            env=kept | {"PATH": path} | environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        return self

    def put(self, place, text):
        """Put a file in its place in one step, with its whole content."""
        file = Path(self.inside(place))
        draft = file.with_name("draft")
        draft.write_text(self.inside(text))
        draft.chmod(0o755)
        draft.rename(file)

    def wait_for(self, pattern):
        """Read the output up to a line that matches, and return the addresses by listener printed so far."""
        watch = threading.Timer(EVENT_TIMEOUT_S, self.end, [signal.SIGKILL])
        watch.start()
        try:
            for line in self.process.stdout:
                self.said.append(line)
                if re.fullmatch(pattern, line.rstrip("\n")):
                    break
            else:
                pytest.fail("".join(self.said))
        finally:
            watch.cancel()
        found = [re.fullmatch(r"ready (\w+)://(.*):(\d+)\n", line) for line in self.said]
        return {match[1]: (match[2], int(match[3])) for match in found if match}

    def end(self, number=signal.SIGTERM):
        """Stop all processes, as an engine does, and return the exit code."""
        os.killpg(self.process.pid, number)
        return self.process.wait(EVENT_TIMEOUT_S)


@pytest.fixture
def image(tmp_path):
    made = Image(tmp_path / "image")
    yield made
    if made.process is not None:
        if made.process.poll() is None:
            made.end(signal.SIGKILL)
        made.process.stdout.close()


def read_metadata(host, port):
    """Return (cluster id, [(host, port)]) from Metadata at that address."""
    with BlockingConnection(host, port, timeout_s=EVENT_TIMEOUT_S) as connection:
        reply = connection.send(codec.request_class(ApiKey.METADATA)(topics=[]), version=9)
        return reply.cluster_id, [(broker.host, broker.port) for broker in reply.brokers]


def produce_and_consume(bootstrap):
    producer = KafkaProducer(bootstrap_servers=bootstrap)
    producer.send("ledger", b"x").get(EVENT_TIMEOUT_S)
    producer.close()
    consumer = KafkaConsumer(
        "ledger",
        bootstrap_servers=bootstrap,
        group_id="readers",
        auto_offset_reset="earliest",
        consumer_timeout_ms=EVENT_TIMEOUT_S * 1000,
    )
    assert next(consumer).value == b"x"
    consumer.close()


@pytest.mark.slow
@pytest.mark.parametrize("module", MODULES)
def test_testcontainers_starts_it(image, module):
    environment, waits, place, script, pattern, cluster_id = MODULES[module]
    image.start(["sh", "-c", waits.format(place)], **environment)
    image.put(place, script)
    image.put(f"{place}.ready", "")
    addresses = image.wait_for(pattern)
    assert list(addresses) == ["PLAINTEXT", "BROKER"]
    host, port = addresses["PLAINTEXT"]
    assert (host, addresses["BROKER"]) == ("127.0.0.1", ("container", 9093))
    found, brokers = read_metadata(host, port)
    assert brokers == [(host, port)] and cluster_id in (None, found)
    produce_and_consume(f"{host}:{port}")


def test_a_container_without_a_word_serves_localhost_on_kafkas_port(image):
    """Check the command with a stand-in for `ottla`: the port may be in use on this machine."""
    stand_in = image.root / "usr/local/bin/ottla"
    stand_in.write_text('#!/bin/sh\necho "$KAFKA_LISTENERS $KAFKA_ADVERTISED_LISTENERS $KAFKA_LOG_DIRS"\necho "$@"\n')
    image.start(["/etc/kafka/docker/run"])
    assert image.process.wait(EVENT_TIMEOUT_S) == 0
    listeners, arguments = image.process.stdout.read().splitlines()
    assert listeners == f"PLAINTEXT://0.0.0.0:9092 PLAINTEXT://localhost:9092 {image.root}/data"
    assert arguments == f"serve --kafka-lines --ready-file {image.root}/tmp/ottla.ready"


@pytest.mark.parametrize(
    ("environment", "properties", "expected"),
    [
        # As in Kafka's image: with only advertised listeners set, the broker listens on those ports on all addresses.
        (
            {"KAFKA_ADVERTISED_LISTENERS": "INSIDE://broker:19092,OUTSIDE://[::1]:9092"},
            "",
            "INSIDE://0.0.0.0:19092,OUTSIDE://0.0.0.0:9092 INSIDE://broker:19092,OUTSIDE://[::1]:9092 /data",
        ),
        ({"KAFKA_LISTENERS": "PLAINTEXT://:9094"}, "", "PLAINTEXT://:9094  /data"),
        ({}, "listeners = PLAINTEXT://:9094\n  log.dirs: /elsewhere\n", "  "),
        ({"KAFKA_LOG_DIRS": "/mine"}, "advertised.listeners=PLAINTEXT://a:1\nlog.dir=/elsewhere", "  /mine"),
        ({"KAFKA_LOG_DIR": "/mine"}, "#log.dirs=/elsewhere\nlisteners=PLAINTEXT://:9094", "  "),
    ],
)
def test_given_settings_override_the_defaults_of_the_image(image, environment, properties, expected):
    stand_in = image.root / "usr/local/bin/ottla"
    stand_in.write_text('#!/bin/sh\necho "$KAFKA_LISTENERS $KAFKA_ADVERTISED_LISTENERS $KAFKA_LOG_DIRS"\necho "$@"\n')
    mounted = image.root / "mnt/shared/config/server.properties"
    if properties:
        mounted.write_text(properties)
    image.start(["/etc/kafka/docker/run", "KAFKA_A=b", "--log-format", "json"], **environment)
    assert image.process.wait(EVENT_TIMEOUT_S) == 0
    options, arguments = image.process.stdout.read().split("\n")[:2]
    assert options.replace(f"{image.root}/data", "/data") == expected
    flags = f"--kafka-lines --ready-file {image.root}/tmp/ottla.ready --log-format json"
    assert arguments == (f"serve {mounted} {flags}" if properties else f"serve {flags}")


@pytest.mark.parametrize(
    ("environment", "levels"),
    [
        ({}, "INFO"),
        ({"KAFKA_LOG4J_ROOT_LOGLEVEL": "", "KAFKA_LOG4J_LOGGERS": ""}, "INFO"),
        ({"KAFKA_LOG4J_ROOT_LOGLEVEL": "WARN"}, "WARN"),
        # The value of Kafka's own KafkaDockerWrapperTest, with the comma at its end.
        (
            {"KAFKA_LOG4J_LOGGERS": "kafka=INFO,kafka.network.RequestChannel$=WARN,kafka.producer=DEBUG,"},
            "INFO,ottla=INFO,kafka.network.RequestChannel$=WARN,kafka.producer=DEBUG",
        ),
        (
            {
                "KAFKA_LOG4J_ROOT_LOGLEVEL": "ERROR",
                "KAFKA_LOG4J_LOGGERS": "state.change.logger=OFF, org.apache.kafka =TRACE,ottla.broker.group=DEBUG",
            },
            "ERROR,state.change.logger=OFF,ottla=TRACE,ottla.broker.group=DEBUG",
        ),
        ({"KAFKA_LOG4J_ROOT_LOGLEVEL": "ERROR", "OTTLA_LOG_LEVEL": "DEBUG"}, "DEBUG"),
    ],
)
def test_levels_of_the_log_are_given_as_to_kafkas_image(image, environment, levels):
    stand_in = image.root / "usr/local/bin/ottla"
    stand_in.write_text('#!/bin/sh\necho "$OTTLA_LOG_LEVEL"\n')
    image.start(["/etc/kafka/docker/run"], **environment)
    assert image.process.wait(EVENT_TIMEOUT_S) == 0
    assert image.process.stdout.read() == f"{levels}\n"
    assert parse_levels(levels)


def test_a_quiet_log_still_has_the_lines_that_are_waited_for(image):
    image.start(
        ["/etc/kafka/docker/run"],
        KAFKA_LISTENERS="PLAINTEXT://127.0.0.1:0",
        KAFKA_LOG4J_ROOT_LOGLEVEL="WARN",
        KAFKA_LOG4J_LOGGERS="kafka=ERROR,state.change.logger=TRACE",
    )
    image.wait_for(r".*Kafka Server started.*")
    assert image.end() == 0
    assert not [line for line in image.said + image.process.stdout.readlines() if " INFO " in line and "(ottla" in line]


def test_a_mounted_file_and_the_environment_make_one_broker_for_the_host_and_other_containers(image):
    """Kafka's docker/examples/docker-compose-files/single-node/file-input, without its TLS."""
    (image.root / "mnt/shared/config/server.properties").write_text(
        "advertised.listeners=PLAINTEXT_HOST://127.0.0.1:0,PLAINTEXT://broker:19092\n"
        "controller.listener.names=CONTROLLER\n"
        "group.initial.rebalance.delay.ms=0\n"
        "inter.broker.listener.name=PLAINTEXT\n"
        "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,PLAINTEXT_HOST:PLAINTEXT\n"
        f"log.dirs={image.root}/kraft-combined-logs\n"
        "offsets.topic.replication.factor=1\n"
        "process.roles=broker\n"
    )
    image.start(
        ["/etc/kafka/docker/run"],
        CLUSTER_ID=CLUSTER,
        KAFKA_NODE_ID="7",
        KAFKA_CONTROLLER_QUORUM_VOTERS="7@broker:29093",
        KAFKA_LISTENERS="PLAINTEXT_HOST://127.0.0.1:0,CONTROLLER://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
        KAFKA_PROCESS_ROLES="broker,controller",
    )
    addresses = image.wait_for(r"\[KafkaServer id=7\] started")
    assert addresses["PLAINTEXT"] == ("broker", 19092)
    assert read_metadata(*addresses["PLAINTEXT_HOST"]) == (CLUSTER, [addresses["PLAINTEXT_HOST"]])
    assert (image.root / "tmp/ottla.ready").exists()
    assert (image.root / "kraft-combined-logs/meta.properties").exists()
    assert image.end() == 0
    assert not (image.root / "tmp/ottla.ready").exists()


@pytest.mark.slow
def test_a_directory_keeps_its_cluster_id_as_in_kafkas_image(image):
    environment = {"KAFKA_LISTENERS": "PLAINTEXT://127.0.0.1:0"}
    for asked in (CLUSTER, "another"):
        image.start(["/etc/kafka/docker/run"], CLUSTER_ID=asked, **environment)
        address = image.wait_for(RUNNING)["PLAINTEXT"]
        assert read_metadata(*address)[0] == CLUSTER
        assert image.end() == 0
        image.process.stdout.close()
    assert f"{image.root}/data is already formatted, and keeps its cluster id\n" in image.said


def test_the_compose_file_advertises_the_port_that_it_publishes():
    text = (DOCKER.parent / "docker-compose.yml").read_text()
    published = re.search(r'ports: \["127\.0\.0\.1:(\d+):(\d+)"\]', text)
    assert f"PLAINTEXT_HOST://localhost:{published[1]}" in text
    assert f"PLAINTEXT_HOST://0.0.0.0:{published[2]}" in text
