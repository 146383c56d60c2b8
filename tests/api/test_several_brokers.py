"""Several brokers in one process (`ottla serve --brokers N`): leaders, replicas, coordinators and refusals."""

import pytest

from ottla.protocol.api_keys import ApiKey as K
from ottla.protocol.errors import ErrorCode as E
from tests.api.callers import FOR_GROUPS, FOR_TRANSACTIONS, Producer, batch, produce
from tests.memory_broker import MemoryBroker

TOPIC = "orders"
BROKERS = (1, 2, 3)
LEADERS = (1, 2, 3, 1)
"""The leaders of four partitions; each has a replica at the next broker too."""
SET, DELETE = 0, 1
NOT_LEADER, UNKNOWN = E.NOT_LEADER_OR_FOLLOWER, E.UNKNOWN_TOPIC_OR_PARTITION


@pytest.fixture
def cluster():
    """Three brokers, and a topic of four partitions with two replicas each."""
    broker = MemoryBroker(brokers=3, group_initial_rebalance_delay_ms=0)
    assert create(broker, TOPIC, 4, 2) == (E.NONE, 2)
    return broker


def create(broker, name, partitions, factor, assigned=()):
    assignments = [{"partition_index": index, "broker_ids": [*ids]} for index, ids in enumerate(assigned)]
    row = {"name": name, "num_partitions": partitions, "replication_factor": factor}
    topics = [row | {"assignments": assignments, "configs": []}]
    (answer,) = broker.call(K.CREATE_TOPICS, 5, topics=topics, timeout_ms=1_000, validate_only=False).topics
    return E(answer.error_code), answer.replication_factor


def describe_places(broker, topic=TOPIC):
    reply = broker.call(K.METADATA, 9, topics=[{"name": topic}], allow_auto_topic_creation=False)
    assert [row.node_id for row in reply.brokers] == [*BROKERS] and reply.controller_id == 1
    partitions = reply.topics[0].partitions
    assert all(row.isr_nodes == row.replica_nodes and row.offline_replicas == [] for row in partitions)
    return [(row.leader_id, [*row.replica_nodes]) for row in partitions]


def find_coordinator(broker, key, key_type):
    broker.call_when_ready(K.FIND_COORDINATOR, 1, key=key, key_type=key_type)
    return broker.call(K.FIND_COORDINATOR, 1, key=key, key_type=key_type).node_id


@pytest.mark.parametrize("node_id", BROKERS)
def test_every_broker_names_all_brokers_and_the_leader_of_each_partition(cluster, node_id):
    assert describe_places(cluster.ask_broker(node_id)) == [(1, [1, 2]), (2, [2, 3]), (3, [3, 1]), (1, [1, 2])]
    reply = cluster.call(K.DESCRIBE_CLUSTER, 1, endpoint_type=1)
    assert [row.broker_id for row in reply.brokers] == [*BROKERS] and reply.controller_id == 1


def test_replicas_are_those_of_an_assignment_or_as_many_as_there_are_brokers(cluster):
    assert create(cluster, "assigned", -1, -1, [(3, 1), (2, 1)]) == (E.NONE, 2)
    assert describe_places(cluster, "assigned") == [(3, [3, 1]), (2, [2, 1])]
    assert create(cluster, "four", 1, 4)[0] == E.INVALID_REPLICATION_FACTOR
    for wrong in ([(1, 4)], [(2, 2)], [(1, 2), (3,)]):
        assert create(cluster, "wrong", -1, -1, wrong)[0] == E.INVALID_REPLICA_ASSIGNMENT
    added = [{"name": "assigned", "count": 3, "assignments": [{"broker_ids": [1, 2]}]}]
    (answer,) = cluster.call(K.CREATE_PARTITIONS, 1, topics=added, timeout_ms=1_000, validate_only=False).results
    assert answer.error_code == E.NONE
    assert describe_places(cluster, "assigned")[2] == (1, [1, 2])


def test_internal_topics_have_three_replicas_and_the_default_factor_counts():
    broker = MemoryBroker(brokers=3, default_replication_factor=5)
    find_coordinator(broker, "g", FOR_GROUPS)
    assert describe_places(broker, "__consumer_offsets")[1] == (2, [2, 3, 1])
    assert create(broker, "by-default", 1, -1) == (E.NONE, 3)


def produce_at(broker, index, version=9):
    return produce(broker, batch(), TOPIC, index, version)[0]


def fetch_at(broker, index, version):
    partitions = [{"partition": index, "fetch_offset": 0, "partition_max_bytes": 1_000, "current_leader_epoch": -1}]
    asked = {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": 10_000, "session_epoch": -1}
    topics = [{"topic": TOPIC, "partitions": partitions}]
    (topic,) = broker.call(K.FETCH, version, **asked, topics=topics, isolation_level=0).responses
    return E(topic.partitions[0].error_code)


def list_offset_at(broker, index, replica_id=-1):
    topics = [{"name": TOPIC, "partitions": [{"partition_index": index, "timestamp": -1}]}]
    return E(broker.call(K.LIST_OFFSETS, 4, replica_id=replica_id, topics=topics).topics[0].partitions[0].error_code)


def delete_at(broker, index):
    topics = [{"name": TOPIC, "partitions": [{"partition_index": index, "offset": 0}]}]
    return E(broker.call(K.DELETE_RECORDS, 1, topics=topics, timeout_ms=1_000).topics[0].partitions[0].error_code)


def find_epoch_at(broker, index):
    topics = [{"topic": TOPIC, "partitions": [{"partition": index, "leader_epoch": 0, "current_leader_epoch": -1}]}]
    return E(broker.call(K.OFFSET_FOR_LEADER_EPOCH, 3, topics=topics).topics[0].partitions[0].error_code)


def describe_producers_at(broker, index):
    topics = [{"name": TOPIC, "partition_indexes": [index]}]
    return E(broker.call(K.DESCRIBE_PRODUCERS, 0, topics=topics).topics[0].partitions[0].error_code)


def write_marker_at(broker, index):
    topics = [{"name": TOPIC, "partition_indexes": [index]}]
    marker = {"producer_id": 9, "producer_epoch": 0, "transaction_result": True, "coordinator_epoch": 0}
    reply = broker.call(K.WRITE_TXN_MARKERS, 1, markers=[marker | {"topics": topics}])
    return E(reply.markers[0].topics[0].partitions[0].error_code)


ASKED = {
    "Produce": produce_at,
    "Fetch 10": lambda broker, index: fetch_at(broker, index, 10),
    "ListOffsets": list_offset_at,
    "DeleteRecords": delete_at,
    "OffsetForLeaderEpoch": find_epoch_at,
    "WriteTxnMarkers": write_marker_at,
}


@pytest.mark.parametrize("asked", ASKED)
def test_only_the_leader_answers(cluster, asked):
    """Without a replica, a broker knows no such partition when it gets a marker."""
    replicas = [ids for _, ids in describe_places(cluster)]
    for node_id in BROKERS:
        broker = cluster.ask_broker(node_id)
        answers = [ASKED[asked](broker, index) for index in range(4)]
        absent = UNKNOWN if asked == "WriteTxnMarkers" else NOT_LEADER
        refused = [NOT_LEADER if node_id in ids else absent for ids in replicas]
        assert answers == [
            E.NONE if leader == node_id else error for leader, error in zip(LEADERS, refused, strict=True)
        ]
        assert ASKED[asked](broker, 4) is UNKNOWN


def test_every_replica_answers_a_fetch_from_version_11_on(cluster):
    replicas = [ids for _, ids in describe_places(cluster)]
    for node_id in BROKERS:
        broker = cluster.ask_broker(node_id)
        answers = [fetch_at(broker, index, 11) for index in range(4)]
        assert answers == [E.NONE if node_id in ids else NOT_LEADER for ids in replicas]


@pytest.mark.parametrize(
    "asked", [describe_producers_at, lambda broker, index: list_offset_at(broker, index, replica_id=-2)]
)
def test_every_replica_describes_producers_and_gives_offsets_to_a_debugging_consumer(cluster, asked):
    replicas = [ids for _, ids in describe_places(cluster)]
    for node_id in BROKERS:
        broker = cluster.ask_broker(node_id)
        answers = [asked(broker, index) for index in range(4)]
        assert answers == [E.NONE if node_id in ids else NOT_LEADER for ids in replicas]


def test_a_broker_describes_the_directories_of_its_replicas(cluster):
    replicas = [ids for _, ids in describe_places(cluster)]
    for node_id in BROKERS:
        (directory,) = cluster.ask_broker(node_id).call(K.DESCRIBE_LOG_DIRS, 4, topics=None).results
        (topic,) = [row for row in directory.topics if row.name == TOPIC]
        found = [row.partition_index for row in topic.partitions]
        assert found == [index for index, ids in enumerate(replicas) if node_id in ids]


@pytest.mark.parametrize("version", [9, 10])
def test_produce_names_the_leader_from_version_10_on(cluster, version):
    rows = [{"index": index, "records": batch()} for index in range(4)]
    asked = {"transactional_id": None, "acks": -1, "timeout_ms": 1_000}
    topics = [{"name": TOPIC, "partition_data": rows}]
    reply = cluster.ask_broker(3).call(K.PRODUCE, version, **asked, topic_data=topics)
    answers = reply.responses[0].partition_responses
    assert [row.error_code for row in answers] == [NOT_LEADER, NOT_LEADER, E.NONE, NOT_LEADER]
    if version >= 10:
        hints = [row.current_leader for row in answers]
        assert [hint and (hint.leader_id, hint.leader_epoch) for hint in hints] == [(1, 0), (2, 0), None, (1, 0)]
        assert [endpoint.node_id for endpoint in reply.node_endpoints] == [1, 2]


def test_a_large_reply_names_leaders_too(cluster):
    """A Produce has more rows here than the broker answers at once."""
    assert create(cluster, "wide", 300, 1)[0] == E.NONE
    rows = [{"index": index, "records": batch()} for index in range(300)]
    topics = [{"name": "wide", "partition_data": rows}]
    reply = cluster.ask_broker(3).call(K.PRODUCE, 10, transactional_id=None, acks=-1, timeout_ms=1, topic_data=topics)
    hints = [row.current_leader for row in reply.responses[0].partition_responses]
    assert [hint and (hint.leader_id, hint.leader_epoch) for hint in hints] == [(1, 0), (2, 0), None] * 100
    assert [endpoint.node_id for endpoint in reply.node_endpoints] == [1, 2]


def test_the_coordinator_of_a_key_is_one_broker_and_the_others_refuse(cluster):
    groups = {f"g-{number}": find_coordinator(cluster, f"g-{number}", FOR_GROUPS) for number in range(9)}
    ids = {f"t-{number}": find_coordinator(cluster, f"t-{number}", FOR_TRANSACTIONS) for number in range(9)}
    assert {*groups.values()} == {*ids.values()} == {*BROKERS}
    for node_id in BROKERS:
        broker = cluster.ask_broker(node_id)
        for group_id, coordinator in groups.items():
            answer = broker.call(K.HEARTBEAT, 3, group_id=group_id, generation_id=1, member_id="m")
            assert answer.error_code == (E.UNKNOWN_MEMBER_ID if coordinator == node_id else E.NOT_COORDINATOR)
        for transactional_id, coordinator in ids.items():
            asked = {"transactional_id": transactional_id, "transaction_timeout_ms": 1_000}
            answer = broker.call(K.INIT_PRODUCER_ID, 4, **asked)
            assert answer.error_code == (E.NONE if coordinator == node_id else E.NOT_COORDINATOR)


def test_each_broker_hands_out_producer_ids_of_its_own_block(cluster):
    given = []
    for node_id in BROKERS:
        broker = cluster.ask_broker(node_id)
        given += [broker.call(K.INIT_PRODUCER_ID, 4, transactional_id=None).producer_id for _ in range(2)]
    assert len({*given}) == 6 and {each // 1000 for each in given} == {0, 1, 2}


@pytest.mark.parametrize("is_committed", [True, False])
def test_a_transaction_spans_the_partitions_of_all_brokers(cluster, is_committed):
    coordinator = find_coordinator(cluster, "txn", FOR_TRANSACTIONS)
    producer = Producer(cluster.ask_broker(coordinator))
    assert {*producer.add((TOPIC, range(4))).values()} == {E.NONE}
    for index, leader in enumerate(LEADERS):
        cluster.ask_broker(leader)
        assert producer.produce(topic=TOPIC, partition=index) == (E.NONE, 0)
    cluster.ask_broker(coordinator)
    assert producer.end(committed=is_committed) is E.NONE
    cluster.advance(50)
    assert producer.describe().transaction_state == ("CompleteCommit" if is_committed else "CompleteAbort")
    for index in range(4):
        partition = cluster.assembly.broker.cluster.partition(TOPIC, index)
        assert (partition.log_end_offset, partition.last_stable_offset) == (2, 2)


def test_offsets_of_a_transaction_are_completed_at_the_coordinator_of_the_group(cluster):
    group_id = next(each for each in map(str, range(99)) if find_coordinator(cluster, each, FOR_GROUPS) == 3)
    txn = next(each for each in map(str, range(99)) if find_coordinator(cluster, each, FOR_TRANSACTIONS) == 1)
    producer = Producer(cluster.ask_broker(1), txn)
    assert producer.add_offsets(group_id=group_id) is E.NONE
    partitions = [{"partition_index": 0, "committed_offset": 7, "committed_metadata": ""}]
    asked = {"group_id": group_id, "topics": [{"name": TOPIC, "partitions": partitions}]}
    reply = cluster.ask_broker(3).call(K.TXN_OFFSET_COMMIT, 2, **producer.owner | asked)
    assert reply.topics[0].partitions[0].error_code == E.NONE
    cluster.ask_broker(1)
    assert producer.end() is E.NONE
    cluster.advance(50)
    topics = [{"name": TOPIC, "partition_indexes": [0]}]
    reply = cluster.ask_broker(3).call(K.OFFSET_FETCH, 7, group_id=group_id, topics=topics, require_stable=True)
    assert reply.topics[0].partitions[0].committed_offset == 7


def test_settings_of_a_single_broker_are_refused(cluster):
    resource = {"resource_type": 4, "resource_name": "1", "configs": [{"name": "log.retention.ms", "value": "1"}]}
    (row,) = cluster.call(K.ALTER_CONFIGS, 0, resources=[resource], validate_only=False).responses
    assert row.error_code == E.INVALID_REQUEST and "cluster's default" in row.error_message


def test_a_partition_whose_leader_is_in_no_broker_of_the_process_is_refused(cluster):
    """A directory of a larger cluster has such partitions: their replicas are elsewhere."""
    find_coordinator(cluster, "txn", FOR_TRANSACTIONS)
    for name in (TOPIC, "__transaction_state"):
        topic = cluster.assembly.broker.cluster.topics[name]
        topic.registrations[:] = [place._replace(leader=9) for place in topic.registrations]
    for node_id in BROKERS:
        broker = cluster.ask_broker(node_id)
        assert produce_at(broker, 0) is NOT_LEADER
        reply = broker.call(K.FIND_COORDINATOR, 1, key="txn", key_type=FOR_TRANSACTIONS)
        assert (reply.node_id, reply.error_code) == (-1, E.COORDINATOR_NOT_AVAILABLE)
        asked = {"transactional_id": "txn", "transaction_timeout_ms": 1_000}
        assert broker.call(K.INIT_PRODUCER_ID, 4, **asked).error_code == E.NOT_COORDINATOR
        assert {leader for leader, _ in describe_places(broker)} == {-1}


@pytest.mark.parametrize(
    ("config", "error"),
    [
        ("leader.replication.throttled.rate", E.NONE),
        ("follower.replication.throttled.rate", E.NONE),
        ("log.cleaner.threads", E.NONE),
        ("cleanup.policy", E.NONE),  # a config of topics, for brokers the unknown name of a plugin's config
        ("log.retention.ms", E.INVALID_REQUEST),
        ("listener.name.plaintext.ssl.keystore.location", E.INVALID_REQUEST),
    ],
)
@pytest.mark.parametrize("operation", [SET, DELETE])
def test_only_configs_without_effect_change_for_a_single_broker(cluster, config, error, operation):
    change = {"name": config, "config_operation": operation, "value": "2"}
    resource = {"resource_type": 4, "resource_name": "2", "configs": [change]}
    reply = cluster.ask_broker(2).call(K.INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource], validate_only=False)
    assert reply.responses[0].error_code == error
