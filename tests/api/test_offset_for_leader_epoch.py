"""OffsetForLeaderEpoch: end offsets of epochs, from which a consumer detects that a log was truncated (KIP-320)."""

import pytest

from ottla.protocol.api_keys import ApiKey as K
from ottla.protocol.errors import ErrorCode as E
from tests.api.callers import LEDGER, ORDERS, batch, coordinating, produce

VERSIONS = range(2, 5)
UNDEFINED = (-1, -1)


@pytest.fixture(scope="module")
def broker():
    """Return a broker with two records in epoch 0, three in epoch 4, and leader epoch 6."""
    broker = coordinating()
    partition = broker.assembly.broker.cluster.partition(LEDGER, 0)
    for epoch, count in ((0, 2), (4, 3), (6, 0)):
        broker.turns.event(lambda epoch=epoch: partition.lead(epoch))
        if count:
            produce(broker, batch(count))
    return broker


def find(broker, version, *rows, topic=LEDGER):
    """Ask for each (partition, epoch, current epoch); return [(partition, error, (epoch, end offset))]."""
    partitions = [
        {"partition": index, "leader_epoch": epoch, "current_leader_epoch": current} for index, epoch, current in rows
    ]
    asked = {"replica_id": -1, "topics": [{"topic": topic, "partitions": partitions}]}
    (found,) = broker.call(K.OFFSET_FOR_LEADER_EPOCH, version, **asked).topics
    assert found.topic == topic
    return [(row.partition, E(row.error_code), (row.leader_epoch, row.end_offset)) for row in found.partitions]


@pytest.mark.parametrize(
    ("epoch", "found"),
    [(-1, UNDEFINED), (0, (0, 2)), (3, (0, 2)), (4, (4, 5)), (5, (4, 5)), (6, (6, 5)), (7, UNDEFINED)],
)
@pytest.mark.parametrize("version", VERSIONS)
def test_the_largest_epoch_that_is_no_later_and_its_end(broker, version, epoch, found):
    assert find(broker, version, (0, epoch, -1)) == [(0, E.NONE, found)]


@pytest.mark.parametrize(
    ("current", "error"),
    [(-1, E.NONE), (6, E.NONE), (5, E.FENCED_LEADER_EPOCH), (7, E.UNKNOWN_LEADER_EPOCH)],
)
@pytest.mark.parametrize("version", VERSIONS)
def test_an_older_or_later_current_leader_epoch_is_refused(broker, version, current, error):
    assert find(broker, version, (0, 0, current)) == [(0, error, UNDEFINED if error else (0, 2))]


@pytest.mark.parametrize("version", VERSIONS)
def test_each_mention_is_answered(broker, version):
    told = find(broker, version, (0, 0, -1), (9, 0, -1), (1, 0, -1), (0, 4, -1))
    unknown = (9, E.UNKNOWN_TOPIC_OR_PARTITION, UNDEFINED)
    assert told == [(0, E.NONE, (0, 2)), unknown, (1, E.NONE, (0, 0)), (0, E.NONE, (4, 5))]
    assert find(broker, version, (0, 0, -1), topic="none") == [(0, E.UNKNOWN_TOPIC_OR_PARTITION, UNDEFINED)]


def test_an_offline_partition_gets_a_storage_error(broker):
    partition = broker.assembly.broker.cluster.partition(ORDERS, 0)
    broker.turns.event(lambda: partition.take_offline("gone"))
    assert find(broker, 4, (0, 0, 9), topic=ORDERS) == [(0, E.KAFKA_STORAGE_ERROR, UNDEFINED)]
