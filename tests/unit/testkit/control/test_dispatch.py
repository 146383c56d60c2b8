"""Faults inside a broker: before a request is decided, after it is carried out, and around markers."""

from uuid import UUID

import pytest

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.batch import build_batch
from ottla.protocol.errors import ErrorCode
from ottla.testkit.control.cluster import ClusterControl
from ottla.testkit.control.dispatch import Steering
from ottla.testkit.control.journal import Journal
from ottla.testkit.control.markers import SteeredMarkers
from ottla.testkit.faults.fault import parse_fault
from ottla.testkit.faults.plan import Plan
from tests.memory_broker import MemoryBroker


class Steered(MemoryBroker):
    """A broker in memory with a plan of faults."""

    def __init__(self):
        super().__init__()
        broker = self.assembly.broker
        self.plan, self.journal = Plan(), Journal(self.clock)
        SteeredMarkers(broker, self.plan)
        cluster = ClusterControl(self.assembly, self.plan)
        Steering(self.assembly.dispatchers[0], broker, cluster, self.plan, self.journal, self.clock)

    def fault(self, **given):
        return self.plan.add(parse_fault(given))

    def produce(self, client=None, value=b"v"):
        rows = [{"index": 0, "records": bytes(build_batch([(None, value)], timestamp_ms=1))}]
        fields = {
            "transactional_id": None,
            "acks": 1,
            "timeout_ms": 1,
            "topic_data": [{"name": "t", "partition_data": rows}],
        }
        if client is not None:
            client.send(ApiKey.PRODUCE, 9, **fields)
            return None
        return self.call(ApiKey.PRODUCE, 9, **fields).responses[0].partition_responses[0].error_code


@pytest.fixture
def broker():
    steered = Steered()
    (steered.log,) = steered.create_topic("t")
    return steered


def test_without_a_fault_requests_pass(broker):
    assert broker.produce() == 0
    assert broker.log.log_end_offset == 1
    assert not broker.bugs


def test_a_planned_error_is_answered_and_nothing_is_done(broker):
    fault = broker.fault(
        api="Produce", where={"topic": "t", "partition": 0}, do="reply", error="NOT_LEADER_OR_FOLLOWER"
    )
    assert broker.produce() == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert broker.log.log_end_offset == 0
    assert broker.produce() == 0
    assert fault.hits == 1


def test_a_connection_is_dropped_before_anything_is_done(broker):
    broker.fault(api="Produce", do="drop")
    client = broker.client()
    broker.produce(client)
    broker.advance()
    assert (client.closed, client.replies, broker.log.log_end_offset) == (True, [], 0)


@pytest.mark.parametrize(("do", "closed"), [("drop", True), ("lose", False)])
def test_a_reply_is_lost_after_its_request_was_carried_out(broker, do, closed):
    broker.fault(at="reply", api="Produce", do=do)
    client = broker.client()
    broker.produce(client)
    broker.advance()
    assert (client.closed, client.replies, broker.log.log_end_offset) == (closed, [], 1)


def test_a_held_request_does_not_delay_other_clients(broker):
    fault = broker.fault(api="Produce", do="hold", times=1)
    held, other = broker.client(), broker.client("second")
    broker.produce(held, b"held")
    broker.produce(other, b"other")
    assert (held.replies, len(other.replies), broker.log.log_end_offset) == ([], 1, 1)
    broker.plan.release(fault.id)
    broker.advance()
    assert (len(held.replies), broker.log.log_end_offset) == (1, 2)


def test_a_reply_can_be_held_when_its_request_was_carried_out(broker):
    fault = broker.fault(at="reply", api="Produce", do="hold")
    client = broker.client()
    broker.produce(client)
    assert (client.replies, broker.log.log_end_offset) == ([], 1)
    broker.plan.release(fault.id)
    broker.advance()
    assert len(client.replies) == 1


def test_a_held_request_of_a_closed_connection_is_dropped(broker):
    fault = broker.fault(api="Produce", do="hold")
    client = broker.client()
    broker.produce(client)
    client.hang_up()
    assert broker.plan.count_held(fault.id) == 0
    broker.plan.release(fault.id)
    broker.advance()
    assert broker.log.log_end_offset == 0
    assert not broker.bugs


def test_a_delay_passes(broker):
    broker.fault(api="Produce", do="delay", ms=50)
    client = broker.client()
    broker.produce(client)
    broker.advance(40)
    assert client.replies == []
    broker.advance(20)
    assert len(client.replies) == 1


def test_a_duplicated_produce_is_appended_twice(broker):
    broker.fault(api="Produce", do="duplicate")
    assert broker.produce() == 0
    assert broker.log.log_end_offset == 2


def test_a_client_id_chooses(broker):
    broker.fault(api="Produce", where={"client_id": "somebody else"}, do="drop")
    assert broker.produce() == 0


def _begin(broker):
    broker.call_when_ready(ApiKey.FIND_COORDINATOR, 3, key="tx", key_type=1)
    fields = {"transactional_id": "tx", "transaction_timeout_ms": 60_000, "producer_id": -1, "producer_epoch": -1}
    reply = broker.call_when_ready(ApiKey.INIT_PRODUCER_ID, 4, **fields)
    owner = {"v3_and_below_producer_id": reply.producer_id, "v3_and_below_producer_epoch": reply.producer_epoch}
    topics = [{"name": "t", "partitions": [0]}]
    broker.call(
        ApiKey.ADD_PARTITIONS_TO_TXN, 3, v3_and_below_transactional_id="tx", v3_and_below_topics=topics, **owner
    )
    return {"transactional_id": "tx", "producer_id": reply.producer_id, "producer_epoch": reply.producer_epoch}


@pytest.mark.parametrize("fault", [{"do": "hold"}, {"do": "lose"}, {"do": "reply", "error": "NOT_LEADER_OR_FOLLOWER"}])
def test_a_marker_is_kept_back_until_the_fault_is_over(broker, fault):
    owner = _begin(broker)
    planned = broker.fault(at="marker", times=None, where={"transactional_id": "tx", "topic": "t"}, **fault)
    assert broker.call(ApiKey.END_TXN, 3, committed=True, **owner).error_code == 0
    broker.advance(3_000)
    (described,) = broker.call(ApiKey.DESCRIBE_TRANSACTIONS, 0, transactional_ids=["tx"]).transaction_states
    assert (described.transaction_state, broker.log.log_end_offset) == ("PrepareCommit", 0)
    broker.plan.remove(planned.id)
    broker.advance(3_000)
    (described,) = broker.call(ApiKey.DESCRIBE_TRANSACTIONS, 0, transactional_ids=["tx"]).transaction_states
    assert (described.transaction_state, broker.log.log_end_offset) == ("CompleteCommit", 1)


def test_a_marker_whose_reply_is_lost_is_written_again(broker):
    owner = _begin(broker)
    broker.fault(at="marker_reply", do="lose")
    broker.call(ApiKey.END_TXN, 3, committed=True, **owner)
    broker.advance(3_000)
    assert broker.log.log_end_offset == 2


def test_the_journal_has_what_passed(broker):
    fault = broker.fault(at="reply", api="Produce", do="lose")
    client = broker.client()
    broker.produce(client)
    last = list(broker.journal.since(0))[-1]
    assert (last.faults, last.reply, last.reason) == ([fault.id], b"", "")
    broker.produce()
    (entry,) = broker.journal.since(last.number)
    assert int.from_bytes(entry.request[:2], "big") == ApiKey.PRODUCE
    assert int.from_bytes(entry.reply[:4], "big") == len(entry.reply) - 4


@pytest.mark.parametrize("version", [12, 17])
def test_a_fault_of_a_topic_fires_for_a_fetch_of_a_session(broker, version):
    topic = {"topic_id": UUID(bytes=broker.assembly.broker.cluster.topics["t"].topic_id)}
    topic = {"topic": "t"} if version < 13 else topic
    rows = [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1}]
    limits = {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": 1, "isolation_level": 0, "forgotten_topics_data": []}
    begun = broker.call(
        ApiKey.FETCH, version, **limits, session_id=0, session_epoch=0, topics=[topic | {"partitions": rows}]
    )
    following = limits | {"session_id": begun.session_id, "session_epoch": 1, "topics": []}
    faults = [
        broker.fault(api="Fetch", where={"topic": name, "partition": 0}, do="reply", error="UNKNOWN_SERVER_ERROR")
        for name in ("other", "t")
    ]
    assert broker.call(ApiKey.FETCH, version, **following).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert [fault.hits for fault in faults] == [0, 1]
    assert broker.call(ApiKey.FETCH, version, **following).error_code == ErrorCode.NONE
