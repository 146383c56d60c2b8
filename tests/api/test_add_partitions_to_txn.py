"""AddPartitionsToTxn: the partitions of a transaction, and when they are acknowledged.

The decisions are tested in `tests/tables`.
"""

import pytest

from ottla.protocol.api_keys import ApiKey as K
from ottla.protocol.errors import ErrorCode as E
from tests.api.callers import LEDGER, ORDERS, TXN, Producer

OF_CLIENTS, OF_BROKERS = range(4), (4, 5)


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


@pytest.mark.parametrize("version", OF_BROKERS)
def test_requests_of_brokers_are_unsupported_at_transaction_version_0(broker, version):
    producer = Producer(broker)
    update = {"feature": "transaction.version", "max_version_level": 0, "upgrade_type": 2}
    assert broker.call(K.UPDATE_FEATURES, 1, feature_updates=[update]).error_code == E.NONE
    asked = producer.owner | {"verify_only": False, "topics": [{"name": LEDGER, "partitions": [0]}]}
    reply = broker.call(K.ADD_PARTITIONS_TO_TXN, version, transactions=[asked])
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
