"""Recipes for members of groups of the consumer protocol, as docs/test-recipes.md shows them, with confluent-kafka."""

import time

import pytest

from tests.timeout import EVENT_TIMEOUT_S

pytestmark = pytest.mark.slow  # in real time, with another client library than kafka-python


def poll_until(condition, *consumers):
    """Poll the consumers until the condition holds: a member takes part in a rebalance only while it is polled."""
    deadline = time.monotonic() + EVENT_TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline
        for consumer in consumers:
            consumer.poll(0.02)


def await_heartbeat(faults, client_id):
    """Wait until the broker has handled a heartbeat of the member. A delay of its reply shows that."""
    faults.on("ConsumerGroupHeartbeat", client_id=client_id).delay(1, after=True).wait_hit()


def advance_by_halves(minutes, clock, faults, *client_ids):
    """Advance the clock by half a minute at a time, less than a session, while these members send heartbeats."""
    for _ in range(2 * minutes):
        clock.advance(seconds=30)
        for client_id in client_ids:
            await_heartbeat(faults, client_id)


def test_a_listener_loses_its_partitions(kafka_group_member, kafka_topic, kafka_producer, ottla_broker, ottla_clock):
    kafka_producer().send(kafka_topic, b"paid").get(10)
    lost, refused = [], []

    def on_lost(consumer, partitions):
        lost.extend(partition.partition for partition in partitions)
        try:
            consumer.commit(asynchronous=False)
        except Exception as error:
            refused.append(error.args[0].name())

    consumer = kafka_group_member(kafka_topic, group_id="billing", on_lost=on_lost)
    while not consumer.poll(0.02):
        pass
    ottla_clock.advance(minutes=1)
    poll_until(lambda: lost, consumer)
    assert (lost, refused) == ([0], ["_ASSIGNMENT_LOST"])
    assert ottla_broker.committed("billing") == {}
    poll_until(consumer.assignment, consumer)


def test_a_fenced_member_rejoins(kafka_group_member, kafka_topic, ottla_broker, ottla_faults):
    lost = []
    consumer = kafka_group_member(kafka_topic, group_id="billing", on_lost=lambda *_: lost.append(True))
    poll_until(consumer.assignment, consumer)
    before = ottla_broker.wait_until_stable("billing", members=1)
    ottla_faults.on("ConsumerGroupHeartbeat", group="billing").reply("FENCED_MEMBER_EPOCH")
    poll_until(lambda: lost, consumer)
    poll_until(consumer.assignment, consumer)
    after = ottla_broker.wait_until_stable("billing", members=1)
    assert after.members == before.members
    assert after.epoch == before.epoch


def test_a_static_member_comes_back(kafka_group_member, kafka_topic_factory, ottla_broker):
    topic = kafka_topic_factory(partitions=2)
    static = {"client.id": "billing-1", "group.instance.id": "billing-1"}
    first = kafka_group_member(topic, group_id="billing", **static)
    other = kafka_group_member(topic, group_id="billing")
    poll_until(lambda: len(first.assignment()) == len(other.assignment()) == 1, first, other)
    before = ottla_broker.wait_until_stable("billing", members=2)
    first.close()
    away = ottla_broker.group("billing").member("billing-1")
    assert (away.epoch, away.assigned) == (-2, before.member("billing-1").assigned)
    second = kafka_group_member(topic, group_id="billing", **static)
    poll_until(second.assignment, second, other)
    after = ottla_broker.wait_until_stable("billing", members=2)
    assert after.epoch == before.epoch
    assert after.member("billing-1").assigned == away.assigned
    assert after.member("billing-1").member_id != away.member_id


def test_a_roll_of_two_instances(kafka_group_member, kafka_topic_factory, kafka_producer, ottla_broker):
    topic = kafka_topic_factory(partitions=4)
    producer, processed = kafka_producer(), []
    instances = [kafka_group_member(topic, group_id="billing") for _ in range(2)]

    def process_all():
        """Process a record of each partition, and commit it at once."""
        expected = len(processed) + 4
        for index in range(4):
            producer.send(topic, b"%d" % (expected + index), partition=index).get(10)
        while len(processed) < expected or not all(instance.assignment() for instance in instances):
            for instance in instances:
                record = instance.poll(0.02)
                if record is not None:
                    processed.append(record.value())
                    instance.commit(record, asynchronous=False)

    process_all()
    for _ in range(2):
        instances.append(kafka_group_member(topic, group_id="billing"))
        process_all()
        instances.pop(0).close()
        process_all()
    assert len(processed) == len({*processed}) == 20
    ottla_broker.wait_until_lag_zero("billing", topics=[topic])
    ottla_broker.wait_until_stable("billing", members=2)


def test_a_silent_member(kafka_group_member, kafka_topic_factory, ottla_broker, ottla_clock, ottla_faults):
    topic = kafka_topic_factory(partitions=2)
    healthy = kafka_group_member(topic, group_id="billing", **{"client.id": "healthy"})
    silent = kafka_group_member(topic, group_id="billing", **{"client.id": "silent"})
    poll_until(lambda: len(healthy.assignment()) == len(silent.assignment()) == 1, healthy, silent)
    held = ottla_faults.on("ConsumerGroupHeartbeat", client_id="silent", times=None).hold()
    held.wait_hit()
    advance_by_halves(1, ottla_clock, ottla_faults, "healthy")
    poll_until(lambda: len(healthy.assignment()) == 2, healthy)
    ottla_broker.wait_until_stable("billing", members=1)
    held.release()
    poll_until(lambda: len(healthy.assignment()) == len(silent.assignment()) == 1, healthy, silent)


def test_a_busy_member(kafka_group_member, kafka_topic_factory, ottla_broker, ottla_clock, ottla_faults):
    topic = kafka_topic_factory(partitions=2)
    lost = []
    options = {"client.id": "busy", "max.poll.interval.ms": 60_000}
    busy = kafka_group_member(topic, group_id="billing", on_lost=lambda *_: lost.append(True), **options)
    poll_until(lambda: len(busy.assignment()) == 2, busy)
    other = kafka_group_member(topic, group_id="billing", **{"client.id": "other"})
    poll_until(lambda: len(ottla_broker.group("billing").member("busy").target) == 1, other)
    await_heartbeat(ottla_faults, "busy")  # from now on it must give up a partition
    assert ottla_broker.group("billing").state == "Reconciling"
    advance_by_halves(1, ottla_clock, ottla_faults, "other")
    poll_until(lambda: len(other.assignment()) == 2, other)
    ottla_broker.wait_until_stable("billing", members=1)
    poll_until(lambda: lost, busy, other)
