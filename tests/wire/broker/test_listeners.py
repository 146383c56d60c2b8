"""Several listeners on real sockets: every answer that names a broker has the address of the client's listener."""

import re
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from kafka import KafkaConsumer, KafkaProducer

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.requests import codec
from ottla.wire.connection import BlockingConnection
from tests.timeout import EVENT_TIMEOUT_S

sys.path.insert(0, str(Path(__file__).parent))

from served import COMMAND, serving

INSIDE_AND_OUTSIDE = "listener.security.protocol.map=INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT,CONTROLLER:PLAINTEXT"
LOOPBACK_6 = pytest.mark.skipif(not socket.has_ipv6, reason="this machine has no IPv6")


def two(directory, *overrides, ready=2):
    listeners = "listeners=INSIDE://127.0.0.1:0,OUTSIDE://127.0.0.1:0"
    return serving(directory, ready, INSIDE_AND_OUTSIDE, listeners, *overrides)


def bound_ports(directory):
    """Return the ports on which the broker listens, which may differ from the advertised ones."""
    (line,) = [line for line in (directory / "log").read_text().splitlines() if " Serving " in line]
    return [int(re.search(rf"{name}://127\.0\.0\.1:(\d+)", line)[1]) for name in ("INSIDE", "OUTSIDE")]


def ask(connection, api, version, /, **body):
    return connection.send(codec.request_class(api)(**body), version=version)


def read_addresses(host, port):
    """Return the broker's addresses in all answers that have one, for a client that connects here."""
    with BlockingConnection(host, port, timeout_s=EVENT_TIMEOUT_S) as connection:
        (of_metadata,) = ask(connection, ApiKey.METADATA, 9, topics=[]).brokers
        (of_cluster,) = ask(connection, ApiKey.DESCRIBE_CLUSTER, 0).brokers
        (of_group,) = ask(connection, ApiKey.FIND_COORDINATOR, 4, key_type=0, coordinator_keys=["readers"]).coordinators
        of_transaction = ask(connection, ApiKey.FIND_COORDINATOR, 1, key_type=1, key="payments")
        answers = (of_metadata, of_cluster, of_group, of_transaction)
        return {(answer.host, answer.port) for answer in answers}


@pytest.mark.slow
def test_each_listener_has_a_ready_line_and_is_named_to_its_clients(tmp_path):
    with two(tmp_path) as addresses:
        assert [name for name, _, _ in addresses] == ["INSIDE", "OUTSIDE"]
        assert len({port for _, _, port in addresses}) == 2
        for _, host, port in addresses:
            assert read_addresses(host, port) == {(host, port)}


@pytest.mark.slow
def test_clients_of_a_listener_get_its_advertised_address(tmp_path):
    advertised = "advertised.listeners=OUTSIDE://example.org:0,INSIDE://broker:19092"
    with two(tmp_path, advertised) as addresses:
        inside, outside = bound_ports(tmp_path)
        assert addresses == [("INSIDE", "broker", 19092), ("OUTSIDE", "example.org", outside)]
        assert read_addresses("127.0.0.1", inside) == {("broker", 19092)}
        assert read_addresses("127.0.0.1", outside) == {("example.org", outside)}


@pytest.mark.slow
def test_clients_of_a_listener_without_an_advertised_address_get_no_broker(tmp_path):
    with two(tmp_path, "advertised.listeners=INSIDE://127.0.0.1:0", ready=1) as addresses:
        inside, outside = bound_ports(tmp_path)
        assert addresses == [("INSIDE", "127.0.0.1", inside)]
        with BlockingConnection("127.0.0.1", inside, timeout_s=EVENT_TIMEOUT_S) as connection:
            topic = codec.request_class(ApiKey.METADATA).MetadataRequestTopic(name="ledger")
            ask(connection, ApiKey.METADATA, 9, topics=[topic], allow_auto_topic_creation=True)
        with BlockingConnection("127.0.0.1", outside, timeout_s=EVENT_TIMEOUT_S) as connection:
            for version, error in ((5, ErrorCode.LEADER_NOT_AVAILABLE), (9, ErrorCode.LISTENER_NOT_FOUND)):
                reply = ask(connection, ApiKey.METADATA, version, topics=None)
                assert reply.brokers == []
                (partition,) = next(topic for topic in reply.topics if topic.name == "ledger").partitions
                assert (partition.error_code, partition.leader_id) == (error, -1)
                assert (partition.replica_nodes, partition.offline_replicas) == ([1], [1])
            assert ask(connection, ApiKey.DESCRIBE_CLUSTER, 0).brokers == []
            found = ask(connection, ApiKey.FIND_COORDINATOR, 1, key_type=0, key="readers")
            assert found.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


@pytest.mark.slow
def test_two_clients_work_on_two_listeners_at_once(tmp_path):
    """Each client can reach only its own listener's address, so it would fail with the address of the other."""
    sent = 50
    with two(tmp_path) as addresses:
        proxies = [f"{host}:{port}" for _, host, port in addresses]
        failures = []

        def produce(bootstrap, key):
            try:
                producer = KafkaProducer(bootstrap_servers=bootstrap, transactional_id=key.decode(), linger_ms=0)
                producer.init_transactions()
                for index in range(sent):
                    producer.begin_transaction()
                    producer.send("ledger", key=key, value=b"%d" % index)
                    producer.commit_transaction()
                producer.close()
            except Exception as error:
                failures.append(error)

        threads = [
            threading.Thread(target=produce, args=pair) for pair in zip(proxies, (b"inside", b"outside"), strict=True)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(EVENT_TIMEOUT_S)
        assert failures == []
        for bootstrap in proxies:
            consumer = KafkaConsumer(
                "ledger",
                bootstrap_servers=bootstrap,
                group_id=f"readers-{bootstrap}",
                auto_offset_reset="earliest",
                isolation_level="read_committed",
                consumer_timeout_ms=1000 * EVENT_TIMEOUT_S,
            )
            seen = {b"inside": [], b"outside": []}
            for record in consumer:
                seen[record.key].append(int(record.value))
                if sum(map(len, seen.values())) == 2 * sent:
                    break
            consumer.close()
            assert seen == {b"inside": list(range(sent)), b"outside": list(range(sent))}


@pytest.mark.slow
def test_limits_count_the_connections_of_all_listeners(tmp_path):
    with two(tmp_path, "max.connections.per.ip=5", "max.connections.per.ip.overrides=localhost:2") as addresses:
        (_, *inside), (_, *outside) = addresses
        with (
            BlockingConnection(*inside, timeout_s=EVENT_TIMEOUT_S) as first,
            BlockingConnection(*outside, timeout_s=EVENT_TIMEOUT_S) as second,
        ):
            for connection in (first, second):
                ask(connection, ApiKey.METADATA, 9, topics=[])
            for address in (inside, outside):
                with socket.create_connection(tuple(address), EVENT_TIMEOUT_S) as third:
                    assert third.recv(1) == b""


@pytest.mark.slow
def test_a_connection_waits_until_one_of_another_listener_closes(tmp_path):
    with two(tmp_path, "max.connections=1") as addresses:
        (_, *inside), (_, *outside) = addresses
        first = BlockingConnection(*inside, timeout_s=EVENT_TIMEOUT_S)
        ask(first, ApiKey.METADATA, 9, topics=[])
        with BlockingConnection(*outside, timeout_s=EVENT_TIMEOUT_S) as second:
            first.close()
            assert ask(second, ApiKey.METADATA, 9, topics=[]).brokers[0].port == outside[1]


def test_a_port_that_is_taken_is_named_and_nothing_is_served(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        listeners = f"listeners=INSIDE://127.0.0.1:0,OUTSIDE://127.0.0.1:{port}"
        flags = ["--override", INSIDE_AND_OUTSIDE, "--override", listeners]
        done = subprocess.run(
            [*COMMAND, "--data-dir", str(tmp_path / "data"), *flags],
            capture_output=True,
            text=True,
            timeout=EVENT_TIMEOUT_S,
        )
    assert (done.returncode, done.stdout) == (1, "")
    assert f"Cannot listen on OUTSIDE://127.0.0.1:{port}: " in done.stderr and "Traceback" not in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("host", ["localhost", pytest.param("[::1]", marks=LOOPBACK_6)])
def test_a_host_is_an_address_of_either_kind_or_a_name(tmp_path, host):
    with serving(tmp_path, 1, listen=("--listen", f"{host}:0")) as addresses:
        ((name, told_host, port),) = addresses
        assert (name, told_host) == ("PLAINTEXT", host.strip("[]"))
        assert read_addresses(told_host, port) == {(told_host, port)}
        producer = KafkaProducer(bootstrap_servers=f"{host}:{port}")
        assert producer.send("ledger", b"x").get(EVENT_TIMEOUT_S).offset == 0
        producer.close()


@pytest.mark.slow
def test_the_controllers_listener_of_kafkas_server_properties_is_not_opened(tmp_path):
    overrides = [
        "process.roles=broker,controller",
        "controller.listener.names=CONTROLLER",
        "listeners=INSIDE://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
        "inter.broker.listener.name=INSIDE",
    ]
    with serving(tmp_path, 1, INSIDE_AND_OUTSIDE, *overrides) as addresses:
        ((name, host, port),) = addresses
        assert name == "INSIDE"
        assert read_addresses(host, port) == {(host, port)}
