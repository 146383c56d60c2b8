"""Known bugs of clients and frameworks, each as the broker behavior that exposes it; docs/test-recipes.md cites them.

A bug that a Python library can show is tested with the library, which must receive the records. For clients in other
languages, the test shows the broker's answers on which the client failed.
"""

from concurrent.futures import ThreadPoolExecutor

import pytest

from ottla.protocol.batch import read_marker
from ottla.protocol.batch_header import read_header
from ottla.protocol.errors import ErrorCode
from ottla.testkit.kit.wire import KafkaError
from tests.wire.testkit.test_recipes_transactions import pay

GZIP = 1
WAIT_S = 30


def aborted_transactions(broker, topic, offset=0):
    """Return (producer id, first offset) of each aborted transaction in a read_committed Fetch from an offset."""
    row = broker.wire.fetch(topic, 0, "read_committed", offset)
    return [(each.producer_id, each.first_offset) for each in row.aborted_transactions or ()]


def test_aborted_records_in_compressed_batches(client, kafka_topic, ottla_broker):
    """librdkafka#3020: they were delivered."""
    producer = ottla_broker.producer_by_hand("tx-1")
    producer.send(kafka_topic, b"aborted", b"too", compression=GZIP)
    producer.abort()
    producer.send(kafka_topic, b"committed", compression=GZIP)
    producer.commit()
    assert client.consumer(kafka_topic).take(1) == [b"committed"]


def test_an_abort_between_two_commits_of_one_producer(client, kafka_topic, ottla_broker):
    """brod#659: the marker of the first commit was taken for that of the abort."""
    producer = ottla_broker.producer_by_hand("tx-1", version=1)
    for value, end in ((b"1", producer.commit), (b"2", producer.abort), (b"3", producer.commit)):
        assert (producer.send(kafka_topic, value), end()) == (ErrorCode.NONE, ErrorCode.NONE)
    assert aborted_transactions(ottla_broker, kafka_topic) == [(producer.identity.producer_id, 2)]
    assert client.consumer(kafka_topic).take(2) == [b"1", b"3"]


def test_an_abort_marker_alone(client, kafka_topic, ottla_broker):
    """aiokafka#781, librdkafka#3369: a marker whose transaction is in no list of aborted ones."""
    producer = ottla_broker.producer_by_hand("tx-1", version=1)
    producer.add(kafka_topic)
    producer.abort()
    assert ottla_broker.high_watermark(kafka_topic) == 1
    assert aborted_transactions(ottla_broker, kafka_topic) == []
    assert client.consumer(kafka_topic).at_end() == []


def test_a_fetch_that_begins_at_an_abort_marker(client, kafka_topic, ottla_broker):
    """platformatic/kafka#391: the transaction began below the offset that was asked for."""
    producer = ottla_broker.producer_by_hand("tx-1")
    producer.send(kafka_topic, b"aborted")
    producer.abort()
    producer.send(kafka_topic, b"committed")
    producer.commit()
    batches = bytes(ottla_broker.wire.fetch(kafka_topic, 0, "read_committed", 1).records)
    header = read_header(batches)
    assert read_marker(memoryview(batches)[: header.size_bytes], header).control_type == 0
    assert aborted_transactions(ottla_broker, kafka_topic, 1) == [(header.producer_id, 0)]
    assert client.consumer(kafka_topic, start=1).take(1) == [b"committed"]


@pytest.mark.slow
def test_a_marker_at_the_end(client, kafka_topic, ottla_broker):
    """risingwave#24717, flink-connector-kafka#100, karapace#1355: a bounded read waited for the record before the end,
    which was a marker."""
    pay(client.txn_producer("tx-1"), kafka_topic, b"last")
    ottla_broker.assert_committed(kafka_topic, [b"last"])
    (record,) = ottla_broker.records(kafka_topic)
    assert ottla_broker.high_watermark(kafka_topic) == record.offset + 2
    assert client.consumer(kafka_topic).at_end() == [b"last"]


def test_the_epoch_of_an_idempotent_producer_overflows(kafka_topic, ottla_broker):
    """sarama#2178, librdkafka#3720: a client that bumps it without a check gets -32,768."""
    producer = ottla_broker.producer_by_hand(None)
    producer_id, _ = producer.identity
    producer.become(producer_id, 32_767)
    assert producer.send(kafka_topic, b"of the last epoch") == ErrorCode.NONE
    producer.become(producer_id, -32_768)
    assert producer.send(kafka_topic, b"refused") != ErrorCode.NONE
    fresh = ottla_broker.producer_by_hand(None)
    assert fresh.send(kafka_topic, b"of another producer id") == ErrorCode.NONE
    ottla_broker.assert_committed(kafka_topic, ["of the last epoch", "of another producer id"])


def test_a_successor_while_the_transaction_of_the_crashed_one_is_aborted(
    client, kafka_topic, ottla_broker, ottla_faults
):
    """kafkajs#296, kafkajs#304: InitProducerId answers CONCURRENT_TRANSACTIONS."""
    ottla_broker.producer_by_hand("tx-1").send(kafka_topic, b"of the crashed one")
    marker = ottla_faults.on_marker(topic=kafka_topic).hold()
    with pytest.raises(KafkaError, match="CONCURRENT_TRANSACTIONS"):
        ottla_broker.producer_by_hand("tx-1")
    with ThreadPoolExecutor() as thread:
        successor = thread.submit(client.txn_producer, "tx-1")
        ottla_broker.wait_for_outcome("CONCURRENT_TRANSACTIONS", api="InitProducerId", nth=2)
        marker.release()
        pay(successor.result(), kafka_topic, b"of the successor")
    ottla_broker.assert_committed(kafka_topic, ["of the successor"])


def test_offsets_are_added_while_the_last_transaction_completes(
    client, kafka_topic, kafka_group_id, ottla_broker, ottla_faults
):
    """librdkafka#3221, kafkajs#430, confluent-kafka-python#967: AddOffsetsToTxn answers CONCURRENT_TRANSACTIONS."""
    producer = client.txn_producer("tx-1")
    marker = ottla_faults.on_marker(topic=kafka_topic).hold()
    pay(producer, kafka_topic, b"first")
    producer.begin_transaction()
    with ThreadPoolExecutor() as thread:
        added = thread.submit(producer.send_offsets, {(kafka_topic, 0): 1}, kafka_group_id)
        ottla_broker.wait_for_outcome("CONCURRENT_TRANSACTIONS", api="AddOffsetsToTxn")
        marker.release()
        added.result()
    producer.commit_transaction()
    ottla_broker.assert_no_open_transactions(wait_s=WAIT_S)
    assert ottla_broker.committed(kafka_group_id) == {(kafka_topic, 0): 1}


def test_the_reply_to_a_marker_is_lost(client, kafka_topic, ottla_broker, ottla_faults):
    """KAFKA-19999: the marker came again with the epoch that it had, was refused, and the transaction never ended."""
    ottla_faults.on_marker(topic=kafka_topic, times=1).lose_reply()
    pay(client.txn_producer("tx-1"), kafka_topic, b"first")
    ottla_broker.assert_no_open_transactions(wait_s=WAIT_S)
    ottla_faults.on_marker(topic=kafka_topic, times=1).lose_reply()
    producer = ottla_broker.producer_by_hand("tx-2")
    assert producer.send(kafka_topic, b"second") == producer.commit() == ErrorCode.NONE
    ottla_broker.assert_no_open_transactions(wait_s=WAIT_S)
    ottla_broker.assert_committed(kafka_topic, ["first", "second"])


def test_the_epoch_of_a_transactional_producer_overflows_by_its_transactions(kafka_topic, ottla_broker):
    """KAFKA-18660 (kafka#18758): EndTxn gives another producer id, and the producer fenced itself with the old one."""
    ottla_broker.preset_epoch("tx-1", 32_763)
    producer = ottla_broker.producer_by_hand("tx-1")
    identities = [producer.identity]
    for number in range(4):
        assert producer.send(kafka_topic, b"%d" % number) == producer.commit() == ErrorCode.NONE
        identities.append(producer.identity)
        ottla_broker.assert_no_open_transactions(wait_s=WAIT_S)
    assert [epoch for _, epoch in identities] == [32_764, 32_765, 32_766, 0, 1]
    assert len({producer_id for producer_id, _ in identities}) == 2
    ottla_broker.assert_committed(kafka_topic, ["0", "1", "2", "3"])


def test_a_commit_resumed_after_the_last_epoch_needs_version_2(kafka_topic, ottla_broker):
    """FLINK-40689 (flink-connector-kafka#321): the checkpoint has (producer id, epoch) of a commit that has happened,
    and not the version that it was made with."""
    ottla_broker.preset_epoch("tx-1", 32_765)
    producer = ottla_broker.producer_by_hand("tx-1")
    stored = producer.identity
    assert producer.send(kafka_topic, b"once") == producer.commit() == ErrorCode.NONE
    ottla_broker.assert_no_open_transactions(wait_s=WAIT_S)
    assert producer.identity.producer_id != stored.producer_id
    older = ottla_broker.producer_by_hand("tx-1", version=1, identity=stored)
    assert older.commit() == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    same = ottla_broker.producer_by_hand("tx-1", version=2, identity=stored)
    assert same.commit() == ErrorCode.NONE
    ottla_broker.assert_committed(kafka_topic, ["once"])


@pytest.mark.parametrize("version", [1, 2])
def test_a_produce_that_arrives_after_the_abort_is_refused(version, kafka_topic, ottla_broker, ottla_faults):
    """franz-go#928, kcl#10: it began a transaction that never ended. Brokers refuse it since KIP-890; the recipe of a
    hanging transaction shows one that does not."""
    producer = ottla_broker.producer_by_hand("tx-1", version=version)
    producer.send(kafka_topic, b"in time")
    late = ottla_faults.on("Produce", topic=kafka_topic).hold()
    with ThreadPoolExecutor() as thread:
        answer = thread.submit(producer.send, kafka_topic, b"late")
        late.wait_hit()
        assert producer.abort() == ErrorCode.NONE
        ottla_broker.assert_no_open_transactions(wait_s=WAIT_S)
        late.release()
        assert answer.result() == {1: ErrorCode.TRANSACTION_ABORTABLE, 2: ErrorCode.INVALID_PRODUCER_EPOCH}[version]
    ottla_broker.assert_no_open_transactions()


def test_a_late_commit_of_the_last_transaction_commits_the_next(kafka_topic, ottla_broker, ottla_faults):
    """KAFKA-17754 (Jepsen, Bufstream 0.1.0): with transactions of version 1, what is to be aborted is committed."""
    second, answer = commit_late(1, kafka_topic, ottla_broker, ottla_faults)
    assert answer == ErrorCode.NONE
    assert second.abort() == ErrorCode.INVALID_TXN_STATE
    ottla_broker.assert_committed(kafka_topic, ["first", "second"])


def test_a_late_commit_of_the_last_transaction_is_fenced_from_the_next(kafka_topic, ottla_broker, ottla_faults):
    """KAFKA-17754 with transactions of version 2, where each has an epoch of its own."""
    second, answer = commit_late(2, kafka_topic, ottla_broker, ottla_faults)
    assert answer == ErrorCode.PRODUCER_FENCED
    assert second.abort() == ErrorCode.NONE
    ottla_broker.assert_committed(kafka_topic, ["first"])


def commit_late(version, topic, broker, faults):
    """Hold a commit, repeat it, and release it in the next transaction; return (its producer, the late answer)."""
    producer = broker.producer_by_hand("tx-1", version=version)
    producer.send(topic, b"first")
    held = faults.on("EndTxn").hold()
    with ThreadPoolExecutor() as thread:
        late = thread.submit(producer.commit)
        held.wait_hit()
        assert producer.commit() == ErrorCode.NONE
        broker.assert_no_open_transactions(wait_s=WAIT_S)
        assert producer.send(topic, b"second") == ErrorCode.NONE
        held.release()
        return producer, late.result()


@pytest.mark.parametrize("api", ["AddPartitionsToTxn", "EndTxn"])
def test_the_coordinator_moves_within_a_transaction(api, client, kafka_topic, ottla_broker, ottla_faults):
    """aiokafka#1134: the producer never looked for the coordinator again."""
    producer = client.txn_producer("tx-1")
    ottla_faults.on(api).reply("NOT_COORDINATOR")
    looked = ottla_faults.on("FindCoordinator", transactional_id="tx-1").delay(1)
    pay(producer, kafka_topic, b"once")
    assert looked.hits == 1
    ottla_broker.assert_committed(kafka_topic, ["once"])
