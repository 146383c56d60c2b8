"""Public reports of clients that met a moved leader or coordinator, each as a test of three brokers.

The first is an open bug of the client: the test shows it, and what ends it. The others show that the client of today
continues.
"""

import asyncio

import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.timeout import EVENT_TIMEOUT_S

pytestmark = pytest.mark.ottla(brokers=3)
QUIET_S = 3
GROUP = "copy"


@pytest.fixture
def consume(ottla_broker):
    """Return a function that makes a librdkafka consumer of a topic; it is closed after the test."""
    made = []

    def consume(topic):
        consumer = Consumer(
            {
                "bootstrap.servers": ottla_broker.bootstrap,
                "group.id": GROUP,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )
        consumer.subscribe([topic])
        made.append(consumer)
        return consumer

    yield consume
    for consumer in made:
        consumer.close()


def poll(consumer, timeout_s=EVENT_TIMEOUT_S):
    message = consumer.poll(timeout_s)
    assert message is None or message.error() is None, message.error()
    return None if message is None else message.value()


def send(broker, topic, value):
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce(topic, value)
    assert producer.flush(EVENT_TIMEOUT_S) == 0


@pytest.mark.slow
def test_a_coordinator_that_moves_before_the_offsets_are_fetched(consume, kafka_topic, ottla_broker, ottla_faults):
    """librdkafka#5586: NOT_COORDINATOR to its OffsetFetch leaves the assigned partition unread for ever."""
    send(ottla_broker, kafka_topic, b"one")
    held = ottla_faults.on("OffsetFetch", group=GROUP).hold()
    stuck = consume(kafka_topic)
    assert poll(stuck, QUIET_S) is None
    held.wait_hit()
    moved = ottla_broker.move_coordinator(group=GROUP, to=2)
    held.release()
    refused = stuck.poll(EVENT_TIMEOUT_S)
    assert refused.error().code() == KafkaError.NOT_COORDINATOR
    moved.wait_hit()
    assert poll(stuck, QUIET_S) is None
    assert [each.partition for each in stuck.assignment()] == [0]
    stuck.unsubscribe()
    stuck.subscribe([kafka_topic])
    assert poll(stuck) == b"one"


def test_a_coordinator_whose_broker_stops_in_a_transaction(kafka_topic, ottla_broker):
    """aiokafka#1145, aiokafka#1134: the producer sent to the broker that was gone, until that came back."""

    async def play():
        producer = AIOKafkaProducer(bootstrap_servers=ottla_broker.bootstrap, transactional_id="tx-1")
        async with producer:
            async with producer.transaction():
                await producer.send_and_wait(kafka_topic, b"one")
            ottla_broker.move_coordinator("tx-1", to=3)
            async with producer.transaction():
                await producer.send_and_wait(kafka_topic, b"two")
            async with producer.transaction():
                await producer.send_and_wait(kafka_topic, b"three")
                ottla_broker.stop_broker(3)
            async with producer.transaction():
                await producer.send_and_wait(kafka_topic, b"four")

    asyncio.run(asyncio.wait_for(play(), EVENT_TIMEOUT_S))
    ottla_broker.assert_committed(kafka_topic, ["one", "two", "three", "four"])


@pytest.mark.slow
def test_a_commit_while_the_coordinator_moves(consume, kafka_topic, ottla_broker):
    """librdkafka#2630, librdkafka#1605, confluent-kafka-go#614: commits failed with NOT_COORDINATOR for ever."""
    send(ottla_broker, kafka_topic, b"one")
    consumer = consume(kafka_topic)
    assert poll(consumer) == b"one"
    moved = ottla_broker.move_coordinator(group=GROUP, to=3)
    consumer.commit(asynchronous=False)
    moved.wait_hit()
    send(ottla_broker, kafka_topic, b"two")
    assert poll(consumer) == b"two"
    (committed,) = consumer.committed([TopicPartition(kafka_topic, 0)], EVENT_TIMEOUT_S)
    assert committed.offset == 1


@pytest.mark.slow
def test_a_partition_without_a_leader_for_a_while(ottla_broker):
    """librdkafka#5430: after a metadata answer without a leader, records were never sent again."""
    topic = "alone"
    admin = AdminClient({"bootstrap.servers": ottla_broker.bootstrap})
    (created,) = admin.create_topics([NewTopic(topic, 1, 1)]).values()
    created.result(EVENT_TIMEOUT_S)
    producer = Producer({"bootstrap.servers": ottla_broker.bootstrap})
    producer.produce(topic, b"one")
    assert producer.flush(EVENT_TIMEOUT_S) == 0
    stopped = ottla_broker.stop_broker(1)
    producer.produce(topic, b"two")
    assert producer.flush(QUIET_S) == 1
    stopped.wait_hit()
    ottla_broker.start_broker(1)
    assert producer.flush(EVENT_TIMEOUT_S) == 0
    ottla_broker.assert_committed(topic, ["one", "two"])


@pytest.mark.slow
def test_a_coordinator_whose_broker_stops_before_the_commit(kafka_topic, ottla_broker):
    """confluent-kafka-dotnet#1321, kafkajs#1416: the commit failed until the broker was back."""
    producer = Producer({"bootstrap.servers": ottla_broker.bootstrap, "transactional.id": "tx-1"})
    producer.init_transactions(EVENT_TIMEOUT_S)
    ottla_broker.move_coordinator("tx-1", to=3)
    producer.begin_transaction()
    producer.produce(kafka_topic, b"one")
    producer.flush(EVENT_TIMEOUT_S)
    ottla_broker.stop_broker(3)
    producer.commit_transaction(EVENT_TIMEOUT_S)
    ottla_broker.assert_committed(kafka_topic, ["one"])


def test_a_leader_that_moves_between_two_sends(kafka_topic, ottla_broker):
    """kafkajs#1175, librdkafka#3545: records for the old leader timed out."""
    producer = Producer({"bootstrap.servers": ottla_broker.bootstrap})
    producer.produce(kafka_topic, b"1")
    assert producer.flush(EVENT_TIMEOUT_S) == 0
    for leader in (2, 3, 1, 2):
        moved = ottla_broker.move_leader(kafka_topic, 0, to=leader)
        producer.produce(kafka_topic, b"%d" % leader)
        assert producer.flush(EVENT_TIMEOUT_S) == 0
        moved.wait_hit()
    ottla_broker.assert_committed(kafka_topic, ["1", "2", "3", "1", "2"])
