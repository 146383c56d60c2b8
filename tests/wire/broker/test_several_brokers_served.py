"""`ottla serve --brokers 3` with clients, and its directory served by one broker and by three again."""

import asyncio
import sys
from itertools import islice
from pathlib import Path

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaConsumer, KafkaProducer

from tests.timeout import EVENT_TIMEOUT_S

sys.path.insert(0, str(Path(__file__).parent))

from served import serving

TOPIC, PARTITIONS = "orders", 6
THREE = ("--listen", "127.0.0.1:0", "--brokers", "3")
ONE = ("--listen", "127.0.0.1:0")


def write_with_librdkafka(bootstrap, transactional_id, committed):
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": transactional_id})
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
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group_id,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
        }
    )
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
