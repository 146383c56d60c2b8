"""DescribeTransactions: state, timeout, start and partitions of transactional ids."""

import pytest

from ottla.protocol.api_keys import ApiKey as K
from ottla.protocol.errors import ErrorCode as E
from ottla.testkit.in_memory.schedule import START_MS
from tests.api.callers import LEDGER, ORDERS, Producer


def describe(broker, *names):
    """Return {id: (error, state, timeout, start, producer id, epoch, {topic: partitions})}."""
    rows = broker.call(K.DESCRIBE_TRANSACTIONS, 0, transactional_ids=[*names]).transaction_states
    return {
        row.transactional_id: (
            *(E(row.error_code), row.transaction_state, row.transaction_timeout_ms, row.transaction_start_time_ms),
            *(row.producer_id, row.producer_epoch, {topic.topic: topic.partitions for topic in row.topics}),
        )
        for row in rows
    }


def test_an_open_transaction_has_its_start_and_its_partitions(broker):
    producer = Producer(broker, "open", timeout_ms=5_000)
    broker.advance(1_000)
    before_ms = broker.clock.now_ms()
    producer.add((LEDGER, [2, 0]), (ORDERS, [0]))
    producer.add((LEDGER, [1]))
    (error, *found, start_ms) = [describe(broker, "open")["open"][at] for at in (0, 1, 2, 4, 5, 6, 3)]
    assert (error, found) == (
        E.NONE,
        ["Ongoing", 5_000, producer.producer_id, 0, {LEDGER: [2, 0, 1], ORDERS: [0]}],
    )
    assert START_MS < before_ms <= start_ms <= before_ms + 10


@pytest.mark.parametrize(("committed", "state"), [(True, "CompleteCommit"), (False, "CompleteAbort")])
def test_an_ended_transaction_keeps_its_start_and_has_no_partitions(broker, committed, state):
    producer = Producer(broker)
    producer.begin(0)
    began_ms = producer.describe().transaction_start_time_ms
    producer.end(committed=committed)
    assert describe(broker, "txn") == {"txn": (E.NONE, state, 60_000, began_ms, producer.producer_id, 0, {})}


def test_an_id_that_never_began_one_has_no_start(broker):
    producer = Producer(broker)
    assert describe(broker, "txn") == {"txn": (E.NONE, "Empty", 60_000, -1, producer.producer_id, 0, {})}


def test_ids_in_error_have_nothing_else_and_each_is_answered_once_in_order(broker):
    Producer(broker)
    found = describe(broker, "nobody", "txn", "", "nobody")
    assert [*found] == ["nobody", "txn", ""]
    assert found["nobody"] == (E.TRANSACTIONAL_ID_NOT_FOUND, "", 0, 0, 0, 0, {})
    assert found[""] == (E.INVALID_REQUEST, "", 0, 0, 0, 0, {})
    assert describe(broker) == {}
