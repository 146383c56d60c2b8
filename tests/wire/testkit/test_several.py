"""Three brokers of one process, and clients of a test that meet the changes to them."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.testkit.in_memory.wire import message
from ottla.testkit.kit.admin import AdminFailed
from ottla.testkit.kit.wire import connect

pytestmark = pytest.mark.ottla(brokers=3)

RUNNING = {"state": "running", "metadata": "current", "disconnected_from": []}


def commit(producer, topic, value):
    producer.begin_transaction()
    producer.send(topic, value)
    producer.commit_transaction()


@pytest.fixture(autouse=True)
def running(ottla_broker):
    """Assert that the test before has left all brokers as they were."""
    rows = ottla_broker.brokers()
    assert [{name: row[name] for name in RUNNING} for row in rows] == [RUNNING] * 3
    assert ottla_broker.admin().get("/v1/faults") == []


@pytest.mark.slow
def test_a_producer_and_a_consumer_follow_a_leader(kafka_producer, kafka_consumer, kafka_topic, ottla_broker):
    assert ottla_broker.bootstrap.count(",") == 2
    producer, consumer = kafka_producer(), kafka_consumer(kafka_topic)
    producer.send(kafka_topic, b"one").get(30)
    assert next(consumer).value == b"one"
    moved = ottla_broker.move_leader(kafka_topic, 0, to=2)
    producer.send(kafka_topic, b"two").get(30)
    assert next(consumer).value == b"two"
    assert moved.hits >= 2


def test_a_transaction_follows_its_coordinator(kafka_txn_producer, kafka_topic, ottla_broker):
    producer = kafka_txn_producer("tx-1")
    commit(producer, kafka_topic, b"one")
    moved = ottla_broker.move_coordinator("tx-1", to=3)
    commit(producer, kafka_topic, b"two")
    moved.wait_hit()
    refused = ottla_broker.wait_for_outcome("NOT_COORDINATOR")
    assert refused.broker == 1 and ottla_broker.ledger()[-1].broker == 3
    ottla_broker.assert_committed(kafka_topic, ["one", "two"])
    assert ottla_broker.transaction("tx-1").state == "CompleteCommit"


def test_a_producer_survives_a_stop_of_the_first_broker(kafka_producer, kafka_topic, ottla_broker):
    producer = kafka_producer()
    producer.send(kafka_topic, b"one").get(30)
    stopped = ottla_broker.stop_broker(1)
    producer.send(kafka_topic, b"two").get(30)
    assert stopped.hits >= 1
    ottla_broker.assert_committed(kafka_topic, ["one", "two"])
    with pytest.raises(AdminFailed, match="Broker 1 is stopped: it can move to 3"):
        ottla_broker.move_leader(kafka_topic, 0, to=1)
    ottla_broker.start_broker(1)
    ottla_broker.move_leader(kafka_topic, 0, to=1, optional=True)
    assert ottla_broker.high_watermark(kafka_topic) == 2


def test_a_request_to_a_paused_broker_is_answered_when_it_is_resumed(kafka_topic, ottla_broker):
    producer = ottla_broker.producer_by_hand(None)
    paused = ottla_broker.pause_broker(1)
    with ThreadPoolExecutor() as thread:
        sent = thread.submit(producer.send, kafka_topic, b"late")
        paused.wait_hit()
        assert ottla_broker.high_watermark(kafka_topic) == 0 and not sent.done()
        ottla_broker.resume_broker(1)
        assert sent.result() is ErrorCode.NONE
    assert ottla_broker.high_watermark(kafka_topic) == 1


def test_a_transaction_is_complete_after_its_link_is_restored(kafka_topic, ottla_broker):
    producer = ottla_broker.producer_by_hand("tx-1")
    assert producer.send(kafka_topic, b"paid") is ErrorCode.NONE
    ottla_broker.move_coordinator("tx-1", to=3)
    cut = ottla_broker.disconnect(1, 3)
    assert producer.commit() is ErrorCode.NOT_COORDINATOR
    assert producer.commit() is ErrorCode.NONE
    cut.wait_hit()
    assert ottla_broker.transaction("tx-1").state == "PrepareCommit"
    ottla_broker.reconnect()
    ottla_broker.assert_committed(kafka_topic, ["paid"])


def test_frozen_metadata_are_for_clients_alone(kafka_topic, ottla_broker):
    frozen = ottla_broker.freeze_metadata(1)
    ottla_broker.move_leader(kafka_topic, 0, to=3, optional=True)
    asked = message(ApiKey.METADATA, 5, topics=[{"name": kafka_topic}], allow_auto_topic_creation=False)
    with connect(ottla_broker.bootstrap, "client") as connection:
        assert connection.send(asked, 5).topics[0].partitions[0].leader_id == 1
        assert frozen.hits == 1 and ottla_broker.lso(kafka_topic) == 0
        ottla_broker.unfreeze_metadata(1)
        assert connection.send(asked, 5).topics[0].partitions[0].leader_id == 3
    assert frozen.hits == 1


def test_a_restart_uses_the_same_ports(ottla_broker):
    before = ottla_broker.bootstrap
    ottla_broker.stop_broker(2, optional=True)
    ottla_broker.restart()
    assert ottla_broker.bootstrap == before
    assert [row["state"] for row in ottla_broker.brokers()] == ["running"] * 3


@pytest.mark.slow
@pytest.mark.parametrize("is_killed", [False, True])
def test_a_decision_is_carried_out_by_the_next_coordinator(kafka_topic, ottla_broker, ottla_faults, is_killed):
    """The coordinator's broker stops, and the process may be killed, between the reply to EndTxn and the markers."""
    producer = ottla_broker.producer_by_hand("tx-1")
    assert producer.send(kafka_topic, b"paid") is ErrorCode.NONE
    held = ottla_faults.on_marker(transactional_id="tx-1").hold()
    assert producer.commit() is ErrorCode.NONE
    held.wait_hit()
    assert ottla_broker.transaction("tx-1").state == "PrepareCommit"
    ottla_broker.stop_broker(1, optional=True)
    if is_killed:
        ottla_broker.kill()
        ottla_broker.restart()
    else:
        held.release()
    ottla_broker.assert_committed(kafka_topic, ["paid"])
    assert ottla_broker.transaction("tx-1").state == "CompleteCommit"


def test_a_fault_meets_the_markers_that_another_broker_sends(kafka_topic, ottla_broker, ottla_faults):
    producer = ottla_broker.producer_by_hand("tx-1")
    assert producer.send(kafka_topic, b"paid") is ErrorCode.NONE
    ottla_broker.move_coordinator("tx-1", to=3, optional=True)
    fault = ottla_faults.on("WriteTxnMarkers", broker=1).drop_connection(after=True)
    assert producer.commit() is ErrorCode.NOT_COORDINATOR
    assert producer.commit() is ErrorCode.NONE
    fault.wait_hit()
    ottla_broker.assert_committed(kafka_topic, ["paid"])
    assert ottla_broker.transaction("tx-1").state == "CompleteCommit"


def test_a_released_marker_of_another_leader_is_written(kafka_topic, ottla_broker, ottla_faults):
    producer = ottla_broker.producer_by_hand("tx-1")
    assert producer.send(kafka_topic, b"paid") is ErrorCode.NONE
    ottla_broker.move_leader(kafka_topic, 0, to=2, optional=True)
    held = ottla_faults.on_marker(broker=2).hold()
    ottla_faults.on("WriteTxnMarkers", broker=2).delay(100)
    assert producer.commit() is ErrorCode.NONE
    held.wait_hit()
    held.release()
    assert ottla_broker.transaction("tx-1").state == "CompleteCommit"
