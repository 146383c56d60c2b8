"""Clients of a broker in memory: members of groups and transactional producers."""

from ottla.protocol.api_keys import ApiKey as K
from ottla.protocol.batch import build_batch
from ottla.protocol.errors import ErrorCode as E
from ottla.testkit.in_memory.schedule import START_MS
from tests.memory_broker import MemoryBroker

LEDGER, ORDERS, GROUP, TXN = "ledger", "orders", "g", "txn"
LEDGER_PARTITIONS = 4
OF_NOBODY = {"group_id": GROUP, "generation_id_or_member_epoch": -1, "member_id": ""}
FOR_GROUPS, FOR_TRANSACTIONS = 0, 1
OFFSETS, STATES = "__consumer_offsets", "__transaction_state"
FEW = {
    "offsets_topic_num_partitions": 1,
    "transaction_state_log_num_partitions": 1,
    "group_initial_rebalance_delay_ms": 0,
}


def coordinating(**options):
    """A broker with two topics, whose coordinators are ready."""
    broker = MemoryBroker(**FEW | options)
    broker.create_topic(LEDGER, LEDGER_PARTITIONS)
    broker.create_topic(ORDERS)
    for key_type in (FOR_GROUPS, FOR_TRANSACTIONS):
        broker.call_when_ready(K.FIND_COORDINATOR, 1, key="anybody", key_type=key_type)
    broker.call_when_ready(K.INIT_PRODUCER_ID, 1, transactional_id="anybody", transaction_timeout_ms=1_000)
    return broker


def three_brokers(factor=2, **options):
    """Return three brokers of one process whose coordinators are broker 1, and a ledger of one partition that broker 1
    leads, with replicas at the next ones."""
    few = FEW | {"group_initial_rebalance_delay_ms": 0}
    broker = MemoryBroker(brokers=3, **few | options)
    row = {"name": LEDGER, "num_partitions": 1, "replication_factor": factor, "assignments": [], "configs": []}
    broker.call(K.CREATE_TOPICS, 5, topics=[row], timeout_ms=1_000, validate_only=False)
    for key_type in (FOR_GROUPS, FOR_TRANSACTIONS):
        broker.call_when_ready(K.FIND_COORDINATOR, 1, key="any", key_type=key_type)
    return broker


def move(cluster, topic, to):
    """Move the leader of a topic's partition 0, and send the next requests to the new one."""
    cluster.complete(cluster.assembly.leadership.move_leader(topic, 0, to))
    return cluster.ask_broker(to)


def commit_in_transaction(producer, version=2):
    """Commit offset 7 of the ledger's partition 0 in the producer's transaction and return the error."""
    partitions = [{"partition_index": 0, "committed_offset": 7, "committed_metadata": ""}]
    asked = {"group_id": GROUP, "topics": [{"name": LEDGER, "partitions": partitions}]}
    reply = producer.broker.call(K.TXN_OFFSET_COMMIT, version, **producer.owner | asked)
    return E(reply.topics[0].partitions[0].error_code)


def batch(count=1, **fields):
    """Bytes of so many records."""
    return bytes(build_batch([(b"k", b"v")] * count, **{"timestamp_ms": START_MS} | fields))


def produce(broker, records, topic=LEDGER, partition=0, version=9, transactional_id=None):
    """Produce a batch to one partition and return (error, first offset)."""
    rows = [{"index": partition, "records": records}]
    asked = {"transactional_id": transactional_id, "acks": -1, "timeout_ms": 1_000}
    reply = broker.call(K.PRODUCE, version, **asked, topic_data=[{"name": topic, "partition_data": rows}])
    (row,) = reply.responses[0].partition_responses
    return E(row.error_code), row.base_offset


def commit(broker, *rows, group_id=GROUP, metadata=""):
    """Commit offsets of a group without members; rows are (topic, partition, offset)."""
    topics = [
        {
            "name": topic,
            "partitions": [{"partition_index": index, "committed_offset": at} | {"committed_metadata": metadata}],
        }
        for topic, index, at in rows
    ]
    reply = broker.call(K.OFFSET_COMMIT, 8, **OF_NOBODY | {"group_id": group_id}, topics=topics)
    assert {row.error_code for topic in reply.topics for row in topic.partitions} == {E.NONE}


def fetch_offsets(broker, *places, group_id=GROUP, version=7, stable=False):
    """Return {(topic, partition): offset, or the error in its place}; of all partitions if none is named."""
    topics = [{"name": topic, "partition_indexes": [index]} for topic, index in places] or None
    reply = broker.call(K.OFFSET_FETCH, version, group_id=group_id, topics=topics, require_stable=stable)
    return {
        (topic.name, row.partition_index): E(row.error_code) if row.error_code else row.committed_offset
        for topic in reply.topics
        for row in topic.partitions
    }


class Producer:
    """A transactional producer. The versions that it uses determine its generation."""

    def __init__(self, broker, transactional_id=TXN, timeout_ms=60_000):
        self.broker, self.transactional_id = broker, transactional_id
        reply = self.init(4, timeout_ms=timeout_ms)
        assert reply.error_code == E.NONE
        self.producer_id, self.epoch = reply.producer_id, reply.producer_epoch

    @property
    def owner(self):
        return {
            "transactional_id": self.transactional_id,
            "producer_id": self.producer_id,
            "producer_epoch": self.epoch,
        }

    def init(self, version, timeout_ms=60_000, **expected):
        asked = {"transactional_id": self.transactional_id, "transaction_timeout_ms": timeout_ms}
        return self.broker.call(K.INIT_PRODUCER_ID, version, **asked, **expected)

    def add(self, *places, version=3, **other):
        """Send AddPartitionsToTxn and return {(topic, partition): error}."""
        owner = {f"v3_and_below_{name}": value for name, value in (self.owner | other).items()}
        topics = [{"name": topic, "partitions": [*indexes]} for topic, indexes in places]
        reply = self.broker.call(K.ADD_PARTITIONS_TO_TXN, version, **owner, v3_and_below_topics=topics)
        return {
            (topic.name, row.partition_index): E(row.partition_error_code)
            for topic in reply.results_by_topic_v3_and_below
            for row in topic.results_by_partition
        }

    def add_offsets(self, version=3, group_id=GROUP, **other):
        reply = self.broker.call(K.ADD_OFFSETS_TO_TXN, version, **self.owner | other, group_id=group_id)
        return E(reply.error_code)

    def produce(self, sequence=0, version=11, topic=LEDGER, partition=0, count=1):
        """(error, first offset)."""
        owner = {"producer_id": self.producer_id, "producer_epoch": self.epoch, "base_sequence": sequence}
        records = batch(count, **owner, transactional=True)
        return produce(self.broker, records, topic, partition, version, self.transactional_id)

    def begin(self, *indexes):
        """Begin a transaction with a record in each of these partitions of the ledger."""
        assert {*self.add((LEDGER, indexes)).values()} == {E.NONE}
        for index in indexes:
            assert self.produce(partition=index)[0] is E.NONE

    def end(self, version=4, committed=True, **other):
        """End the transaction and return (error, producer id, epoch); the latter two from version 5 on."""
        reply = self.broker.call(K.END_TXN, version, **self.owner | other, committed=committed)
        error = E(reply.error_code)
        return (error, reply.producer_id, reply.producer_epoch) if version >= 5 else error

    def describe(self):
        """Return the producer's row in DescribeTransactions."""
        (row,) = self.broker.call(
            K.DESCRIBE_TRANSACTIONS, 0, transactional_ids=[self.transactional_id]
        ).transaction_states
        return row


class Member:
    """A member of a group, on a connection of its own, that stores its last responses."""

    def __init__(self, broker, group_id=GROUP, instance_id=None, address="10.0.0.1"):
        self.broker, self.client = broker, broker.client(address)
        self.group_id, self.instance_id = group_id, instance_id
        self.member_id, self.generation = "", -1

    @property
    def who(self):
        named = {"group_instance_id": self.instance_id}
        return {"group_id": self.group_id, "generation_id": self.generation, "member_id": self.member_id} | named

    def post(self, key, version, **fields):
        self.client.replies.clear()
        self.client.send(key, version, **fields)

    def reply(self):
        """Return the only answer."""
        (reply,) = self.client.replies
        return reply

    def ask(self, key, version, **fields):
        self.post(key, version, **fields)
        self.broker.advance()
        return self.reply()

    def post_join(self, version=5, protocols=(("range", b"sub"),), **given):
        fields = {"protocol_type": "consumer", "session_timeout_ms": 10_000, "rebalance_timeout_ms": 60_000}
        fields |= {"protocols": [{"name": name, "metadata": said} for name, said in protocols]}
        who = {name: value for name, value in self.who.items() if name != "generation_id"}
        self.post(K.JOIN_GROUP, version, **who | fields | given)

    def finish_join(self):
        """Return the response to JoinGroup. Later requests use its member id and generation."""
        self.broker.advance()
        reply = self.reply()
        self.member_id = reply.member_id or self.member_id
        if not reply.error_code:
            self.generation = reply.generation_id
        return reply

    def join(self, version=3, **given):
        """Join and return the response, in a group where the broker waits for no other member."""
        self.post_join(version, **given)
        return self.finish_join()

    def post_sync(self, *assigned, version=3, **given):
        rows = [{"member_id": member.member_id, "assignment": share} for member, share in assigned]
        self.post(K.SYNC_GROUP, version, **self.who | given, assignments=rows)

    def sync(self, *assigned, version=3, **given):
        self.post_sync(*assigned, version=version, **given)
        self.broker.advance()
        return self.reply()

    def settle(self, **given):
        """Become the only member of a stable group."""
        assert self.join(**given).error_code == E.NONE
        assert self.sync((self, b"share")).error_code == E.NONE
        return self

    def heartbeat(self, version=3, **given):
        return E(self.ask(K.HEARTBEAT, version, **self.who | given).error_code)

    def leave(self, version=1):
        return self.ask(K.LEAVE_GROUP, version, group_id=self.group_id, member_id=self.member_id)


def stable_pair(broker):
    """Return two members of one stable group; the first is the leader."""
    first, second = Member(broker), Member(broker)
    first.join()
    second.post_join(3)
    first.post_join(3)
    first.finish_join(), second.finish_join()
    second.post_sync()
    first.sync((first, b"one"), (second, b"two"))
    assert second.reply().assignment == b"two"
    return first, second
