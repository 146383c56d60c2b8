"""Answers to clients of several listeners, by Ottla and by Apache Kafka 4.3.1 with the same options."""

import sys
import time

import pytest
from targets import ApacheKafka, Ottla, free_port

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.requests import codec
from ottla.wire.connection import BlockingConnection
from tests.timeout import EVENT_TIMEOUT_S

NAMES = ("INSIDE", "OUTSIDE", "HIDDEN", "CONTROLLER")
GROUPS, TRANSACTIONS = 0, 1


def options(port):
    """Three listeners, of which one is not advertised, and the controller's, on ports in a row."""
    return {
        "listeners": ",".join(f"{name}://127.0.0.1:{port + index}" for index, name in enumerate(NAMES)),
        "advertised.listeners": f"INSIDE://127.0.0.1:{port},OUTSIDE://broker.example:19092",
        "listener.security.protocol.map": ",".join(f"{name}:PLAINTEXT" for name in NAMES),
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.bootstrap.servers": f"127.0.0.1:{port + 3}",
        "inter.broker.listener.name": "INSIDE",
        "process.roles": "broker,controller",
        "node.id": "1",
    }


class OttlaListening(Ottla):
    """Ours, with nothing but the options."""

    def command(self):
        flags = [part for key, value in self.overrides.items() for part in ("--override", f"{key}={value}")]
        files = ["--data-dir", str(self.data_dir), "--ready-file", str(self.ready_file)]
        return [sys.executable, "-m", "ottla.cli.main", "serve", *files, *flags]

    def is_ready(self):
        return self.ready_file.exists() and self.ready_file.read_text().endswith("\n")


@pytest.fixture(scope="module")
def ports(tmp_path_factory):
    """Each broker's first port, the broker started and the topic made."""
    brokers, first = [], {}
    for name, kind in {"ottla": OttlaListening, "apache": ApacheKafka}.items():
        first[name] = port = free_port(span=4)
        broker = kind(tmp_path_factory.mktemp(name), options(port))
        broker.bootstrap = f"127.0.0.1:{port}"
        brokers.append(broker.start())
        prepare(port)
    yield first
    for broker in brokers:
        broker.stop()


def ask(connection, api, version, /, **body):
    return connection.send(codec.request_class(api)(**body), version=version)


def topic():
    return codec.request_class(ApiKey.METADATA).MetadataRequestTopic(name="ledger")


def prepare(port):
    """Have the topic and both coordinators' made."""
    with BlockingConnection("127.0.0.1", port, timeout_s=EVENT_TIMEOUT_S) as connection:
        deadline = time.monotonic() + EVENT_TIMEOUT_S
        while True:
            (found,) = ask(connection, ApiKey.METADATA, 9, topics=[topic()], allow_auto_topic_creation=True).topics
            errors = [found.error_code, *(row.error_code for row in found.partitions)]
            for key_type in (GROUPS, TRANSACTIONS):
                errors.append(ask(connection, ApiKey.FIND_COORDINATOR, 1, key_type=key_type, key="k").error_code)
            if errors == [0] * 4:
                return
            assert time.monotonic() < deadline, errors
            time.sleep(0.1)


def place(row, port):
    """A host and port, the broker's own ports as their distance from the first."""
    own = row.host == "127.0.0.1"
    return row.node_id if hasattr(row, "node_id") else row.broker_id, row.host, row.port - port if own else row.port


def metadata(connection, port, version):
    reply = ask(connection, ApiKey.METADATA, version, topics=[topic()], allow_auto_topic_creation=False)
    (found,) = reply.topics
    return (
        [place(broker, port) for broker in reply.brokers],
        found.error_code,
        [
            (row.error_code, row.leader_id, row.replica_nodes, row.isr_nodes, getattr(row, "offline_replicas", None))
            for row in found.partitions
        ],
    )


def coordinator(connection, port, version, key_type):
    if version < 4:
        row = ask(connection, ApiKey.FIND_COORDINATOR, version, key_type=key_type, key="k")
    else:
        reply = ask(connection, ApiKey.FIND_COORDINATOR, version, key_type=key_type, coordinator_keys=["k"])
        (row,) = reply.coordinators
    return row.error_code, place(row, port)


def cluster(connection, port):
    reply = ask(connection, ApiKey.DESCRIBE_CLUSTER, 0)
    return reply.error_code, [place(broker, port) for broker in reply.brokers]


def answers(port, listener):
    """All that names a broker, or does not, for who comes in on this listener."""
    with BlockingConnection("127.0.0.1", port + NAMES.index(listener), timeout_s=EVENT_TIMEOUT_S) as connection:
        return {
            **{f"Metadata v{version}": metadata(connection, port, version) for version in (0, 1, 5, 6, 9, 12)},
            **{
                f"FindCoordinator v{version} of {key_type}": coordinator(connection, port, version, key_type)
                for version in (1, 3, 4)
                for key_type in (GROUPS, TRANSACTIONS)
            },
            "DescribeCluster": cluster(connection, port),
        }


@pytest.mark.conformance
@pytest.mark.parametrize("listener", NAMES[:3])
def test_answers_on_a_listener_are_the_same_as_kafkas(ports, listener):
    assert answers(ports["ottla"], listener) == answers(ports["apache"], listener)
