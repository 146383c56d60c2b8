"""Delivery reports of confluent-kafka: the transaction's error has the code of the record that the broker refused."""

import uuid
from contextlib import ExitStack

import pytest
from kafka.admin import ResourceType

from ottla.client import TransactionAborted, transaction
from ottla.protocol.errors import ErrorCode
from tests.wire.client.refusals import LOOKING_FOR_A_TOPIC
from tests.wire.client.rights import only
from tests.wire.client.topics import make_topic, values

LARGE = "x" * 5000


@pytest.fixture
def narrow(broker):
    return make_topic(broker, **{"max.message.bytes": "2000"})


@pytest.mark.slow
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


def deny(broker, rights):
    topic = make_topic(broker)
    rights.enter_context(only(broker, ResourceType.TOPIC, topic))
    return topic


REASONS = {
    "missing": (lambda broker, rights: f"missing-{uuid.uuid4().hex[:8]}", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    "invalid": (lambda broker, rights: "no name", ErrorCode.INVALID_TOPIC_EXCEPTION),
    "denied": (deny, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
}


@pytest.mark.slow
@pytest.mark.parametrize("reason", REASONS)
@pytest.mark.parametrize("reported", [True, False], ids=["reported", "unreported"])
def test_records_that_reach_no_partition_have_their_reason_in_the_reports(
    confluent, acl_broker, name, reason, reported
):
    make, code = REASONS[reason]
    producer = confluent.producer(acl_broker.bootstrap, name, **LOOKING_FOR_A_TOPIC["confluent-kafka"])
    with ExitStack() as rights:
        topic = make(acl_broker, rights)
        with pytest.raises(TransactionAborted) as refused, transaction(producer) as block:
            producer.produce(topic, "1", **({"on_delivery": block.on_delivery} if reported else {}))
    assert not refused.value.retriable
    # `produce` raises an error itself if the answer about the topic arrives while it runs.
    assert refused.value.code in {code if reported else None, code, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


@pytest.mark.slow
def test_a_topic_that_is_not_found_before_its_record_times_out_is_not_to_be_run_again(confluent, acl_broker, name):
    producer = confluent.producer(acl_broker.bootstrap, name, **{"message.timeout.ms": 500})
    not_found = r"'missing' was found within message\.timeout\.ms"
    with pytest.raises(TransactionAborted, match=not_found) as refused, transaction(producer) as block:
        producer.produce("missing", "1", on_delivery=block.on_delivery)
    assert not refused.value.retriable
