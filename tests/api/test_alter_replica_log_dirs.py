"""AlterReplicaLogDirs: partitions are in the one directory, or the wanted one is not found."""

import pytest

from ottla.protocol.api_keys import ApiKey as K
from ottla.protocol.errors import ErrorCode as E
from tests.api.callers import LEDGER, three_brokers


def move_to(broker, *moves):
    """Move (path, topic, partition, ...) and return {(topic, partition): error}."""
    dirs = [{"path": path, "topics": [{"name": topic, "partitions": [*indexes]}]} for path, topic, *indexes in moves]
    reply = broker.call(K.ALTER_REPLICA_LOG_DIRS, 2, dirs=dirs)
    rows = [(topic.topic_name, row) for topic in reply.results for row in topic.partitions]
    found = {(name, row.partition_index): E(row.error_code) for name, row in rows}
    assert len(found) == len(rows)
    return found


def test_the_last_directory_of_a_partition_counts():
    cluster = three_brokers()
    assert move_to(cluster, ("/none", LEDGER, 0), ("/data", LEDGER, 0, 0)) == {(LEDGER, 0): E.NONE}
    assert move_to(cluster, ("/data", LEDGER, 0), ("/none", LEDGER, 0)) == {(LEDGER, 0): E.LOG_DIR_NOT_FOUND}


def test_a_broker_without_a_replica_refuses_to_move_it():
    cluster = three_brokers()
    assert move_to(cluster.ask_broker(2), ("/data", LEDGER, 0)) == {(LEDGER, 0): E.NONE}
    assert move_to(cluster.ask_broker(3), ("/data", LEDGER, 0)) == {(LEDGER, 0): E.REPLICA_NOT_AVAILABLE}


@pytest.mark.parametrize("place", ["directory", "partition"])
def test_offline_replicas_do_not_move(place, monkeypatch):
    cluster = three_brokers()
    broker = cluster.assembly.broker
    failed = broker.logs if place == "directory" else broker.cluster.partition(LEDGER, 0)
    monkeypatch.setattr(failed, "offline", "no space")
    assert move_to(cluster, ("/data", LEDGER, 0)) == {(LEDGER, 0): E.KAFKA_STORAGE_ERROR}
