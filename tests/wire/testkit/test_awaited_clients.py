"""The fixtures' clients of aiokafka: on the event loop of the test, and closed with it or after it."""

import asyncio

import pytest

from ottla.testkit.kit.clients import Clients

aiokafka = pytest.importorskip("aiokafka", reason="aiokafka is not installed")


def test_clients_of_a_block_are_started_and_closed_with_it(
    kafka_producer, kafka_txn_producer, kafka_consumer, kafka_topic, ottla_broker
):
    async def play():
        async with kafka_txn_producer("tx-awaited", client="aiokafka") as paid, paid.transaction():
            await paid.send_and_wait(kafka_topic, b"paid")
        async with kafka_producer(client="aiokafka", linger_ms=5) as plain:
            await plain.send_and_wait(kafka_topic, b"plain")
        async with kafka_consumer(kafka_topic, client="aiokafka") as consumer:
            found = [(await consumer.getone()).value for _ in range(2)]
        with pytest.raises(aiokafka.errors.ProducerClosed):
            await plain.send(kafka_topic, b"late")
        return found

    assert asyncio.run(play()) == [b"paid", b"plain"]
    assert ottla_broker.transaction("tx-awaited").state == "CompleteCommit"


def test_an_awaited_client_is_closed_after_the_test(kafka_topic, ottla_broker):
    clients = Clients(ottla_broker)

    async def begin():
        producer = await clients.producer(client="aiokafka")
        await producer.send_and_wait(kafka_topic, b"sent")
        return producer

    async def send(producer):
        await producer.send(kafka_topic, b"late")

    with asyncio.Runner() as runner:
        producer = runner.run(begin())
        clients.close()
        with pytest.raises(aiokafka.errors.ProducerClosed):
            runner.run(send(producer))
    ottla_broker.assert_committed(kafka_topic, ["sent"])


def test_a_client_that_cannot_start_is_closed_too(ottla_broker):
    clients = Clients(ottla_broker)

    async def begin():
        await clients.producer(client="aiokafka", bootstrap_servers="127.0.0.1:1")

    with asyncio.Runner() as runner:
        with pytest.raises(aiokafka.errors.KafkaConnectionError):
            runner.run(begin())
        clients.close()


def test_an_unknown_client_name_is_refused(kafka_producer, kafka_consumer):
    with pytest.raises(ValueError, match="client is kafka-python or confluent-kafka or aiokafka, not 'aio'"):
        kafka_producer(client="aio")
    with pytest.raises(ValueError, match="not 'aio'"):
        kafka_consumer("topic", client="aio")
