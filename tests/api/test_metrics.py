"""Metrics of a broker in memory: requests and errors, topics, transactions, waits and syncs."""

import pytest

from ottla.broker.api import offset_commit
from ottla.protocol.api_keys import ApiKey as K
from ottla.protocol.errors import ErrorCode as E
from tests.api.callers import LEDGER, OF_NOBODY, Producer, batch, coordinating, produce


@pytest.fixture
def broker():
    return coordinating()


@pytest.fixture
def metrics(broker):
    metrics = broker.assembly.broker.metrics
    metrics.measure(lambda: broker.schedule.now_ms)
    return metrics


def test_a_request_is_counted_in_its_version(broker, metrics):
    before = metrics.apis[K.PRODUCE].requests
    produce(broker, batch(), version=9)
    produce(broker, batch(), version=7)
    assert metrics.apis[K.PRODUCE].requests == before + 2
    assert metrics.apis[K.PRODUCE].versions[7] == metrics.apis[K.PRODUCE].versions[9] == 1
    assert metrics.apis[K.PRODUCE].time.count == 2


def test_durations_are_not_measured_until_measuring_is_enabled(broker):
    producer = Producer(broker)
    producer.begin(0)
    producer.end()
    metrics = broker.assembly.broker.metrics
    assert {api.time.count for api in metrics.apis.values()} == {0}
    assert metrics.transactions.marker_phase.count == 0
    assert metrics.transactions.committed == 1


def test_an_error_of_a_row_is_counted_by_its_code(broker, metrics):
    produce(broker, batch(), topic="nowhere")
    assert metrics.apis[K.PRODUCE].errors == {E.UNKNOWN_TOPIC_OR_PARTITION: 1}
    broker.call(K.FETCH, 4, max_wait_ms=0, max_bytes=1, topics=[_build_topic("nowhere", 0)])
    assert metrics.apis[K.FETCH].errors == {E.UNKNOWN_TOPIC_OR_PARTITION: 1}


def test_an_error_of_a_whole_request_is_counted_by_its_code(broker, metrics):
    broker.call(K.HEARTBEAT, 3, group_id="g", generation_id=1, member_id="nobody")
    assert metrics.apis[K.HEARTBEAT].errors == {E.UNKNOWN_MEMBER_ID: 1}


def test_bytes_and_records_are_counted_by_partition_and_in_total(broker, metrics):
    records = batch(3)
    produce(broker, records, partition=1)
    partition = broker.assembly.broker.cluster.partition(LEDGER, 1)
    assert (partition.bytes_in, partition.records_in, partition.bytes_out) == (len(records), 3, 0)
    assert (partition.produce_requests, partition.fetch_requests) == (1, 0)
    broker.call(K.FETCH, 4, max_wait_ms=0, max_bytes=1 << 20, topics=[_build_topic(LEDGER, 1)])
    assert partition.bytes_out == metrics.bytes_out == len(records)
    assert partition.fetch_requests == 1
    assert (metrics.bytes_in, metrics.records_in) == (len(records), 3)


def test_duplicates_and_gaps_are_not_counted_as_records_in(broker, metrics):
    numbered = batch(producer_id=5, producer_epoch=0, base_sequence=0)
    produce(broker, numbered)
    produce(broker, numbered)
    produce(broker, batch(producer_id=5, producer_epoch=0, base_sequence=7))
    assert (metrics.records_in, metrics.duplicates, metrics.sequence_gaps) == (1, 1, 1)


def test_transactions_are_counted_by_what_became_of_them(broker, metrics):
    producer = Producer(broker)
    for sequence, committed in enumerate((True, True, False)):
        assert {*producer.add((LEDGER, (0, 1))).values()} == {E.NONE}
        for index in (0, 1):
            assert producer.produce(sequence=sequence, partition=index)[0] is E.NONE
        assert producer.end(committed=committed) is E.NONE
    found = metrics.transactions
    assert (found.begun, found.committed, found.aborted, found.timed_out) == (3, 2, 1, 0)
    assert found.marker_phase.count == 3


def test_a_transaction_that_times_out_is_aborted(broker, metrics):
    producer = Producer(broker, timeout_ms=1_000)
    producer.begin(0)
    broker.advance(30_000)
    assert (metrics.transactions.aborted, metrics.transactions.timed_out) == (1, 1)


def test_fenced_requests_are_counted(broker, metrics):
    old = Producer(broker)
    old.begin(0)
    Producer(broker)
    assert old.end() is E.PRODUCER_FENCED
    assert metrics.fenced == 1
    assert metrics.apis[K.END_TXN].errors == {E.PRODUCER_FENCED: 1}
    assert old.produce(sequence=1)[0] is E.INVALID_PRODUCER_EPOCH
    assert metrics.fenced == 2


def test_a_fenced_addition_counts_as_fenced_if_the_producer_itself_sent_it(broker, metrics):
    old = Producer(broker)
    Producer(broker)
    assert {*old.add((LEDGER, (0, 1))).values()} == {E.PRODUCER_FENCED}
    assert metrics.fenced == 1
    topics = [{"name": LEDGER, "partitions": [0]}]
    broker.call(K.ADD_PARTITIONS_TO_TXN, 4, transactions=[{**old.owner, "verify_only": False, "topics": topics}])
    assert metrics.apis[K.ADD_PARTITIONS_TO_TXN].errors == {E.PRODUCER_FENCED: 3}
    assert metrics.fenced == 1


def test_a_fenced_commit_of_many_rows_counts_once(broker, metrics):
    old = Producer(broker)
    old.add_offsets()
    Producer(broker)
    count = offset_commit.ROWS_AT_ONCE * 2
    rows = [{"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}] * count
    topics = [{"name": LEDGER, "partitions": rows}]
    broker.call(K.TXN_OFFSET_COMMIT, 2, **old.owner, group_id="g", topics=topics)
    assert metrics.apis[K.TXN_OFFSET_COMMIT].errors == {E.INVALID_PRODUCER_EPOCH: count}
    assert metrics.fenced == 1


def test_a_reader_waits_for_data_or_for_the_end_of_a_transaction(broker, metrics):
    asked = {"max_wait_ms": 500, "min_bytes": 1, "max_bytes": 1 << 20, "isolation_level": 1}
    broker.call(K.FETCH, 4, **asked, topics=[_build_topic(LEDGER, 2)])
    assert (metrics.waits["data"].begun, metrics.waits["last_stable_offset"].begun) == (1, 0)
    assert metrics.waits["data"].ms == pytest.approx(500)
    Producer(broker).begin(2)
    broker.call(K.FETCH, 4, **asked, topics=[_build_topic(LEDGER, 2)])
    assert (metrics.waits["data"].begun, metrics.waits["last_stable_offset"].begun) == (1, 1)


def test_a_sync_is_timed_and_the_batches_that_it_covers_are_counted():
    broker = coordinating(log_flush_interval_messages=1)
    metrics = broker.assembly.broker.metrics
    metrics.measure(lambda: broker.schedule.now_ms)
    syncs, waits = metrics.syncs.time.count, metrics.waits["sync"].begun
    batches = metrics.syncs.batches.sum
    for client in [broker.client(f"client-{number}") for number in range(3)]:
        rows = [{"index": 0, "records": batch()}]
        topics = [{"name": LEDGER, "partition_data": rows}]
        client.post(K.PRODUCE, 9, transactional_id=None, acks=-1, timeout_ms=1_000, topic_data=topics)
    broker.advance(100)
    assert metrics.waits["sync"].begun == waits + 3
    assert metrics.syncs.batches.sum == batches + 3
    assert syncs < metrics.syncs.time.count <= syncs + 2
    assert metrics.waits["sync"].ms > 0


def test_accepted_and_open_connections_are_counted(broker, metrics):
    accepted, here = metrics.connections_accepted, len(metrics.connections)
    client = broker.client()
    assert (metrics.connections_accepted, len(metrics.connections)) == (accepted + 1, here + 1)
    client.hang_up()
    assert (metrics.connections_accepted, len(metrics.connections)) == (accepted + 1, here)


def test_a_refused_commit_is_counted_row_by_row(broker, metrics):
    rows = [{"partition_index": index, "committed_offset": 1, "committed_metadata": ""} for index in (0, 99)]
    broker.call(K.OFFSET_COMMIT, 8, **OF_NOBODY, topics=[{"name": LEDGER, "partitions": rows}])
    assert metrics.apis[K.OFFSET_COMMIT].errors == {E.UNKNOWN_TOPIC_OR_PARTITION: 1}


def _build_topic(topic, partition, offset=0):
    row = {"partition": partition, "fetch_offset": offset, "partition_max_bytes": 1 << 20}
    return {"topic": topic, "partitions": [row]}
