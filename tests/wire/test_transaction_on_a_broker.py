"""transaction() with kafka-python over a socket: our broker, or any at OTTLA_TEST_BOOTSTRAP."""

import os
import time
import uuid

import pytest
from kafka import KafkaAdminClient, KafkaProducer

from ottla.client import CommitUnknown, ProducerFenced, TransactionAborted, TransactionFatal, transaction
from ottla.demo.clients import Broker, DemoClients, own_broker
from ottla.demo.screen import Screen
from ottla.protocol.errors import ErrorCode
from ottla.testkit.proxying import ProxyServer
from tests.timeout import EVENT_TIMEOUT_S


@pytest.fixture(scope="module")
def broker():
    if "OTTLA_TEST_BOOTSTRAP" in os.environ:
        yield Broker(os.environ["OTTLA_TEST_BOOTSTRAP"], None)
        return
    with own_broker(keep=False) as broker:
        yield broker


@pytest.fixture
def clients(broker):
    clients = DemoClients(broker, Screen())
    yield clients
    clients.close()


@pytest.fixture
def proxy(broker):
    with ProxyServer(broker.bootstrap) as proxy:
        yield proxy


@pytest.fixture
def topic(broker):
    return make_topic(broker)


@pytest.fixture
def name():
    return f"order-processor-{uuid.uuid4().hex[:8]}"


def make_topic(broker, partitions=1, **configs):
    topic = f"ledger-{uuid.uuid4().hex[:8]}"
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    settings = {"num_partitions": partitions, "replication_factor": 1, "configs": configs}
    admin.create_topics({topic: settings}, wait_for_metadata=True)
    admin.close()
    return topic


def values(clients, topic, isolation_level="read_committed"):
    return [record.value for record in clients.read(topic, isolation_level)]


def test_both_topics_or_neither(clients, broker, name):
    ledger, audit = make_topic(broker, 2), make_topic(broker)
    producer = clients.producer(name)
    with transaction(producer):
        producer.send(ledger, value="1", partition=1)
        producer.send(audit, value="1")
    with pytest.raises(ZeroDivisionError), transaction(producer):
        producer.send(ledger, value="2", partition=0).get(timeout=EVENT_TIMEOUT_S)
        producer.send(audit, value="2").get(timeout=EVENT_TIMEOUT_S)
        raise ZeroDivisionError
    assert values(clients, ledger) == values(clients, audit) == ["1"]
    assert values(clients, audit, "read_uncommitted") == ["1", "2"]


def test_a_record_above_the_topics_limit_aborts_only_its_transaction(clients, broker, name):
    topic = make_topic(broker, **{"max.message.bytes": "2000"})
    producer = clients.producer(name)
    with pytest.raises(TransactionAborted) as caught, transaction(producer):
        producer.send(topic, value="small").get(timeout=EVENT_TIMEOUT_S)
        producer.send(topic, value="x" * 5000)
    assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE
    with transaction(producer):
        producer.send(topic, value="after")
    assert values(clients, topic) == ["after"]


def test_a_lost_answer_to_produce_is_one_record(clients, proxy, topic, name):
    producer = clients.producer(name, bootstrap=proxy.bootstrap)
    with transaction(producer):
        producer.send(topic, value="first")
    fault = proxy.add(at="reply", api="Produce", do="drop")
    with transaction(producer):
        producer.send(topic, value="second")
    assert fault.hits
    assert values(clients, topic, "read_uncommitted") == ["first", "second"]


def test_a_commit_whose_reply_is_lost_is_sent_again(clients, proxy, topic, name):
    producer = clients.producer(name, bootstrap=proxy.bootstrap)
    fault = proxy.add(at="reply", api="EndTxn", do="drop")
    with transaction(producer):
        producer.send(topic, value="committed")
    assert fault.hits
    assert proxy.requests["EndTxn"] == 2
    assert values(clients, topic) == ["committed"]


def test_a_commit_that_is_never_answered_is_unknown(clients, proxy, topic, name):
    producer = clients.producer(name, bootstrap=proxy.bootstrap)
    fault = proxy.add(at="reply", api="EndTxn", do="lose")
    with pytest.raises(CommitUnknown), transaction(producer, timeout_ms=500):
        producer.send(topic, value="committed after all")
    assert fault.hits
    assert producer._closed
    clients.producer(name)  # settles what was left
    assert values(clients, topic) == ["committed after all"]


def test_an_abort_that_is_never_answered_is_fatal_and_stays_invisible(clients, proxy, topic, name):
    producer = clients.producer(name, bootstrap=proxy.bootstrap)
    fault = proxy.add(at="reply", api="EndTxn", do="lose")
    with pytest.raises(TransactionFatal, match="did not confirm the abort"), transaction(producer, timeout_ms=500):
        producer.send(topic, value="aborted").get(timeout=EVENT_TIMEOUT_S)
        raise ZeroDivisionError
    assert fault.hits
    clients.producer(name)
    assert values(clients, topic) == []


def test_records_that_run_into_the_delivery_timeout_are_not_committed_away(clients, proxy, topic, name):
    producer = clients.producer(name, bootstrap=proxy.bootstrap, delivery_timeout_ms=900, request_timeout_ms=600)
    with transaction(producer):
        producer.send(topic, value="first")
    fault = proxy.add(at="reply", api="Produce", do="lose", times=2)
    with pytest.raises(TransactionAborted, match="Expiring") as caught, transaction(producer, timeout_ms=10_000):
        producer.send(topic, value="expired")
    assert caught.value.retriable
    assert fault.hits
    proxy.plan.remove(fault.id)
    with transaction(producer):
        producer.send(topic, value="after")
    assert values(clients, topic) == ["first", "after"]


def test_a_second_instance_fences_the_first(clients, topic, name):
    first = clients.producer(name)
    with pytest.raises(ProducerFenced) as caught, transaction(first):
        first.send(topic, value="zombie").get(timeout=EVENT_TIMEOUT_S)
        second = clients.producer(name)
        with transaction(second):
            second.send(topic, value="successor")
    assert caught.value.code in (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH)
    assert first._closed
    assert values(clients, topic) == ["successor"]


def test_a_zombie_that_writes_is_fenced_too(clients, topic, name):
    first = clients.producer(name)
    with pytest.raises(ProducerFenced), transaction(first):
        first.send(topic, value="zombie").get(timeout=EVENT_TIMEOUT_S)
        clients.producer(name)
        first.send(topic, value="zombie again").get(timeout=EVENT_TIMEOUT_S)
    assert values(clients, topic) == []


def consume_until(consumer, producer, target, count, fail_at=None):
    done, deadline = 0, time.monotonic() + EVENT_TIMEOUT_S
    while done < count and time.monotonic() < deadline:
        records = [record for batch in consumer.poll(timeout_ms=300, max_records=3).values() for record in batch]
        with transaction(producer, consumer=consumer):
            for record in records:
                producer.send(target, value=record.value.decode()).get(timeout=EVENT_TIMEOUT_S)
            if fail_at is not None and done + len(records) >= fail_at:
                raise ZeroDivisionError
        done += len(records)
    return done


def test_positions_are_committed_with_the_records_or_not_at_all(clients, broker, name):
    source, target = make_topic(broker, 2), make_topic(broker)
    feeder = KafkaProducer(bootstrap_servers=broker.bootstrap)
    for number in range(8):
        feeder.send(source, b"%d" % number, partition=number % 2)
    feeder.close()
    producer, consumer = clients.producer(name), clients.consumer(source, f"group-of-{name}")
    with pytest.raises(ZeroDivisionError):
        consume_until(consumer, producer, target, 8, fail_at=5)
    committed = sum(consumer.committed(partition) or 0 for partition in consumer.assignment())
    assert committed == len(values(clients, target)) < 5
    assert consume_until(consumer, producer, target, 8 - committed) == 8 - committed
    assert sorted(values(clients, target)) == [str(number) for number in range(8)]
    assert {consumer.committed(partition) for partition in consumer.assignment()} == {4}
