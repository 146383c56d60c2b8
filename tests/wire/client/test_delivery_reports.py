"""Delivery reports of confluent-kafka: a record that the broker refuses gives the transaction's error its code."""

import pytest

from ottla.client import TransactionAborted, transaction
from ottla.protocol.errors import ErrorCode
from tests.wire.client.topics import make_topic, values

LARGE = "x" * 5000


@pytest.fixture
def narrow(broker):
    return make_topic(broker, **{"max.message.bytes": "2000"})


def test_reports_that_are_handed_on_name_the_record_s_error(confluent, broker, narrow, topic, name):
    producer = confluent.producer(broker.bootstrap, name)
    with pytest.raises(TransactionAborted) as refused, transaction(producer) as block:
        producer.produce(topic, "sound", on_delivery=block.on_delivery)
        producer.produce(narrow, LARGE, on_delivery=block.on_delivery)
    assert (refused.value.code, refused.value.retriable) == (ErrorCode.MESSAGE_TOO_LARGE, False)
    assert values(broker, topic) == []


@pytest.mark.parametrize("how", ["on_delivery", "callback", "position", "none"])
def test_a_producer_of_a_python_class_needs_no_argument_and_keeps_its_own(confluent, broker, narrow, name, how):
    from confluent_kafka import Producer

    class Own(Producer):
        pass

    seen = []

    def own(error, message):
        seen.append(error.name())

    arguments, named = ((None, -1, own), {}) if how == "position" else ((), {} if how == "none" else {how: own})
    producer = Own({"bootstrap.servers": broker.bootstrap, "transactional.id": name, "log_level": 0})
    producer.init_transactions(10)
    with pytest.raises(TransactionAborted) as refused, transaction(producer):
        producer.produce(narrow, LARGE, *arguments, **named)
    assert refused.value.code is ErrorCode.MESSAGE_TOO_LARGE
    assert seen == ([] if how == "none" else ["MSG_SIZE_TOO_LARGE"])
    assert "produce" not in vars(producer)
