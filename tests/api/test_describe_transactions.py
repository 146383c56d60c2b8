"""DescribeTransactions of several ids. The answers for one id are tested in `tests/tables`."""

from ottla.protocol.api_keys import ApiKey as K
from ottla.protocol.errors import ErrorCode as E
from tests.api.callers import Producer


def describe(broker, *names):
    rows = broker.call(K.DESCRIBE_TRANSACTIONS, 0, transactional_ids=[*names]).transaction_states
    return [(row.transactional_id, row.error_code) for row in rows]


def test_each_id_is_answered_once_in_order_with_its_error(broker):
    Producer(broker)
    assert describe(broker, "nobody", "txn", "", "nobody") == [
        ("nobody", E.TRANSACTIONAL_ID_NOT_FOUND),
        ("txn", E.NONE),
        ("", E.INVALID_REQUEST),
    ]
    assert describe(broker) == []
