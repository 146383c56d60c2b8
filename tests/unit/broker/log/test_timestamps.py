"""A search by time finds the record that a full scan finds, in short steps, even if the log changes meanwhile."""

import random

import pytest

from ottla.broker.log.results import FetchIsolation
from ottla.broker.log.timestamps import max_timestamp_offset, offset_for_timestamp
from ottla.protocol import record_frames
from ottla.protocol.batch import build_batch
from ottla.protocol.batch_header import read_header, set_append_time
from ottla.protocol.compression import NAMES
from ottla.protocol.errors import ErrorCode
from ottla.protocol.record_frames import empty_batch
from ottla.protocol.records import iter_records
from ottla.protocol.steps import SHORT_US, Work, to_the_end

NOW_MS = 1_700_000_000_000
NOTHING = (-1, -1, -1)
RECORDS = 6_000


def steps_of(steps):
    """Return (the result of the steps, the values that they yielded)."""
    seen, answer = [], None
    while True:
        try:
            step = steps.send(answer)
        except StopIteration as stop:
            return stop.value, seen
        seen.append(step)
        answer = step.call() if isinstance(step, Work) else None


def naive(partition, timestamp_ms):
    """Return the first record of at least `timestamp_ms` by reading all readable records."""
    for record in all_records(partition):
        if record.timestamp >= timestamp_ms and record.offset >= partition.log_start_offset:
            return record.offset, record.timestamp, 0
    return NOTHING


def all_records(partition):
    return [record for header, batch in partition.scan(0) for record in iter_records(batch, header)]


def written(partition, batch):
    """Append a batch as compaction, or another broker, might have left it."""
    result = partition.append_own(batch)
    assert result.error is ErrorCode.NONE
    return result


@pytest.mark.parametrize("seed", range(12))
def test_a_search_by_time_finds_the_record_that_a_full_scan_finds(logs, seed):
    draw = random.Random(seed)
    partition = logs.partition(segment_bytes=3_000, index_interval_bytes=draw.choice([0, 200, 4096]))
    for _ in range(60):
        deltas = sorted(draw.sample(range(9), draw.randint(1, 5)))
        batch = build_batch(
            [(b"k", bytes(draw.randint(0, 90)), (), NOW_MS + draw.randrange(300)) for _ in deltas],
            compression=draw.randrange(5),
            offset_deltas=deltas,
            last_offset_delta=draw.choice([deltas[-1], 9]),
        )
        if draw.random() < 0.3:
            set_append_time(batch, NOW_MS + draw.randrange(300))
        written(partition, batch)
    largest = max(all_records(partition), key=lambda record: record.timestamp)
    assert to_the_end(max_timestamp_offset(partition, FetchIsolation.LOG_END)) == (largest.offset, largest.timestamp, 0)
    partition.raise_log_start(draw.randrange(partition.log_end_offset))
    for timestamp_ms in range(NOW_MS - 1, NOW_MS + 301, 3):
        found = to_the_end(offset_for_timestamp(partition, timestamp_ms, FetchIsolation.LOG_END))
        assert found == naive(partition, timestamp_ms), timestamp_ms


@pytest.mark.parametrize("codec", NAMES)
@pytest.mark.parametrize("wanted", [0, 1, 3_999, RECORDS - 1])
def test_a_large_batch_is_searched_in_short_steps(logs, produce, codec, wanted):
    partition = logs.partition(max_message_bytes=1 << 22)
    records = [(b"key", bytes(60), (), NOW_MS + n) for n in range(RECORDS)]
    assert produce(partition, records, compression=codec).error is ErrorCode.NONE
    found, seen = steps_of(offset_for_timestamp(partition, NOW_MS + wanted, FetchIsolation.LOG_END))
    assert found == (wanted, NOW_MS + wanted, 0)
    here = [step for step in seen if not isinstance(step, Work)]
    assert all(step <= SHORT_US for step in here), "what takes longer is for a worker"
    assert sum(here) < 2 * SHORT_US + wanted, "it stops where it finds"
    found, _ = steps_of(max_timestamp_offset(partition, FetchIsolation.LOG_END))
    assert found == (RECORDS - 1, NOW_MS + RECORDS - 1, 0)


def test_records_of_append_time_are_not_decompressed_to_find_the_first(logs, produce):
    partition = logs.partition(max_message_bytes=1 << 22, message_timestamp_type="LogAppendTime")
    produce(partition, [(b"key", bytes(60))] * RECORDS, compression=4)
    partition.raise_log_start(17)
    found, seen = steps_of(offset_for_timestamp(partition, NOW_MS, FetchIsolation.LOG_END))
    assert found == (17, NOW_MS, 0)
    assert not any(isinstance(step, Work) for step in seen)


def test_a_batch_that_is_larger_than_ottla_reads_takes_no_partition_offline(logs, produce, monkeypatch, caplog):
    monkeypatch.setattr(record_frames, "READ_LIMIT_BYTES", 10_000)
    partition = logs.partition(max_message_bytes=1 << 22)
    produce(partition, [(b"key", bytes(60), (), NOW_MS + n) for n in range(RECORDS)], compression=4)
    found, _ = steps_of(offset_for_timestamp(partition, NOW_MS + 5, FetchIsolation.LOG_END))
    assert found is None and partition.offline is None
    assert "larger than Ottla reads: the zstd records take more than 10,000 bytes" in caplog.text
    assert "truncate" not in caplog.text


def test_many_batches_whose_times_do_not_ascend_are_passed_in_short_steps(logs, produce):
    partition = logs.partition(index_interval_bytes=1 << 30)
    for number in range(3_000):
        produce(partition, timestamp_ms=NOW_MS + (number == 2_999), value=b"")
    found, seen = steps_of(offset_for_timestamp(partition, NOW_MS + 1, FetchIsolation.LOG_END))
    assert found.offset == 2_999
    assert len(seen) > 3 and max(seen) <= SHORT_US


def test_a_search_over_many_segments_yields_for_each_of_them(logs, produce):
    partition = logs.partition(segment_bytes=100)
    for number in range(30):
        produce(partition, timestamp_ms=NOW_MS + number)
    assert len(partition.log.segments) == 30
    for steps in (
        offset_for_timestamp(partition, NOW_MS + 29, FetchIsolation.LOG_END),
        max_timestamp_offset(partition, FetchIsolation.LOG_END),
    ):
        found, seen = steps_of(steps)
        assert found.offset == 29 and len(seen) >= 29


def finish(partition, timestamp_ms, meanwhile, after=1):
    """Finish the search, and change the log after it has been suspended this many times."""
    steps = offset_for_timestamp(partition, timestamp_ms, FetchIsolation.LOG_END)
    for _ in range(after):
        assert not isinstance(next(steps), Work)
    meanwhile()
    return to_the_end(steps)


def test_segments_that_are_deleted_during_a_search_are_not_opened_again(logs, produce):
    partition = logs.partition(segment_bytes=100)
    for number in range(10):
        produce(partition, timestamp_ms=NOW_MS + number)

    def delete():
        for segment in partition.drop_oldest(7):
            segment.delete()

    assert finish(partition, NOW_MS + 5, delete, after=3) == (7, NOW_MS + 7, 0)
    assert partition.offline is None


def test_a_search_in_a_log_that_is_deleted_returns_none(logs, produce):
    partition = logs.partition(segment_bytes=100)
    for number in range(10):
        produce(partition, timestamp_ms=NOW_MS + number)

    def delete():
        logs.manager.delete_later(logs.manager.rename_for_deletion("t", 0))

    assert finish(partition, NOW_MS + 9, delete) is None
    assert not logs.path().exists() and logs.manager.offline is None


def test_a_search_continues_in_a_segment_that_is_sealed_and_closed(logs, produce):
    partition = logs.partition(index_interval_bytes=1 << 30)
    for number in range(2_000):
        produce(partition, timestamp_ms=NOW_MS + (number == 1_999), value=b"")

    def seal():
        partition.log.config = type(partition.log.config)(segment_bytes=100)
        produce(partition)
        assert len(partition.log.segments) == 2
        for _ in range(2):
            partition.log.release_idle_segments()

    assert finish(partition, NOW_MS + 1, seal) == (1_999, NOW_MS + 1, 0)


def test_a_batch_of_no_records_is_passed(logs, produce):
    partition = logs.partition(index_interval_bytes=0)
    header = read_header(build_batch([(b"k", b"v")], timestamp_ms=NOW_MS + 9))
    emptied = empty_batch(header._replace(max_timestamp=NOW_MS + 9))
    written(partition, emptied)
    produce(partition, timestamp_ms=NOW_MS + 9)
    assert to_the_end(offset_for_timestamp(partition, NOW_MS + 9, FetchIsolation.LOG_END)).offset == 1
