"""`ottla serve --brokers 3` with clients, and its directory served by one broker and by three again."""

import asyncio
import contextlib
import socket
import sys
from itertools import islice
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaConsumer, KafkaProducer

from tests.logins import MODULES
from tests.timeout import EVENT_TIMEOUT_S

sys.path.insert(0, str(Path(__file__).parent))

from served import serving

TOPIC, PARTITIONS = "orders", 6
THREE = ("--listen", "127.0.0.1:0", "--brokers", "3")
ONE = ("--listen", "127.0.0.1:0")


def client_of(bootstrap):
    """Return the configuration of a client of librdkafka, given as it is or as its bootstrap servers."""
    return bootstrap if isinstance(bootstrap, dict) else {"bootstrap.servers": bootstrap}


def write_with_librdkafka(bootstrap, transactional_id, committed):
    producer = Producer(client_of(bootstrap) | {"transactional.id": transactional_id})
    producer.init_transactions(EVENT_TIMEOUT_S)
    producer.begin_transaction()
    for index in range(PARTITIONS):
        producer.produce(TOPIC, transactional_id, partition=index)
    if committed:
        producer.commit_transaction(EVENT_TIMEOUT_S)
    else:
        producer.flush(EVENT_TIMEOUT_S)
        producer.abort_transaction(EVENT_TIMEOUT_S)


def write_with_kafka_python(bootstrap, transactional_id):
    producer = KafkaProducer(bootstrap_servers=bootstrap, transactional_id=transactional_id)
    producer.init_transactions()
    producer.begin_transaction()
    for index in range(PARTITIONS):
        producer.send(TOPIC, transactional_id.encode(), partition=index)
    producer.commit_transaction()
    producer.close()


async def write_with_aiokafka(bootstrap, transactional_id):
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=transactional_id)
    async with producer, producer.transaction():
        for index in range(PARTITIONS):
            await producer.send(TOPIC, transactional_id.encode(), partition=index)


def read_with_librdkafka(bootstrap, group_id, count):
    settings = {"group.id": group_id, "auto.offset.reset": "earliest", "isolation.level": "read_committed"}
    consumer = Consumer(client_of(bootstrap) | settings)
    consumer.subscribe([TOPIC])
    found = []
    while len(found) < count and (message := consumer.poll(EVENT_TIMEOUT_S)) is not None:
        assert message.error() is None, message.error()
        found.append(message.value())
    consumer.close()
    return found


def read_with_kafka_python(bootstrap, group_id, count):
    consumer = KafkaConsumer(
        TOPIC,
        bootstrap_servers=bootstrap,
        group_id=group_id,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
        consumer_timeout_ms=EVENT_TIMEOUT_S * 1000,
    )
    found = [message.value for message in islice(consumer, count)]
    consumer.close()
    return found


async def read_with_aiokafka(bootstrap, group_id, count):
    consumer = AIOKafkaConsumer(
        TOPIC,
        bootstrap_servers=bootstrap,
        group_id=group_id,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    )
    async with consumer:
        return [(await asyncio.wait_for(consumer.getone(), EVENT_TIMEOUT_S)).value for _ in range(count)]


def read_by_all(bootstrap, turn, count):
    """Return what three clients read, each in a group of its own."""
    return [
        sorted(read_with_librdkafka(bootstrap, f"l-{turn}", count)),
        sorted(read_with_kafka_python(bootstrap, f"k-{turn}", count)),
        sorted(asyncio.run(read_with_aiokafka(bootstrap, f"a-{turn}", count))),
    ]


@pytest.mark.slow
def test_clients_use_three_brokers_and_one_broker_serves_the_directory_then(tmp_path):
    expected = []
    for turn, listen in enumerate((THREE, ONE, THREE)):
        with serving(tmp_path, 1 if listen is ONE else 3, listen=listen) as addresses:
            bootstrap = [f"{host}:{port}" for _, host, port in addresses][-1]
            admin = AdminClient({"bootstrap.servers": bootstrap})
            if not expected:
                admin.create_topics([NewTopic(TOPIC, PARTITIONS, 3)])[TOPIC].result(EVENT_TIMEOUT_S)
                leaders = [each.leader for each in admin.list_topics(TOPIC).topics[TOPIC].partitions.values()]
                assert leaders == [1, 2, 3, 1, 2, 3]
            assert len(admin.list_topics().brokers) == len(addresses)
            for number in range(3):
                write_with_librdkafka(bootstrap, f"l-{turn}-{number}", committed=True)
                write_with_librdkafka(bootstrap, f"aborted-{turn}-{number}", committed=False)
            write_with_kafka_python(bootstrap, f"k-{turn}")
            asyncio.run(write_with_aiokafka(bootstrap, f"a-{turn}"))
            committed = [*(f"l-{turn}-{number}" for number in range(3)), f"k-{turn}", f"a-{turn}"]
            expected += [name.encode() for name in committed] * PARTITIONS
            assert read_by_all(bootstrap, turn, len(expected)) == [sorted(expected)] * 3


def listening_ports(pid):
    """Return the ports on which a process listens."""
    descriptors = Path(f"/proc/{pid}/fd").iterdir()
    sockets = set()
    for descriptor in descriptors:
        with contextlib.suppress(FileNotFoundError):
            sockets.add(str(descriptor.readlink()))
    rows = [line.split() for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]]
    return {int(row[1].partition(":")[2], 16) for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in sockets}


@pytest.mark.slow
def test_markers_cross_a_port_that_closes_foreign_connections(tmp_path, certificates):
    flags = (
        "listeners=SASL_SSL://127.0.0.1:0",
        "ssl.keystore.type=PEM",
        f"ssl.keystore.location={certificates.broker}",
        "sasl.enabled.mechanisms=PLAIN",
        f'listener.name.sasl_ssl.plain.sasl.jaas.config={MODULES}plain.PlainLoginModule required user_alice="secret";',
        "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users=User:alice",
    )
    with serving(tmp_path, 3, *flags, listen=("--brokers", "3")) as addresses:
        client = {
            "bootstrap.servers": ",".join(f"{host}:{port}" for _, host, port in addresses),
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(certificates.ca),
            "sasl.mechanisms": "PLAIN",
            "sasl.username": "alice",
            "sasl.password": "secret",
        }
        admin = AdminClient(client)
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(EVENT_TIMEOUT_S)
        write_with_librdkafka(client, "t", committed=True)
        assert read_with_librdkafka(client, "g", PARTITIONS) == [b"t"] * PARTITIONS
        if not sys.platform.startswith("linux"):
            return
        (inner,) = listening_ports((tmp_path / "pid").read_text()) - {port for _, _, port in addresses}
        with socket.create_connection(("127.0.0.1", inner), EVENT_TIMEOUT_S) as foreign:
            assert foreign.recv(1) == b""
            host, port = foreign.getsockname()
        log = (tmp_path / "log").read_text()
        assert f"Closed the connection of {host}:{port}: only the brokers of this process may use its port" in log
