"""Batches that a partition accepts, and the bytes that it writes."""

import pytest

from ottla.broker.log.results import FetchIsolation
from ottla.protocol.batch import build_batch
from ottla.protocol.batch_header import TIMESTAMP_TYPE, iter_batches, read_header, seal, write_header
from ottla.protocol.errors import ErrorCode
from ottla.protocol.records import iter_records
from ottla.protocol.requests.produced import check_produced_batch
from ottla.protocol.values import TransactionMarker
from ottla.testkit.scanner import scan_partition

NOW_MS = 1_700_000_000_000


def only_batch(logs):
    (batch,) = scan_partition(logs.path()).batches
    return batch


def test_offsets_follow_each_other(logs, produce):
    partition = logs.partition(leader_epoch=3)
    first = produce(partition, 3)
    second = produce(partition, 2)
    assert (first.error, first.base_offset, first.last_offset, first.log_start_offset) == (0, 0, 2, 0)
    assert (second.base_offset, second.last_offset, second.log_append_time_ms) == (3, 4, -1)
    assert partition.log_end_offset == partition.high_watermark == partition.last_stable_offset == 5
    batches = scan_partition(logs.path()).batches
    assert [(b.base_offset, b.last_offset, b.leader_epoch) for b in batches] == [(0, 2, 3), (3, 4, 3)]


def test_the_bytes_are_the_client_s_but_for_offset_and_epoch(logs):
    partition = logs.partition(leader_epoch=1)
    data = build_batch([(b"k", b"v")] * 4, timestamp_ms=NOW_MS, compression=4)
    sent = bytes(data)
    partition.append_from_client(check_produced_batch(memoryview(data)), memoryview(data))
    written = logs.path(f"{0:020d}.log").read_bytes()
    assert written[16:] == sent[16:]


def test_bytes_after_the_batch_are_not_written(logs):
    partition = logs.partition()
    data = build_batch([(b"k", b"v")], timestamp_ms=NOW_MS)
    cut = memoryview(data + data[:20])
    assert partition.append_from_client(check_produced_batch(cut), cut).error == 0
    assert logs.path(f"{0:020d}.log").stat().st_size == len(data)


def test_the_largest_timestamp_is_recomputed(logs):
    partition = logs.partition()
    data = build_batch([(b"k", b"v", (), NOW_MS), (b"k", b"v", (), NOW_MS + 5)])
    write_header(data, read_header(data)._replace(max_timestamp=NOW_MS + 900))
    seal(data)
    partition.append_from_client(check_produced_batch(memoryview(data)), memoryview(data))
    assert only_batch(logs).max_timestamp == NOW_MS + 5


def test_append_time_replaces_the_client_s(logs, produce):
    partition = logs.partition(message_timestamp_type="LogAppendTime")
    logs.clock.ms += 77
    result = produce(partition, 2)
    assert result.log_append_time_ms == NOW_MS + 77
    assert [record.timestamp for record in only_batch(logs).records()] == [NOW_MS + 77] * 2


def claiming_append_time():
    data = build_batch([(b"k", b"v")], timestamp_ms=NOW_MS)
    write_header(data, read_header(data)._replace(attributes=TIMESTAMP_TYPE, max_timestamp=NOW_MS + 3))
    seal(data)
    return memoryview(data)


def test_an_append_time_topic_refuses_batches_marked_as_append_time(logs):
    partition = logs.partition(message_timestamp_type="LogAppendTime")
    data = claiming_append_time()
    assert partition.append_from_client(check_produced_batch(data), data).error is ErrorCode.INVALID_TIMESTAMP


def test_a_create_time_topic_clears_the_append_time_mark(logs):
    partition = logs.partition()
    data = claiming_append_time()
    assert partition.append_from_client(check_produced_batch(data), data).error is ErrorCode.NONE
    assert not only_batch(logs).attributes & TIMESTAMP_TYPE
    assert only_batch(logs).max_timestamp == NOW_MS + 3


@pytest.mark.parametrize(
    ("settings", "records", "error", "errors"),
    [
        ({"max_message_bytes": 70}, [(b"k", b"v" * 20)], ErrorCode.MESSAGE_TOO_LARGE, []),
        ({"segment_bytes": 70}, [(b"k", b"v" * 20)], ErrorCode.RECORD_LIST_TOO_LARGE, []),
        ({"cleanup_policy": "compact,delete"}, [(b"k", b"v"), (None, b"v")], ErrorCode.INVALID_RECORD, [1]),
        ({}, [(b"k", b"v"), (b"k", b"v", (), NOW_MS + 3_600_001)], ErrorCode.INVALID_TIMESTAMP, [1]),
        (
            {"message_timestamp_before_max_ms": 1000},
            [(b"k", b"v", (), NOW_MS - 1001), (b"k", b"v"), (b"k", b"v", (), NOW_MS - 1000)],
            ErrorCode.INVALID_TIMESTAMP,
            [0],
        ),
        (
            {"cleanup_policy": "compact,delete"},
            [(None, b"v"), (b"k", b"v", (), NOW_MS + 3_600_001)],
            ErrorCode.INVALID_TIMESTAMP,
            [0, 1],
        ),
    ],
)
def test_the_topic_s_rules(logs, produce, settings, records, error, errors):
    partition = logs.partition(**settings)
    result = produce(partition, records)
    assert result.error is error
    assert [index for index, _ in result.record_errors] == errors
    assert partition.log_end_offset == 0
    assert logs.manager.offline is None


@pytest.mark.parametrize("settings", [{"message_timestamp_before_max_ms": 1000}, {"message_timestamp_after_max_ms": 0}])
def test_a_record_without_timestamp_has_no_age(logs, produce, settings):
    assert produce(logs.partition(**settings), [(b"k", b"v", (), -1)]).error is ErrorCode.NONE


def test_a_batch_that_failed_its_check_is_answered_with_it(logs):
    data = memoryview(build_batch([(b"k", b"v")], timestamp_ms=NOW_MS))
    data[-1] ^= 1
    partition = logs.partition()
    assert partition.append_from_client(check_produced_batch(data), data).error is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd", "uncompressed"])
def test_the_topic_s_codec_replaces_the_producer_s(logs, produce, codec):
    partition = logs.partition(compression_type=codec)
    records = [(b"k", b"v" * 50, (("h", b"1"),), NOW_MS - 5), (None, None, (), NOW_MS)]
    result = produce(
        partition,
        records,
        compression=0 if codec != "uncompressed" else 1,
        producer_id=4,
        producer_epoch=1,
        base_sequence=9,
    )
    assert result.error is ErrorCode.NONE
    batch = only_batch(logs)
    assert batch.attributes == {"uncompressed": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}[codec]
    found = [(r.key, r.value, tuple(r.headers), r.timestamp, r.sequence) for r in batch.records()]
    assert found == [(*records[0], 9), (*records[1], 10)]
    assert produce(partition, producer_id=4, producer_epoch=1, base_sequence=11).error is ErrorCode.NONE


@pytest.mark.parametrize(
    ("codec", "compression", "error"),
    [("uncompressed", 1, ErrorCode.RECORD_LIST_TOO_LARGE), ("gzip", 0, ErrorCode.NONE)],
)
def test_a_segment_must_hold_what_is_written_not_what_was_sent(logs, produce, codec, compression, error):
    partition = logs.partition(compression_type=codec, segment_bytes=1_000)
    assert produce(partition, [(b"k", b"v" * 2_000)], compression=compression).error is error
    assert partition.log_end_offset == (error is ErrorCode.NONE)


def test_a_duplicate_is_answered_as_the_original_and_not_written(logs, transactor):
    partition = logs.partition()
    producer = transactor(partition, 5)
    producer.send(2, transactional=False)
    original = producer.send(3, transactional=False)
    producer.sequence -= 3
    again = producer.send(3, transactional=False)
    assert (again.error, again.duplicate) == (ErrorCode.NONE, True)
    assert (again.base_offset, again.last_offset) == (original.base_offset, original.last_offset)
    # The batch's timestamp, although the topic has CreateTime: what Kafka answers.
    assert again.log_append_time_ms == NOW_MS
    assert partition.log_end_offset == 5


def test_a_refused_batch_leaves_no_trace(logs, transactor):
    partition = logs.partition()
    producer = transactor(partition, 5)
    producer.sequence = 0
    producer.send()
    producer.sequence = 7
    assert producer.send().error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    producer.sequence = 1
    assert producer.send().error is ErrorCode.NONE
    assert partition.log_end_offset == 2


def test_the_last_stable_offset_is_that_of_the_first_open_transaction(logs, produce, transactor):
    partition = logs.partition()
    produce(partition)
    one, two = transactor(partition, 1), transactor(partition, 2)
    one.send()
    two.send(2)
    produce(partition)
    assert partition.last_stable_offset == 1
    assert partition.producer_of(1).current_txn_first_offset >= 0
    assert partition.producer_of(1).epoch == 0
    one.end(commit=True)
    assert partition.last_stable_offset == 2
    two.end(commit=False)
    assert partition.last_stable_offset == partition.log_end_offset == 7
    assert scan_partition(logs.path()).fates == ["plain", "committed", "aborted", "plain", "committed", "aborted"]


def test_a_marker_without_a_transaction_is_written(logs):
    partition = logs.partition()
    assert partition.append_marker(TransactionMarker(9, 3, 2, True, 1)).base_offset == 0
    assert partition.producer_of(9).epoch == 3
    assert only_batch(logs).marker == "commit"
    assert only_batch(logs).coordinator_epoch == 2


def test_a_stale_marker_is_not_written(logs, transactor):
    partition = logs.partition()
    transactor(partition, 1, epoch=4).send()
    assert partition.append_marker(TransactionMarker(1, 3, 0, True, 1)).error is ErrorCode.INVALID_PRODUCER_EPOCH
    assert partition.append_marker(TransactionMarker(1, 4, 0, True, 2)).error is ErrorCode.INVALID_PRODUCER_EPOCH
    assert partition.log_end_offset == 1


def test_a_coordinator_appends_without_sequences_but_not_with_an_old_epoch(logs):
    partition = logs.partition("__consumer_offsets")
    batch = {"timestamp_ms": NOW_MS, "producer_id": 3, "transactional": True}
    assert partition.append_own(build_batch([(b"k", b"v")], producer_epoch=2, **batch)).error is ErrorCode.NONE
    assert partition.append_own(build_batch([(b"k", b"v")], producer_epoch=2, **batch)).last_offset == 1
    assert partition.last_stable_offset == 0
    stale = partition.append_own(build_batch([(b"k", b"v")], producer_epoch=1, **batch))
    assert stale.error is ErrorCode.INVALID_PRODUCER_EPOCH


def test_own_batches_may_hold_several_records(logs):
    partition = logs.partition()
    result = partition.append_own(build_batch([(b"a", b"1"), (b"b", b"2")], timestamp_ms=NOW_MS))
    assert (result.base_offset, result.last_offset) == (0, 1)
    ((_, header),) = iter_batches(partition.read(0, 1000).records)
    assert [record.key for record in iter_records(partition.read(0, 1000).records, header)] == [b"a", b"b"]


def test_a_segment_is_rolled_when_it_is_full(logs, produce):
    partition = logs.partition(segment_bytes=300)
    for _ in range(9):
        produce(partition)
    bases = sorted(int(path.stem) for path in logs.path().glob("*.log"))
    assert bases == [0, 3, 6]
    assert all(path.stat().st_size <= 300 for path in logs.path().glob("*.log"))
    assert sorted(path.name for path in logs.path().glob("*.snapshot")) == [f"{n:020d}.snapshot" for n in (3, 6)]


def test_a_segment_is_rolled_by_the_time_of_its_records(logs, produce):
    partition = logs.partition(segment_ms=1000)
    for offset_ms in (0, 1000, 1001):
        produce(partition, timestamp_ms=NOW_MS + offset_ms)
    assert [int(path.stem) for path in sorted(logs.path().glob("*.log"))] == [0, 2]


def test_a_segment_is_rolled_when_an_index_is_full(logs, produce):
    partition = logs.partition(index_interval_bytes=1, segment_index_bytes=24)
    for n in range(6):
        produce(partition, timestamp_ms=NOW_MS + n)
    assert [int(path.stem) for path in sorted(logs.path().glob("*.log"))] == [0, 2, 4]


def test_a_segment_is_rolled_before_offsets_leave_32_bits(logs, produce):
    partition = logs.partition()
    produce(partition)
    partition.append_own(build_batch([(b"k", b"v")], last_offset_delta=2**31 - 3, timestamp_ms=NOW_MS))
    assert partition.log_end_offset == 2**31 - 1
    produce(partition)
    produce(partition)
    assert [int(path.stem) for path in sorted(logs.path().glob("*.log"))] == [0, 2**31]


def test_a_write_that_fails_is_not_acknowledged_and_takes_the_directory_offline(logs, produce):
    partition, other = logs.partition(), logs.partition("other")
    produce(partition)
    size = logs.path(f"{0:020d}.log").stat().st_size
    logs.disk.short_write = 30
    result = produce(partition)
    assert result.error is ErrorCode.KAFKA_STORAGE_ERROR
    assert logs.path(f"{0:020d}.log").stat().st_size == size
    assert produce(partition).error is ErrorCode.KAFKA_STORAGE_ERROR
    assert produce(other).error is ErrorCode.KAFKA_STORAGE_ERROR
    assert partition.read(0, 1000).error is ErrorCode.KAFKA_STORAGE_ERROR
    assert partition.append_marker(TransactionMarker(1, 0, 0, True, 1)).error is ErrorCode.KAFKA_STORAGE_ERROR
    assert "No space left" in partition.offline


def test_the_remains_of_a_failed_write_are_cut_off_at_the_next_start(logs, produce):
    partition = logs.partition()
    produce(partition)
    size = logs.path(f"{0:020d}.log").stat().st_size
    logs.disk.short_write, logs.disk.keep_short_write = 30, True
    produce(partition)
    logs.stop()
    assert logs.path(f"{0:020d}.log").stat().st_size == size + 30
    logs.start()
    assert not logs.manager.clean_start
    partition = logs.partition()
    assert logs.path(f"{0:020d}.log").stat().st_size == size
    assert produce(partition).base_offset == 1


def test_waiting_fetches_are_woken_by_an_append_and_by_a_failure(logs, produce):
    partition = logs.partition()
    woken = []

    class Waiter:
        def wake(self, value):
            woken.append(value)

    first, second = Waiter(), Waiter()
    partition.add_waiting_fetch(first)
    partition.add_waiting_fetch(second)
    partition.remove_waiting_fetch(second)
    produce(partition)
    assert woken == [None]
    produce(partition)
    assert woken == [None]
    partition.add_waiting_fetch(first)
    logs.disk.short_write = 1
    produce(partition)
    assert woken == [None, None]


def test_durability_is_reported_for_what_is_written(logs, produce):
    partition = logs.partition()
    durable = []
    partition.when_durable(0, lambda error: durable.append("first"))
    assert durable == []
    produce(partition)
    assert durable == ["first"]
    partition.when_durable(0, lambda error: durable.append("at once"))
    assert durable == ["first", "at once"]


def test_expired_producers_are_forgotten(logs, transactor):
    partition = logs.partition()
    producer = transactor(partition, 1)
    producer.send(transactional=False)
    assert sum(partition.log.remove_expired_producers(NOW_MS + 86_400_000)) == 1
    producer.sequence = 500
    assert producer.send().error is ErrorCode.NONE


def test_a_leader_s_epoch_begins_where_its_log_ends(logs, produce):
    partition = logs.partition(leader_epoch=2)
    produce(partition, 3)
    assert partition.end_offset_for_epoch(2) == (2, 3)
    logs.stop()
    logs.start()
    partition = logs.partition(leader_epoch=5)
    assert partition.end_offset_for_epoch(2) == (2, 3)
    produce(partition)
    assert partition.end_offset_for_epoch(3) == (2, 3)
    assert partition.end_offset_for_epoch(5) == (5, 4)
    assert partition.end_offset_for_epoch(6) == (-1, -1)
    assert logs.path("leader-epoch-checkpoint").read_text() == "0\n2\n2 0\n5 3\n"


def test_limits_agree_when_nothing_is_open(logs, produce):
    partition = logs.partition()
    produce(partition)
    reads = {partition.read(0, 1000, isolation=isolation).records for isolation in FetchIsolation}
    assert len(reads) == 1
