"""Topics for the tests of transaction(), and their contents."""

import contextlib
import time
import uuid

from kafka import KafkaAdminClient, KafkaConsumer, TopicPartition

from ottla.demo.clients import DemoClients
from ottla.demo.screen import Screen
from tests.timeout import EVENT_TIMEOUT_S


def make_topic(broker, partitions=1, **configs):
    topic = f"ledger-{uuid.uuid4().hex[:8]}"
    with administrator(broker) as admin:
        settings = {"num_partitions": partitions, "replication_factor": 1, "configs": configs}
        admin.create_topics({topic: settings}, wait_for_metadata=True)
    return topic


def values(broker, topic, isolation_level="read_committed"):
    """Return the records when no transaction is open any more: Kafka writes markers after its answer."""
    deadline = time.monotonic() + EVENT_TIMEOUT_S
    while end(broker, topic, "read_committed") != end(broker, topic, "read_uncommitted"):
        assert time.monotonic() < deadline, "a transaction stays open"
        time.sleep(0.05)
    return [record.value for record in DemoClients(broker, Screen()).read(topic, isolation_level)]


def end(broker, topic, isolation_level):
    """Return the last stable offset, or the high watermark, of each partition."""
    settings = {"group_id": None, "isolation_level": isolation_level}
    with contextlib.closing(KafkaConsumer(bootstrap_servers=broker.bootstrap, **settings)) as reader:
        return reader.end_offsets([TopicPartition(topic, number) for number in reader.partitions_for_topic(topic)])


def committed_offsets(broker, group):
    """Return the committed offset of each partition that has one, in the order of partitions."""
    with administrator(broker) as admin:
        found = admin.list_group_offsets(group)
    rows = found.get(group, found)
    return [offset.offset for _, offset in sorted(rows.items()) if offset.offset >= 0]


def administrator(broker):
    return contextlib.closing(KafkaAdminClient(bootstrap_servers=broker.bootstrap))
