"""AddPartitionsToTxn: which partitions a transaction gets, for clients (0-3) and for brokers (4-5)."""

import pytest

from ottla.protocol.api_keys import ApiKey as K
from ottla.protocol.errors import ErrorCode as E
from tests.api.callers import LEDGER, ORDERS, TXN, Producer, not_the_producer

OF_CLIENTS, OF_BROKERS = range(4), (4, 5)
OFFSETS = "__consumer_offsets"


def open_places(producer):
    return {(topic.topic, index) for topic in producer.describe().topics for index in topic.partitions}


@pytest.mark.parametrize("version", OF_CLIENTS)
def test_the_first_partition_begins_the_transaction_and_others_join_it(broker, version):
    producer = Producer(broker)
    assert producer.add((LEDGER, [0, 2]), (ORDERS, [0]), version=version) == dict.fromkeys(
        [(LEDGER, 0), (LEDGER, 2), (ORDERS, 0)], E.NONE
    )
    began = producer.describe()
    broker.advance(1_000)
    assert producer.add((LEDGER, [0, 3]), version=version) == {(LEDGER, 0): E.NONE, (LEDGER, 3): E.NONE}
    assert open_places(producer) == {(LEDGER, 0), (LEDGER, 2), (LEDGER, 3), (ORDERS, 0)}
    found = producer.describe()
    assert found.transaction_state == began.transaction_state == "Ongoing"
    assert found.transaction_start_time_ms == began.transaction_start_time_ms, "it began with the first"


BAD = [
    ((LEDGER, 4), E.UNKNOWN_TOPIC_OR_PARTITION),
    ((LEDGER, -1), E.UNKNOWN_TOPIC_OR_PARTITION),
    (("nowhere", 0), E.UNKNOWN_TOPIC_OR_PARTITION),
    ((OFFSETS, 0), E.TOPIC_AUTHORIZATION_FAILED),
    (("__transaction_state", 0), E.TOPIC_AUTHORIZATION_FAILED),
]


@pytest.mark.parametrize(("bad", "error"), BAD)
@pytest.mark.parametrize("version", OF_CLIENTS)
def test_one_partition_that_cannot_be_added_keeps_all_others_out(broker, version, bad, error):
    producer = Producer(broker)
    told = producer.add((LEDGER, [0]), (bad[0], [bad[1]]), (ORDERS, [0]), version=version)
    others = dict.fromkeys([(LEDGER, 0), (ORDERS, 0)], E.OPERATION_NOT_ATTEMPTED)
    assert told == {**others, bad: error}
    assert producer.describe().transaction_state == "Empty"


def refusals(version):
    yield from not_the_producer(version)
    yield {"producer_id": 77, "producer_epoch": 0}, E.INVALID_PRODUCER_ID_MAPPING


@pytest.mark.parametrize(
    ("version", "other", "error"), [(version, *row) for version in OF_CLIENTS for row in refusals(version)]
)
def test_a_request_with_a_wrong_id_or_epoch_adds_no_partition(broker, version, other, error):
    Producer(broker)
    producer = Producer(broker)
    assert producer.add((LEDGER, [0, 1]), version=version, **other) == {(LEDGER, 0): error, (LEDGER, 1): error}
    assert producer.describe().transaction_state == "Empty"


def row(producer, *topics, verify_only=False, **other):
    named = [{"name": name, "partitions": indexes} for name, indexes in topics]
    return producer.owner | {"verify_only": verify_only, "topics": named} | other


def add(broker, version, *rows):
    """[(id, {place: error})]."""
    reply = broker.call(K.ADD_PARTITIONS_TO_TXN, version, transactions=[*rows])
    assert reply.error_code == E.NONE
    return [
        (
            of.transactional_id,
            {
                (t.name, r.partition_index): E(r.partition_error_code)
                for t in of.topic_results
                for r in t.results_by_partition
            },
        )
        for of in reply.results_by_transaction
    ]


@pytest.mark.parametrize("version", OF_BROKERS)
def test_brokers_add_to_several_transactions_and_may_name_internal_topics(broker, version):
    one, two = Producer(broker, "one"), Producer(broker, "two")
    told = add(
        broker,
        version,
        row(one, (LEDGER, [0, 1]), (OFFSETS, [0])),
        row(two, (LEDGER, [0]), ("nowhere", [0])),
        row(two, (LEDGER, [2]), producer_epoch=9),
        row(two, (LEDGER, [3]), producer_id=77),
        row(two, (LEDGER, [3]), transactional_id=""),
        row(two, (LEDGER, [3]), transactional_id="nobody"),
    )
    assert told == [
        ("one", {(LEDGER, 0): E.NONE, (LEDGER, 1): E.NONE, (OFFSETS, 0): E.NONE}),
        ("two", {(LEDGER, 0): E.OPERATION_NOT_ATTEMPTED, ("nowhere", 0): E.UNKNOWN_TOPIC_OR_PARTITION}),
        ("two", {(LEDGER, 2): E.PRODUCER_FENCED}),
        ("two", {(LEDGER, 3): E.INVALID_PRODUCER_ID_MAPPING}),
        ("", {(LEDGER, 3): E.INVALID_REQUEST}),
        ("nobody", {(LEDGER, 3): E.INVALID_PRODUCER_ID_MAPPING}),
    ]
    assert open_places(one) == {(LEDGER, 0), (LEDGER, 1), (OFFSETS, 0)}
    assert two.describe().transaction_state == "Empty"


@pytest.mark.parametrize("version", OF_BROKERS)
def test_brokers_may_verify_and_add_nothing_by_it(broker, version):
    producer = Producer(broker)
    producer.add((LEDGER, [1]))
    told = add(
        broker,
        version,
        row(producer, (LEDGER, [1, 2]), verify_only=True),
        row(producer, (LEDGER, [1, 9]), verify_only=True),
        row(producer, (LEDGER, [1]), verify_only=True, producer_epoch=9),
        row(producer, (LEDGER, [1]), verify_only=True, producer_id=77),
    )
    assert [errors for _, errors in told] == [
        {(LEDGER, 1): E.NONE, (LEDGER, 2): E.TRANSACTION_ABORTABLE},
        {(LEDGER, 1): E.OPERATION_NOT_ATTEMPTED, (LEDGER, 9): E.UNKNOWN_TOPIC_OR_PARTITION},
        {(LEDGER, 1): E.PRODUCER_FENCED},
        {(LEDGER, 1): E.INVALID_PRODUCER_ID_MAPPING},
    ]
    assert open_places(producer) == {(LEDGER, 1)}


@pytest.mark.parametrize("version", OF_BROKERS)
def test_requests_of_brokers_are_unsupported_at_transaction_version_0(broker, version):
    producer = Producer(broker)
    update = {"feature": "transaction.version", "max_version_level": 0, "upgrade_type": 2}
    assert broker.call(K.UPDATE_FEATURES, 1, feature_updates=[update]).error_code == E.NONE
    reply = broker.call(K.ADD_PARTITIONS_TO_TXN, version, transactions=[row(producer, (LEDGER, [0]))])
    assert (reply.error_code, reply.results_by_transaction) == (E.UNSUPPORTED_VERSION, [])
    assert producer.describe().transaction_state == "Empty"
    assert producer.add((LEDGER, [0])) == {(LEDGER, 0): E.NONE}


def test_partitions_are_added_when_they_are_on_the_device(flushing):
    broker = flushing.broker
    broker.create_topic(LEDGER)
    broker.call_when_ready(K.FIND_COORDINATOR, 1, key=TXN, key_type=1)
    broker.call_when_ready(K.INIT_PRODUCER_ID, 1, transactional_id=TXN, transaction_timeout_ms=60_000)
    producer = Producer(broker)
    owner = {f"v3_and_below_{name}": value for name, value in producer.owner.items()}
    topics = [{"name": LEDGER, "partitions": [0]}]
    reply = flushing.ask(K.ADD_PARTITIONS_TO_TXN, 3, **owner, v3_and_below_topics=topics)
    assert reply.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code == E.NONE
