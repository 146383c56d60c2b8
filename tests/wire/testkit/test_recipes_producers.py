"""Recipes for producers that lose their identity, as docs/test-recipes.md shows them, with each client library."""

import pytest

from ottla.protocol.errors import ErrorCode
from tests.wire.testkit.test_recipes_transactions import pay


def test_an_expired_transactional_id(client, kafka_topic_factory, ottla_broker, ottla_clock):
    topic = kafka_topic_factory(configs={"retention.ms": "-1"})
    producer = client.txn_producer("tx-1")
    pay(producer, topic, b"before the holidays")
    ottla_clock.advance(days=8)
    assert ottla_broker.transaction("tx-1") is None
    with pytest.raises(client.errors):
        pay(producer, topic, b"after the holidays")
    assert ottla_broker.wait_for_outcome("INVALID_PRODUCER_ID_MAPPING").api == "AddPartitionsToTxn"
    pay(client.txn_producer("tx-1"), topic, b"by a new producer")
    ottla_broker.assert_committed(topic, ["before the holidays", "by a new producer"])


def test_an_epoch_that_runs_out(client, kafka_topic, ottla_broker):
    producer_id, _ = ottla_broker.preset_epoch("tx-1", 32_765)
    last = client.txn_producer("tx-1")
    last.begin_transaction()
    last.send(kafka_topic, b"of the last epoch")
    pay(client.txn_producer("tx-1"), kafka_topic, b"of another producer id")
    assert ottla_broker.transaction("tx-1").producer_id != producer_id
    with pytest.raises(client.errors):
        last.commit_transaction()
    ottla_broker.assert_committed(kafka_topic, ["of another producer id"])


def test_a_producer_that_resumes_what_another_process_has_sent(client, kafka_topic, ottla_broker):
    first = client.txn_producer("tx-1")
    first.begin_transaction()
    first.send(kafka_topic, b"flushed, and in the checkpoint")
    stored = ottla_broker.transaction("tx-1")
    resumed = ottla_broker.producer_by_hand("tx-1", version=1, identity=(stored.producer_id, stored.producer_epoch))
    assert resumed.commit() == ErrorCode.NONE
    assert resumed.commit() == ErrorCode.NONE
    ottla_broker.assert_no_open_transactions(wait_s=10)
    ottla_broker.assert_committed(kafka_topic, ["flushed, and in the checkpoint"])
