"""Transactions that fail again: nothing committed is processed again, and no later error hides the reason."""

import time

import pytest
from kafka.admin import ResourceType

from ottla.client import ProducerFenced, TransactionFatal
from ottla.protocol.errors import ErrorCode
from tests.timeout import EVENT_TIMEOUT_S
from tests.wire.client.groups import Member
from tests.wire.client.refusals import NEVER_MS, look_for_topics_shortly
from tests.wire.client.rights import only
from tests.wire.client.topics import end, make_topic, values


@pytest.mark.slow
def test_a_transaction_that_outlives_its_wait_for_a_topic_names_the_topic(kafka, acl_broker, name):
    """A new producer would wait for that topic again."""
    topic = make_topic(acl_broker)
    producer = look_for_topics_shortly(kafka, acl_broker, name, timeout_ms=1000)

    def wait_for_the_abort():
        deadline = time.monotonic() + EVENT_TIMEOUT_S
        while sum(end(acl_broker, topic, "read_committed").values()) < 2:
            assert time.monotonic() < deadline, "the broker did not abort the transaction"

    steps = [("send", topic, "1"), "settle", wait_for_the_abort, ("send", f"missing-{name}", "2")]
    with pytest.raises(ProducerFenced, match="Before that: ") as caught:
        kafka.run(producer, steps, timeout_ms=NEVER_MS)
    assert "a topic" in str(caught.value).partition("Before that: ")[2]
    assert values(acl_broker, topic) == []


@pytest.mark.slow
def test_a_consumer_that_may_not_see_its_offsets_any_more_does_not_begin_again(kafka, acl_broker, name):
    source, target = make_topic(acl_broker), make_topic(acl_broker)
    feeder = kafka.producer(acl_broker.bootstrap, f"feeder-of-{name}")
    kafka.run(feeder, [("send", source, str(number)) for number in range(6)])
    member = Member(kafka, acl_broker, name, source, target, session_ms=NEVER_MS)
    copied = member.poll_records()
    member.copy(copied)
    polled = member.poll_records()
    with only(acl_broker, ResourceType.GROUP, member.group), pytest.raises(TransactionFatal) as caught:
        member.copy(polled)
    assert caught.value.code is ErrorCode.GROUP_AUTHORIZATION_FAILED
    assert "could not be taken back" in caught.value.__notes__[0]
    assert set(member.poll()).isdisjoint(copied)
    assert values(acl_broker, target) == copied
