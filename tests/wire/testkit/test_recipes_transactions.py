"""Recipes for transactions that go wrong, as docs/test-recipes.md shows them, with each client library."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from ottla.protocol.errors import ErrorCode


def pay(producer, topic, *values):
    """Run a transaction of an application."""
    producer.begin_transaction()
    for value in values:
        producer.send(topic, value)
    producer.commit_transaction()


def test_an_open_transaction_blocks_read_committed_until_it_times_out(client, kafka_topic, ottla_broker, ottla_clock):
    pay(client.txn_producer("tx-before"), kafka_topic, b"before")
    silent = client.txn_producer("tx-silent")
    silent.begin_transaction()
    silent.send(kafka_topic, b"never ended")
    pay(client.txn_producer("tx-after"), kafka_topic, b"after")
    consumer = client.consumer(kafka_topic)
    assert consumer.take(1) == [b"before"]
    assert ottla_broker.lso(kafka_topic) < ottla_broker.high_watermark(kafka_topic)
    assert ottla_broker.transaction("tx-silent").state == "Ongoing"
    ottla_clock.advance(minutes=2)
    assert consumer.take(1) == [b"after"]


def test_a_zombie(client, kafka_topic, ottla_broker):
    zombie = client.txn_producer("tx-1")
    zombie.begin_transaction()
    zombie.send(kafka_topic, b"of the zombie")
    pay(client.txn_producer("tx-1"), kafka_topic, b"of the successor")
    with pytest.raises(client.errors):
        zombie.commit_transaction()
    ottla_broker.assert_committed(kafka_topic, ["of the successor"])
    ottla_broker.assert_no_open_transactions()


def test_concurrent_transactions(client, kafka_topic, ottla_broker, ottla_faults):
    producer = client.txn_producer("tx-1")
    marker = ottla_faults.on_marker(transactional_id="tx-1").hold()
    pay(producer, kafka_topic, b"first")
    with ThreadPoolExecutor() as thread:
        second = thread.submit(pay, producer, kafka_topic, b"second")
        ottla_broker.wait_for_outcome("CONCURRENT_TRANSACTIONS", transactional_id="tx-1")
        marker.release()
        second.result()
    ottla_broker.assert_no_open_transactions(wait_s=10)
    ottla_broker.assert_committed(kafka_topic, ["first", "second"])


def test_a_torn_commit(client, kafka_topic_factory, ottla_broker, ottla_faults):
    topic = kafka_topic_factory(partitions=2)
    producer = client.txn_producer("tx-1")
    marker = ottla_faults.on_marker(topic=topic, partition=1).hold()
    producer.begin_transaction()
    producer.send(topic, b"debit", partition=0)
    producer.send(topic, b"credit", partition=1)
    producer.commit_transaction()
    assert client.consumer(topic, 0).take(1) == [b"debit"]
    assert ottla_broker.records(topic, 1) == []
    assert ottla_broker.transaction("tx-1").state == "PrepareCommit"
    marker.release()
    assert client.consumer(topic, 1).take(1) == [b"credit"]


def test_an_aborted_record_that_a_read_uncommitted_consumer_sees(client, kafka_topic):
    producer = client.txn_producer("tx-1")
    producer.begin_transaction()
    producer.send(kafka_topic, b"aborted")
    producer.abort_transaction()
    pay(producer, kafka_topic, b"committed")
    assert client.consumer(kafka_topic, isolation="read_uncommitted").take(2) == [b"aborted", b"committed"]
    assert client.consumer(kafka_topic, isolation="read_committed").take(1) == [b"committed"]


@pytest.mark.ottla(transaction_version=1, properties={"transaction.partition.verification.enable": False})
def test_a_hanging_transaction(client, kafka_topic, ottla_broker, ottla_clock):
    late = ottla_broker.producer_by_hand("tx-1", version=1)
    late.send(kafka_topic, b"in time")
    late.abort()
    assert late.produce(kafka_topic, b"late, behind the abort") == ErrorCode.NONE
    pay(client.txn_producer("tx-2"), kafka_topic, b"behind it")
    ottla_clock.advance(hours=1)
    with pytest.raises(AssertionError, match=f"1 transactions hang\n  {kafka_topic}-0 from offset 2"):
        ottla_broker.assert_no_open_transactions()
    consumer = client.consumer(kafka_topic)
    (hanging,) = ottla_broker.hanging_transactions()
    ottla_broker.abort_hanging(hanging)
    assert consumer.take(1) == [b"behind it"]
    ottla_broker.assert_no_open_transactions()
