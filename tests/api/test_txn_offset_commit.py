"""TxnOffsetCommit: offsets that take effect when the transaction commits, and the producers that may commit them."""

import pytest

from ottla.protocol.api_keys import ApiKey as K
from ottla.protocol.errors import ErrorCode as E
from tests.api.callers import FEW, FOR_GROUPS, GROUP, LEDGER, ORDERS, TXN, Member, Producer, commit, fetch_offsets
from tests.memory_broker import MemoryBroker

FIRST_GENERATION = range(5)
PLACE = (LEDGER, 0)


def txn_commit(producer, version, *rows, **given):
    """Commit and return {(topic, partition): error}; rows are (topic, partition, offset, fields that differ)."""
    topics = [
        {
            "name": topic,
            "partitions": [{"partition_index": index, "committed_offset": at, "committed_metadata": ""} | more],
        }
        for topic, index, at, more in rows
    ]
    fields = producer.owner | {"group_id": GROUP, "generation_id": -1, "member_id": ""} | given
    reply = producer.broker.call(K.TXN_OFFSET_COMMIT, version, **fields, topics=topics)
    return {(topic.name, row.partition_index): E(row.error_code) for topic in reply.topics for row in topic.partitions}


@pytest.fixture
def begun(broker):
    """Return a producer whose transaction contains the group."""
    producer = Producer(broker)
    assert producer.add_offsets() is E.NONE
    return producer


@pytest.mark.parametrize(("committed", "offset"), [(True, 7), (False, 4)])
@pytest.mark.parametrize("version", FIRST_GENERATION)
def test_offsets_count_when_the_transaction_commits(broker, begun, version, committed, offset):
    commit(broker, (*PLACE, 4))
    assert txn_commit(begun, version, (*PLACE, 7, {}), (ORDERS, 0, 8, {})) == {PLACE: E.NONE, (ORDERS, 0): E.NONE}
    assert fetch_offsets(broker, PLACE) == {PLACE: 4}
    assert fetch_offsets(broker, PLACE, stable=True) == {PLACE: E.UNSTABLE_OFFSET_COMMIT}
    assert begun.end(committed=committed) is E.NONE
    assert fetch_offsets(broker, PLACE, stable=True) == {PLACE: offset}


@pytest.mark.parametrize(("version", "epoch"), [(1, -1), (2, 5), (5, 5)])
def test_leader_epochs_are_kept_from_version_2_on(broker, begun, version, epoch):
    assert txn_commit(begun, version, (*PLACE, 7, {"committed_leader_epoch": 5, "committed_metadata": "said"}))
    begun.end()
    reply = broker.call(K.OFFSET_FETCH, 5, group_id=GROUP, topics=[{"name": LEDGER, "partition_indexes": [0]}])
    (row,) = reply.topics[0].partitions
    assert (row.committed_offset, row.committed_leader_epoch, row.metadata) == (7, epoch, "said")


@pytest.mark.parametrize("version", range(6))
def test_each_partition_has_its_error(begun, version):
    told = txn_commit(
        begun,
        version,
        (LEDGER, 9, 1, {}),
        ("none", 0, 1, {}),
        (LEDGER, 1, 1, {"committed_metadata": "x" * 4097}),
        (LEDGER, 2, 1, {"committed_metadata": "x" * 4096}),
        (*PLACE, 1, {"committed_metadata": None}),
    )
    unknown, long = E.UNKNOWN_TOPIC_OR_PARTITION, E.OFFSET_METADATA_TOO_LARGE
    assert told == {(LEDGER, 9): unknown, ("none", 0): unknown, (LEDGER, 1): long, (LEDGER, 2): E.NONE, PLACE: E.NONE}


@pytest.mark.parametrize(
    ("other", "error"),
    [
        ({"transactional_id": "nobody"}, E.INVALID_PRODUCER_ID_MAPPING),
        ({"transactional_id": ""}, E.INVALID_REQUEST),
    ],
    ids=str,
)
@pytest.mark.parametrize("version", range(6))
def test_a_request_with_a_wrong_transactional_id_commits_no_offset(broker, version, other, error):
    producer = Producer(broker)
    producer.add_offsets()
    assert txn_commit(producer, version, (*PLACE, 7, {}), **other) == {PLACE: error}
    assert fetch_offsets(broker, PLACE, stable=True) == {PLACE: -1}


MEMBERS = [
    pytest.param({}, E.NONE, id="nobody in particular"),
    pytest.param({"member_id": "stranger", "generation_id": 1}, E.UNKNOWN_MEMBER_ID, id="stranger"),
    pytest.param({"generation_id": 0}, E.ILLEGAL_GENERATION, id="generation before"),
    pytest.param({"generation_id": 2}, E.ILLEGAL_GENERATION, id="generation to come"),
    pytest.param({"generation_id": 1}, E.NONE, id="member"),
    pytest.param({"generation_id": 1, "group_instance_id": "other"}, E.UNKNOWN_MEMBER_ID, id="another's name"),
]


@pytest.mark.parametrize(("given", "error"), MEMBERS)
@pytest.mark.parametrize("version", [2, 3, 5])
def test_zombies_of_a_group_are_refused_from_version_3_on(broker, begun, version, given, error):
    member = Member(broker, instance_id="mine").settle(version=5)
    who = {"member_id": member.member_id} | given if given else {}
    assert txn_commit(begun, version, (*PLACE, 7, {}), **who) == {PLACE: error if version >= 3 else E.NONE}


@pytest.mark.parametrize("version", range(6))
def test_without_any_transactional_id_there_is_no_coordinator_to_ask(version):
    broker = MemoryBroker(**FEW)
    broker.create_topic(LEDGER)
    broker.call_when_ready(K.FIND_COORDINATOR, 1, key=GROUP, key_type=FOR_GROUPS)
    rows = [{"partition_index": 0, "committed_offset": 7, "committed_metadata": ""}]
    asked = {"transactional_id": TXN, "group_id": GROUP, "producer_id": 5, "producer_epoch": 0}
    reply = broker.call(K.TXN_OFFSET_COMMIT, version, **asked, topics=[{"name": LEDGER, "partitions": rows}])
    assert reply.topics[0].partitions[0].error_code == E.COORDINATOR_NOT_AVAILABLE
    assert "__transaction_state" not in broker.assembly.broker.cluster.topics
