"""Reads of a partition: the batches that a reader gets."""

import pytest

from ottla.broker.log.batches import iter_file, iter_runs
from ottla.broker.log.results import FetchIsolation
from ottla.broker.log.timestamps import max_timestamp_offset, offset_for_timestamp
from ottla.protocol.batch import build_batch
from ottla.protocol.batch_header import iter_batches
from ottla.protocol.errors import ErrorCode, ProtocolError
from ottla.protocol.steps import to_the_end

NOW_MS = 1_700_000_000_000


def offsets(records):
    return [header.base_offset for _, header in iter_batches(records)]


def test_a_read_begins_with_the_batch_that_holds_the_offset(logs, produce):
    partition = logs.partition()
    for _ in range(4):
        produce(partition, 3)
    assert offsets(partition.read(0, 10_000).records) == [0, 3, 6, 9]
    assert offsets(partition.read(5, 10_000).records) == [3, 6, 9]
    assert offsets(partition.read(11, 10_000).records) == [9]


def test_a_read_at_the_end_is_empty_and_past_it_is_out_of_range(logs, produce):
    partition = logs.partition()
    assert partition.read(0, 1000) == (ErrorCode.NONE, b"", None)
    produce(partition, 2)
    assert partition.read(2, 1000) == (ErrorCode.NONE, b"", None)
    assert partition.read(2, 1000, isolation=FetchIsolation.TXN_COMMITTED) == (ErrorCode.NONE, b"", [])
    assert partition.read(3, 1000).error is ErrorCode.OFFSET_OUT_OF_RANGE
    assert partition.read(-1, 1000).error is ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_read_returns_whole_batches_within_the_limit_or_one_larger(logs, produce):
    partition = logs.partition()
    for _ in range(5):
        produce(partition)
    size = len(partition.read(0, 1).records)
    assert offsets(partition.read(0, 1).records) == [0]
    assert partition.read(0, 1, min_one_batch=False) == (ErrorCode.NONE, b"", None)
    assert offsets(partition.read(1, 2 * size).records) == [1, 2]
    assert offsets(partition.read(1, 3 * size - 1).records) == [1, 2]
    assert offsets(partition.read(1, 3 * size - 1, min_one_batch=False).records) == [1, 2]


def test_a_read_stays_in_its_segment(logs, produce):
    partition = logs.partition(segment_bytes=300)
    for _ in range(7):
        produce(partition)
    assert offsets(partition.read(1, 10_000).records) == [1, 2]
    assert offsets(partition.read(3, 10_000).records) == [3, 4, 5]
    assert offsets(partition.read(6, 10_000).records) == [6]


@pytest.mark.parametrize("interval", [0, 100, 4096])
@pytest.mark.parametrize("max_bytes", [1, 200, 777, 5000, 10**6])
def test_consecutive_reads_return_every_batch_once(logs, produce, interval, max_bytes):
    partition = logs.partition(segment_bytes=20_000, index_interval_bytes=interval)
    for n in range(200):
        produce(partition, 1 + n % 3, value=b"v" * (n * 37 % 900))
    for isolation in (FetchIsolation.HIGH_WATERMARK, FetchIsolation.TXN_COMMITTED):
        position, seen = 0, []
        while position < partition.high_watermark:
            for _, header in iter_batches(partition.read(position, max_bytes, isolation=isolation).records):
                seen.append((header.base_offset, header.next_offset))
                position = header.next_offset
        assert len(seen) == 200
        assert [begin for begin, _ in seen[1:]] == [end for _, end in seen[:-1]]
    for offset in range(partition.high_watermark):
        first = next(iter_batches(partition.read(offset, max_bytes).records))[1]
        assert first.base_offset <= offset <= first.last_offset


def test_a_committed_reader_stops_at_the_first_open_transaction(logs, produce, transactor):
    partition = logs.partition()
    produce(partition, 2)
    transactor(partition, 1).send()
    produce(partition)
    assert offsets(partition.read(0, 10_000, isolation=FetchIsolation.TXN_COMMITTED).records) == [0]
    assert partition.read(2, 10_000, isolation=FetchIsolation.TXN_COMMITTED) == (ErrorCode.NONE, b"", [])
    assert partition.read(3, 10_000, isolation=FetchIsolation.TXN_COMMITTED) == (ErrorCode.NONE, b"", [])
    assert offsets(partition.read(0, 10_000, isolation=FetchIsolation.LOG_END).records) == [0, 2, 3]


def test_a_committed_read_lists_the_aborted_transactions_of_its_range(logs, produce, transactor):
    partition = logs.partition()
    one, two = transactor(partition, 1), transactor(partition, 2)
    one.send()  # 0
    two.send()  # 1
    one.end(commit=False)  # 2
    one.send()  # 3
    one.end(commit=True)  # 4
    two.end(commit=False)  # 5
    assert partition.read(0, 10_000).aborted is None
    assert partition.read(0, 10_000, isolation=FetchIsolation.TXN_COMMITTED).aborted == [(1, 0), (2, 1)]
    # The marker of the first transaction is before offset 3, the marker of the second after it.
    assert partition.read(3, 10_000, isolation=FetchIsolation.TXN_COMMITTED).aborted == [(2, 1)]


def test_aborted_transactions_are_found_in_later_segments(logs, produce, transactor):
    partition = logs.partition(segment_bytes=300)
    producer = transactor(partition, 1)
    producer.send()
    for _ in range(10):
        produce(partition)
    producer.end(commit=False)
    produce(partition)
    assert len(list(logs.path().glob("*.log"))) > 3
    assert partition.read(0, 100, isolation=FetchIsolation.TXN_COMMITTED).aborted == [(1, 0)]


def test_bytes_available_counts_what_a_read_would_find(logs, produce, transactor):
    partition = logs.partition()
    assert partition.bytes_available(0, FetchIsolation.HIGH_WATERMARK, 1) == 0
    for _ in range(3):
        produce(partition)
    size = len(partition.read(0, 1).records)
    assert partition.bytes_available(0, FetchIsolation.HIGH_WATERMARK, 10_000) == 3 * size
    assert partition.bytes_available(2, FetchIsolation.HIGH_WATERMARK, 10_000) == size
    assert partition.bytes_available(3, FetchIsolation.HIGH_WATERMARK, 10_000) == 0
    transactor(partition, 1).send()
    assert partition.bytes_available(1, FetchIsolation.TXN_COMMITTED, 10_000) == 2 * size
    assert partition.bytes_available(3, FetchIsolation.TXN_COMMITTED, 10_000) == 0


def test_bytes_in_a_sealed_segment_are_enough(logs, produce):
    partition = logs.partition(segment_bytes=300)
    for _ in range(7):
        produce(partition)
    assert partition.bytes_available(0, FetchIsolation.HIGH_WATERMARK, 10_000) == 10_000


def test_scan_yields_every_batch_up_to_the_end_of_the_moment(logs, produce):
    partition = logs.partition(segment_bytes=300)
    for _ in range(5):
        produce(partition, 1)
    found = []
    for header, batch in partition.scan(1):
        found.append(header.base_offset)
        assert len(batch) == header.size_bytes
        produce(partition)
    assert found == [1, 2, 3, 4]
    assert list(partition.scan(partition.log_end_offset)) == []


def test_offsets_are_found_by_timestamp(logs, produce):
    partition = logs.partition(segment_bytes=400, index_interval_bytes=100)
    for n in range(12):
        produce(partition, [(b"k", b"v", (), NOW_MS + 20 * n), (b"k", b"v", (), NOW_MS + 20 * n + 10)])
    for target in range(NOW_MS - 5, NOW_MS + 235, 5):
        expected = max(0, -(-(target - NOW_MS) // 10))
        found = to_the_end(offset_for_timestamp(partition, target, FetchIsolation.HIGH_WATERMARK))
        assert found == ((expected, NOW_MS + 10 * expected, 0) if expected < 24 else (-1, -1, -1))
    assert to_the_end(max_timestamp_offset(partition, FetchIsolation.HIGH_WATERMARK)) == (23, NOW_MS + 230, 0)


def test_timestamps_need_not_ascend(logs, produce):
    partition = logs.partition(index_interval_bytes=0)
    for ms in (50, 10, 90, 20, 90, 70):
        produce(partition, timestamp_ms=NOW_MS + ms)
    assert to_the_end(offset_for_timestamp(partition, NOW_MS + 15, FetchIsolation.LOG_END)).offset == 0
    assert to_the_end(offset_for_timestamp(partition, NOW_MS + 60, FetchIsolation.LOG_END)).offset == 2
    assert to_the_end(offset_for_timestamp(partition, NOW_MS + 91, FetchIsolation.LOG_END)).offset == -1
    assert to_the_end(max_timestamp_offset(partition, FetchIsolation.LOG_END)) == (2, NOW_MS + 90, 0)


def test_a_search_by_time_ignores_records_above_the_last_stable_offset(logs, produce, transactor):
    partition = logs.partition()
    produce(partition)
    transactor(partition, 1).send(timestamp_ms=NOW_MS + 9)
    assert to_the_end(offset_for_timestamp(partition, NOW_MS + 5, FetchIsolation.HIGH_WATERMARK)).offset == 1
    assert to_the_end(offset_for_timestamp(partition, NOW_MS + 5, FetchIsolation.TXN_COMMITTED)).offset == -1
    assert to_the_end(max_timestamp_offset(partition, FetchIsolation.TXN_COMMITTED)).offset == -1


def test_an_empty_partition_has_no_timestamps(logs):
    partition = logs.partition()
    assert to_the_end(max_timestamp_offset(partition, FetchIsolation.LOG_END)) == (-1, -1, -1)
    assert to_the_end(offset_for_timestamp(partition, 0, FetchIsolation.LOG_END)) == (-1, -1, -1)


def test_offset_gaps_are_skipped(logs):
    """Compaction leaves gaps inside batches and between them."""
    partition = logs.partition()
    batch = {"timestamp_ms": NOW_MS, "offset_deltas": [2], "last_offset_delta": 4}
    for _ in range(3):
        partition.append_own(build_batch([(b"k", b"v")], **batch))
    assert offsets(partition.read(1, 1).records) == [0]
    assert offsets(partition.read(4, 1).records) == [0]
    assert offsets(partition.read(5, 1).records) == [5]


def test_a_batch_header_that_rotted_takes_the_partition_offline(logs, produce, caplog):
    partition = logs.partition()
    for _ in range(3):
        produce(partition)
    size = len(partition.read(0, 1).records)
    with logs.path(f"{0:020d}.log").open("r+b") as file:
        file.seek(size + 8)
        file.write(bytes(4))
    assert partition.read(2, 1000).error is ErrorCode.KAFKA_STORAGE_ERROR
    assert f"position {size}" in caplog.text
    assert "--truncate-damaged t-0" in caplog.text
    assert partition.read(0, 1000).error is ErrorCode.KAFKA_STORAGE_ERROR


@pytest.mark.parametrize("position", [8, 61], ids=["batch length", "record length"])
def test_damage_that_a_search_by_time_meets_takes_the_partition_offline(logs, produce, caplog, position):
    partition = logs.partition()
    produce(partition, 3)
    path = next(logs.path().glob("*.log"))
    content = bytearray(path.read_bytes())
    content[position] = 0x7F
    path.write_bytes(content)
    assert to_the_end(offset_for_timestamp(partition, NOW_MS, FetchIsolation.HIGH_WATERMARK)) is None
    assert "is damaged" in partition.offline
    assert to_the_end(max_timestamp_offset(partition, FetchIsolation.HIGH_WATERMARK)) is None
    assert len(caplog.records) == 1 and "--truncate-damaged t-0" in caplog.text


def test_damage_that_a_replay_meets_is_broken_bytes_to_it(logs, produce):
    partition = logs.partition()
    produce(partition, 3)
    with logs.path(f"{0:020d}.log").open("r+b") as file:
        file.seek(8)
        file.write(bytes(4))
    with pytest.raises(ProtocolError, match="batch length 0 at position 0"):
        list(partition.scan(0))


def test_a_run_of_batches_is_short_however_small_they_are(logs, produce):
    partition = logs.partition()
    for _ in range(1_000):
        produce(partition)
    segment = partition.log.segments.active
    runs = list(iter_runs(segment.file, 0, segment.size_bytes, 0, 2**31, True))
    assert sum(len(run.headers) for run in runs) == 1_000
    assert max(len(run.headers) for run in runs) <= 256
    assert b"".join(run.data for run in runs) == partition.read(0, 1 << 20).records
    assert [run.position for run in runs] == [sum(len(run.data) for run in runs[:at]) for at in range(len(runs))]


def test_a_batch_that_the_end_of_a_chunk_cuts_is_read_as_a_whole(logs, produce):
    partition = logs.partition()
    for _ in range(40):
        produce(partition, [(None, bytes(100_000))])
    segment = partition.log.segments.active
    found = [header.base_offset for _, header, _ in iter_file(segment.file, 0, segment.size_bytes, check_crc=True)]
    assert found == list(range(40))
