"""A client without a right can neither change nor learn anything, also by the methods of known attacks."""

import pytest

from ottla.broker.security.acl import AclAuthorizer
from ottla.protocol.acls import CLUSTER_NAME, WILDCARD, PatternType, PermissionType
from ottla.protocol.acls import AclOperation as Op
from ottla.protocol.acls import ResourceType as Type
from ottla.protocol.api_keys import ApiKey as K
from ottla.protocol.errors import ErrorCode as E
from ottla.protocol.internal_topics.security_records import AccessControlEntryRecord
from tests.api.callers import GROUP, LEDGER, ORDERS, TXN, Producer, batch, coordinating
from tests.memory_broker import MemoryBroker

ALICE = "User:alice"
WRITE_TXN = (Op.WRITE, Type.TRANSACTIONAL_ID, TXN)
WRITE_LEDGER, READ_LEDGER = (Op.WRITE, Type.TOPIC, LEDGER), (Op.READ, Type.TOPIC, LEDGER)
READ_GROUP = (Op.READ, Type.GROUP, GROUP)
DENIED, DENIED_ID = E.TOPIC_AUTHORIZATION_FAILED, E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


class Alice:
    """A client with only these rights: (operation, resource type, name). No other client has any right."""

    def __init__(self, broker, *rights):
        self.broker, self._client = broker, broker.client("10.0.0.1", ALICE)
        judge = AclAuthorizer()
        for number, (operation, resource_type, name) in enumerate(rights):
            where = resource_type, name, PatternType.LITERAL, ALICE, WILDCARD
            judge.add(AccessControlEntryRecord(number.to_bytes(16), *where, operation, PermissionType.ALLOW))
        broker.assembly.broker.authorizer = judge

    def call(self, api_key, version, **fields):
        """Send a request and return the reply, or None if the connection is closed instead."""
        self._client.replies.clear()
        self._client.send(api_key, version, **fields)
        self.broker.advance()
        return None if self._client.closed else self._client.replies[0]

    def produce(self, rows, transactional_id=None, acks=-1, version=9):
        """Produce [(topic, partition, records)] and return {(topic, partition): error}."""
        topics = [{"name": name, "partition_data": [{"index": at, "records": data}]} for name, at, data in rows]
        fields = {"transactional_id": transactional_id, "acks": acks, "timeout_ms": 1_000, "topic_data": topics}
        if not acks:
            self._client.send(K.PRODUCE, version, **fields)
            self.broker.advance()
            return self._client.closed
        return {
            (topic.name, row.index): E(row.error_code)
            for topic in self.call(K.PRODUCE, version, **fields).responses
            for row in topic.partition_responses
        }


def ends(broker):
    """Return the log end offset of each topic."""
    cluster = broker.assembly.broker.cluster
    return {name: cluster.partition(name, 0).log.log_end_offset for name in (LEDGER, ORDERS)}


def test_produce_refuses_only_partitions_without_the_right_to_write(broker):
    alice = Alice(broker, WRITE_LEDGER)
    told = alice.produce([(LEDGER, 0, batch()), (ORDERS, 0, batch()), ("absent", 0, batch()), (ORDERS, 7, batch())])
    assert told == {(LEDGER, 0): E.NONE, (ORDERS, 0): DENIED, ("absent", 0): DENIED, (ORDERS, 7): DENIED}
    assert ends(broker) == {LEDGER: 1, ORDERS: 0}


def test_without_acknowledgements_a_refusal_closes_the_connection(broker):
    assert Alice(broker, WRITE_LEDGER).produce([(LEDGER, 0, batch())], acks=0) is False
    assert Alice(broker).produce([(LEDGER, 0, batch())], acks=0) is True


@pytest.mark.parametrize("version", [9, 12])
@pytest.mark.parametrize("transactional_id", [None, TXN, "another"])
def test_a_transactional_batch_requires_the_right_to_its_id(broker, transactional_id, version):
    """CVE-2018-17196: a request that did not name the transaction of its batches bypassed the authorizer."""
    producer = Producer(broker)
    producer.begin(0)
    before = ends(broker)
    owner = {"producer_id": producer.producer_id, "producer_epoch": producer.epoch, "base_sequence": 1}
    of_txn = batch(**owner, transactional=True)
    cut = of_txn[:-1]
    alice = Alice(broker, WRITE_LEDGER, (Op.WRITE, Type.TOPIC, ORDERS))
    for places in ([(LEDGER, 0, of_txn)], [(ORDERS, 0, batch()), (LEDGER, 0, cut)], [("absent", 0, of_txn)]):
        told = alice.produce(places, transactional_id, version=version)
        assert {*told.values()} == {DENIED_ID} and len(told) == len(places)
    assert ends(broker) == before


def test_the_right_to_one_transactional_id_gives_no_access_to_the_producer_of_another(broker):
    """CVE-2018-17196: the request has an allowed transactional id and the producer id of another transaction."""
    victim = Producer(broker)
    victim.begin(0)
    before = ends(broker)
    alice = Alice(broker, WRITE_LEDGER, (Op.WRITE, Type.TRANSACTIONAL_ID, "mine"))
    asked = {"transactional_id": "mine", "transaction_timeout_ms": 1_000, "producer_id": -1, "producer_epoch": -1}
    assert alice.call(K.INIT_PRODUCER_ID, 4, **asked).error_code == E.NONE
    owner = {"producer_id": victim.producer_id, "producer_epoch": victim.epoch}
    stolen = batch(**owner, base_sequence=0, transactional=True)
    for version in (9, 12):
        told = alice.produce([(LEDGER, 1, stolen)], "mine", version=version)
        assert told == {(LEDGER, 1): E.INVALID_PRODUCER_ID_MAPPING}
    assert alice.call(K.END_TXN, 3, transactional_id="mine", committed=True, **owner).error_code == (
        E.INVALID_PRODUCER_ID_MAPPING
    )
    assert ends(broker) == before
    broker.assembly.broker.authorizer = None
    assert victim.end() is E.NONE


def test_init_producer_id_without_the_right_fences_no_producer(broker):
    producer = Producer(broker)
    producer.begin(0)
    alice = Alice(broker, WRITE_LEDGER)
    asked = {"transactional_id": TXN, "transaction_timeout_ms": 1_000, "producer_id": -1, "producer_epoch": -1}
    reply = alice.call(K.INIT_PRODUCER_ID, 4, **asked)
    assert (reply.error_code, reply.producer_id, reply.producer_epoch) == (DENIED_ID, -1, -1)
    broker.assembly.broker.authorizer = None
    assert producer.end() is E.NONE


def add(alice, topics):
    fields = {"v3_and_below_transactional_id": TXN, "v3_and_below_producer_id": 0, "v3_and_below_producer_epoch": 0}
    rows = [{"name": name, "partitions": [0]} for name in topics]
    reply = alice.call(K.ADD_PARTITIONS_TO_TXN, 3, **fields, v3_and_below_topics=rows)
    return {
        topic.name: E(row.partition_error_code)
        for topic in reply.results_by_topic_v3_and_below
        for row in topic.results_by_partition
    }


def test_one_topic_that_may_not_be_written_keeps_all_out_of_a_transaction(broker):
    producer = Producer(broker)
    alice = Alice(broker, WRITE_TXN, WRITE_LEDGER, (Op.WRITE, Type.TOPIC, "__consumer_offsets"))
    assert add(alice, [LEDGER, ORDERS, "absent"]) == {
        LEDGER: E.OPERATION_NOT_ATTEMPTED,
        ORDERS: DENIED,
        "absent": DENIED,
    }
    assert add(alice, ["__consumer_offsets"]) == {"__consumer_offsets": DENIED}
    assert add(Alice(broker, WRITE_LEDGER), [LEDGER, "absent"]) == {LEDGER: DENIED_ID, "absent": DENIED_ID}
    broker.assembly.broker.authorizer = None
    assert producer.describe().topics == []


def commit(alice, version, *topics):
    row = {"partition_index": 0, "committed_offset": 1, "committed_leader_epoch": -1, "committed_metadata": ""}
    owner = {"transactional_id": TXN, "group_id": GROUP, "generation_id": -1, "member_id": ""}
    rows = [{"name": name, "partitions": [row]} for name in topics]
    reply = alice.call(K.TXN_OFFSET_COMMIT, version, **owner, producer_id=0, producer_epoch=0, topics=rows)
    return {topic.name: E(topic.partitions[0].error_code) for topic in reply.topics}


def test_offsets_of_topics_that_may_not_be_read_begin_no_transaction(broker):
    producer = Producer(broker)
    alice = Alice(broker, WRITE_TXN, READ_GROUP, READ_LEDGER)
    assert commit(alice, 5, ORDERS, "absent") == {ORDERS: DENIED, "absent": DENIED}
    broker.assembly.broker.authorizer = None
    assert producer.describe().topics == []
    told = commit(Alice(broker, WRITE_TXN, READ_GROUP), 5, LEDGER), commit(Alice(broker, WRITE_TXN), 5, LEDGER)
    assert told == ({LEDGER: DENIED}, {LEDGER: E.GROUP_AUTHORIZATION_FAILED})


def fetching(*topics, offset=0, **given):
    """Return the fields of a Fetch of version 12."""
    row = {"partition": 0, "current_leader_epoch": -1, "fetch_offset": offset, "log_start_offset": -1}
    rows = [row | {"last_fetched_epoch": -1, "partition_max_bytes": 1_000}]
    limits = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1_000, "isolation_level": 0, "rack_id": ""}
    session = {"session_id": 0, "session_epoch": -1, "forgotten_topics_data": [], "replica_id": -1}
    return limits | session | given | {"topics": [{"topic": name, "partitions": rows} for name in topics]}


def errors(reply):
    return {topic.topic: E(topic.partitions[0].error_code) for topic in reply.responses}


def fetch(alice, replica_id, offset=0):
    asked = fetching(LEDGER, ORDERS, "absent", offset=offset, replica_id=replica_id)
    return errors(alice.call(K.FETCH, 12, **asked))


def test_a_fetch_waits_for_the_topics_that_may_be_read(broker):
    """Otherwise a client that keeps asking for a topic that it may not read would send fetches without a pause."""
    Alice(broker, READ_LEDGER)
    reader = broker.client("10.0.0.1", ALICE)
    reader.send(K.FETCH, 12, **fetching(ORDERS, LEDGER, max_wait_ms=500))
    broker.advance(400)
    assert reader.replies == []
    broker.advance(200)
    assert [errors(reply) for reply in reader.replies] == [{ORDERS: DENIED, LEDGER: E.NONE}]
    reader.replies.clear()
    reader.send(K.FETCH, 12, **fetching(ORDERS, "absent", max_wait_ms=500))
    assert [errors(reply) for reply in reader.replies] == [{ORDERS: DENIED, "absent": DENIED}]


def test_a_replica_fetch_requires_the_right_of_a_broker(broker):
    """CVE-2018-1288: a forged replica fetch acts in the name of a broker and could lose records."""
    partition = broker.assembly.broker.cluster.partition(LEDGER, 0)
    Alice(broker, WRITE_LEDGER).produce([(LEDGER, 0, batch(5))])
    before = partition.high_watermark, partition.log_start_offset
    forger = Alice(broker, READ_LEDGER, (Op.READ, Type.TOPIC, ORDERS))
    assert {*fetch(forger, replica_id=2).values()} == {DENIED}
    assert {*fetch(forger, replica_id=1, offset=2).values()} == {DENIED}
    assert fetch(forger, replica_id=-1) == {LEDGER: E.NONE, ORDERS: E.NONE, "absent": DENIED}
    fetch(Alice(broker, (Op.CLUSTER_ACTION, Type.CLUSTER, CLUSTER_NAME)), replica_id=2, offset=2)
    assert (partition.high_watermark, partition.log_start_offset) == before


def describe_topics(alice, names, version=9):
    rows = [{"name": name} for name in names]
    asked = {"allow_auto_topic_creation": True, "include_topic_authorized_operations": True}
    reply = alice.call(K.METADATA, version, topics=rows, **asked, include_cluster_authorized_operations=False)
    return {topic.name: (E(topic.error_code), topic.authorized_operations or set()) for topic in reply.topics}


def test_metadata_creates_and_describes_only_permitted_topics(broker):
    describe = Op.DESCRIBE, Type.TOPIC
    alice = Alice(broker, WRITE_LEDGER, (*describe, "seen"), (*describe, "made"), (Op.CREATE, Type.TOPIC, "made"))
    assert describe_topics(alice, [LEDGER, ORDERS, "hidden", "seen", "made"]) == {
        LEDGER: (E.NONE, {Op.WRITE, Op.DESCRIBE}),
        ORDERS: (DENIED, set()),
        "hidden": (DENIED, set()),
        "seen": (DENIED, set()),
        "made": (E.NONE, {Op.CREATE, Op.DESCRIBE}),
    }
    assert {"made"} == broker.assembly.broker.cluster.topics.keys() & {"hidden", "seen", "made"}


def test_an_illegal_topic_name_is_reported_only_with_describe_and_create(broker):
    assert describe_topics(Alice(broker), ["a b"]) == {"a b": (DENIED, set())}
    rights = (Op.DESCRIBE, Type.TOPIC, "a b"), (Op.CREATE, Type.TOPIC, "a b")
    assert describe_topics(Alice(broker, *rights[:1]), ["a b"])["a b"][0] is DENIED
    assert describe_topics(Alice(broker, *rights), ["a b"])["a b"][0] is E.INVALID_TOPIC_EXCEPTION


@pytest.mark.parametrize("version", [3, 4])
def test_find_coordinator_without_the_right_creates_no_offsets_topic(version):
    broker = MemoryBroker()
    keys = {"coordinator_keys": [GROUP, "other"]} if version >= 4 else {"key": GROUP}
    reply = Alice(broker).call(K.FIND_COORDINATOR, version, key_type=0, **keys)
    rows = reply.coordinators if version >= 4 else [reply]
    assert {(row.error_code, row.node_id, row.port) for row in rows} == {(E.GROUP_AUTHORIZATION_FAILED, -1, -1)}
    assert "__consumer_offsets" not in broker.assembly.broker.cluster.topics


def test_each_key_of_a_coordinator_is_answered_for_itself(broker):
    alice = Alice(broker, (Op.DESCRIBE, Type.TRANSACTIONAL_ID, TXN))
    reply = alice.call(K.FIND_COORDINATOR, 4, key_type=1, coordinator_keys=[TXN, "other"])
    told = {row.key: (E(row.error_code), row.node_id) for row in reply.coordinators}
    assert told == {TXN: (E.NONE, 1), "other": (DENIED_ID, -1)}


def test_markers_need_the_right_of_a_broker_and_end_nothing_without_it(broker):
    producer = Producer(broker)
    producer.begin(0)
    before = ends(broker)
    marker = {"producer_id": producer.producer_id, "producer_epoch": producer.epoch, "transaction_result": True}
    topics = [{"name": name, "partition_indexes": [0]} for name in (LEDGER, "absent")]
    alice = Alice(broker, WRITE_TXN, WRITE_LEDGER, (Op.DESCRIBE, Type.CLUSTER, CLUSTER_NAME))
    reply = alice.call(K.WRITE_TXN_MARKERS, 1, markers=[marker | {"topics": topics, "coordinator_epoch": 0}])
    (told,) = reply.markers
    assert {row.error_code for topic in told.topics for row in topic.partitions} == {E.CLUSTER_AUTHORIZATION_FAILED}
    assert ends(broker) == before


@pytest.fixture
def broker():
    made = coordinating()
    yield made
    assert made.bugs == []
