"""Leaders and coordinators that move between several brokers in one process, and brokers that stop and start."""

from functools import partial

import pytest

from ottla.broker.assembly import Assembly
from ottla.broker.cluster.leadership import Leadership, LeadershipProblem
from ottla.broker.security.acl import AclAuthorizer
from ottla.protocol.api_keys import ApiKey as K
from ottla.protocol.errors import ErrorCode as E
from tests.api.callers import (
    FOR_GROUPS,
    FOR_TRANSACTIONS,
    GROUP,
    LEDGER,
    OFFSETS,
    STATES,
    TXN,
    Member,
    Producer,
    batch,
    commit,
    commit_in_transaction,
    move,
    produce,
    three_brokers,
)
from tests.api.callers import fetch_offsets as ask_offsets

BROKERS = (1, 2, 3)
NOT_LEADER, FENCED, NOT_COORDINATOR = E.NOT_LEADER_OR_FOLLOWER, E.FENCED_LEADER_EPOCH, E.NOT_COORDINATOR


@pytest.fixture
def cluster():
    return three_brokers()


@pytest.fixture
def leadership(cluster):
    return Leadership(cluster.assembly.broker.cluster)


def describe(broker, topic=LEDGER):
    """Return leader, leader epoch, replicas, in-sync set and offline replicas of a topic's only partition."""
    reply = broker.call(K.METADATA, 9, topics=[{"name": topic}], allow_auto_topic_creation=False)
    (row,) = reply.topics[0].partitions
    return row.leader_id, row.leader_epoch, [*row.replica_nodes], [*row.isr_nodes], [*row.offline_replicas]


def fetch_at(broker, version, epoch, wait_ms=0, at=0):
    partitions = [{"partition": 0, "fetch_offset": at, "partition_max_bytes": 1_000, "current_leader_epoch": epoch}]
    asked = {"max_wait_ms": wait_ms, "min_bytes": 1, "max_bytes": 10_000, "session_epoch": -1, "isolation_level": 0}
    return version, asked | {"topics": [{"topic": LEDGER, "partitions": partitions}]}


def error_of(reply):
    return E(reply.responses[0].partitions[0].error_code)


def fetch(broker, version, epoch):
    version, asked = fetch_at(broker, version, epoch)
    return error_of(broker.call(K.FETCH, version, **asked))


def find(broker, key_type):
    reply = broker.call(K.FIND_COORDINATOR, 1, key="any", key_type=key_type)
    return reply.node_id if not reply.error_code else E(reply.error_code)


def test_a_moved_leader_appends_in_a_new_epoch_and_the_old_one_refuses(cluster):
    assert produce(cluster, batch()) == (E.NONE, 0)
    assert produce(move(cluster, LEDGER, 2), batch()) == (E.NONE, 1)
    assert describe(cluster) == (2, 1, [1, 2], [1, 2], [])
    assert produce(cluster.ask_broker(1), batch())[0] is NOT_LEADER
    headers = [header for header, _ in cluster.assembly.broker.cluster.partition(LEDGER, 0).scan(0)]
    assert [header.partition_leader_epoch for header in headers] == [0, 1]


def test_a_former_leader_answers_a_fetch_as_a_follower(cluster):
    move(cluster, LEDGER, 2)
    for node_id, answers in ((1, (NOT_LEADER, FENCED, FENCED, E.NONE)), (2, (E.NONE, FENCED, FENCED, E.NONE))):
        broker = cluster.ask_broker(node_id)
        asked = ((10, 1), (10, 0), (11, 0), (11, 1))
        assert tuple(fetch(broker, version, epoch) for version, epoch in asked) == answers
    assert fetch(cluster.ask_broker(3), 11, 1) is NOT_LEADER


@pytest.mark.parametrize(("version", "error"), [(8, NOT_LEADER), (10, NOT_LEADER), (11, FENCED)])
def test_a_move_answers_the_fetches_that_wait(cluster, version, error):
    client = cluster.client()
    version, asked = fetch_at(cluster, version, 0, wait_ms=30_000)
    client.send(K.FETCH, version, **asked)
    assert client.replies == []
    move(cluster, LEDGER, 2)
    (reply,) = client.replies
    assert error_of(reply) is error


def test_a_batch_that_waits_for_a_turn_is_refused_after_a_move():
    """The leader may move between the check of a request and its append: the append checks it again."""
    cluster = three_brokers(factor=3)
    big = batch(20_000)
    client = cluster.client()
    rows = [{"index": 0, "records": big}]
    client.post(
        K.PRODUCE,
        9,
        transactional_id=None,
        acks=-1,
        timeout_ms=1,
        topic_data=[{"name": LEDGER, "partition_data": rows}],
    )
    leader = cluster.assembly.broker.brokers[0]
    asked = []
    real = leader.cluster.partition

    def partition(topic, index):
        asked.append(topic)
        return real(topic, index) if len(asked) == 1 else None

    leader.cluster.partition = partition
    cluster.advance(200)
    (reply,) = client.replies
    assert reply.responses[0].partition_responses[0].error_code == NOT_LEADER
    del leader.cluster.partition
    assert cluster.assembly.broker.cluster.partition(LEDGER, 0).log_end_offset == 0


@pytest.mark.parametrize("is_committed", [True, False])
def test_the_next_coordinator_ends_an_open_transaction(cluster, is_committed):
    producer = Producer(cluster)
    producer.begin(0)
    move(cluster, STATES, 3)
    assert find(cluster, FOR_TRANSACTIONS) == 3
    assert producer.end(committed=is_committed) is E.NONE
    cluster.advance(50)
    assert producer.describe().transaction_state == ("CompleteCommit" if is_committed else "CompleteAbort")
    cluster.ask_broker(1)
    assert producer.end() is NOT_COORDINATOR and producer.init(4).error_code == NOT_COORDINATOR


def test_the_next_coordinator_writes_the_markers_of_a_prepared_transaction_in_its_epoch(cluster):
    producer = Producer(cluster)
    producer.begin(0)
    sink = cluster.assembly.broker.brokers[0].transactions.sink
    sink.write_marker = lambda topic, index, marker: E.NOT_ENOUGH_REPLICAS
    assert producer.end() is E.NONE
    waiting = cluster.client()
    waiting.send(K.INIT_PRODUCER_ID, 1, transactional_id=TXN, transaction_timeout_ms=60_000)
    assert waiting.replies == []
    del sink.write_marker
    move(cluster, STATES, 2)
    assert [reply.error_code for reply in waiting.replies] == [NOT_COORDINATOR]
    cluster.advance(50)
    assert producer.describe().transaction_state == "CompleteCommit"
    partition = cluster.assembly.broker.cluster.partition(LEDGER, 0)
    assert (partition.log_end_offset, partition.last_stable_offset) == (2, 2)
    assert partition.producer_of(producer.producer_id).coordinator_epoch == 1
    late = {"producer_id": producer.producer_id, "producer_epoch": producer.epoch, "coordinator_epoch": 0}
    late |= {"transaction_result": True, "topics": [{"name": LEDGER, "partition_indexes": [0]}]}
    reply = cluster.ask_broker(1).call(K.WRITE_TXN_MARKERS, 1, markers=[late])
    assert reply.markers[0].topics[0].partitions[0].error_code == E.TRANSACTION_COORDINATOR_FENCED


def test_a_moved_group_keeps_its_members_generation_and_offsets(cluster):
    member = Member(cluster).settle()
    commit_as(member, 7)
    move(cluster, OFFSETS, 2)
    assert find(cluster, FOR_GROUPS) == 2
    assert member.heartbeat() is NOT_COORDINATOR  # it is connected to the old coordinator
    member.client = cluster.client("10.0.0.1")
    assert member.heartbeat() is E.NONE
    assert ask_offsets(cluster, (LEDGER, 0)) == {(LEDGER, 0): 7}
    cluster.advance(11_000)
    assert member.heartbeat() is E.UNKNOWN_MEMBER_ID  # its session runs at the new coordinator


def commit_as(member, offset):
    topics = [{"name": LEDGER, "partitions": [{"partition_index": 0, "committed_offset": offset}]}]
    who = {
        "generation_id_or_member_epoch" if name == "generation_id" else name: each for name, each in member.who.items()
    }
    reply = member.ask(K.OFFSET_COMMIT, 8, **who, topics=topics)
    assert reply.topics[0].partitions[0].error_code == E.NONE


def test_a_move_answers_the_members_that_wait(cluster):
    leader, follower = Member(cluster), Member(cluster)
    leader.join()
    follower.post_join(3)
    leader.post_join(3)
    leader.finish_join(), follower.finish_join()
    follower.post_sync()
    assert follower.client.replies == []
    move(cluster, OFFSETS, 3)
    assert follower.reply().error_code == NOT_COORDINATOR
    Member(cluster).settle()
    joining = Member(cluster)
    joining.post_join(3)
    assert joining.client.replies == []
    move(cluster, OFFSETS, 1)
    assert joining.reply().error_code == NOT_COORDINATOR


def test_offsets_of_a_transaction_survive_a_move_of_both_coordinators(cluster):
    producer = Producer(cluster)
    assert producer.add_offsets() is E.NONE
    assert commit_in_transaction(producer) is E.NONE
    move(cluster, OFFSETS, 2)
    move(cluster, STATES, 3)
    assert producer.end() is E.NONE
    cluster.advance(50)
    assert ask_offsets(cluster.ask_broker(2), (LEDGER, 0), stable=True) == {(LEDGER, 0): 7}


def test_leaders_fail_over_when_a_broker_stops_and_stay_when_it_starts(cluster, leadership):
    producer = Producer(cluster)
    producer.begin(0)
    cluster.complete(leadership.stop_broker(1))
    cluster.ask_broker(2)
    reply = cluster.call(K.METADATA, 9, topics=[], allow_auto_topic_creation=False)
    assert [row.node_id for row in reply.brokers] == [2, 3]
    assert describe(cluster) == (2, 1, [1, 2], [2], [1])
    assert find(cluster, FOR_GROUPS) == find(cluster, FOR_TRANSACTIONS) == 2
    assert producer.produce(1)[0] is E.NONE and producer.end() is E.NONE
    cluster.complete(leadership.start_broker(1))
    assert describe(cluster) == (2, 1, [1, 2], [1, 2], [])


def test_a_partition_without_another_replica_has_no_leader_until_its_broker_starts():
    cluster = three_brokers(factor=1, offsets_topic_replication_factor=1)
    leadership = Leadership(cluster.assembly.broker.cluster)
    commit(cluster, (LEDGER, 0, 7))
    cluster.complete(leadership.stop_broker(1))
    cluster.ask_broker(2)
    assert describe(cluster) == (-1, 1, [1], [1], [1])
    assert produce(cluster, batch())[0] is NOT_LEADER and find(cluster, FOR_GROUPS) is E.COORDINATOR_NOT_AVAILABLE
    cluster.complete(leadership.start_broker(1))
    cluster.ask_broker(1)
    assert describe(cluster) == (1, 2, [1], [1], []) and produce(cluster, batch()) == (E.NONE, 0)
    assert ask_offsets(cluster, (LEDGER, 0)) == {(LEDGER, 0): 7}


def test_a_replica_that_is_not_in_sync_does_not_lead(cluster, leadership):
    """The replicas are the brokers 1 and 2. What 1 appends alone, a real broker 2 would not have."""
    cluster.complete(leadership.stop_broker(2))
    cluster.complete(leadership.stop_broker(1))
    cluster.complete(leadership.start_broker(2))
    assert describe(cluster.ask_broker(3))[0] == -1 and describe(cluster)[3] == [1]
    cluster.complete(leadership.start_broker(1))
    assert describe(cluster) == (1, 2, [1, 2], [1, 2], [])


def test_a_leader_that_stops_while_another_broker_starts_leads_again_later(cluster, leadership):
    """Each change waits for the one before, and decides with the brokers that are stopped by then."""
    cluster.complete(leadership.stop_broker(2))
    failures = []
    for change in (leadership.stop_broker(3), leadership.start_broker(3), leadership.stop_broker(1)):
        cluster.turns.event(partial(cluster.turns.start, change, lambda none: None, failures.append))
    cluster.advance(100)
    assert failures == [] and describe(cluster.ask_broker(3))[0] == -1
    cluster.complete(leadership.start_broker(1))
    assert describe(cluster) == (1, 2, [1, 2], [1], [2])


def test_topics_that_are_created_meanwhile_have_leaders_that_run(cluster, leadership):
    cluster.complete(leadership.stop_broker(1))
    cluster.ask_broker(2)
    cluster.create_topic("late")
    assert describe(cluster, "late") == (2, 0, [2], [2], [])
    row = {"name": "wide", "num_partitions": 1, "replication_factor": 3, "assignments": [], "configs": []}
    cluster.call(K.CREATE_TOPICS, 5, topics=[row], timeout_ms=1_000, validate_only=False)
    assert describe(cluster, "wide") == (2, 0, [2, 3, 1], [2, 3], [1])
    row = row | {"name": "fenced", "num_partitions": -1, "replication_factor": -1}
    row["assignments"] = [{"partition_index": 0, "broker_ids": [1]}]
    (answer,) = cluster.call(K.CREATE_TOPICS, 5, topics=[row], timeout_ms=1_000, validate_only=False).topics
    assert answer.error_code == E.INVALID_REPLICA_ASSIGNMENT and "are fenced" in answer.error_message


def test_a_restart_continues_with_the_leaders_of_the_metadata_log(cluster):
    move(cluster, LEDGER, 2)
    found = {}
    for count in (3, 1):
        cluster.assembly.close()
        config = cluster.assembly.config
        cluster.assembly = Assembly(config, cluster.clock, cluster.disk, cluster.turns, broker_count=count)
        found[count] = describe(cluster.ask_broker(1))
    assert found == {3: (2, 1, [1, 2], [1, 2], []), 1: (1, 2, [1], [1], [])}


@pytest.mark.parametrize(
    ("work", "why"),
    [
        (lambda each: each.move_leader(LEDGER, 0, 9), "there is no broker 9: the brokers are 1, 2, 3"),
        (lambda each: each.move_leader(LEDGER, 0, 3), "broker 3 has no replica of ledger-0: it can move to 2"),
        (lambda each: each.move_leader(LEDGER, 0, 1), "broker 1 leads ledger-0 already: it can move to 2"),
        (lambda each: each.move_leader(LEDGER, 1, 2), "there is no partition ledger-1"),
        (lambda each: each.start_broker(1), "broker 1 runs already"),
        (lambda each: each.stop_broker(0), "there is no broker 0: the brokers are 1, 2, 3"),
    ],
)
def test_impossible_changes_are_refused(cluster, leadership, work, why):
    cluster.mark()
    with pytest.raises(LeadershipProblem) as problem:
        cluster.complete(work(leadership))
    assert str(problem.value) == why and not cluster.has_changed()


def test_a_stopped_broker_cannot_be_moved_to_or_stopped_and_the_last_one_runs(cluster, leadership):
    cluster.complete(leadership.stop_broker(2))
    for work, why in (
        (leadership.move_leader(LEDGER, 0, 2), "broker 2 is stopped: no other replica of it is in sync"),
        (leadership.stop_broker(2), "broker 2 is stopped already"),
    ):
        with pytest.raises(LeadershipProblem, match=why):
            cluster.complete(work)
    cluster.complete(leadership.stop_broker(3))
    with pytest.raises(LeadershipProblem, match="broker 1 is the last one that runs: start another one before"):
        cluster.complete(leadership.stop_broker(1))


@pytest.mark.parametrize("is_paused", [True, False])
def test_markers_wait_while_the_leader_does_not_answer(cluster, is_paused):
    move(cluster, LEDGER, 2)
    producer = Producer(cluster.ask_broker(1))
    producer.add((LEDGER, [0]))
    links = cluster.assembly.broker.links
    links.pause(2) if is_paused else links.disconnect(2, 1)
    assert producer.end() is E.NONE
    cluster.advance(3_000)
    assert producer.describe().transaction_state == "PrepareCommit"
    links.resume(2) if is_paused else links.reconnect()
    cluster.advance(1_100)
    assert producer.describe().transaction_state == "CompleteCommit"


def test_markers_for_another_broker_are_a_request_that_needs_no_right_of_clients(cluster):
    """The leader lets no client write markers."""
    move(cluster, LEDGER, 2)
    producer = Producer(cluster.ask_broker(1))
    producer.add((LEDGER, [0]))
    leader = cluster.assembly.broker.brokers[1]
    leader.authorizer = AclAuthorizer()
    requests = []
    leader.observer.on_request = lambda frame, peer, send, refuse: requests.append(bytes(frame)) or (send, refuse)
    assert producer.end() is E.NONE
    cluster.advance(50)
    assert producer.describe().transaction_state == "CompleteCommit"
    (frame,) = [frame for frame in requests if frame[:4] == bytes([0, K.WRITE_TXN_MARKERS, 0, 2])]
    assert b"broker-1-txn-marker-sender" in frame
    clients, peers = cluster.assembly.connections, cluster.assembly.peer_connections
    assert clients and not clients.keys() & peers.keys()
    topics = [{"name": LEDGER, "partition_indexes": [0]}]
    row = {"producer_id": 7, "producer_epoch": 0, "transaction_result": True, "coordinator_epoch": 0, "topics": topics}
    reply = cluster.ask_broker(2).call(K.WRITE_TXN_MARKERS, 1, markers=[row])
    assert reply.markers[0].topics[0].partitions[0].error_code == E.CLUSTER_AUTHORIZATION_FAILED


def test_connections_between_brokers_end_with_a_broker_that_stops(cluster):
    move(cluster, LEDGER, 2)
    producer = Producer(cluster.ask_broker(1))
    producer.add((LEDGER, [0]))
    assert producer.end() is E.NONE
    assert [each.session.node_id for each in cluster.assembly.peer_connections] == [2]
    cluster.complete(cluster.assembly.stop_broker(2))
    cluster.advance(10)
    assert not cluster.assembly.peer_connections and cluster.assembly.accept_peer(2) is None


def test_frozen_metadata_stay_as_they_were(cluster):
    cluster.assembly.freeze_metadata(3)
    move(cluster, LEDGER, 2)
    move(cluster, OFFSETS, 2)
    cluster.complete(cluster.assembly.stop_broker(1))
    assert describe(cluster.ask_broker(3)) == (1, 0, [1, 2], [1, 2], []) and find(cluster, FOR_GROUPS) == 1
    reply = cluster.call(K.METADATA, 9, topics=[], allow_auto_topic_creation=False)
    assert [row.node_id for row in reply.brokers] == [1, 2, 3]
    assert describe(cluster.ask_broker(2)) == (2, 1, [1, 2], [2], [1])
    cluster.assembly.unfreeze_metadata(3)
    assert describe(cluster.ask_broker(3)) == (2, 1, [1, 2], [2], [1]) and find(cluster, FOR_GROUPS) == 2


def test_connections_of_a_broker_end_when_it_stops(cluster):
    clients = [cluster.ask_broker(node_id).client(f"client-{node_id}") for node_id in BROKERS]
    cluster.complete(cluster.assembly.stop_broker(2))
    cluster.advance(10)
    assert [client.closed for client in clients] == [False, True, False]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda each: each.broker.links.disconnect(1, 9), "there is no broker 9: the brokers are 1, 2, 3"),
        (lambda each: each.broker.links.disconnect(2, 2), "broker 2 has no link to itself: name two brokers"),
        (lambda each: each.broker.links.resume(2), "broker 2 is not paused"),
        (lambda each: each.unfreeze_metadata(2), "the metadata of broker 2 are not frozen"),
        (lambda each: each.freeze_metadata(0), "there is no broker 0: the brokers are 1, 2, 3"),
    ],
)
def test_impossible_cuts_pauses_and_freezes_are_refused(cluster, change, why):
    with pytest.raises(LeadershipProblem) as problem:
        change(cluster.assembly)
    assert str(problem.value) == why


def test_a_second_cut_pause_or_freeze_is_refused(cluster):
    assembly, links = cluster.assembly, cluster.assembly.broker.links
    for change, why in (
        (lambda: links.disconnect(1, 2), "the link between the brokers 1 and 2 is cut already"),
        (lambda: links.pause(2), "broker 2 is paused already"),
        (lambda: assembly.freeze_metadata(2), "the metadata of broker 2 are frozen already"),
    ):
        change()
        with pytest.raises(LeadershipProblem, match=why):
            change()


def produce_with(broker, acks, topic=LEDGER):
    topics = [{"name": topic, "partition_data": [{"index": 0, "records": batch()}]}]
    reply = broker.call(K.PRODUCE, 9, transactional_id=None, acks=acks, timeout_ms=1_000, topic_data=topics)
    return E(reply.responses[0].partition_responses[0].error_code)


def test_acks_of_all_need_as_many_replicas_in_sync_as_min_insync_replicas():
    """More than the topic has count as that number: `short` has one replica."""
    cluster = three_brokers(factor=3, min_insync_replicas=2)
    cluster.create_topic("short")
    leadership = Leadership(cluster.assembly.broker.cluster)
    for node_id in (2, 3):
        assert produce_with(cluster, -1) is E.NONE
        cluster.complete(leadership.stop_broker(node_id))
    assert (produce_with(cluster, -1), produce_with(cluster, 1)) == (E.NOT_ENOUGH_REPLICAS, E.NONE)
    assert produce_with(cluster, -1, "short") is E.NONE
    configs = [{"name": "min.insync.replicas", "value": "1"}]
    resource = {"resource_type": 2, "resource_name": LEDGER, "configs": configs}
    cluster.call(K.ALTER_CONFIGS, 0, resources=[resource], validate_only=False)
    assert produce_with(cluster, -1) is E.NONE
    resource["configs"] = []
    cluster.call(K.ALTER_CONFIGS, 0, resources=[resource], validate_only=False)
    assert produce_with(cluster, -1) is E.NOT_ENOUGH_REPLICAS
    cluster.complete(leadership.start_broker(2))
    assert produce_with(cluster, -1) is E.NONE


def test_coordinators_with_too_few_replicas_in_sync_are_not_available():
    """Markers wait until enough replicas are in sync."""
    cluster = three_brokers(factor=3, min_insync_replicas=2)
    leadership = Leadership(cluster.assembly.broker.cluster)
    producer, other = Producer(cluster), Producer(cluster, "other")
    producer.begin(0)
    configs = [{"name": "min.insync.replicas", "value": "1"}]
    resource = {"resource_type": 2, "resource_name": STATES, "configs": configs}
    for node_id in (2, 3):
        cluster.complete(leadership.stop_broker(node_id))
    assert other.init(4).error_code == producer.end() == E.COORDINATOR_NOT_AVAILABLE
    topics = [{"name": LEDGER, "partitions": [{"partition_index": 0, "committed_offset": 7}]}]
    who = {"group_id": GROUP, "generation_id_or_member_epoch": -1, "member_id": ""}
    reply = cluster.call(K.OFFSET_COMMIT, 8, **who, topics=topics)
    assert reply.topics[0].partitions[0].error_code == E.COORDINATOR_NOT_AVAILABLE
    cluster.call(K.ALTER_CONFIGS, 0, resources=[resource], validate_only=False)
    assert producer.end() is E.NONE
    cluster.advance(3_000)
    assert producer.describe().transaction_state == "PrepareCommit"
    cluster.complete(leadership.start_broker(3))
    cluster.advance(1_100)
    assert producer.describe().transaction_state == "CompleteCommit"


def test_a_stop_that_changes_many_partitions_of_others_logs_only_changes():
    """Changes are decided some partitions at a time: a part without a change is no batch."""
    cluster = three_brokers()
    assigned = [{"partition_index": index, "broker_ids": [1]} for index in range(100)]
    row = {"name": "wide", "num_partitions": -1, "replication_factor": -1, "assignments": assigned, "configs": []}
    cluster.call(K.CREATE_TOPICS, 5, topics=[row], timeout_ms=1_000, validate_only=False)
    cluster.complete(cluster.assembly.leadership.stop_broker(3))
    assert cluster.bugs == [] and describe(cluster.ask_broker(1))[0] == 1
    log = cluster.assembly.broker.cluster.metadata_log.partition
    assert all(header.record_count for header, _ in log.scan(0))
