"""The fixtures of the test kit, as the tests of a user use them."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from kafka import KafkaProducer, TopicPartition
from kafka.errors import KafkaError

import ottla.testkit
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.testkit.faults.fault import FaultError
from ottla.testkit.kit.admin import AdminFailed
from ottla.testkit.kit.process import BrokerFailed
from ottla.testkit.kit.wire import KafkaError as Refused
from ottla.wire.connection import BlockingConnection
from tests.async_connection import AsyncConnection
from tests.timeout import EVENT_TIMEOUT_S


def _commit(producer, topic, *values):
    producer.begin_transaction()
    for value in values:
        producer.send(topic, value)
    producer.commit_transaction()


@pytest.mark.parametrize("client", ["kafka-python", "confluent-kafka"])
def test_assert_committed_and_records_find_a_committed_record(client, kafka_txn_producer, kafka_topic, ottla_broker):
    if client == "confluent-kafka":
        pytest.importorskip("confluent_kafka")
    producer = kafka_txn_producer(client=client)
    producer.begin_transaction()
    if client == "confluent-kafka":
        producer.produce(kafka_topic, b"one")
    else:
        producer.send(kafka_topic, b"one")
    producer.commit_transaction()
    ottla_broker.assert_committed(kafka_topic, ["one"])
    ottla_broker.assert_no_open_transactions()
    (record,) = ottla_broker.records(kafka_topic)
    assert (record.offset, record.key, record.value, record.headers) == (0, None, b"one", ())


def test_an_aborted_record_is_seen_by_who_reads_uncommitted_alone(kafka_txn_producer, kafka_topic, ottla_broker):
    producer = kafka_txn_producer()
    producer.begin_transaction()
    producer.send(kafka_topic, b"gone").get(10)
    producer.abort_transaction()
    ottla_broker.assert_no_open_transactions()
    assert ottla_broker.records(kafka_topic) == []
    assert [record.value for record in ottla_broker.records(kafka_topic, isolation="read_uncommitted")] == [b"gone"]
    assert ottla_broker.lso(kafka_topic) == ottla_broker.high_watermark(kafka_topic) == 2


def test_an_open_transaction_is_named_by_what_fails(kafka_txn_producer, kafka_topic, ottla_broker):
    producer = kafka_txn_producer("tx-open")
    producer.begin_transaction()
    producer.send(kafka_topic, b"open").get(10)
    assert ottla_broker.lso(kafka_topic) == 0
    with pytest.raises(AssertionError, match=f"1 transactions are open\n  tx-open: Ongoing, .* in {kafka_topic}-0"):
        ottla_broker.assert_no_open_transactions()
    with pytest.raises(AssertionError, match="0 committed records, 1 were expected\n  missing, 1:\n    b'open'"):
        ottla_broker.assert_committed(kafka_topic, ["open"])
    producer.abort_transaction()


def test_a_transaction_times_out_when_time_is_moved(kafka_txn_producer, kafka_topic, ottla_broker, ottla_clock):
    producer = kafka_txn_producer("tx-late")
    producer.begin_transaction()
    producer.send(kafka_topic, b"late").get(10)
    ottla_clock.advance(timedelta(minutes=1), seconds=1)
    ottla_broker.assert_no_open_transactions()
    with pytest.raises(KafkaError):
        producer.commit_transaction()
    assert ottla_broker.records(kafka_topic) == []


def test_a_transactional_id_is_forgotten_after_a_week(kafka_txn_producer, ottla_broker, ottla_clock):
    kafka_txn_producer("tx-week")
    ottla_clock.advance(days=8)
    assert ottla_broker.transaction("tx-week") is None


def test_a_frozen_clock_stays_until_it_is_advanced(ottla_clock):
    before = ottla_clock.freeze()
    assert ottla_clock.now() == before
    assert ottla_clock.advance(hours=1) == before + timedelta(hours=1)
    assert ottla_clock.resume() >= before + timedelta(hours=1)
    with pytest.raises(ValueError, match="forward only"):
        ottla_clock.advance(seconds=-1)


def test_a_commit_is_repeated_after_an_error(kafka_txn_producer, kafka_topic, ottla_broker, ottla_faults, ottla_ledger):
    producer = kafka_txn_producer("tx-again")
    fault = ottla_faults.on("EndTxn", transactional_id="tx-again").reply("COORDINATOR_NOT_AVAILABLE")
    _commit(producer, kafka_topic, b"once")
    ottla_broker.assert_committed(kafka_topic, ["once"])
    ends = [entry for entry in ottla_ledger() if entry.api == "EndTxn"]
    assert [(entry.outcome, entry.commit, entry.faults) for entry in ends] == [
        ("COORDINATOR_NOT_AVAILABLE", True, (fault.id,)),
        ("NONE", True, ()),
    ]
    assert fault.hits == 1


def test_a_commit_whose_reply_is_lost_has_happened(kafka_txn_producer, kafka_topic, ottla_broker, ottla_faults):
    producer = kafka_txn_producer()
    ottla_faults.on("EndTxn").drop_connection(after=True)
    _commit(producer, kafka_topic, b"once")
    ottla_broker.assert_committed(kafka_topic, ["once"])


def test_a_commit_is_held_between_prepare_and_complete(kafka_txn_producer, kafka_topic, ottla_broker, ottla_faults):
    producer = kafka_txn_producer("tx-held")
    marker = ottla_faults.on_marker(topic=kafka_topic).hold()
    _commit(producer, kafka_topic, b"held")
    marker.wait_hit()
    assert ottla_broker.transaction("tx-held").state == "PrepareCommit"
    assert ottla_broker.records(kafka_topic) == []
    marker.release()
    ottla_broker.assert_no_open_transactions(wait_s=10)
    ottla_broker.assert_committed(kafka_topic, ["held"])


def test_a_marker_that_is_released_is_written_at_once(
    kafka_txn_producer, kafka_topic_factory, ottla_broker, ottla_faults, ottla_clock
):
    topic = kafka_topic_factory(partitions=2)
    producer = kafka_txn_producer("tx-at-once")
    marker = ottla_faults.on_marker(topic=topic).hold()
    producer.begin_transaction()
    for partition in range(2):
        producer.send(topic, b"held", partition=partition).get(10)
    producer.commit_transaction()
    marker.wait_hit(2)
    ottla_clock.freeze()  # no back-off ends any more
    assert marker.held == 2
    marker.release()
    assert ottla_broker.transaction("tx-at-once").state == "CompleteCommit"
    assert [record.value for record in ottla_broker.records(topic)] == [b"held"] * 2


def test_a_fault_strikes_one_producer_id(kafka_txn_producer, kafka_topic, ottla_broker, ottla_faults):
    struck, spared = kafka_txn_producer("tx-struck"), kafka_txn_producer("tx-spared")
    producer_id = ottla_broker.transaction("tx-struck").producer_id
    batch = ottla_faults.on("Produce", producer_id=producer_id, times=None).delay(1)
    marker = ottla_faults.on_marker(producer_id=producer_id).hold()
    for producer in (struck, spared, spared):  # it begins again when its first has all markers
        _commit(producer, kafka_topic, b"paid")
    marker.wait_hit()
    assert batch.hits == 1
    assert ottla_broker.transaction("tx-struck").state == "PrepareCommit"
    marker.release()
    ottla_broker.assert_committed(kafka_topic, ["paid"] * 3)


@pytest.mark.slow
@pytest.mark.parametrize("at", ["before_decide", "after_markers(1)", "marker_reply_lost", "before_ack"])
def test_a_commit_survives_a_crash_at_each_point(at, kafka_txn_producer, kafka_topic, ottla_broker, ottla_faults):
    starts = ottla_broker.process.starts
    ottla_faults.crash(at=at, restart=True)
    _commit(kafka_txn_producer("tx-crashed"), kafka_topic, b"once")
    ottla_broker.wait_crashed()
    assert ottla_broker.process.starts == starts + 1
    ottla_broker.assert_no_open_transactions(wait_s=EVENT_TIMEOUT_S)
    ottla_broker.assert_committed(kafka_topic, ["once"])


@pytest.mark.slow
def test_queries_wait_for_a_broker_that_restarts(kafka_txn_producer, kafka_topic, ottla_broker, ottla_faults):
    """The commit is answered before the crash, so the questions reach a broker that runs, is ending or has ended."""
    starts = ottla_broker.process.starts
    ottla_faults.crash(at="after_prepare", restart=True)
    _commit(kafka_txn_producer("tx-crashed"), kafka_topic, b"once")
    ottla_broker.assert_committed(kafka_topic, ["once"])
    ottla_broker.wait_crashed()
    assert ottla_broker.process.starts == starts + 1
    ottla_broker.preset_epoch("tx-other", 7)
    ottla_broker.assert_no_open_transactions(wait_s=EVENT_TIMEOUT_S)


@pytest.mark.slow
def test_a_broker_whose_restart_is_not_planned_stays_down(kafka_txn_producer, kafka_topic, ottla_broker, ottla_faults):
    """The crash may lose the reply to EndTxn, and then the commit waits for the restart."""
    ottla_faults.crash(at="after_prepare")
    with ThreadPoolExecutor(1) as pool:
        commit = pool.submit(_commit, kafka_txn_producer("tx-crashed"), kafka_topic, b"once")
        ottla_broker.wait_crashed()
        assert ottla_broker.process.pid is None
        with pytest.raises(OSError):
            ottla_broker.topics()
        ottla_broker.restart()
        commit.result(EVENT_TIMEOUT_S)
    ottla_broker.assert_committed(kafka_topic, ["once"])


def test_an_epoch_near_its_end_is_given(kafka_txn_producer, ottla_broker):
    producer_id, epoch = ottla_broker.preset_epoch("tx-old", 32_765)
    kafka_txn_producer("tx-old")
    found = ottla_broker.transaction("tx-old")
    assert (found.producer_id, found.producer_epoch) == (producer_id, epoch + 1)
    kafka_txn_producer("tx-old")
    found = ottla_broker.transaction("tx-old")
    assert (found.producer_id, found.producer_epoch) != (producer_id, epoch + 2)
    assert found.producer_epoch == 0


def test_one_transactional_id_is_forgotten(kafka_txn_producer, ottla_broker):
    for name in ("tx/1", "tx-2"):
        kafka_txn_producer(name)
    assert ottla_broker.admin().delete("/v1/transactional-ids/tx%2F1") == {"forgotten": 1}
    assert [each.transactional_id for each in ottla_broker.transactions()] == ["tx-2"]


def test_an_epoch_is_not_given_to_an_open_transaction(kafka_txn_producer, kafka_topic, ottla_broker):
    producer = kafka_txn_producer("tx-busy")
    producer.begin_transaction()
    producer.send(kafka_topic, b"open").get(10)
    with pytest.raises(AdminFailed, match="tx-busy cannot be set now: CONCURRENT_TRANSACTIONS"):
        ottla_broker.preset_epoch("tx-busy", 7)


def test_a_group_that_consumes_and_produces_is_exactly_once(
    kafka_txn_producer, kafka_producer, kafka_consumer, kafka_topic_factory, kafka_group_id, ottla_broker
):
    source, sink = kafka_topic_factory(), kafka_topic_factory()
    before = kafka_producer()
    for number in range(20):
        before.send(source, b"%d" % number)
    before.flush()
    with pytest.raises(AssertionError, match="20 in the source, 0 in the sink\n  lost, 20:"):
        ottla_broker.assert_exactly_once(source, sink)
    consumer = kafka_consumer(source, group_id=kafka_group_id)
    producer = kafka_txn_producer()
    producer.begin_transaction()
    records = [next(consumer) for _ in range(20)]
    for record in records:
        producer.send(sink, record.value)
    positions = {place: _offset(consumer.position(place)) for place in consumer.assignment()}
    producer.send_offsets_to_transaction(positions, consumer.group_metadata())
    producer.commit_transaction()
    ottla_broker.wait_until_lag_zero(kafka_group_id, topics=[source])
    ottla_broker.assert_exactly_once(source, sink)


def _offset(position):
    from kafka.structs import OffsetAndMetadata

    return OffsetAndMetadata(position, "", -1)


@pytest.mark.slow
def test_a_subscription_lost_by_kafka_python_is_repeated(kafka_producer, kafka_consumer, kafka_topic, ottla_faults):
    """The subscription changes during a Metadata request, and without a group no rebalance would reveal the loss."""
    kafka_producer().send(kafka_topic, b"there").get(10)
    metadata = ottla_faults.on("Metadata", client_id="forgetful", nth=2).hold()
    consumer = kafka_consumer(client_id="forgetful")
    metadata.wait_hit()
    consumer.subscribe([kafka_topic])
    metadata.release()
    assert next(consumer).value == b"there"


def test_a_timeout_of_the_wait_for_lag_zero_reports_the_lag(
    kafka_producer, kafka_consumer, kafka_topic, kafka_group_id, ottla_broker
):
    kafka_producer().send(kafka_topic, b"unread").get(10)
    consumer = kafka_consumer(group_id=kafka_group_id)
    consumer.assign([TopicPartition(kafka_topic, 0)])
    consumer.commit({TopicPartition(kafka_topic, 0): _offset(0)})
    assert ottla_broker.lag(kafka_group_id) == {(kafka_topic, 0): 1}
    with pytest.raises(TimeoutError, match=r"has not caught up in 0 s: .*1 records"):
        ottla_broker.wait_until_lag_zero(kafka_group_id, timeout_s=0)


@pytest.mark.ottla(transaction_version=1, properties={"message.max.bytes": 2_000})
def test_a_broker_of_other_settings(ottla_broker, kafka_producer, kafka_topic):
    assert ottla_broker.transaction_version == 1
    with pytest.raises(KafkaError):
        kafka_producer().send(kafka_topic, bytes(5_000)).get(10)


@pytest.mark.parametrize("number", [1, 2])
def test_a_test_starts_without_topics_groups_or_transactions(number, ottla_broker, kafka_consumer):
    """Each case leaves some of each kind, which the next would find."""
    assert ottla_broker.topics() == {}
    assert ottla_broker.wire.groups() == []
    assert ottla_broker.transactions() == []
    ottla_broker.create_topic("left")
    consumer = kafka_consumer(group_id="left")
    consumer.assign([TopicPartition("left", 0)])
    consumer.commit({TopicPartition("left", 0): _offset(0)})
    assert ottla_broker.producer_by_hand("tx-left").send("left", b"open") == 0
    assert len(ottla_broker.wire.groups()) == len(ottla_broker.transactions()) == 1


def _join_consumers(broker, topic, version):
    joining = {
        "group_id": "of-consumers",
        "member_id": "m",
        "member_epoch": 0,
        "rebalance_timeout_ms": 60_000,
        "subscribed_topic_names": [topic],
        "topic_partitions": [],
    }
    address = broker.wire.coordinator("of-consumers", 0)
    return broker.wire.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, version, address, **joining).error_code


def test_groups_of_the_consumer_protocol_are_removed_with_their_members(ottla_broker, kafka_topic):
    assert _join_consumers(ottla_broker, kafka_topic, 1) == ErrorCode.NONE
    assert ottla_broker.wire.groups() == ["of-consumers"]
    ottla_broker.wire.remove_groups(["of-consumers"])
    assert ottla_broker.wire.groups() == []


def test_a_topic_that_is_not_there_is_named(ottla_broker):
    with pytest.raises(Refused, match=r"there is no topic nothing, only \[\]"):
        ottla_broker.records("nothing")


def test_the_alias_is_the_broker(kafka_broker, ottla_broker, kafka_bootstrap_servers):
    assert kafka_broker is ottla_broker
    assert kafka_bootstrap_servers == f"{ottla_broker.host}:{ottla_broker.port}"


@pytest.mark.slow
def test_a_full_disk_takes_the_broker_down_and_nothing_acknowledged_is_lost(
    kafka_producer, kafka_topic, ottla_broker, ottla_faults
):
    producer = kafka_producer(retries=0, request_timeout_ms=5_000, delivery_timeout_ms=6_000)
    producer.send(kafka_topic, b"kept").get(10)
    ottla_faults.on_append(topic=kafka_topic).fail("ENOSPC")
    with pytest.raises(KafkaError):
        producer.send(kafka_topic, b"refused").get(10)
    ottla_broker.wait_crashed()
    ottla_broker.restart()
    ottla_broker.assert_committed(kafka_topic, ["kept"])


def test_a_broker_of_a_block_ends_and_its_directory_is_removed():
    with ottla.testkit.broker(properties={"num.partitions": 3}) as broker:
        directory = broker.data_dir.parent
        broker.create_topic("here")
        assert broker.topics() == {"here": 1}
        pid = broker.process.pid
    assert not directory.exists()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_broker_ends_with_the_process_that_has_started_it(tmp_path):
    source = "\n".join(
        [
            "import os, signal",
            "from pathlib import Path",
            "from ottla.testkit.kit.process import BrokerProcess",
            f"process = BrokerProcess(Path({str(tmp_path)!r}), {{}})",
            "process.start()",
            "print(process.pid, flush=True)",
            "os.kill(os.getpid(), signal.SIGKILL)",
        ]
    )
    ended = subprocess.run([sys.executable, "-c", source], stdout=subprocess.PIPE, text=True, timeout=EVENT_TIMEOUT_S)
    assert ended.returncode == -signal.SIGKILL
    log = tmp_path / "broker.log"
    deadline = time.monotonic() + EVENT_TIMEOUT_S
    while "Stopped" not in log.read_text() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert "Stopped" in log.read_text()
    assert "Second signal" not in log.read_text()


def test_a_broker_for_an_async_block():
    async def play():
        async with (
            ottla.testkit.broker() as broker,
            await AsyncConnection.open(broker.host, broker.port) as connection,
        ):
            return await connection.versions()

    assert ApiKey.END_TXN in asyncio.run(play())


def test_a_broker_that_cannot_start_raises_the_reason():
    with pytest.raises(BrokerFailed, match=r"did you mean num\.partitions"):
        ottla.testkit.broker(properties={"num.partition": 3}).__enter__()


@pytest.mark.slow
@pytest.mark.ottla(as_version="2.8")
def test_an_older_kafka_is_imitated(ottla_broker, kafka_txn_producer, kafka_consumer, kafka_topic, kafka_group_id):
    with BlockingConnection(ottla_broker.host, ottla_broker.port) as connection:
        versions = connection.versions
    assert versions[ApiKey.END_TXN] == (0, 3)
    assert versions[ApiKey.FETCH][1] == 12
    assert ApiKey.LIST_TRANSACTIONS not in versions
    assert ottla_broker.transaction_version == 0
    _commit(kafka_txn_producer(), kafka_topic, b"old")
    assert next(kafka_consumer(kafka_topic, group_id=kafka_group_id)).value == b"old"


@pytest.mark.ottla(as_version="3.9")
def test_an_imitated_kafka_before_4_0_does_not_serve_the_consumer_protocol(ottla_broker, kafka_topic):
    assert _join_consumers(ottla_broker, kafka_topic, 0) == ErrorCode.UNSUPPORTED_VERSION


def test_the_ledger_has_the_producer_id_and_epoch_of_a_batch(
    kafka_txn_producer, kafka_topic, ottla_broker, ottla_ledger
):
    _commit(kafka_txn_producer("tx-1"), kafka_topic, b"one")
    found = ottla_broker.transaction("tx-1")
    (produce,) = [entry for entry in ottla_ledger() if entry.api == "Produce"]
    assert (produce.producer_id, produce.producer_epoch) == (found.producer_id, found.producer_epoch)


def test_a_timeout_of_wait_for_outcome_lists_the_outcomes_so_far(kafka_txn_producer, kafka_topic, ottla_broker):
    _commit(kafka_txn_producer("tx-1"), kafka_topic, b"one")
    assert ottla_broker.wait_for_outcome("NONE", api="EndTxn", transactional_id="tx-1").commit
    with pytest.raises(TimeoutError, match=r"no PRODUCER_FENCED in 0 s\n  answered, \d+:\n    'InitProducerId: NONE'"):
        ottla_broker.wait_for_outcome("PRODUCER_FENCED", timeout_s=0)


def test_the_epoch_of_a_used_transactional_id_can_be_preset(kafka_txn_producer, kafka_topic, ottla_broker):
    _commit(kafka_txn_producer("tx-1"), kafka_topic, b"one")
    ottla_broker.assert_no_open_transactions()
    assert ottla_broker.preset_epoch("tx-1", 32_765)[1] == 32_765
    _commit(kafka_txn_producer("tx-1"), kafka_topic, b"two")
    assert ottla_broker.transaction("tx-1").producer_epoch == 32_766
    ottla_broker.assert_committed(kafka_topic, ["one", "two"])


def test_records_deleted_by_retention_are_not_read(kafka_producer, kafka_topic, ottla_broker, ottla_clock):
    kafka_producer().send(kafka_topic, b"old").get(10)
    ottla_clock.advance(days=8)
    kafka_producer().send(kafka_topic, b"new").get(10)
    ottla_broker.assert_committed(kafka_topic, ["new"])


def test_markers_that_are_on_their_way_are_waited_for(kafka_txn_producer, kafka_topic, ottla_broker, ottla_faults):
    producer = kafka_txn_producer()
    ottla_faults.on_marker(topic=kafka_topic, times=2).lose()
    _commit(producer, kafka_topic, b"once")
    ottla_broker.assert_committed(kafka_topic, ["once"])


@pytest.mark.parametrize("compression", [1, 2, 3, 4], ids=["gzip", "snappy", "lz4", "zstd"])
def test_compressed_records_are_read(compression, kafka_topic, ottla_broker):
    producer = ottla_broker.producer_by_hand("tx-1")
    assert producer.send(kafka_topic, b"one", b"two", compression=compression) == producer.commit() == 0
    ottla_broker.assert_committed(kafka_topic, ["one", "two"])


def test_open_transactions_are_found_among_many_partitions(kafka_topic_factory, ottla_broker):
    topic = kafka_topic_factory(partitions=20)
    producer = ottla_broker.producer_by_hand("tx-1")
    for partition in (3, 19):
        assert producer.send(topic, b"one", partition=partition) == 0
    found = ottla_broker.wire.open_producers(topic, range(20))
    assert [(each.partition, each.first_offset) for each in found] == [(3, 0), (19, 0)]
    assert ottla_broker.hanging_transactions() == []
    assert producer.abort() == 0
    ottla_broker.assert_no_open_transactions(wait_s=10)


def test_a_proxy_has_faults_and_a_history_of_its_own(kafka_topic, ottla_broker, ottla_proxy):
    producer = KafkaProducer(bootstrap_servers=ottla_proxy.bootstrap, transactional_id="tx-proxied")
    fault = ottla_proxy.faults.on("EndTxn").drop_connection(after=True)
    with pytest.raises(FaultError, match="needs an Ottla broker"):
        ottla_proxy.faults.on_marker().hold()
    try:
        producer.init_transactions()
        _commit(producer, kafka_topic, b"once")
    finally:
        producer.close(timeout=5)
    assert fault.hits == 1
    ottla_broker.assert_committed(kafka_topic, ["once"])
    assert [entry.outcome for entry in ottla_proxy.ledger() if entry.api == "EndTxn"] == ["connection closed", "NONE"]
    assert [line["f"] for line in ottla_proxy.history() if line["type"] == "ok"] == ["init", "send", "end"]


def test_the_history_has_the_operations_of_clients(kafka_txn_producer, kafka_topic, ottla_broker):
    _commit(kafka_txn_producer("tx-told"), kafka_topic, b"told")
    done = {line["f"]: line for line in ottla_broker.history() if line["type"] == "ok"}
    assert done["send"]["mops"] == [["send", f"{kafka_topic}/0", "told", 0]]
    assert {"init", "end"} <= set(done)
    assert {event["api"] for event in ottla_broker.events()} >= {"InitProducerId", "Produce", "EndTxn"}
