"""A service rolls from `group.protocol=classic` to `consumer` and back, one instance at a time, while it consumes."""

import contextlib
import time

import pytest
from consumer_group_clients import EVENT_TIMEOUT_S, QUICK, consume, create_topics, poll
from targets import TARGETS

pytest.importorskip("confluent_kafka", minversion="2.12", reason="no confluent-kafka with the consumer protocol")

PARTITIONS, AT_ONCE = 6, 30
CLASSIC = {"group_protocol": "classic", "heartbeat_interval_ms": 300, "session_timeout_ms": 10_000}
OVERRIDES = QUICK | {"group.consumer.assignment.interval.ms": "100", "group.consumer.min.assignment.interval.ms": "0"}


@pytest.fixture(
    scope="module", params=["ottla", pytest.param("apache", marks=[pytest.mark.conformance, pytest.mark.maven])]
)
def broker(request, tmp_path_factory):
    broker = TARGETS[request.param](tmp_path_factory.mktemp(request.param), OVERRIDES).start()
    yield broker
    broker.stop()


class Service:
    """Instances that consume and commit, and a producer; `seen` has each value with the number of times it was seen."""

    def __init__(self, bootstrap, group, instances, **classic):
        from confluent_kafka import Producer

        self.bootstrap, self.group, self.classic = bootstrap, group, CLASSIC | classic
        self.admin = create_topics(bootstrap, **{group: PARTITIONS})
        self.producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
        self.sent, self.seen = 0, {}
        self.instances = [self.start("classic") for _ in range(instances)]

    def start(self, protocol):
        options = self.classic if protocol == "classic" else {}
        return consume(self.bootstrap, self.group, protocol, self.group, **options)

    def stop(self, instance):
        """Stop an instance after it has given up its partitions.

        librdkafka 2.15.1 waits without end if a rebalance begins while it closes.
        """
        instance.unsubscribe()
        deadline = time.monotonic() + EVENT_TIMEOUT_S
        while instance.assignment():
            assert time.monotonic() < deadline, "the partitions are not given up"
            poll(instance)
        instance.close()

    def produce(self):
        for number in range(self.sent, self.sent + AT_ONCE):
            self.producer.produce(self.group, b"%d" % number, partition=number % PARTITIONS)
        assert self.producer.flush(EVENT_TIMEOUT_S) == 0
        self.sent += AT_ONCE

    def consume(self):
        from confluent_kafka import KafkaException

        for instance in self.instances:
            for value in poll(instance):
                self.seen[value] = self.seen.get(value, 0) + 1
                with contextlib.suppress(KafkaException):  # in a rebalance: the next owner sees the record again
                    # Not synchronously: behind a JoinGroup of its connection, which waits for a join of the others.
                    instance.commit(asynchronous=True)

    def go_on(self):
        """Produce, and consume until everything was seen and each instance has its share of the partitions."""
        self.produce()
        deadline = time.monotonic() + EVENT_TIMEOUT_S
        share = PARTITIONS // len(self.instances)
        while len(self.seen) < self.sent or any(len(each.assignment()) != share for each in self.instances):
            assert time.monotonic() < deadline, (
                f"{len(self.seen)} of {self.sent}, {[len(each.assignment()) for each in self.instances]}"
            )
            self.consume()

    def roll(self, protocol):
        """Replace each instance by one of another protocol. The others consume meanwhile.

        The only instance of a service stops after its successor has started.
        """
        for number in range(count := len(self.instances)):
            self.produce()
            if count > 1:
                self.stop(self.instances.pop(0))
                self.consume()
            self.instances.append(self.start(protocol))
            if count == 1:
                self.go_on()
                self.stop(self.instances.pop(0))
            self.go_on()
            assert self.types() == ({"consumer"} if protocol == "consumer" or number < count - 1 else {"classic"})

    def types(self):
        listed = self.admin.list_consumer_groups().result().valid
        return {group.type.name.lower() for group in listed if group.group_id == self.group}

    def close(self):
        for instance in self.instances:
            self.stop(instance)


# The leader of librdkafka's cooperative groups returns the user data of a subscription in the assignment. Kafka takes
# that for an assignor that it does not know (KAFKA-18134), so that only a group that has not rebalanced can migrate.
@pytest.mark.parametrize(("strategy", "instances"), [("cooperative-sticky", 1), ("range,roundrobin", 3)])
def test_every_record_is_seen_while_a_service_changes_its_protocol_and_back(broker, strategy, instances):
    service = Service(broker.bootstrap, f"roll-{strategy[:5]}", instances, partition_assignment_strategy=strategy)
    try:
        service.go_on()
        service.roll("consumer")
        service.roll("classic")
    finally:
        service.close()
    assert sorted(service.seen, key=int) == [b"%d" % number for number in range(service.sent)]


def test_a_cooperative_group_of_librdkafka_that_has_rebalanced_is_not_upgraded(broker):
    service = Service(broker.bootstrap, "rebalanced", 1, partition_assignment_strategy="cooperative-sticky")
    try:
        service.go_on()
        service.instances.append(service.start("classic"))
        service.go_on()
        newcomer = service.start("consumer")
        assert "The group id does not exist" in read_error(newcomer)
        newcomer.close()
        assert service.types() == {"classic"}
    finally:
        service.close()


def read_error(consumer):
    """Poll until the consumer reports an error and return its text."""
    deadline = time.monotonic() + EVENT_TIMEOUT_S
    while (message := consumer.poll(0.1)) is None or message.error() is None:
        assert time.monotonic() < deadline, "no error"
    return str(message.error())
