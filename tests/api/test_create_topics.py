"""CreateTopics: valid topics, their configs, and the answers about them."""

import logging

import pytest

from ottla.protocol.api_keys import ApiKey as K
from ottla.protocol.errors import ErrorCode as E
from tests.api.callers import LEDGER, coordinating
from tests.memory_broker import MemoryBroker

VERSIONS = range(2, 8)
MOST_PARTITIONS = 10_000


def topic(name="new", partitions=1, factor=1, assignments=(), **configs):
    rows = [{"partition_index": index, "broker_ids": [*brokers]} for index, brokers in assignments]
    values = [{"name": key.replace("_", "."), "value": value} for key, value in configs.items()]
    return {
        "name": name,
        "num_partitions": partitions,
        "replication_factor": factor,
        "assignments": rows,
        "configs": values,
    }


def create(broker, version, *topics, validate_only=False):
    reply = broker.call(K.CREATE_TOPICS, version, topics=[*topics], timeout_ms=1_000, validate_only=validate_only)
    return reply.topics


def errors(rows):
    return {row.name: E(row.error_code) for row in rows}


def partitions_of(broker, name="new"):
    found = broker.assembly.broker.cluster.topics.get(name)
    return None if found is None else found.partition_count


@pytest.mark.parametrize(
    ("asked", "partitions"),
    [
        (topic(partitions=3), 3),
        (topic(partitions=-1, factor=-1), 2),
        (topic(partitions=-1, factor=-1, assignments=[(1, [1]), (0, [1])]), 2),
    ],
    ids=["as asked", "the broker's defaults", "assigned by hand"],
)
@pytest.mark.parametrize("version", VERSIONS)
def test_a_topic_gets_its_partitions(version, asked, partitions):
    broker = MemoryBroker(num_partitions=2)
    (row,) = create(broker, version, asked)
    assert (row.name, row.error_code, row.error_message) == ("new", E.NONE, None)
    assert partitions_of(broker) == partitions
    if version >= 5:
        assert (row.num_partitions, row.replication_factor) == (partitions, 1)
    if version >= 7:
        assert row.topic_id.bytes == broker.assembly.broker.cluster.topics["new"].topic_id


@pytest.mark.parametrize("version", [5, 7])
def test_effective_configs_are_returned_from_version_5_on(broker, version):
    """The topic's own configs have source 1, inherited ones source 5 (Kafka's defaults)."""
    (row,) = create(broker, version, topic(retention_ms="7000"))
    told = {each.name: (each.value, each.config_source, each.read_only, each.is_sensitive) for each in row.configs}
    assert told["retention.ms"] == ("7000", 1, False, False)
    assert told["cleanup.policy"] == ("delete", 5, False, False)


BAD = [
    pytest.param(topic(LEDGER), E.TOPIC_ALREADY_EXISTS, id="there already"),
    pytest.param(topic("my_topic"), E.INVALID_TOPIC_EXCEPTION, id="a name like another's"),
    pytest.param(topic("a/b"), E.INVALID_TOPIC_EXCEPTION, id="a name with a slash"),
    pytest.param(topic(""), E.INVALID_TOPIC_EXCEPTION, id="no name"),
    pytest.param(topic("."), E.INVALID_TOPIC_EXCEPTION, id="a name of a folder"),
    pytest.param(topic("x" * 250), E.INVALID_TOPIC_EXCEPTION, id="a long name"),
    pytest.param(topic("__consumer_offsets"), E.INVALID_REQUEST, id="internal"),
    pytest.param(topic(partitions=0), E.INVALID_PARTITIONS, id="no partition"),
    pytest.param(topic(partitions=-2), E.INVALID_PARTITIONS, id="fewer than none"),
    pytest.param(topic(factor=0), E.INVALID_REPLICATION_FACTOR, id="no replica"),
    pytest.param(topic(factor=2), E.INVALID_REPLICATION_FACTOR, id="two replicas"),
    pytest.param(topic(factor=-2), E.INVALID_REPLICATION_FACTOR, id="fewer than none replicas"),
    pytest.param(topic(partitions=1, factor=-1, assignments=[(0, [1])]), E.INVALID_REQUEST, id="assigned and counted"),
    pytest.param(
        topic(partitions=-1, factor=1, assignments=[(0, [1])]), E.INVALID_REQUEST, id="assigned and replicated"
    ),
    pytest.param(topic(partitions=-1, factor=-1, assignments=[(1, [1])]), E.INVALID_REPLICA_ASSIGNMENT, id="a gap"),
    pytest.param(
        topic(partitions=-1, factor=-1, assignments=[(0, [1]), (0, [1])]),
        E.INVALID_REPLICA_ASSIGNMENT,
        id="a partition twice",
    ),
    pytest.param(
        topic(partitions=-1, factor=-1, assignments=[(0, [2])]), E.INVALID_REPLICA_ASSIGNMENT, id="another broker"
    ),
    pytest.param(
        topic(partitions=-1, factor=-1, assignments=[(0, [1, 1])]), E.INVALID_REPLICA_ASSIGNMENT, id="a broker twice"
    ),
    pytest.param(topic(partitions=-1, factor=-1, assignments=[(0, [])]), E.INVALID_REPLICA_ASSIGNMENT, id="no broker"),
    pytest.param(topic(retention_ms="soon"), E.INVALID_CONFIG, id="a bad value"),
    pytest.param(topic(no_such_config="1"), E.INVALID_CONFIG, id="no such config"),
]


SEVERAL = [
    ({"name": LEDGER, "retention_ms": "soon"}, E.TOPIC_ALREADY_EXISTS),
    ({"name": "a/b", "retention_ms": "soon"}, E.INVALID_TOPIC_EXCEPTION),
    ({"factor": 0, "partitions": 0, "retention_ms": "soon"}, E.INVALID_CONFIG),
    ({"partitions": -1, "factor": -1, "assignments": [(0, [2])], "retention_ms": "soon"}, E.INVALID_CONFIG),
    ({"factor": 0, "partitions": 0}, E.INVALID_REPLICATION_FACTOR),
    ({"factor": 2, "partitions": 0}, E.INVALID_PARTITIONS),
]


@pytest.mark.parametrize(("wrong", "error"), SEVERAL, ids=str)
def test_of_several_errors_the_one_kafka_checks_first_is_returned(shared_broker, wrong, error):
    (row,) = create(shared_broker, 7, topic(**wrong))
    assert row.error_code == error


@pytest.fixture(scope="module")
def shared_broker():
    broker = MemoryBroker()
    for name in (LEDGER, "my.topic"):
        broker.create_topic(name)
    broker.mark()
    yield broker
    assert broker.bugs == []


@pytest.mark.parametrize("validate_only", [False, True])
@pytest.mark.parametrize(("asked", "error"), BAD)
def test_a_topic_that_cannot_be_is_refused_with_a_reason_and_the_others_are_not(
    shared_broker, asked, error, validate_only
):
    version = VERSIONS[-1]
    rows = create(shared_broker, version, asked, topic("beside"), validate_only=True)
    assert errors(rows) == {asked["name"]: error, "beside": E.NONE}
    (row,) = create(shared_broker, version, asked, validate_only=validate_only)
    assert row.error_message and (row.num_partitions, row.replication_factor, row.topic_id) == (-1, -1, None)
    assert not shared_broker.has_changed()


@pytest.mark.parametrize("version", VERSIONS)
def test_validation_creates_no_topic_and_returns_the_planned_one(broker, version):
    (row,) = create(broker, version, topic(partitions=3), validate_only=True)
    assert row.error_code == E.NONE and partitions_of(broker) is None
    if version >= 5:
        assert row.num_partitions == 3 and row.configs
    if version >= 7:
        assert row.topic_id is None


@pytest.mark.parametrize("version", VERSIONS)
def test_a_topic_that_is_named_twice_is_not_created(broker, version):
    rows = create(broker, version, topic("twice"), topic("once"), topic("twice", partitions=2))
    assert errors(rows) == {"twice": E.INVALID_REQUEST, "once": E.NONE} and len(rows) == 2
    assert (partitions_of(broker, "twice"), partitions_of(broker, "once")) == (None, 1)


@pytest.mark.parametrize(
    ("counts", "default", "excessive"),
    [
        ([MOST_PARTITIONS], 1, False),
        ([MOST_PARTITIONS + 1], 1, True),
        ([MOST_PARTITIONS, 1], 1, True),
        ([MOST_PARTITIONS - 1, 1], 1, False),
        ([MOST_PARTITIONS - 1, -1], 2, True),
        ([MOST_PARTITIONS, 0], 1, False),
    ],
)
def test_one_request_may_want_ten_thousand_partitions(counts, default, excessive):
    broker = MemoryBroker(num_partitions=default)
    rows = create(broker, 5, *(topic(f"t{at}", count) for at, count in enumerate(counts)), validate_only=True)
    told = [row.error_code == E.POLICY_VIOLATION for row in rows]
    assert told == [excessive] * len(counts)


def test_manually_assigned_partitions_count_towards_the_limit():
    by_hand = topic("by-hand", -1, -1, [(0, [1]), (1, [1])])
    rows = create(MemoryBroker(), 5, by_hand, topic("many", MOST_PARTITIONS - 1), validate_only=True)
    assert {*errors(rows).values()} == {E.POLICY_VIOLATION}


def test_creating_an_internal_topic_is_refused_before_and_after_it_exists():
    assert errors(create(MemoryBroker(), 5, topic("__consumer_offsets"))) == {"__consumer_offsets": E.INVALID_REQUEST}
    rows = create(coordinating(), 5, topic("__consumer_offsets"))
    assert errors(rows) == {"__consumer_offsets": E.TOPIC_ALREADY_EXISTS}


def test_a_topic_that_cannot_be_logged_is_not_created(broker):
    metadata = broker.assembly.broker.cluster.metadata_log.partition
    broker.turns.event(lambda: metadata.take_offline("no space"))
    rows = create(broker, 5, topic("new"), topic("twice"), topic("twice"))
    assert errors(rows) == {"new": E.KAFKA_STORAGE_ERROR, "twice": E.INVALID_REQUEST}
    assert partitions_of(broker) is None


def test_a_topic_exists_when_it_is_on_the_device(flushing):
    (row,) = flushing.ask(K.CREATE_TOPICS, 5, topics=[topic()], timeout_ms=1_000, validate_only=False).topics
    assert row.error_code == E.NONE and partitions_of(flushing.broker) == 1


# Messages of Apache Kafka 4.3.1, which adds to the second "or some brokers have all their log directories cordoned."
TOO_FEW = "Replication factor must be larger than 0, or -1 to use the default value."
TOO_MANY = (
    "Unable to replicate the partition {0} time(s): The target replication factor of {0} cannot be reached because "
    "only 1 broker(s) are registered. Ottla is one broker: use a replication factor of at most 1, or "
    "-1, or more brokers (`ottla serve --brokers`)."
)
ASSIGNED = "The manual partition assignment includes {}. Ottla is one broker: assign each partition to 1."
UNPLACED = [
    *[({"factor": factor}, E.INVALID_REPLICATION_FACTOR, TOO_FEW) for factor in (0, -2, -32_768)],
    *[({"factor": factor}, E.INVALID_REPLICATION_FACTOR, TOO_MANY.format(factor)) for factor in (2, 3, 32_767)],
    *[
        (
            {"partitions": -1, "factor": -1, "assignments": [(0, ids)]},
            E.INVALID_REPLICA_ASSIGNMENT,
            ASSIGNED.format(why),
        )
        for ids, why in (
            ([1, 2, 3], "broker 2, but no such broker is registered"),
            ([1, 1], "the broker 1 more than once"),
            ([], "an empty replica list"),
        )
    ],
]


@pytest.mark.parametrize(("wrong", "error", "message"), UNPLACED)
def test_replicas_that_one_broker_cannot_have_are_refused_with_what_to_do(shared_broker, caplog, wrong, error, message):
    first, second = create(shared_broker, 7, topic("first", **wrong), topic("second", **wrong))
    assert (first.error_code, first.error_message) == (second.error_code, second.error_message) == (error, message)
    (line,) = [each for each in caplog.records if each.name == "ottla.broker.api.create_topics"]
    assert line.levelno == logging.WARNING
    assert line.getMessage().startswith("Refused CreateTopics of topic first and 1 more from client ")
    assert line.getMessage().endswith(f": {error.name}: {message}")
