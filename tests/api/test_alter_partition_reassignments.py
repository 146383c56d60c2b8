"""AlterPartitionReassignments and ListPartitionReassignments between several brokers.

Recorded answers are in `test_three_kafkas.py`.
"""

from ottla.broker.api import alter_partition_reassignments
from ottla.broker.assembly import Assembly
from ottla.protocol.api_keys import ApiKey as K
from ottla.protocol.errors import ErrorCode as E
from tests.api.callers import LEDGER, STATES, Producer, batch, produce, three_brokers


def reassign(broker, *places):
    """Change (topic, partition, replicas) and return the error of the reply and those of the rows, in order."""
    topics = [
        {"name": topic, "partitions": [{"partition_index": index, "replicas": replicas}]}
        for topic, index, replicas in places
    ]
    reply = broker.call(K.ALTER_PARTITION_REASSIGNMENTS, 1, timeout_ms=1_000, topics=topics)
    return E(reply.error_code), [E(row.error_code) for topic in reply.responses for row in topic.partitions]


def list_changes(broker, topics=None):
    reply = broker.call(K.LIST_PARTITION_REASSIGNMENTS, 0, timeout_ms=1_000, topics=topics)
    return [
        (topic.name, row.partition_index, [*row.replicas], [*row.adding_replicas], [*row.removing_replicas])
        for topic in reply.topics
        for row in topic.partitions
    ]


def place_of(broker, topic=LEDGER):
    """Return leader, leader epoch, replicas and in-sync set of a topic's partition 0."""
    known = broker.assembly.broker.cluster.topics[topic]
    place = known.registrations[0]
    assert len(place.directories) == len(place.replicas)
    return place.leader, known.leader_epochs[0], [*place.replicas], {*place.isr}


def test_the_last_target_of_a_partition_counts_and_is_answered_once():
    cluster = three_brokers()
    assert reassign(cluster, (LEDGER, 0, [9]), (LEDGER, 0, [3])) == (E.NONE, [E.NONE])
    assert place_of(cluster) == (3, 1, [3], {3})
    assert list_changes(cluster) == []


def test_records_stay_and_the_former_leader_refuses():
    cluster = three_brokers()
    assert produce(cluster, batch()) == (E.NONE, 0)
    reassign(cluster, (LEDGER, 0, [3, 2]))
    assert produce(cluster.ask_broker(1), batch())[0] is E.NOT_LEADER_OR_FOLLOWER
    assert produce(cluster.ask_broker(3), batch()) == (E.NONE, 1)


def test_a_coordinator_whose_replica_is_removed_hands_over():
    cluster = three_brokers()
    producer = Producer(cluster)
    producer.begin(0)
    assert reassign(cluster, (STATES, 0, [3])) == (E.NONE, [E.NONE])
    cluster.ask_broker(3)
    cluster.advance(50)
    assert producer.end(committed=True) is E.NONE


def test_a_change_that_waits_for_a_broker_is_complete_after_a_restart():
    cluster = three_brokers()
    cluster.complete(cluster.assembly.stop_broker(3))
    reassign(cluster, (LEDGER, 0, [3]))
    change = (LEDGER, 0, [3, 1, 2], [3], [1, 2])
    named = [{"name": LEDGER, "partition_indexes": [0, 0, 7]}]
    assert list_changes(cluster) == list_changes(cluster, named) == [change]
    cluster.assembly.close()
    config = cluster.assembly.config
    cluster.assembly = Assembly(config, cluster.clock, cluster.disk, cluster.turns, broker_count=3)
    cluster.advance()
    assert list_changes(cluster.ask_broker(1)) == []
    leader, _, *place = place_of(cluster)
    assert (leader, *place) == (3, [3], {3})


def test_too_many_changes_are_refused_as_a_whole(monkeypatch):
    monkeypatch.setattr(alter_partition_reassignments, "MOST_CHANGED", 0)
    cluster = three_brokers()
    assert reassign(cluster, (LEDGER, 0, [3])) == (E.POLICY_VIOLATION, [E.POLICY_VIOLATION])
    assert place_of(cluster) == (1, 0, [1, 2], {1, 2})


def test_partitions_that_cannot_change_do_not_count(monkeypatch):
    monkeypatch.setattr(alter_partition_reassignments, "MOST_CHANGED", 1)
    cluster = three_brokers()
    asked = (LEDGER, 0, [3]), ("absent", 0, [3]), (STATES, 0, [9])
    expected = [E.NONE, E.UNKNOWN_TOPIC_OR_PARTITION, E.INVALID_REPLICA_ASSIGNMENT]
    assert reassign(cluster, *asked) == (E.NONE, expected)


def test_a_change_that_cannot_be_logged_is_a_storage_error(monkeypatch):
    cluster = three_brokers()

    async def fail(changes):
        raise OSError("no space")

    monkeypatch.setattr(cluster.assembly.broker.cluster.controller, "change_partitions", fail)
    assert reassign(cluster, (LEDGER, 0, [3]), (LEDGER, 0, [3])) == (E.NONE, [E.KAFKA_STORAGE_ERROR])
    assert place_of(cluster) == (1, 0, [1, 2], {1, 2})
