"""Tests of a user for any broker. `test_elsewhere.py` runs this file also against brokers that run elsewhere.

Without test control, the tests of the broker's clock, faults and settings are skipped.
"""

import pytest

from ottla.testkit.kit.wire import KafkaError


def pay(producer, topic, *values):
    """Run a transaction of an application."""
    producer.begin_transaction()
    for value in values:
        producer.send(topic, value)
    producer.commit_transaction()


def test_a_commit_is_seen(kafka_txn_producer, kafka_topic_factory, ottla_broker):
    topic = kafka_topic_factory(partitions=3, configs={"retention.ms": "-1"})
    pay(kafka_txn_producer("tx-1"), topic, b"paid")
    assert ottla_broker.topics()[topic] == 3
    ottla_broker.assert_committed(topic, ["paid"])


def test_more_replicas_than_brokers_are_refused_with_the_reason(kafka_topic_factory):
    with pytest.raises(KafkaError, match=r"INVALID_REPLICATION_FACTOR.*factor of 9 cannot be reached because only 1"):
        kafka_topic_factory(replication_factor=9)


def test_a_week_of_silence(kafka_txn_producer, ottla_broker, ottla_clock):
    kafka_txn_producer("tx-1")
    ottla_clock.advance(days=8)
    assert ottla_broker.transaction("tx-1") is None


def test_a_commit_is_sent_again(kafka_txn_producer, kafka_topic, ottla_broker, ottla_faults, ottla_ledger):
    producer = kafka_txn_producer("tx-1")
    ottla_faults.on("EndTxn", transactional_id="tx-1").reply("COORDINATOR_NOT_AVAILABLE")
    pay(producer, kafka_topic, b"once")
    ottla_broker.assert_committed(kafka_topic, ["once"])
    ends = [entry.outcome for entry in ottla_ledger() if entry.api == "EndTxn"]
    assert ends == ["COORDINATOR_NOT_AVAILABLE", "NONE"]


@pytest.mark.ottla(transaction_version=1, properties={"transaction.partition.verification.enable": False})
def test_a_hanging_transaction(kafka_topic, ottla_broker):
    late = ottla_broker.producer_by_hand("tx-1", version=1)
    late.send(kafka_topic, b"in time")
    late.abort()
    assert late.produce(kafka_topic, b"late") == 0
    (hanging,) = ottla_broker.hanging_transactions()
    ottla_broker.abort_hanging(hanging)
    ottla_broker.assert_no_open_transactions()
