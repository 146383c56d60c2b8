"""DescribeTopicPartitions: all topics in pages. Recorded answers are in `test_three_kafkas.py`."""

from ottla.protocol.api_keys import ApiKey as K
from ottla.protocol.errors import ErrorCode as E
from tests.api.callers import LEDGER, ORDERS, coordinating

OFFSETS, STATES = "__consumer_offsets", "__transaction_state"


def describe(broker, *names, limit=2_000, cursor=None):
    """Return [(topic, error, [partition])], and the cursor of the next page."""
    topics = [{"name": name} for name in names]
    cursor = cursor and {"topic_name": cursor[0], "partition_index": cursor[1]}
    fields = {"topics": topics, "response_partition_limit": limit, "cursor": cursor}
    reply = broker.call(K.DESCRIBE_TOPIC_PARTITIONS, 0, **fields)
    rows = [(row.name, E(row.error_code), [each.partition_index for each in row.partitions]) for row in reply.topics]
    following = reply.next_cursor
    return rows, following and (following.topic_name, following.partition_index)


def test_pages_of_every_size_have_each_partition_of_all_topics_once():
    broker = coordinating()
    whole, following = describe(broker)
    assert [name for name, *_ in whole] == sorted((OFFSETS, STATES, LEDGER, ORDERS)) and following is None
    everything = [(name, index) for name, _, indexes in whole for index in indexes]
    for limit in range(-1, len(everything) + 2):
        found, cursor = [], None
        while True:
            rows, cursor = describe(broker, limit=limit, cursor=cursor)
            page = [(name, index) for name, _, indexes in rows for index in indexes]
            assert len(page) <= max(limit, 1)
            found += page
            if cursor is None:
                break
        assert found == everything


def test_the_option_limits_a_page():
    broker = coordinating(max_request_partition_size_limit=3)
    assert describe(broker, LEDGER) == ([(LEDGER, E.NONE, [0, 1, 2])], (LEDGER, 3))


def test_the_cursor_of_a_topic_that_was_deleted_meanwhile_continues_with_the_next_one():
    broker = coordinating()
    assert describe(broker, cursor=(f"{LEDGER}-gone", 3))[0] == [(ORDERS, E.NONE, [0])]


def test_offline_partitions_have_no_leader_and_no_error(monkeypatch):
    broker = coordinating()
    monkeypatch.setattr(broker.assembly.broker.logs, "offline", "no space")
    reply = broker.call(K.DESCRIBE_TOPIC_PARTITIONS, 0, topics=[{"name": ORDERS}], response_partition_limit=1)
    (row,) = reply.topics[0].partitions
    assert (row.error_code, row.leader_id, [*row.isr_nodes], [*row.offline_replicas]) == (E.NONE, -1, [], [1])
