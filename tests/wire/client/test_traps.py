"""Peculiarities of single libraries that transaction() handles: "The three libraries" of docs/client.md."""

import asyncio

import pytest

from ottla.client import ProducerFenced, TransactionAborted, TransactionFatal, transaction
from ottla.protocol.errors import ErrorCode
from tests.timeout import EVENT_TIMEOUT_S
from tests.wire.client.topics import make_topic, values


@pytest.mark.slow
def test_kafka_python_continues_after_records_that_met_its_delivery_timeout(kafka_python, proxy, broker, topic, name):
    options = {"delivery_timeout_ms": 900, "request_timeout_ms": 600}
    producer = kafka_python.producer(proxy.bootstrap, name, **options)
    kafka_python.run(producer, [("send", topic, "first")])
    fault = proxy.add(at="reply", api="Produce", do="lose", times=2)
    with pytest.raises(TransactionAborted, match="Expiring") as caught:
        kafka_python.run(producer, [("send", topic, "expired")], timeout_ms=10_000)
    assert caught.value.retriable
    assert fault.hits
    proxy.plan.remove(fault.id)
    kafka_python.run(producer, [("send", topic, "after")])
    assert values(broker, topic) == ["first", "after"]


def test_librdkafka_reports_every_delivery_before_the_block_ends(confluent, broker, topic, name):
    producer, told = confluent.producer(broker.bootstrap, name), []
    with pytest.raises(ZeroDivisionError), transaction(producer):
        for number in range(50):
            producer.produce(topic, str(number), on_delivery=lambda error, message: told.append(error))
        raise ZeroDivisionError
    assert len(told) == 50
    confluent.run(producer, [("send", topic, "next")])
    assert values(broker, topic) == ["next"]


def test_librdkafka_aborts_at_most_one_block_after_a_refused_record(confluent, broker, name):
    topic = make_topic(broker, **{"max.message.bytes": "2000"})
    producer = confluent.producer(broker.bootstrap, name)
    with pytest.raises(TransactionAborted) as refused:
        confluent.run(producer, [("send", topic, "x" * 5000)])
    assert refused.value.code is ErrorCode.MESSAGE_TOO_LARGE
    outcomes = []
    for number in range(3):
        try:
            confluent.run(producer, [("send", topic, str(number))])
            outcomes.append(str(number))
        except TransactionAborted as error:
            assert error.retriable
            assert error.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert outcomes[-2:] == ["1", "2"]
    assert values(broker, topic) == outcomes


@pytest.mark.slow
def test_librdkafka_throws_a_fatal_error_out_of_the_block_that_is_caught_as_any_other(confluent, broker, topic, name):
    first = confluent.producer(broker.bootstrap, name)
    with pytest.raises(ProducerFenced), transaction(first):
        confluent.send(first, topic, "zombie")
        confluent.settle(first)
        confluent.producer(broker.bootstrap, name)
        confluent.send(first, topic, "zombie again")
        confluent.settle(first)
    with pytest.raises(RuntimeError, match="closed"):
        confluent.run(first, [])


def test_aiokafka_aborts_after_a_failed_batch_with_a_cancelled_future(aiokafka, broker, name):
    topic = make_topic(broker, **{"max.message.bytes": "2000"})
    producer = aiokafka.producer(broker.bootstrap, name)

    async def block():
        async with transaction(producer):
            await producer.send(topic, b"small")
            (await producer.send(topic, b"x" * 5000)).cancel()

    with pytest.raises(TransactionAborted) as caught:
        aiokafka.within(block())
    assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE
    aiokafka.run(producer, [("send", topic, "after")])
    assert values(broker, topic) == ["after"]


def test_a_fenced_producer_of_aiokafka_is_refused_as_closed(aiokafka, broker, topic, name):
    first = aiokafka.producer(broker.bootstrap, name)
    steps = [("send", topic, "zombie"), "settle", lambda: aiokafka.producer(broker.bootstrap, name)]
    with pytest.raises(ProducerFenced):
        aiokafka.run(first, [*steps, ("send", topic, "zombie again")])
    with pytest.raises(RuntimeError, match="CLOSED"):
        aiokafka.run(first, [])


def fence(kafka, broker, topic, name):
    return lambda: kafka.producer(broker.bootstrap, name)


def refuse(kafka, broker, topic, name):
    return "send", topic, "x" * 5000


def exceed_the_clients_limit(kafka, broker, topic, name):
    return "send", topic, "x" * 2_000_000


@pytest.mark.parametrize("after", [[], ["send"], ["send", "settle"]], ids=["at the commit", "unsent", "in the block"])
@pytest.mark.parametrize(
    ("fail", "error"),
    [(fence, ProducerFenced), (refuse, TransactionAborted), (exceed_the_clients_limit, TransactionAborted)],
)
def test_asyncio_has_nothing_to_report_of_a_transaction_of_aiokafka_that_failed(
    aiokafka, broker, name, fail, error, after
):
    topic = make_topic(broker, **{"max.message.bytes": "2000"})
    producer = aiokafka.producer(broker.bootstrap, name)
    more = [("send", topic, "after") if step == "send" else step for step in after]
    with pytest.raises(error):
        aiokafka.run(producer, [("send", topic, "before"), "settle", fail(aiokafka, broker, topic, name), *more])
    del producer
    assert aiokafka.errors_of_asyncio() == []


@pytest.mark.slow
def test_asyncio_has_nothing_to_report_of_a_producer_that_is_closed_while_it_retries(aiokafka, proxy, topic, name):
    producer = aiokafka.producer(proxy.bootstrap, name)
    lost = proxy.add(at="reply", api="Produce", do="lose")
    steps = [("send", topic, "given up"), lambda: proxy.await_hits(lost), ZeroDivisionError()]
    with pytest.raises(TransactionFatal):
        aiokafka.run(producer, steps, timeout_ms=1500)
    del producer
    assert aiokafka.errors_of_asyncio() == []


def test_a_cancelled_task_of_aiokafka_aborts_first(aiokafka, broker, topic, name):
    producer = aiokafka.producer(broker.bootstrap, name)

    async def play():
        sent = asyncio.Event()

        async def block():
            async with transaction(producer):
                await producer.send_and_wait(topic, b"cancelled")
                sent.set()
                await asyncio.sleep(EVENT_TIMEOUT_S)

        task = asyncio.ensure_future(block())
        await sent.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    aiokafka.within(play())
    aiokafka.run(producer, [("send", topic, "after")])
    assert values(broker, topic) == ["after"]
