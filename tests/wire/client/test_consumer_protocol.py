"""Consumers of the consumer protocol: they share topics, commit, and copy records exactly once in transactions."""

import time

import pytest
from kafka import KafkaProducer

from ottla.client import TransactionAborted
from tests.timeout import EVENT_TIMEOUT_S
from tests.wire.client.conftest import start_with
from tests.wire.client.groups import Member
from tests.wire.client.libraries import Confluent
from tests.wire.client.topics import committed_offsets, make_topic, values

confluent_kafka = pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed")
if confluent_kafka.libversion()[1] < 0x020C0000:
    pytest.skip("librdkafka before 2.12 does not have the consumer protocol of Kafka 4", allow_module_level=True)

COUNT = 80
PARTITIONS = 4
pytestmark = pytest.mark.slow
# Members learn of a new assignment with a heartbeat.
QUICK = {"group.consumer.heartbeat.interval.ms": "100", "group.consumer.min.heartbeat.interval.ms": "100"}


class ConsumerProtocol(Confluent):
    """confluent-kafka with group.protocol=consumer."""

    def consumer(self, bootstrap, topic, group):
        config = {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "group.protocol": "consumer",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "log_level": 0,
        }
        consumer = confluent_kafka.Consumer(config)
        consumer.subscribe([topic])
        self.opened.append(consumer)
        return consumer, {"consumer": consumer, "consumer_config": config}

    def poll(self, consumer):
        messages = consumer.consume(3, 0.1)
        return [message.value().decode() for message in messages if message.error() is None]


@pytest.fixture(scope="module")
def quick_broker(target, tmp_path_factory):
    yield from start_with(target, tmp_path_factory, "quick", QUICK)


@pytest.fixture
def members_of(quick_broker, name):
    """Return a function that adds a member to the group; they copy from the topic `source` to `copies`."""
    face = ConsumerProtocol()
    source, copies = make_topic(quick_broker, PARTITIONS), make_topic(quick_broker)

    def join():
        return Member(face, quick_broker, name, source, copies)

    join.source, join.copies = source, copies
    yield join
    face.close()


def feed(broker, topic, first):
    feeder = KafkaProducer(bootstrap_servers=broker.bootstrap)
    for number in range(first, first + COUNT):
        feeder.send(topic, b"%d" % number, partition=number % PARTITIONS)
    feeder.close()


def poll_until(is_done, *members):
    """Poll the members until the condition holds; return what they polled."""
    deadline, found = time.monotonic() + EVENT_TIMEOUT_S, []
    while not is_done():
        assert time.monotonic() < deadline, [member.count_partitions() for member in members]
        for member in members:
            found += member.poll()
    return found


def consume(count, *members):
    """Poll and commit until this number of records came; return them in order."""
    deadline, found = time.monotonic() + EVENT_TIMEOUT_S, []
    while len(found) < count:
        assert time.monotonic() < deadline, found
        for member in members:
            if records := member.poll():
                member.consumer.commit(asynchronous=False)
                found += records
    return sorted(found, key=int)


def numbers(first, count=COUNT):
    return [str(number) for number in range(first, first + count)]


def test_two_consumers_share_a_topic_until_one_leaves(quick_broker, members_of):
    first, second = members_of(), members_of()
    poll_until(lambda: (first.count_partitions(), second.count_partitions()) == (2, 2), first, second)
    feed(quick_broker, members_of.source, 0)
    assert consume(COUNT, first, second) == numbers(0)
    assert committed_offsets(quick_broker, first.group) == [COUNT / PARTITIONS] * PARTITIONS
    second.consumer.close()
    assert poll_until(lambda: first.count_partitions() == PARTITIONS, first) == []
    feed(quick_broker, members_of.source, COUNT)
    assert consume(COUNT, first) == numbers(COUNT)
    assert committed_offsets(quick_broker, first.group) == [2 * COUNT / PARTITIONS] * PARTITIONS


def test_two_consumers_share_the_topics_that_match_a_regular_expression(quick_broker):
    face = ConsumerProtocol()
    try:
        topics = [make_topic(quick_broker, PARTITIONS) for _ in range(2)]
        others = make_topic(quick_broker, PARTITIONS)
        regex = f"^({'|'.join(topics)})$"
        group = f"group-of-{topics[0]}"
        first, second = (face.consumer(quick_broker.bootstrap, regex, group)[0] for _ in range(2))
        consumers, deadline = (first, second), time.monotonic() + EVENT_TIMEOUT_S
        while [len(consumer.assignment()) for consumer in consumers] != [PARTITIONS, PARTITIONS]:
            assert time.monotonic() < deadline, [consumer.assignment() for consumer in consumers]
            for consumer in consumers:
                face.poll(consumer)
        owned = {(each.topic, each.partition) for consumer in consumers for each in consumer.assignment()}
        assert owned == {(topic, partition) for topic in topics for partition in range(PARTITIONS)}
        for number, topic in enumerate((*topics, others)):
            feed(quick_broker, topic, number * COUNT)
        found = []
        while len(found) < 2 * COUNT:
            assert time.monotonic() < deadline, found
            for consumer in consumers:
                found += face.poll(consumer)
        assert sorted(found, key=int) == numbers(0, 2 * COUNT)
    finally:
        face.close()


def test_copies_are_exactly_once_while_members_join_and_leave(quick_broker, members_of):
    feed(quick_broker, members_of.source, 0)
    members = [members_of()]
    records = members[0].poll_records()
    with pytest.raises(ZeroDivisionError):
        members[0].copy(records, ZeroDivisionError())
    count, changes = 0, [lambda: members.append(members_of()), lambda: members.pop(0).consumer.close()]
    deadline = time.monotonic() + EVENT_TIMEOUT_S
    while count < COUNT:
        assert time.monotonic() < deadline, f"only {count} copies"
        for member in members:
            records = member.poll()
            try:
                member.copy(records)
            except TransactionAborted as error:
                assert error.retriable
            else:
                count += len(records)
        if changes and count >= COUNT / 4 and all(member.count_partitions() for member in members):
            changes.pop(0)()
    assert changes == []
    assert sorted(values(quick_broker, members_of.copies), key=int) == numbers(0)
    assert committed_offsets(quick_broker, members[0].group) == [COUNT / PARTITIONS] * PARTITIONS
