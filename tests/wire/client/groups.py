"""A member of a consumer group that copies records in transactions, and what happens to it."""

import time
import uuid

from ottla.protocol.requests import codec
from ottla.wire.connection import BlockingConnection
from tests.timeout import EVENT_TIMEOUT_S

LEAVE_GROUP, DESCRIBE_GROUPS = 13, 15


class Member:
    """A consumer of the group, with a producer of its own and the topic that it copies to."""

    def __init__(self, kafka, broker, name, source, target_topic, *, consumes_from=None, **options):
        self.kafka, self.topic = kafka, target_topic
        self.producer = kafka.producer(broker.bootstrap, f"{name}-{uuid.uuid4().hex[:4]}")
        self.group = f"group-of-{name}"
        self.consumer, self.options = kafka.consumer(consumes_from or broker.bootstrap, source, self.group, **options)

    def poll(self):
        return self.kafka.poll(self.consumer)

    def poll_records(self):
        """Return the next records."""
        deadline = time.monotonic() + EVENT_TIMEOUT_S
        while not (found := self.poll()):
            assert time.monotonic() < deadline, "no records came"
        return found

    def count_partitions(self):
        return len(self.consumer.assignment())

    def copy(self, records, *behind):
        """Copy records in a transaction with the positions, then run further steps."""
        steps = [("send", self.topic, value) for value in records]
        self.kafka.run(self.producer, [*steps, *behind], **self.options)


def members(connection, group):
    """Return the member ids of a group."""
    described = connection.send(codec.request_class(DESCRIBE_GROUPS)(groups=[group]), 1)
    return [member.member_id for member in described.groups[0].members]


def throw_out(broker, group):
    """Remove every member without its knowledge, as the coordinator does after missing heartbeats."""
    with connect(broker) as connection:
        for member in members(connection, group):
            connection.send(codec.request_class(LEAVE_GROUP)(group_id=group, member_id=member), 1)


def wait_until_nobody_is_in(broker, group):
    deadline = time.monotonic() + EVENT_TIMEOUT_S
    with connect(broker) as connection:
        while members(connection, group):
            assert time.monotonic() < deadline, "the session does not end"
            time.sleep(0.05)


def connect(broker):
    host, _, port = broker.bootstrap.rpartition(":")
    return BlockingConnection(host, int(port))
