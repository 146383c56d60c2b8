"""CreatePartitions: partitions are added to topics; a decrease is refused."""

import pytest

from ottla.protocol.api_keys import ApiKey as K
from ottla.protocol.errors import ErrorCode as E
from tests.api.callers import LEDGER, LEDGER_PARTITIONS, ORDERS

VERSIONS = range(4)
MOST_PARTITIONS = 10_000


def more(name, count, *assigned):
    return {
        "name": name,
        "count": count,
        "assignments": [{"broker_ids": [*ids]} for ids in assigned] if assigned else None,
    }


def grow(broker, version, *topics, validate_only=False):
    """Add partitions and return {topic: error}; every error has a message."""
    fields = {"topics": [*topics], "timeout_ms": 1_000, "validate_only": validate_only}
    rows = broker.call(K.CREATE_PARTITIONS, version, **fields).results
    assert all(row.error_message or row.error_code in (E.NONE, E.UNKNOWN_TOPIC_OR_PARTITION) for row in rows)
    return {row.name: E(row.error_code) for row in rows}


def count_of(broker, name=LEDGER):
    return broker.assembly.broker.cluster.topics[name].partition_count


@pytest.mark.parametrize("version", VERSIONS)
def test_new_partitions_are_there_and_empty(broker, version):
    assert grow(broker, version, more(LEDGER, 6), more(ORDERS, 2, [1])) == {LEDGER: E.NONE, ORDERS: E.NONE}
    assert (count_of(broker), count_of(broker, ORDERS)) == (6, 2)
    assert broker.assembly.broker.cluster.partition(LEDGER, 5).log_end_offset == 0


BAD = [
    pytest.param(more("nowhere", 2), E.UNKNOWN_TOPIC_OR_PARTITION, id="no such topic"),
    pytest.param(more(LEDGER, LEDGER_PARTITIONS), E.INVALID_PARTITIONS, id="as many"),
    pytest.param(more(LEDGER, LEDGER_PARTITIONS - 1), E.INVALID_PARTITIONS, id="fewer"),
    pytest.param(more(LEDGER, -1), E.INVALID_PARTITIONS, id="fewer than none"),
    pytest.param(more("__consumer_offsets", 9), E.INVALID_REQUEST, id="internal"),
    pytest.param(more(LEDGER, 5, [1], [1]), E.INVALID_REPLICA_ASSIGNMENT, id="too many assigned"),
    pytest.param(more(LEDGER, 6, [1]), E.INVALID_REPLICA_ASSIGNMENT, id="too few assigned"),
    pytest.param(more(LEDGER, 5, []), E.INVALID_REPLICA_ASSIGNMENT, id="no broker"),
    pytest.param(more(LEDGER, 5, [2]), E.INVALID_REPLICA_ASSIGNMENT, id="another broker"),
    pytest.param(more(LEDGER, 5, [1, 1]), E.INVALID_REPLICA_ASSIGNMENT, id="a broker twice"),
    pytest.param(more(LEDGER, LEDGER_PARTITIONS + MOST_PARTITIONS + 1), E.POLICY_VIOLATION, id="too many"),
]


@pytest.mark.parametrize("validate_only", [False, True])
@pytest.mark.parametrize(("asked", "error"), BAD)
def test_an_invalid_increase_is_refused_and_the_others_are_applied(broker, asked, error, validate_only):
    broker.mark()
    assert grow(broker, 3, asked, validate_only=validate_only) == {asked["name"]: error}
    assert not broker.has_changed()
    assert grow(broker, 3, asked, more(ORDERS, 3)) == {asked["name"]: error, ORDERS: E.NONE}
    assert (count_of(broker), count_of(broker, ORDERS)) == (LEDGER_PARTITIONS, 3)


@pytest.mark.parametrize("version", VERSIONS)
def test_validation_adds_nothing(broker, version):
    assert grow(broker, version, more(LEDGER, 9), validate_only=True) == {LEDGER: E.NONE}
    assert count_of(broker) == LEDGER_PARTITIONS


@pytest.mark.parametrize("version", VERSIONS)
def test_a_topic_that_is_named_twice_is_not_changed(broker, version):
    asked = more(LEDGER, 5), more(ORDERS, 2), more(LEDGER, 6)
    assert grow(broker, version, *asked) == {LEDGER: E.INVALID_REQUEST, ORDERS: E.NONE}
    assert (count_of(broker), count_of(broker, ORDERS)) == (LEDGER_PARTITIONS, 2)


def test_one_request_may_add_ten_thousand_in_all(broker):
    """After the limit, further topics are refused. A refused topic does not count towards the limit."""
    asked = more("nowhere", 9_000), more(LEDGER, MOST_PARTITIONS + LEDGER_PARTITIONS), more(ORDERS, 2)
    broker.mark()
    told = grow(broker, 3, *asked, validate_only=True)
    assert told == {"nowhere": E.UNKNOWN_TOPIC_OR_PARTITION, LEDGER: E.NONE, ORDERS: E.POLICY_VIOLATION}
    assert not broker.has_changed()


def test_partitions_that_cannot_be_logged_are_not_added(broker):
    metadata = broker.assembly.broker.cluster.metadata_log.partition
    broker.turns.event(lambda: metadata.take_offline("no space"))
    told = grow(broker, 3, more(LEDGER, 9), more(ORDERS, 2), more(ORDERS, 3))
    assert told == {LEDGER: E.KAFKA_STORAGE_ERROR, ORDERS: E.INVALID_REQUEST}
    assert count_of(broker) == LEDGER_PARTITIONS


def test_partitions_exist_when_they_are_on_the_device(flushing):
    flushing.broker.create_topic(LEDGER)
    fields = {"topics": [more(LEDGER, 3)], "timeout_ms": 1_000, "validate_only": False}
    assert flushing.ask(K.CREATE_PARTITIONS, 3, **fields).results[0].error_code == E.NONE
    assert count_of(flushing.broker) == 3
