"""Rows that need several brokers: the coordinator, or the leader, is another one, or none."""

from ottla.broker.api.request import Close
from ottla.broker.api.table import TABLE
from ottla.broker.dispatch import Dispatcher
from ottla.protocol.api_keys import ApiKey as K
from ottla.protocol.errors import ErrorCode as E
from tests.api.callers import LEDGER, OFFSETS, STATES, TXN, Producer, commit_in_transaction, move, three_brokers
from tests.tables.rows import row


@row("END1-22")
def test_a_coordinator_that_changes_before_prepare_is_durable_does_not_decide(row):
    cluster = three_brokers(log_flush_interval_messages=1)
    producer = Producer(cluster)
    producer.begin(0)
    old, _, new = (each.transactions.states for each in cluster.assembly.broker.brokers)
    client, shard = cluster.client(), old.shards[0]
    client.post(K.END_TXN, 3, **producer.owner, committed=True)
    while not shard.transient:
        cluster.advance(0.05)
    topic = cluster.assembly.broker.cluster.topics[STATES]
    topic.registrations[0], topic.leader_epochs[0] = topic.registrations[0]._replace(leader=3), 1
    cluster.turns.event(lambda: cluster.assembly.broker.cluster.follow_change(topic, 0))
    assert old.shards == new.shards == {} and new.loading == {0}
    cluster.advance(50)
    assert [reply.error_code for reply in client.replies] == [E.NOT_COORDINATOR]
    assert [each.states[TXN].status.wire_name for each in (shard, new.shards[0])] == ["Ongoing", "CompleteCommit"]


@row("FAN-5 it stops", "FAN-5 another one leads")
def test_markers_go_to_the_leader_of_the_moment(row):
    cluster = three_brokers()
    move(cluster, LEDGER, 2)
    producer = Producer(cluster.ask_broker(1))
    assert producer.add((LEDGER, [0])) == {(LEDGER, 0): E.NONE}
    cluster.assembly.broker.links.disconnect(1, 2)
    assert producer.end() is E.NONE
    cluster.advance(3_000)
    assert producer.describe().transaction_state == "PrepareCommit"
    if row.endswith("stops"):
        cluster.complete(cluster.assembly.stop_broker(2))
    else:
        move(cluster, LEDGER, 1)
    cluster.ask_broker(1).advance(1_100)
    assert producer.describe().transaction_state == "CompleteCommit"


@row("FAN-6 before it has the markers", "FAN-6 before its answer arrives")
def test_markers_are_sent_again_when_the_connection_to_their_leader_breaks(row):
    cluster = three_brokers()
    move(cluster, LEDGER, 2)
    producer = Producer(cluster.ask_broker(1))
    producer.add((LEDGER, [0]))
    cluster.ask_broker(2)
    assert producer.produce()[0] is E.NONE
    api, breaks = TABLE[K.WRITE_TXN_MARKERS], [True]

    async def write_and_break(broker, request):
        is_written = row.endswith("arrives") or not breaks
        reply = await api.handle(broker, request) if is_written else None
        return Close("it breaks") if breaks and breaks.pop() else reply

    table = {**TABLE, api.key: api.with_handler(write_and_break)}
    cluster.assembly.dispatchers[1] = Dispatcher(cluster.assembly.broker.brokers[1], table)
    cluster.ask_broker(1)
    assert producer.end() is E.NONE and breaks == []
    assert producer.describe().transaction_state == "PrepareCommit"
    cluster.advance(50)
    assert producer.describe().transaction_state == "CompleteCommit"
    partition = cluster.assembly.broker.cluster.partition(LEDGER, 0)
    assert [header.is_control for header, _ in partition.scan(0)] == [
        False,
        True,
        *([True] if row.endswith("arrives") else []),
    ]


@row("PROD-3")
def test_a_broker_without_a_replica_describes_no_producers(row):
    topics = [{"name": LEDGER, "partition_indexes": [0]}]
    reply = three_brokers().ask_broker(3).call(K.DESCRIBE_PRODUCERS, 0, topics=topics)
    assert reply.topics[0].partitions[0].error_code == E.NOT_LEADER_OR_FOLLOWER


@row("JOIN-12 Produce 9", "JOIN-12 Produce 12")
def test_a_broker_that_does_not_lead_the_partition_verifies_nothing(row):
    cluster = three_brokers()
    producer = Producer(cluster)
    cluster.ask_broker(2)
    assert producer.produce(version=int(row.split()[-1]))[0] is E.NOT_LEADER_OR_FOLLOWER
    assert cluster.ask_broker(1).assembly.broker.count_open() == 0


@row("TELL-17", "TELL-18", "TELL-19", "TELL-20", "OFFSET-25")
def test_a_coordinator_without_a_leader_or_an_answer_is_asked_again_later(row):
    """The coordinator of the id is broker 1. Broker 2 leads the partition, and coordinates the group."""
    cluster = three_brokers(transaction_state_log_replication_factor=1)
    move(cluster, LEDGER, 2)
    move(cluster, OFFSETS, 2)
    producer = Producer(cluster.ask_broker(1))
    producer.add((LEDGER, [0]))
    is_unknown = row in ("TELL-17", "TELL-18")
    if is_unknown:
        cluster.complete(cluster.assembly.stop_broker(1))
    else:
        cluster.assembly.broker.links.disconnect(2, 1)
    cluster.ask_broker(2)
    if row in ("TELL-17", "TELL-19"):
        assert {producer.produce(version=version)[0] for version in (9, 11, 12)} == {E.NOT_ENOUGH_REPLICAS}
    else:
        error = E.COORDINATOR_NOT_AVAILABLE if is_unknown else E.COORDINATOR_LOAD_IN_PROGRESS
        assert [commit_in_transaction(producer, version) for version in (2, 4, 5)] == [error] * 3
