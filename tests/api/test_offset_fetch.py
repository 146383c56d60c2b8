"""OffsetFetch: committed offsets of groups, and those that an open transaction makes unstable."""

import pytest

from ottla.protocol.api_keys import ApiKey as K
from ottla.protocol.errors import ErrorCode as E
from tests.api.callers import GROUP, LEDGER, OF_NOBODY, ORDERS, Producer, commit, fetch_offsets
from tests.api.conftest import SLOW_SYNC_MS
from tests.memory_broker import MemoryBroker

NOTHING = (-1, -1, "")


@pytest.fixture
def broker(broker):
    """Return a broker where one group has committed in two topics, and another group in one."""
    row = {"partition_index": 1, "committed_offset": 5, "committed_leader_epoch": 3, "committed_metadata": "said"}
    broker.call(K.OFFSET_COMMIT, 8, **OF_NOBODY, topics=[{"name": LEDGER, "partitions": [row]}])
    commit(broker, (LEDGER, 0, 4), (ORDERS, 0, 6))
    commit(broker, (LEDGER, 0, 9), group_id="other")
    return broker


def build_topics(*topics):
    return [{"name": name, "partition_indexes": indexes} for name, indexes in topics]


def found(topics):
    """[(topic, [(partition, error, (offset, leader epoch, metadata))])]; the epoch is -1 if the version has none."""
    return [
        (
            topic.name,
            [
                (
                    *(row.partition_index, E(row.error_code)),
                    (row.committed_offset, getattr(row, "committed_leader_epoch", -1), row.metadata),
                )
                for row in topic.partitions
            ],
        )
        for topic in topics
    ]


def fetch(broker, version, topics, group_id=GROUP, **more):
    """Fetch the offsets of one group and return (error, topics), in any version."""
    if version < 8:
        reply = broker.call(K.OFFSET_FETCH, version, group_id=group_id, topics=topics, **more)
        return E(reply.error_code if version >= 2 else 0), found(reply.topics)
    reply = broker.call(K.OFFSET_FETCH, version, groups=[{"group_id": group_id, "topics": topics}], **more)
    (group,) = reply.groups
    assert group.group_id == group_id
    return E(group.error_code), found(group.topics)


@pytest.mark.parametrize("version", range(1, 9))
def test_each_offset_is_returned_once_in_the_requested_order(broker, version):
    topics = build_topics((LEDGER, [1, 2, 1]), ("none", [0]), (ORDERS, []), (LEDGER, [0, 2]))
    epoch = 3 if version >= 5 else -1
    rows = [(1, E.NONE, (5, epoch, "said")), (2, E.NONE, NOTHING), (0, E.NONE, (4, -1, ""))]
    none = ("none", [(0, E.NONE, NOTHING)])
    assert fetch(broker, version, topics) == (E.NONE, [(LEDGER, rows), none, (ORDERS, [])])


@pytest.mark.parametrize("version", range(2, 9))
def test_a_null_list_returns_all_offsets_of_the_group(broker, version):
    error, topics = fetch(broker, version, None)
    assert error is E.NONE
    assert {(name, row[0]): row[2][0] for name, rows in topics for row in rows} == {
        (LEDGER, 0): 4,
        (LEDGER, 1): 5,
        (ORDERS, 0): 6,
    }
    assert fetch(broker, version, None, group_id="nobody") == (E.NONE, [])


@pytest.mark.parametrize("version", range(1, 9))
def test_an_empty_list_or_an_unknown_group_has_no_offsets(broker, version):
    assert fetch(broker, version, []) == (E.NONE, [])
    rows = [(0, E.NONE, NOTHING)]
    assert fetch(broker, version, build_topics((LEDGER, [0])), group_id="nobody") == (E.NONE, [(LEDGER, rows)])
    assert {row.group_id for row in broker.call(K.LIST_GROUPS, 4, states_filter=[]).groups} == {GROUP, "other"}


@pytest.mark.parametrize("require_stable", [False, True])
@pytest.mark.parametrize("version", range(1, 9))
def test_pending_offsets_are_unstable_if_required_from_version_7_on(broker, version, require_stable):
    """KIP-447, from version 7 on; only the partition of the transaction is affected."""
    producer = Producer(broker)
    producer.add_offsets()
    row = {"partition_index": 0, "committed_offset": 8, "committed_metadata": ""}
    topics = [{"name": LEDGER, "partitions": [row, row | {"partition_index": 2}]}]
    broker.call(K.TXN_OFFSET_COMMIT, 2, **producer.owner, group_id=GROUP, topics=topics)
    unstable = (0, E.UNSTABLE_OFFSET_COMMIT, NOTHING)
    covered = unstable if require_stable and version >= 7 else (0, E.NONE, (4, -1, ""))
    epoch = 3 if version >= 5 else -1
    told = fetch(broker, version, build_topics((LEDGER, [0, 1])), require_stable=require_stable)
    assert told == (E.NONE, [(LEDGER, [covered, (1, E.NONE, (5, epoch, "said"))])])
    if version >= 2:  # a null list has what is committed
        _, topics = fetch(broker, version, None, require_stable=require_stable)
        errors = {(name, row[0]): row[1] for name, rows in topics for row in rows}
        assert errors == {(LEDGER, 0): covered[1], (LEDGER, 1): E.NONE, (ORDERS, 0): E.NONE}
    producer.end()
    assert fetch_offsets(broker, (LEDGER, 0), stable=True) == {(LEDGER, 0): 8}


def test_a_group_named_twice_is_answered_once_with_all_its_partitions(broker):
    groups = [
        {"group_id": "other", "topics": build_topics((LEDGER, [0]))},
        {"group_id": GROUP, "topics": build_topics((LEDGER, [1]))},
        {"group_id": "nobody", "topics": None},
        {"group_id": GROUP, "topics": build_topics((LEDGER, [0, 1]))},
    ]
    reply = broker.call(K.OFFSET_FETCH, 8, groups=groups)
    assert [
        (of.group_id, [(row[0], row[2][0]) for _, rows in found(of.topics) for row in rows]) for of in reply.groups
    ] == [
        ("other", [(0, 9)]),
        (GROUP, [(1, 5), (0, 4)]),
        ("nobody", []),
    ]


def test_a_null_list_overrides_other_lists_of_the_same_group(broker):
    groups = [{"group_id": GROUP, "topics": build_topics((LEDGER, [1]))}, {"group_id": GROUP, "topics": None}]
    (group,) = broker.call(K.OFFSET_FETCH, 8, groups=groups).groups
    assert sum(len(topic.partitions) for topic in group.topics) == 3


@pytest.mark.parametrize("version", range(1, 9))
def test_before_there_is_a_coordinator_the_error_is_where_the_version_has_it(version):
    """Version 1 has no error for the whole request, so every partition has it."""
    broker = MemoryBroker()
    error, topics = fetch(broker, version, build_topics((LEDGER, [0, 1]), (ORDERS, [0])))
    if version >= 2:
        assert (error, topics) == (E.NOT_COORDINATOR, [])
    else:
        refused = E.NOT_COORDINATOR, NOTHING
        assert topics == [(LEDGER, [(0, *refused), (1, *refused)]), (ORDERS, [(0, *refused)])]


def test_an_offset_is_returned_after_the_sync_of_its_commit(flushing):
    """A fetched offset must be durable, also if another client has committed it just before."""
    broker = flushing.broker
    broker.create_topic(LEDGER)
    broker.call_when_ready(K.FIND_COORDINATOR, 1, key=GROUP, key_type=0)
    row = {"partition_index": 0, "committed_offset": 5, "committed_metadata": ""}
    broker.advance(1_000)
    broker.client().send(K.OFFSET_COMMIT, 8, **OF_NOBODY, topics=[{"name": LEDGER, "partitions": [row]}])
    client = broker.client()
    client.send(K.OFFSET_FETCH, 7, group_id=GROUP, topics=build_topics((LEDGER, [0])), require_stable=True)
    broker.advance(SLOW_SYNC_MS - 1.0)
    assert client.replies == []
    broker.advance(3 * SLOW_SYNC_MS)
    assert [found(reply.topics) for reply in client.replies] == [[(LEDGER, [(0, E.NONE, (5, -1, ""))])]]
