"""AddOffsetsToTxn: a group's offsets become part of a transaction."""

import pytest

from ottla.protocol.errors import ErrorCode as E
from tests.api.callers import LEDGER, Producer, coordinating, not_the_producer

VERSIONS = range(5)
# abs(javaHash(id)) % 50, as in Kafka's own test vectors.
PARTITION_OF = {"my-txn": 45, "transactional-id-0": 40, "foo": 24, "": 0, "polygenelubricants": 0, "é": 33}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(("group_id", "index"), PARTITION_OF.items())
def test_the_offsets_partition_of_the_group_joins_the_transaction(version, group_id, index):
    broker = coordinating(offsets_topic_num_partitions=50)
    producer = Producer(broker)
    producer.add((LEDGER, [1]))
    assert producer.add_offsets(version, group_id) is E.NONE
    found = producer.describe()
    assert found.transaction_state == "Ongoing"
    assert [(topic.topic, topic.partitions) for topic in found.topics] == [
        (LEDGER, [1]),
        ("__consumer_offsets", [index]),
    ]


def test_adding_offsets_begins_a_transaction(broker):
    producer = Producer(broker)
    assert producer.add_offsets() is E.NONE
    assert producer.end() is E.NONE
    assert producer.describe().transaction_state == "CompleteCommit"


@pytest.mark.parametrize(
    ("version", "other", "error"),
    [(version, *row) for version in VERSIONS for row in not_the_producer(version)],
)
def test_a_request_with_a_wrong_id_or_epoch_adds_no_offsets(broker, version, other, error):
    Producer(broker)
    producer = Producer(broker)
    assert producer.add_offsets(version, **other) is error
    assert producer.describe().transaction_state == "Empty"
