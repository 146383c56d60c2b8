"""Routes that change several brokers of a process, and the clients that meet the changes."""

import pytest

from ottla.admin.fields import check_body
from ottla.admin.routes import AdminError, Router
from ottla.protocol.api_keys import ApiKey as K
from ottla.protocol.errors import ErrorCode as E
from ottla.testkit.control.cluster import ClusterControl
from ottla.testkit.control.cluster_routes import cluster_routes
from ottla.testkit.control.dispatch import Steering
from ottla.testkit.control.journal import Journal
from ottla.testkit.control.markers import SteeredMarkers
from ottla.testkit.faults.fault import Fault, parse_fault
from ottla.testkit.faults.plan import Plan
from ottla.testkit.history.events import events
from ottla.testkit.history.journal_entries import entry_from_json, entry_to_json
from tests.api.callers import FEW, FOR_GROUPS, FOR_TRANSACTIONS, GROUP, LEDGER, TXN, Member, Producer, batch, produce
from tests.memory_broker import MemoryBroker

RUNNING = {"state": "running", "metadata": "current", "disconnected_from": []}


class Steered(MemoryBroker):
    """Brokers in memory with test control, coordinated by broker 1; partitions 0, 1, 2 are led by 1, 2, 3."""

    def __init__(self, brokers=3, is_new=False):
        super().__init__(brokers=brokers, **FEW)
        self.plan, self.journal = Plan(), Journal(self.clock)
        self.control = ClusterControl(self.assembly, self.plan)
        for broker in self.assembly.broker.brokers:
            SteeredMarkers(broker, self.plan)
        for dispatcher, each in zip(self.assembly.dispatchers, self.assembly.broker.brokers, strict=True):
            Steering(dispatcher, each, self.control, self.plan, self.journal, self.clock)
        self.router = Router(cluster_routes(self.control, self.plan))
        if is_new:
            return
        row = {"name": LEDGER, "num_partitions": 3, "replication_factor": brokers, "assignments": [], "configs": []}
        self.call(K.CREATE_TOPICS, 5, topics=[row], timeout_ms=1_000, validate_only=False)
        for key_type in (FOR_GROUPS, FOR_TRANSACTIONS):
            self.call_when_ready(K.FIND_COORDINATOR, 1, key="any", key_type=key_type)

    def post(self, path, body=None):
        """Send a request to the admin port and return its answer."""
        return self.request("POST", f"/v1/brokers/{path}", body)

    def request(self, method, path, body=None):
        found = self.router.match(method, path)
        if found.route.request_schema is not None:
            body = check_body(body, found.route.request_schema)
        request = type("Asked", (), {"parameters": found.parameters, "body": body})
        return self.complete(found.route.handler(request)).body

    def brokers(self):
        return {row.pop("broker"): row for row in self.request("GET", "/v1/brokers")}

    def hits(self, change):
        return self.plan.get(change["id"]).hits


@pytest.fixture
def cluster():
    return Steered()


def produce_at(cluster, node_id, partition=0):
    return produce(cluster.ask_broker(node_id), batch(), partition=partition)[0]


def fetch_at(cluster, node_id):
    rows = [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1_000, "current_leader_epoch": 0}]
    asked = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 10_000, "session_epoch": -1, "isolation_level": 0}
    reply = cluster.ask_broker(node_id).call(K.FETCH, 11, **asked, topics=[{"topic": LEDGER, "partitions": rows}])
    return E(reply.responses[0].partitions[0].error_code)


def find(cluster, node_id, key=TXN, key_type=FOR_TRANSACTIONS):
    return cluster.ask_broker(node_id).call(K.FIND_COORDINATOR, 1, key=key, key_type=key_type)


def test_brokers_are_listed_with_the_partitions_that_they_lead(cluster):
    assert cluster.brokers() == {1: RUNNING | {"leads": 3}, 2: RUNNING | {"leads": 1}, 3: RUNNING | {"leads": 1}}


def test_refusals_of_the_moved_partition_count_for_its_move(cluster):
    moved = cluster.post("2/lead", {"topic": LEDGER, "partition": 0})
    assert moved == {"id": 1, "at": "cluster", "do": "move_leader"} | moved
    assert moved["where"] == {"topic": LEDGER, "partition": 0, "to": 2} and moved["hits"] == 0
    assert produce_at(cluster, 2) is E.NONE and produce_at(cluster, 1, partition=1) is E.NOT_LEADER_OR_FOLLOWER
    assert cluster.hits(moved) == 0
    assert produce_at(cluster, 1) is E.NOT_LEADER_OR_FOLLOWER and cluster.hits(moved) == 1
    assert fetch_at(cluster, 3) is E.FENCED_LEADER_EPOCH and cluster.hits(moved) == 2


def test_an_answer_counts_for_the_last_move_and_for_those_without_a_client(cluster):
    first, second = (cluster.post(f"{to}/lead", {"topic": LEDGER, "partition": 0}) for to in (2, 3))
    produce_at(cluster, 1)
    produce_at(cluster, 1)
    assert (cluster.hits(first), cluster.hits(second)) == (1, 2)


def test_refusals_of_coordinators_count_for_their_moves(cluster):
    producer, member = Producer(cluster), Member(cluster).settle()
    moved = [cluster.post("3/coordinate", {"transactional_id": TXN}), cluster.post("2/coordinate", {"group": GROUP})]
    assert [each["where"] for each in moved] == [{"transactional_id": TXN, "to": 3}, {"group": GROUP, "to": 2}]
    assert producer.add_offsets() is E.NOT_COORDINATOR
    assert [*map(cluster.hits, moved)] == [1, 0]
    assert member.heartbeat() is E.NOT_COORDINATOR
    assert [*map(cluster.hits, moved)] == [1, 1]


def client_of_the_kit(cluster):
    cluster.client("kit")
    (kit,) = [each for each in cluster.assembly.connections if each.session.peer.startswith("kit")]
    return kit.session.peer


def test_ended_connections_and_missing_leaders_count_for_a_stop(cluster):
    client = cluster.ask_broker(2).client()
    cluster.control.note_kit(client_of_the_kit(cluster))
    stopped = cluster.post("2/stop")
    cluster.advance(10)
    assert client.closed and cluster.hits(stopped) == 1
    cluster.post("3/stop")
    assert cluster.brokers()[2] == RUNNING | {"state": "stopped", "leads": 0}
    assert cluster.post("2/start") == RUNNING | {"broker": 2, "leads": 0}
    assert {each["state"] for each in cluster.brokers().values()} == {"running", "stopped"}


def test_a_partition_without_a_leader_counts_for_a_stop_until_the_broker_starts(cluster):
    row = {"name": "alone", "num_partitions": 3, "replication_factor": 1, "assignments": [], "configs": []}
    cluster.call(K.CREATE_TOPICS, 5, topics=[row], timeout_ms=1_000, validate_only=False)
    stopped = cluster.post("3/stop")
    cluster.call(K.METADATA, 5, topics=[{"name": LEDGER}], allow_auto_topic_creation=False)
    assert cluster.hits(stopped) == 0
    cluster.call(K.METADATA, 5, topics=[{"name": "alone"}], allow_auto_topic_creation=False)
    assert cluster.hits(stopped) == 1
    assert produce(cluster, batch(), "alone", 2)[0] is E.NOT_LEADER_OR_FOLLOWER and cluster.hits(stopped) == 2
    cluster.post("3/start")
    assert produce(cluster, batch(), "alone", 2)[0] is E.NOT_LEADER_OR_FOLLOWER and cluster.hits(stopped) == 2


def post_produce(client):
    rows = [{"index": 0, "records": batch()}]
    asked = {"transactional_id": None, "acks": 1, "timeout_ms": 1}
    client.send(K.PRODUCE, 9, **asked, topic_data=[{"name": LEDGER, "partition_data": rows}])


def test_a_paused_broker_carries_requests_out_when_it_is_resumed(cluster):
    clients = [cluster.ask_broker(1).client(f"client-{number}") for number in range(2)]
    paused = cluster.post("1/pause")
    for client in clients:
        post_produce(client)
    cluster.advance(100)
    partition = cluster.assembly.broker.cluster.partition(LEDGER, 0)
    assert [client.replies for client in clients] == [[], []] and partition.log_end_offset == 0
    assert cluster.hits(paused) == 2 and cluster.brokers()[1]["state"] == "paused"
    clients[1].hang_up()
    assert cluster.post("1/resume")["state"] == "running"
    cluster.advance()
    assert len(clients[0].replies) == 1 and partition.log_end_offset == 1


def test_a_reply_that_is_ready_in_a_pause_is_sent_after_it(cluster):
    client = cluster.ask_broker(1).client()
    rows = [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1_000}]
    asked = {"max_wait_ms": 50, "min_bytes": 1, "max_bytes": 10_000, "isolation_level": 0}
    client.send(K.FETCH, 4, **asked, topics=[{"topic": LEDGER, "partitions": rows}])
    paused = cluster.post("1/pause")
    cluster.advance(100)
    assert client.replies == [] and cluster.hits(paused) == 1
    cluster.post("1/resume")
    cluster.advance()
    assert len(client.replies) == 1


def test_lost_markers_count_for_a_cut_link(cluster):
    producer = Producer(cluster)
    producer.begin(0)
    cluster.post("2/lead", {"topic": LEDGER, "partition": 0})
    cut = cluster.post("2/disconnect", {"from": 1})
    assert {key: row["disconnected_from"] for key, row in cluster.brokers().items()} == {1: [2], 2: [1], 3: []}
    assert producer.end() is E.NONE and cluster.hits(cut) >= 1
    cluster.post("reconnect")
    cluster.advance(1_100)
    assert producer.describe().transaction_state == "CompleteCommit"
    assert all(not row["disconnected_from"] for row in cluster.brokers().values())


def test_faults_and_the_journal_see_the_markers_that_brokers_send_each_other(cluster):
    """The reply of broker 2 to the first request is lost in a closed connection."""
    fault = cluster.plan.add(Fault("drop", "reply", api=K.WRITE_TXN_MARKERS))
    producer = Producer(cluster.ask_broker(1))
    producer.add((LEDGER, [1]))
    assert producer.end() is E.NONE
    cluster.advance(100)
    assert producer.describe().transaction_state == "CompleteCommit" and fault.hits == 1
    key = K.WRITE_TXN_MARKERS.to_bytes(2)
    assert len([each for each in cluster.journal.since(0) if each.request[:2] == key]) == 2


def test_answers_that_are_wrong_count_for_frozen_metadata(cluster):
    frozen = cluster.post("3/freeze-metadata")
    assert find(cluster, 3).node_id == 1 and cluster.hits(frozen) == 0
    cluster.post("2/coordinate", {"transactional_id": TXN})
    assert find(cluster, 3).node_id == 1 and find(cluster, 1).node_id == 2 and cluster.hits(frozen) == 1
    assert find(cluster, 3, GROUP, FOR_GROUPS).node_id == 1 and cluster.hits(frozen) == 1
    cluster.create_topic("late")
    for topics, hits in (([{"name": LEDGER}], 1), (None, 2)):
        cluster.call(K.METADATA, 5, topics=topics, allow_auto_topic_creation=False)
        assert cluster.hits(frozen) == hits
    assert cluster.brokers()[3]["metadata"] == "frozen"
    assert cluster.post("3/unfreeze-metadata")["metadata"] == "current"
    assert find(cluster, 3).node_id == 2


def test_reset_undoes_all_changes(cluster):
    before = cluster.brokers()
    cluster.post("2/lead", {"topic": LEDGER, "partition": 0})
    cluster.post("2/coordinate", {"group": GROUP})
    cluster.post("1/disconnect", {"from": 2})
    cluster.post("2/pause")
    cluster.post("3/freeze-metadata")
    cluster.post("1/stop")
    assert cluster.brokers() != before
    cluster.post("reset")
    assert cluster.brokers() == before


def test_a_broker_that_stops_is_neither_paused_nor_frozen_when_it_starts(cluster):
    before = cluster.brokers()[3]
    cluster.post("3/pause")
    cluster.post("3/freeze-metadata")
    cluster.post("3/stop")
    assert cluster.post("3/start") == before | {"broker": 3, "leads": 0}


@pytest.mark.parametrize(
    ("path", "body", "status", "why"),
    [
        ("9/stop", None, 404, "There is no broker 9: the brokers are 1, 2, 3"),
        ("x/pause", None, 404, "There is no broker x: the brokers are 1, 2, 3"),
        ("1/lead", {"topic": LEDGER, "partition": 0}, 409, "Broker 1 leads ledger-0 already: it can move to 2, 3"),
        ("1/lead", {"topic": "no", "partition": 0}, 409, "There is no partition no-0"),
        ("1/lead", {"topic": LEDGER, "partition": -1}, 409, "There is no partition ledger--1"),
        ("1/lead", {"topic": LEDGER}, 422, "partition is missing"),
        ("1/coordinate", {}, 422, "Either transactional_id or group is needed"),
        ("1/coordinate", {"group": "a", "transactional_id": "b"}, 422, "Either transactional_id or group is needed"),
        ("1/start", None, 409, "Broker 1 runs already"),
        ("1/resume", None, 409, "Broker 1 is not paused"),
        ("1/disconnect", {"from": 1}, 409, "Broker 1 has no link to itself: name two brokers"),
        ("1/disconnect", {"from": 4}, 409, "There is no broker 4: the brokers are 1, 2, 3"),
        ("1/unfreeze-metadata", None, 409, "The metadata of broker 1 are not frozen"),
    ],
)
def test_an_impossible_change_is_refused(cluster, path, body, status, why):
    before = cluster.brokers()
    with pytest.raises(AdminError) as refused:
        cluster.post(path, body)
    assert (refused.value.status, refused.value.message) == (status, why)
    assert cluster.brokers() == before and len(cluster.plan) == 0


@pytest.mark.parametrize(
    ("path", "body"), [("1/stop", None), ("1/lead", {"topic": LEDGER, "partition": 0}), ("1/pause", None)]
)
def test_one_broker_cannot_be_changed(path, body):
    alone = Steered(brokers=1)
    with pytest.raises(AdminError, match=r"The process is one broker: ottla serve --brokers 3 starts three"):
        alone.post(path, body)
    alone.post("reset")
    assert alone.brokers() == {1: RUNNING | {"leads": 5}}


def test_a_coordinator_that_no_client_has_asked_for_cannot_be_moved():
    with pytest.raises(AdminError, match="There is no __transaction_state yet: clients create it"):
        Steered(is_new=True).post("2/coordinate", {"transactional_id": TXN})


def test_the_oldest_changes_are_forgotten(cluster, monkeypatch):
    monkeypatch.setattr("ottla.testkit.control.changes.MOST_CHANGES", 2)
    moved = [cluster.post(f"{to}/lead", {"topic": LEDGER, "partition": 0}) for to in (2, 3, 1)]
    assert [cluster.plan.get(each["id"]) is None for each in moved] == [True, False, False]
    produce_at(cluster, 2)
    assert [cluster.hits(each) for each in moved[1:]] == [1, 1]


def test_a_fault_chooses_the_broker_that_gets_a_request_or_a_marker(cluster):
    cluster.plan.add(parse_fault({"where": {"broker": 2}, "do": "reply", "error": "UNKNOWN_SERVER_ERROR"}))
    assert produce_at(cluster, 1) is E.NONE
    assert produce_at(cluster, 2, partition=1) is E.UNKNOWN_SERVER_ERROR
    lost = cluster.plan.add(parse_fault({"at": "marker", "where": {"broker": 3}, "do": "lose", "times": None}))
    producer = Producer(cluster.ask_broker(1))
    producer.begin(0)
    producer.end()
    assert lost.hits == 0
    producer.add((LEDGER, [2]))
    producer.end()
    assert lost.hits >= 1


def test_the_journal_names_the_broker_of_each_request(cluster):
    produce_at(cluster, 1)
    produce_at(cluster, 2)
    rows = [entry_to_json(entry) for entry in cluster.journal.since(0)][-2:]
    assert [row["broker"] for row in rows] == [1, 2]
    assert [entry_from_json(row).broker for row in rows] == [1, 2]
    assert [event["broker"] for event in events(cluster.journal.since(0))][-2:] == [1, 2]
    alone = Steered(brokers=1)
    produce_at(alone, 1)
    (*_, entry) = alone.journal.since(0)
    assert "broker" not in entry_to_json(entry) | next(events([entry]))
