"""DeleteTopics: by name, and by id from version 6 on."""

from uuid import UUID

import pytest

from ottla.protocol.api_keys import ApiKey as K
from ottla.protocol.errors import ErrorCode as E
from tests.api.callers import LEDGER, ORDERS

ALSO_BY_ID = 6
NAMED = {str: lambda name: (name, UUID(int=0)), UUID: lambda topic_id: (None, topic_id)}


def delete(broker, version, *named):
    """Delete topics by names and ids and return [(name, id or None, error)]."""
    if version < ALSO_BY_ID:
        fields = {"topic_names": [*named]}
    else:
        rows = [each if isinstance(each, tuple) else NAMED[type(each)](each) for each in named]
        fields = {"topics": [{"name": name, "topic_id": topic_id} for name, topic_id in rows]}
    reply = broker.call(K.DELETE_TOPICS, version, **fields, timeout_ms=1_000)
    if version >= 5:
        assert all(bool(row.error_message) == bool(row.error_code) for row in reply.responses)
    return [(row.name, row.topic_id if version >= ALSO_BY_ID else None, E(row.error_code)) for row in reply.responses]


def topics(broker):
    return {name for name, topic in broker.assembly.broker.cluster.topics.items() if not topic.internal}


def id_of(broker, name):
    return UUID(bytes=bytes(broker.assembly.broker.cluster.topics[name].topic_id))


@pytest.mark.parametrize("version", range(1, 7))
def test_topics_go_with_their_partitions(broker, version):
    ledger_id = id_of(broker, LEDGER) if version >= ALSO_BY_ID else None
    told = delete(broker, version, "nowhere", LEDGER)
    assert told == [("nowhere", None, E.UNKNOWN_TOPIC_OR_PARTITION), (LEDGER, ledger_id, E.NONE)]
    assert topics(broker) == {ORDERS} and broker.assembly.broker.cluster.partition(LEDGER, 0) is None


@pytest.mark.parametrize("version", range(1, 7))
def test_a_topic_named_twice_is_not_deleted(broker, version):
    told = delete(broker, version, LEDGER, ORDERS, LEDGER)
    assert [(name, error) for name, _, error in told] == [(LEDGER, E.INVALID_REQUEST), (ORDERS, E.NONE)]
    assert topics(broker) == {LEDGER}


@pytest.mark.parametrize("version", range(1, 7))
def test_internal_topics_stay(broker, version):
    for name in ("__consumer_offsets", "__transaction_state"):
        ((told, _, error),) = delete(broker, version, name)
        assert (told, error) == (name, E.INVALID_REQUEST)
        assert name in broker.assembly.broker.cluster.topics


def test_a_topic_is_deleted_by_its_id_and_returned_with_its_name(broker):
    ledger_id, strange = id_of(broker, LEDGER), UUID(int=77)
    told = delete(broker, ALSO_BY_ID, strange, ledger_id)
    assert told == [(None, strange, E.UNKNOWN_TOPIC_ID), (LEDGER, ledger_id, E.NONE)]
    assert topics(broker) == {ORDERS}
    assert delete(broker, ALSO_BY_ID, ledger_id) == [(None, ledger_id, E.UNKNOWN_TOPIC_ID)]


@pytest.mark.parametrize("first", ["name", "id"])
def test_a_topic_given_by_name_and_by_id_is_deleted_once(broker, first):
    ledger_id = id_of(broker, LEDGER)
    asked = [LEDGER, ledger_id] if first == "name" else [ledger_id, LEDGER]
    told = delete(broker, ALSO_BY_ID, *asked)
    assert [error for _, _, error in told] == [E.NONE, E.INVALID_REQUEST]
    assert topics(broker) == {ORDERS}


def test_an_id_that_is_named_twice_stays(broker):
    ledger_id = id_of(broker, LEDGER)
    ((_, told, error),) = delete(broker, ALSO_BY_ID, ledger_id, ledger_id)
    assert (told, error) == (ledger_id, E.INVALID_REQUEST) and topics(broker) == {LEDGER, ORDERS}


def test_a_row_names_a_topic_or_its_id(broker):
    ledger_id = id_of(broker, LEDGER)
    ((_, _, error),) = delete(broker, ALSO_BY_ID, (LEDGER, ledger_id))
    assert error is E.INVALID_REQUEST and topics(broker) == {LEDGER, ORDERS}


def test_a_topic_whose_deletion_cannot_be_logged_stays(broker):
    metadata = broker.assembly.broker.cluster.metadata_log.partition
    broker.turns.event(lambda: metadata.take_offline("no space"))
    told = delete(broker, 5, "nowhere", LEDGER)
    assert [error for _, _, error in told] == [E.UNKNOWN_TOPIC_OR_PARTITION, E.KAFKA_STORAGE_ERROR]
    assert topics(broker) == {LEDGER, ORDERS}


def test_a_topic_deletion_is_acknowledged_after_its_sync(flushing):
    flushing.broker.create_topic(LEDGER)
    (row,) = flushing.ask(K.DELETE_TOPICS, 5, topic_names=[LEDGER], timeout_ms=1_000).responses
    assert row.error_code == E.NONE and topics(flushing.broker) == set()
