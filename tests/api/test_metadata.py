"""Metadata: leaders of partitions, and topics that a request creates."""

from uuid import UUID

import pytest

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode as E
from tests.api.callers import LEDGER, LEDGER_PARTITIONS, ORDERS
from tests.memory_broker import MemoryBroker

VERSIONS = range(14)
NO_ID = UUID(int=0)


def metadata(broker, version, topics=None, **more):
    rows = topics and [{"name": name, "topic_id": topic_id} for name, topic_id in topics]
    return broker.call(ApiKey.METADATA, version, topics=rows, **{"allow_auto_topic_creation": False} | more)


def name_topics(*names):
    return [(name, NO_ID) for name in names]


def id_of(broker, name):
    return UUID(bytes=bytes(broker.assembly.broker.cluster.topics[name].topic_id))


@pytest.mark.parametrize("version", VERSIONS)
def test_the_broker_leads_every_partition(broker, version):
    reply = metadata(broker, version, name_topics(LEDGER))
    parts = broker.assembly.broker
    told = [(each.node_id, each.host, each.port, each.rack) for each in reply.brokers]
    assert told == [parts.endpoints["PLAINTEXT"]]
    (topic,) = reply.topics
    assert (topic.error_code, topic.name) == (E.NONE, LEDGER)
    assert [
        (row.error_code, row.partition_index, row.leader_id, row.replica_nodes, row.isr_nodes)
        for row in topic.partitions
    ] == [(E.NONE, index, 1, [1], [1]) for index in range(LEDGER_PARTITIONS)]
    if version >= 1:
        assert (reply.controller_id, topic.is_internal) == (1, False)
    if version >= 2:
        assert reply.cluster_id == parts.logs.properties.cluster_id
    if version >= 7:
        assert {row.leader_epoch for row in topic.partitions} == {0}
    if version >= 10:
        assert topic.topic_id == id_of(broker, LEDGER)


@pytest.mark.parametrize(
    ("version", "topics", "every"), [(0, [], True), (1, [], False), (1, None, True), (12, None, True), (12, [], False)]
)
def test_all_topics_are_listed_for_null_or_an_empty_list_in_version_0(broker, version, topics, every):
    names = {topic.name for topic in metadata(broker, version, topics).topics}
    assert names == ({LEDGER, ORDERS, "__consumer_offsets", "__transaction_state"} if every else set())


def test_internal_topics_are_marked_as_internal(broker):
    found = {topic.name: topic.is_internal for topic in metadata(broker, 1).topics}
    assert found == {LEDGER: False, ORDERS: False, "__consumer_offsets": True, "__transaction_state": True}


@pytest.mark.parametrize(
    ("allowed", "option", "version", "made"),
    [
        (True, True, 4, True),
        (False, True, 4, False),
        (True, False, 4, False),
        (False, True, 3, True),
        (False, False, 3, False),
    ],
)
def test_an_absent_topic_is_made_where_both_sides_want_it(allowed, option, version, made):
    """Before version 4 a request has no field for it."""
    broker = MemoryBroker(auto_create_topics_enable=option, num_partitions=3)
    rows = metadata(broker, version, name_topics("new", "a/b", "new"), allow_auto_topic_creation=allowed).topics
    assert [(row.name, E(row.error_code), len(row.partitions)) for row in rows] == [
        ("new", E.NONE, 3) if made else ("new", E.UNKNOWN_TOPIC_OR_PARTITION, 0),
        ("a/b", E.INVALID_TOPIC_EXCEPTION, 0),
    ]
    assert ("new" in broker.assembly.broker.cluster.topics) == made


@pytest.mark.parametrize("name", ["my_topic", "__cluster_metadata"])
def test_auto_creation_of_an_invalid_or_colliding_name_is_refused(name):
    broker = MemoryBroker()
    broker.create_topic("my.topic")
    broker.mark()
    (row,) = metadata(broker, 4, name_topics(name), allow_auto_topic_creation=True).topics
    assert row.error_code == E.INVALID_TOPIC_EXCEPTION
    assert [*broker.assembly.broker.cluster.topics] == ["my.topic"] and not broker.has_changed()


def test_internal_topics_are_made_as_they_must_be():
    broker = MemoryBroker(offsets_topic_num_partitions=7)
    (row,) = metadata(broker, 4, name_topics("__consumer_offsets"), allow_auto_topic_creation=True).topics
    assert (row.error_code, len(row.partitions), row.is_internal) == (E.NONE, 7, True)


@pytest.mark.parametrize("version", [12, 13])
def test_topics_are_found_by_id_and_not_by_name_from_version_12_on(broker, version):
    strange, ledger_id = UUID(int=77), id_of(broker, LEDGER)
    asked = [(None, strange), (ORDERS, ledger_id), (None, ledger_id), (ORDERS, NO_ID), ("new", UUID(int=78))]
    rows = metadata(broker, version, asked, allow_auto_topic_creation=True).topics
    assert [(row.name, row.topic_id, E(row.error_code)) for row in rows] == [
        (None, strange, E.UNKNOWN_TOPIC_ID),
        (LEDGER, ledger_id, E.NONE),
        (None, UUID(int=78), E.UNKNOWN_TOPIC_ID),
    ]


@pytest.mark.parametrize("version", [12, 13])
def test_a_topic_with_neither_a_name_nor_an_id_is_invalid(broker, version):
    rows = metadata(broker, version, [(None, NO_ID), (LEDGER, NO_ID)]).topics
    assert [(row.name, E(row.error_code)) for row in rows] == [("", E.INVALID_TOPIC_EXCEPTION), (LEDGER, E.NONE)]


@pytest.mark.parametrize("version", [10, 11])
@pytest.mark.parametrize("row", [(None, NO_ID), (LEDGER, UUID(int=77)), ("new", UUID(int=77))])
def test_an_id_or_no_name_is_refused_in_versions_10_and_11(broker, version, row):
    reply = metadata(broker, version, [(ORDERS, NO_ID), row], allow_auto_topic_creation=True)
    assert [(each.name, each.topic_id or NO_ID, E(each.error_code)) for each in reply.topics] == [
        (ORDERS, NO_ID, E.INVALID_REQUEST),
        (row[0] or "", row[1], E.INVALID_REQUEST),
    ]
    assert (reply.brokers, reply.cluster_id, reply.controller_id) == ([], None, -1)


@pytest.mark.parametrize("version", [9, 10])
def test_a_topic_named_twice_is_returned_once(broker, version):
    """Below version 10 two rows cannot differ by topic id."""
    rows = metadata(broker, version, [*name_topics(ORDERS, LEDGER, ORDERS)]).topics
    assert [row.name for row in rows] == [ORDERS, LEDGER]


@pytest.mark.parametrize("asked_for", [False, True])
@pytest.mark.parametrize("version", range(8, 13))
def test_operations_are_returned_on_request_the_clusters_up_to_version_10(broker, version, asked_for):
    include = {f"include_{what}_authorized_operations": asked_for for what in ("cluster", "topic")}
    reply = metadata(broker, version, name_topics(LEDGER, "none"), **include)
    of_topic = {3, 4, 5, 6, 7, 8, 10, 11} if asked_for else None
    assert [row.authorized_operations for row in reply.topics] == [of_topic] * 2
    if version <= 10:
        assert reply.authorized_operations == ({5, 7, 8, 9, 10, 11, 12} if asked_for else None)


def test_a_topic_is_there_when_it_is_on_the_device(flushing):
    fields = {"topics": [{"name": "new"}], "allow_auto_topic_creation": True}
    (row,) = flushing.ask(ApiKey.METADATA, 4, **fields).topics
    assert row.error_code == E.NONE


def test_auto_creation_that_cannot_be_logged_gets_a_storage_error(broker):
    parts = broker.assembly.broker
    broker.turns.event(lambda: parts.cluster.metadata_log.partition.take_offline("no space"))
    broker.mark()
    (row,) = metadata(broker, 4, name_topics("new"), allow_auto_topic_creation=True).topics
    assert row.error_code == E.KAFKA_STORAGE_ERROR
    assert "new" not in parts.cluster.topics and not broker.has_changed()


@pytest.mark.parametrize("version", VERSIONS)
def test_a_partition_that_is_offline_has_no_leader(broker, version):
    broker.turns.event(lambda: broker.assembly.broker.cluster.partition(LEDGER, 1).take_offline("bad batch"))
    (topic,) = metadata(broker, version, name_topics(LEDGER)).topics
    rows = [(row.error_code, row.leader_id, row.replica_nodes, row.isr_nodes) for row in topic.partitions]
    sound, offline = (E.NONE, 1, [1], [1]), (E.LEADER_NOT_AVAILABLE, -1, [1], [])
    assert topic.error_code == E.NONE
    assert rows == [offline if index == 1 else sound for index in range(LEDGER_PARTITIONS)]
    if version >= 5:
        assert [row.offline_replicas for row in topic.partitions] == [[1] if row == offline else [] for row in rows]


def test_no_partition_of_an_offline_directory_has_a_leader(broker):
    broker.turns.event(lambda: broker.assembly.broker.logs.fail_unless_short(OSError(5, "Input/output error")))
    (topic,) = metadata(broker, 8, name_topics(LEDGER)).topics
    assert {(row.error_code, row.leader_id) for row in topic.partitions} == {(E.LEADER_NOT_AVAILABLE, -1)}
