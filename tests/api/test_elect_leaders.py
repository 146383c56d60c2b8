"""ElectLeaders: the first replica leads again, or any one that runs. Recorded answers are in `test_three_kafkas.py`."""

import pytest

from ottla.broker.api import elect_leaders
from ottla.protocol.api_keys import ApiKey as K
from ottla.protocol.errors import ErrorCode as E
from tests.api.callers import LEDGER, STATES, Producer, batch, move, produce, three_brokers


def elect(broker, *places, kind=0, version=2):
    """Return the error of the reply, and {topic: {partition: error}}."""
    rows = [{"topic": topic, "partitions": [*indexes]} for topic, *indexes in places] or None
    fields = {"election_type": kind} if version else {}
    reply = broker.call(K.ELECT_LEADERS, version, topic_partitions=rows, timeout_ms=1_000, **fields)
    return E(reply.error_code or 0), {
        topic.topic: {row.partition_id: E(row.error_code) for row in topic.partition_result}
        for topic in reply.replica_election_results
    }


def leader_of(broker, topic=LEDGER):
    return broker.assembly.broker.cluster.leader_of(topic, 0)


def test_a_partition_that_is_named_twice_is_elected_and_answered_once():
    cluster = three_brokers()
    move(cluster, LEDGER, 2)
    assert elect(cluster, (LEDGER, 0, 0), (LEDGER, 0)) == (E.NONE, {LEDGER: {0: E.NONE}})
    assert leader_of(cluster) == (1, 2)
    assert produce(cluster.ask_broker(2), batch())[0] is E.NOT_LEADER_OR_FOLLOWER
    assert produce(cluster.ask_broker(1), batch())[0] is E.NONE


def test_without_a_list_every_partition_is_meant_and_only_changes_are_named():
    cluster = three_brokers()
    move(cluster, LEDGER, 2)
    error, rows = elect(cluster)
    assert error is E.NONE and rows.pop(LEDGER) == {0: E.NONE}
    assert rows.keys() == {"__consumer_offsets", STATES} and not any(rows.values())
    assert elect(cluster, (LEDGER, 0))[1] == {LEDGER: {0: E.ELECTION_NOT_NEEDED}}


def test_an_elected_coordinator_finishes_an_open_transaction():
    cluster = three_brokers()
    producer = Producer(cluster)
    producer.begin(0)
    move(cluster, STATES, 3)
    assert elect(cluster, (STATES, 0))[1] == {STATES: {0: E.NONE}}
    cluster.ask_broker(1)
    cluster.advance(50)
    assert producer.end(committed=True) is E.NONE


def test_too_many_elections_are_refused_as_a_whole(monkeypatch):
    monkeypatch.setattr(elect_leaders, "MOST_CHANGED", 0)
    cluster = three_brokers()
    move(cluster, LEDGER, 2)
    assert elect(cluster, (LEDGER, 0)) == (E.POLICY_VIOLATION, {LEDGER: {0: E.POLICY_VIOLATION}})
    assert leader_of(cluster) == (2, 1)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_change_that_cannot_be_logged_is_a_storage_error(version, monkeypatch):
    cluster = three_brokers()
    move(cluster, LEDGER, 2)

    async def fail(changes):
        raise OSError("no space")

    monkeypatch.setattr(cluster.assembly.broker.cluster.controller, "change_partitions", fail)
    assert elect(cluster, (LEDGER, 0, 9), version=version)[1] == {
        LEDGER: {0: E.KAFKA_STORAGE_ERROR, 9: E.UNKNOWN_TOPIC_OR_PARTITION}
    }
    assert leader_of(cluster) == (2, 1)
