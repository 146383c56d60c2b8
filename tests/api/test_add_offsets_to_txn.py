"""AddOffsetsToTxn: a group's offsets become part of a transaction. The decisions are tested in `tests/tables`."""

import pytest

from ottla.protocol.errors import ErrorCode as E
from tests.api.callers import LEDGER, Producer, coordinating

# abs(javaHash(id)) % 50, as in Kafka's own test vectors.
PARTITION_OF = {"my-txn": 45, "transactional-id-0": 40, "foo": 24, "": 0, "polygenelubricants": 0, "é": 33}


@pytest.mark.parametrize(("group_id", "index"), PARTITION_OF.items())
def test_the_offsets_partition_of_the_group_joins_the_transaction(group_id, index):
    broker = coordinating(offsets_topic_num_partitions=50)
    producer = Producer(broker)
    producer.add((LEDGER, [1]))
    assert producer.add_offsets(group_id=group_id) is E.NONE
    found = producer.describe()
    assert found.transaction_state == "Ongoing"
    assert [(topic.topic, topic.partitions) for topic in found.topics] == [
        (LEDGER, [1]),
        ("__consumer_offsets", [index]),
    ]
