"""A log with messages of magic 0 and 1, before batches of magic 2: it is loaded, read, searched, cut and cleaned."""

import pytest

from ottla.broker.log.cleaning.log_cleaner import LogCleaner
from ottla.broker.log.results import FetchIsolation
from ottla.broker.log.retention import Retention
from ottla.broker.log.timestamps import max_timestamp_offset, offset_for_timestamp
from ottla.protocol.batch_header import MAGIC, iter_batches
from ottla.protocol.compression import GZIP, LZ4, SNAPPY
from ottla.protocol.errors import ErrorCode
from ottla.protocol.records import iter_records
from ottla.protocol.steps import to_the_end
from ottla.testkit.scanner import scan_partition
from tests.legacy_messages import KINDS, legacy_log, message, wrapper

LOG = f"{0:020d}.log"
SETTINGS = {"index_interval_bytes": 200}


def found_in(partition):
    return [record for header, batch in partition.scan(0) for record in iter_records(batch, header)]


@pytest.fixture
def start(logs):
    """Start a broker on a partition directory with these contents of segments, by base offset."""

    def begin(contents, **settings):
        logs.kill()
        logs.path().mkdir(parents=True, exist_ok=True)
        for base_offset, content in contents.items():
            logs.path(f"{base_offset:020d}.log").write_bytes(content)
        logs.start()
        return logs.partition(**(SETTINGS | settings))

    return begin


def test_every_record_is_there_after_a_crash_and_after_a_clean_stop(logs, start, produce):
    content, expected = legacy_log()
    partition = start({0: content})
    for _ in range(3):
        assert partition.offline is None
        assert [(r.offset, r.timestamp, r.key, r.value) for r in found_in(partition)] == [
            (one.offset, one.timestamp, one.key, one.value) for one in expected
        ]
        assert logs.path(LOG).read_bytes() == content
        assert partition.log_end_offset == len(expected)
        logs.stop()
        logs.start()
        partition = logs.partition(**SETTINGS)
    assert produce(partition).base_offset == len(expected)


@pytest.mark.parametrize("max_bytes", [1, 200, 1_000, 3_000])
def test_fetches_of_any_size_get_whole_messages_from_every_offset(start, max_bytes):
    content, expected = legacy_log()
    partition = start({0: content})
    ends = {at + header.size_bytes: header.last_offset for at, header in iter_batches(content)}
    for one in expected:
        got = partition.read(one.offset, max_bytes, min_one_batch=True)
        assert got.error is ErrorCode.NONE
        at = content.index(bytes(got.records))
        first = next(header for _, header in iter_batches(bytes(got.records)))
        before = [last for end, last in ends.items() if end == at]
        assert first.last_offset >= one.offset
        assert at == 0 or before[0] < one.offset
        assert at + len(got.records) in ends
        assert len(got.records) <= max_bytes or len(got.records) == first.size_bytes


def test_search_by_time_finds_the_first_record_that_is_late_enough(start):
    content, expected = legacy_log()
    partition = start({0: content})
    times = sorted({one.timestamp for one in expected})
    for time in (*times, *(time + 1 for time in times)):
        first = next(((one.offset, one.timestamp) for one in expected if one.timestamp >= time >= 0), None)
        if time < 0:
            continue
        found = to_the_end(offset_for_timestamp(partition, time, FetchIsolation.LOG_END))
        assert found[:2] == (first or (-1, -1)), time
    largest = max(expected, key=lambda one: one.timestamp)
    found = to_the_end(max_timestamp_offset(partition, FetchIsolation.LOG_END))
    assert found[:2] == (largest.offset, largest.timestamp)


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4])
def test_a_wrapper_at_the_end_of_the_log_misses_no_offset(start, codec):
    some = [(offset, 5, b"k", b"v") for offset in range(20)]
    partition = start({0: wrapper(some, magic=0, codec=codec)})
    assert partition.offline is None
    assert partition.log_end_offset == 20


@pytest.mark.parametrize("kind", KINDS)
def test_a_torn_message_is_cut_off_at_every_length(logs, start, kind):
    content, expected = legacy_log((kind,))
    places = [(at, header) for at, header in iter_batches(content) if header.magic < MAGIC]
    at, last = places[-1]
    for size in {1, 11, 12, 16, 17, 25, 26, last.size_bytes - 1} & set(range(1, last.size_bytes)):
        partition = start({0: content[: at + size]})
        assert partition.offline is None
        assert logs.path(LOG).stat().st_size == at
        assert partition.log_end_offset == (expected[2].offset + 1 if len(places) > 1 else 0)


@pytest.mark.parametrize("at", [10, 12, 16, 17, 30])
def test_a_corrupt_message_before_sound_ones_is_damage_and_is_kept(logs, start, caplog, at):
    messages = [message(offset, b"key", b"value" * 5, magic=offset % 2) for offset in range(4)]
    content = bytearray(b"".join(messages))
    content[len(messages[0]) + at] ^= 0x41
    partition = start({0: bytes(content)})
    assert partition.offline is not None
    assert f"position {len(messages[0])}" in caplog.text
    assert logs.path(LOG).read_bytes() == content


def test_spoiled_batch_with_a_sound_message_of_26_bytes_at_the_end_is_damage(logs, start, produce):
    produce(logs.partition(**SETTINGS))
    logs.kill()
    data = bytearray(logs.path(LOG).read_bytes())
    data[70] ^= 1
    content = bytes(data) + message(1, None, b"", magic=0)
    assert start({0: content}).offline is not None
    assert logs.path(LOG).read_bytes() == content


def test_message_whose_magic_is_not_its_own_is_found_without_a_crc(logs, produce):
    for _ in range(3):
        produce(logs.partition())
    batches = scan_partition(logs.path()).batches
    logs.stop()
    data = bytearray(logs.path(LOG).read_bytes())
    data[batches[-1].position + 16] = 0
    logs.path(LOG).write_bytes(data)
    logs.start()
    assert logs.partition().offline is not None


def test_records_below_the_log_start_are_deleted_in_the_middle_of_a_wrapper(start):
    some = [(offset, 5, b"k", b"v") for offset in range(20)]
    partition = start({0: wrapper(some, magic=1, codec=GZIP)})
    partition.raise_log_start(7)
    assert partition.read(6, 1_000).error is ErrorCode.OFFSET_OUT_OF_RANGE
    (header,) = [header for _, header in iter_batches(bytes(partition.read(7, 1_000).records))]
    assert header.last_offset == 19


def test_retention_uses_the_timestamp_of_magic_1_and_file_time_of_magic_0(logs, start):
    now_ms = logs.clock.ms
    contents = {
        0: message(0, b"k", b"old", magic=1, timestamp=now_ms - 1_000_000),
        1: message(1, b"k", b"no time", magic=0),
        2: message(2, b"k", b"new", magic=1, timestamp=now_ms),
    }
    partition = start(contents, retention_ms=10_000)
    manager = logs.manager
    made = Retention(lambda: manager, logs.disk, logs.clock, logs.turns, manager.deleter, manager.fail)
    logs.turns.start(made.run(), lambda result: None, logs.bugs.append)
    assert partition.log_start_offset == 1
    assert logs.bugs == []


def test_compaction_keeps_the_last_of_each_key(logs, start):
    now_ms = logs.clock.ms
    first = b"".join(
        [
            message(0, b"a", b"0", magic=0),
            message(1, b"b", b"1", magic=1, timestamp=now_ms),
            wrapper([(2, -1, b"a", b"2"), (3, -1, b"c", b"3")], magic=0, codec=LZ4),
            wrapper([(4, now_ms, b"a", b"4"), (5, now_ms, b"d", b"5")], magic=1, codec=GZIP),
            message(6, b"b", None, magic=1, timestamp=now_ms),
            message(7, None, b"without a key", magic=0),
            wrapper([(8, now_ms, b"e", b"8"), (9, now_ms, b"f", b"9")], magic=1, codec=SNAPPY),
        ]
    )
    settings = {"cleanup_policy": "compact,delete", "min_cleanable_dirty_ratio": 0.0, "delete_retention_ms": 1_000}
    partition = start({0: first, 10: message(10, b"z", b"active", magic=1, timestamp=now_ms)}, **settings)
    cleaner = LogCleaner(logs.manager, logs.disk, logs.clock, logs.turns, 1 << 20)
    cleaner.start()
    assert logs.bugs == []
    kept = {(r.offset, r.key, r.value) for r in found_in(partition)}
    last_of_each = [(3, b"c", b"3"), (4, b"a", b"4"), (5, b"d", b"5"), (6, b"b", None), (8, b"e", b"8")]
    assert kept == {*last_of_each, (9, b"f", b"9"), (10, b"z", b"active")}
    magics = {header.last_offset: header.magic for header, _ in partition.scan(0)}
    assert magics == {3: 2, 5: 1, 6: 2, 9: 1, 10: 1}
    assert scan_partition(logs.path()).damages == []
    logs.kill()
    logs.start()
    assert {(r.offset, r.key, r.value) for r in found_in(logs.partition(**(SETTINGS | settings)))} == kept
