"""Compaction of a log: its conditions, requests that are served meanwhile, and errors that stop it."""

import gc
from dataclasses import replace
from random import Random
from types import SimpleNamespace

import pytest

from ottla.broker.group.log import offsets_batch
from ottla.broker.group.shard import GroupStore
from ottla.broker.log.cleaning.compaction import SegmentSizes, cleanable_offsets, group_segments_by_size
from ottla.broker.log.cleaning.log_cleaner import LogCleaner
from ottla.broker.log.partition import Partition
from ottla.protocol.batch_header import iter_batches, read_header
from ottla.protocol.internal_topics.offsets_records import OffsetKey, OffsetValue
from ottla.protocol.records import iter_records
from ottla.protocol.values import ProducerIdAndEpoch, TransactionMarker

SETTINGS = {"segment_bytes": 400, "cleanup_policy": "compact,delete", "min_cleanable_dirty_ratio": 0.3}


class Rig:
    """A partition of several segments, and a cleaner whose turns the test runs one by one."""

    def __init__(self, logs, produce):
        self.logs, self.produce = logs, produce
        self.turns_to_come = []
        self.number = 0

    def open(self, **settings):
        self.partition = self.logs.partition(**(SETTINGS | settings))
        return self.partition

    def write(self, batches=12, keys=(b"a", b"b", b"c")):
        for _ in range(batches):
            self.number += 1
            records = [(key, b"%d" % self.number) for key in keys]
            assert self.produce(self.partition, records, timestamp_ms=self.logs.clock.ms).error == 0

    def cleaner(self, held=False):
        clock = self.logs.clock
        if held:
            clock = SimpleNamespace(
                now_ms=clock.now_ms,
                monotonic_ms=clock.monotonic_ms,
                call_later=clock.call_later,
                next_turn=self.turns_to_come.append,
                from_thread=self.turns_to_come.append,
            )
        return LogCleaner(self.logs.manager, self.logs.disk, clock, self.logs.turns, 1 << 20)

    def clean(self):
        self.cleaner().start()
        assert self.logs.bugs == []

    def pass_turn(self):
        self.logs.turns.event(self.turns_to_come.pop(0))

    def offsets(self):
        return [r.offset for header, batch in self.partition.scan(0) for r in iter_records(batch, header)]

    def first_dirty(self):
        return self.logs.manager.first_dirty_offset(self.partition)


@pytest.fixture
def rig(logs, produce):
    return Rig(logs, produce)


def test_the_last_record_of_each_key_stays_where_it_was(rig):
    partition = rig.open()
    rig.write()
    active = partition.log.segments.active.base_offset
    rig.clean()
    assert rig.first_dirty() == active
    assert rig.offsets() == [active - 3, active - 2, active - 1, *range(active, partition.log_end_offset)]
    assert partition.offline is None


def test_a_log_below_its_min_cleanable_dirty_ratio_is_not_cleaned(rig):
    rig.open(min_cleanable_dirty_ratio=0.6, segment_bytes=300)
    rig.write(keys=[b"%d" % n for n in range(3)])
    rig.clean()
    cleaned = rig.first_dirty()
    assert cleaned > 0
    log = rig.partition.log
    log.config = log.config.__class__(**(SETTINGS | {"min_cleanable_dirty_ratio": 0.999}))
    rig.write(6)
    rig.clean()
    assert rig.first_dirty() == cleaned


def test_a_topic_without_compaction_keeps_all_its_records(rig):
    rig.open(cleanup_policy="delete")
    rig.write()
    rig.clean()
    assert rig.offsets() == [*range(rig.partition.log_end_offset)]


def test_a_topic_that_is_not_compacted_keeps_no_other_from_being_cleaned(rig, logs):
    logs.partition("beside")
    segments = rig.open().log.segments
    rig.write()
    rig.clean()
    assert rig.first_dirty() == segments.active.base_offset > 0


def test_records_younger_than_the_compaction_lag_are_not_cleaned(rig, logs):
    rig.open(min_compaction_lag_ms=1000)
    rig.write()
    rig.clean()
    assert rig.first_dirty() == 0
    logs.clock.ms += 1001
    rig.clean()
    assert rig.first_dirty() == rig.partition.log.segments.active.base_offset


def test_records_older_than_the_lag_are_compacted_however_clean_the_log_is(rig, logs):
    rig.open(min_cleanable_dirty_ratio=1.0, max_compaction_lag_ms=1000)
    rig.write()
    rig.clean()
    assert rig.first_dirty() == 0
    logs.clock.ms += 1001
    rig.clean()
    assert rig.first_dirty() == rig.partition.log.segments.active.base_offset


def test_an_open_transaction_is_not_touched(rig, transactor):
    partition = rig.open()
    rig.write(4)
    opened = transactor(partition, 5)
    opened.send([(b"a", b"open")])
    start = partition.log_end_offset - 1
    rig.write()
    rig.clean()
    assert rig.first_dirty() <= start
    assert [offset for offset in rig.offsets() if offset >= start] == [*range(start, partition.log_end_offset)]


def test_the_first_dirty_offset_survives_a_restart(rig, logs):
    rig.open()
    rig.write()
    rig.clean()
    cleaned = rig.first_dirty()
    assert (logs.directory / "cleaner-offset-checkpoint").read_text() == f"0\n1\nt 0 {cleaned}\n"
    logs.stop()
    logs.start()
    rig.open()
    assert rig.first_dirty() == cleaned


def test_requests_are_served_between_the_slices(rig):
    """Appends, reads and a scan that began earlier continue while compaction replaces their segments."""
    partition = rig.open(segment_bytes=4_000)
    rig.write(150, keys=[b"%d" % n for n in range(7)])
    end_offset = partition.log_end_offset
    walk = partition.scan(0)
    walked = [next(walk)[0].last_offset]
    rig.cleaner(held=True).start()
    turns = 0
    while rig.turns_to_come:
        turns += 1
        rig.write(1)
        last = partition.read(partition.log_end_offset - 3, 1_000_000).records
        assert [header.last_offset for _, header in iter_batches(last)] == [partition.log_end_offset - 1]
        if turns % 3 == 0 and (step := next(walk, None)) is not None:
            walked.append(step[0].last_offset)
        rig.pass_turn()
    assert turns > 4
    walked += [header.last_offset for header, _ in walk]
    assert walked == sorted(set(walked))
    assert walked[-1] == end_offset - 1
    assert rig.first_dirty() > 0
    assert len(rig.offsets()) < partition.log_end_offset / 2


def test_segments_deleted_during_a_cleaning_stay_deleted(rig, logs):
    partition = rig.open(segment_bytes=2_000)
    rig.write(200, keys=[b"%d" % n for n in range(7)])
    rig.cleaner(held=True).start()
    (removed,) = partition.drop_oldest(1)
    removed.close()
    first = partition.log.segments.first_offset
    while rig.turns_to_come:
        rig.pass_turn()
    assert partition.offline is None and partition.log.segments.first_offset == first
    assert rig.first_dirty() == first
    assert not [path for path in logs.path().iterdir() if path.suffix in (".cleaned", ".swap")]


def test_a_full_disk_ends_the_cleaning_and_nothing_else(rig, logs):
    partition = rig.open()
    rig.write()
    logs.disk.short_write = 10
    rig.clean()
    assert logs.disk.short_write is None
    assert logs.manager.offline is None and partition.offline is None
    assert rig.offsets() == [*range(partition.log_end_offset)]
    assert not list(logs.path().glob("*.cleaned"))
    rig.clean()
    assert rig.first_dirty() == partition.log.segments.active.base_offset


def test_a_failed_sync_takes_the_directory_offline(rig, logs):
    rig.open()
    rig.write()
    logs.disk.fail_sync = True
    rig.clean()
    assert logs.manager.offline is not None
    assert rig.partition.offline is not None


def test_damage_ends_the_compaction_of_a_log(rig, logs, caplog):
    partition = rig.open()
    rig.write()
    log = sorted(logs.path().glob("*.log"))[0]
    data = bytearray(log.read_bytes())
    data[-3] ^= 1
    log.write_bytes(data)
    rig.clean()
    assert "damaged" in caplog.text
    assert partition.offline is None
    assert log.read_bytes() == bytes(data)
    assert not list(logs.path().glob("*.cleaned"))


@pytest.mark.slow
def test_a_damaged_log_that_is_deleted_is_let_go(rig, logs, caplog):
    caplog.set_level("CRITICAL")  # a caught error holds references to its objects
    rig.open()
    rig.write()
    log = min(logs.path().glob("*.log"))
    log.write_bytes(log.read_bytes()[:-3] + b"\xff\xff\xff")
    cleaner = rig.cleaner()
    cleaner.start()
    logs.manager.rename_for_deletion("t", 0)
    del rig.partition
    cleaner.start()
    gc.collect()
    left = [each for each in gc.get_objects() if issubclass(type(each), Partition)]
    assert str(logs.path("")) not in [each.log.directory for each in left]


@pytest.fixture
def two_logs(rig, logs):
    """Return two logs, not all of which may be compacted yet. The first has a damaged segment without an index."""
    lag = {"min_compaction_lag_ms": 1000}
    rig.open(**lag)
    rig.write()
    log = min(logs.path().glob("*.log"))
    rig.partition = logs.partition(index=1, **SETTINGS, **lag)
    rig.write()
    logs.stop()
    log.write_bytes(b"\xff" * log.stat().st_size)
    log.with_suffix(".index").unlink()
    logs.start()
    first = rig.open(**lag)
    rig.partition = logs.partition(index=1, **SETTINGS, **lag)
    logs.clock.ms += 1001
    return first


def test_a_log_that_is_damaged_keeps_no_other_from_being_cleaned(rig, logs, caplog, two_logs):
    rig.clean()
    assert "t-0 is not cleaned any more" in caplog.text
    assert rig.first_dirty() == rig.partition.log.segments.active.base_offset
    assert logs.manager.offline is None


def test_an_io_error_before_a_cleaning_takes_the_directory_offline(rig, logs, monkeypatch):
    partition = rig.open(min_compaction_lag_ms=1000)
    rig.write()

    def fails(cleaner, partition, now_ms):
        raise OSError("Input/output error")

    monkeypatch.setattr(LogCleaner, "_cleanable_offsets", fails)
    rig.clean()
    assert "Input/output error" in logs.manager.offline
    assert partition.offline is not None


def test_committed_offsets_are_the_same_after_a_compaction(rig):
    """Compare the offsets that a group coordinator loads from `__consumer_offsets`, with transactional commits."""
    random = Random(5)
    partition = rig.open(min_cleanable_dirty_ratio=0.0, delete_retention_ms=10)
    for turn in range(3):
        for number in range(60):
            rig.logs.clock.ms += 1
            producer = random.choice((None, ProducerIdAndEpoch(7, 0), ProducerIdAndEpoch(8, 0)))
            if producer is not None and random.random() < 0.4:
                marker = TransactionMarker(producer.producer_id, 0, 0, random.random() < 0.5, 1)
                assert partition.append_marker(marker).error == 0
                continue
            rows = [
                (
                    OffsetKey("group", random.choice("tuv"), random.randint(0, 1)),
                    None if producer is None and random.random() < 0.3 else OffsetValue(number, -1, f"{turn}", 0, -1),
                )
                for _ in range(random.randint(1, 3))
            ]
            batch = offsets_batch(dict(rows).items(), rig.logs.clock.ms, producer)
            assert partition.append_own(batch).error == 0
        for producer_id in (7, 8):
            partition.append_marker(TransactionMarker(producer_id, 0, 0, True, 1))
        before = loaded_offsets(partition)
        rig.clean()
        assert rig.first_dirty() > 0
        assert loaded_offsets(partition) == before
        rig.logs.clock.ms += 20


def loaded_offsets(partition):
    store = GroupStore()
    for header, batch in partition.scan(0):
        store.replay(header, batch)
    return store.groups["group"].offsets.to_value()


def test_an_index_of_a_cleaned_segment_leads_to_its_batches(rig):
    partition = rig.open(segment_bytes=3_000, index_interval_bytes=100)
    rig.write(100, keys=[b"%d" % n for n in range(3)] + [b"x" * 50])
    rig.clean()
    for offset in rig.offsets():
        first = read_header(partition.read(offset, 1).records)
        assert first.base_offset <= offset <= first.last_offset


def test_a_cleaned_segment_is_as_old_as_the_last_one_that_it_replaces(rig, logs):
    partition = rig.open(segment_bytes=400)
    rig.write(40)
    sealed = [segment.log_path for segment in partition.log.segments][:-1]
    for number, path in enumerate(sealed):
        logs.disk.set_modified_ms(path, 1_600_000_000_000 + number)
    partition.log.config = replace(partition.log.config, segment_bytes=10_000)
    rig.clean()
    assert [segment.log_path for segment in partition.log.segments][:-1] == sealed[:1]
    assert number > 1
    for suffix in ("log", "index", "timeindex"):
        path = str(logs.path(f"{0:020d}.{suffix}"))
        assert logs.disk.modified_ms(path) == 1_600_000_000_000 + number


@pytest.mark.parametrize(
    ("first_dirty", "limit", "first_uncleanable", "clean", "cleanable"),
    [(0, 100, 30, 0, 6), (0, 25, 20, 0, 3), (20, 100, 30, 3, 3), (15, 100, 30, 3, 5), (30, 100, 30, 6, 0)],
)
def test_cleanable_bytes_begin_with_the_first_dirty_segment(first_dirty, limit, first_uncleanable, clean, cleanable):
    segments = [SegmentSizes(0, 1), SegmentSizes(10, 2), SegmentSizes(20, 3), SegmentSizes(30, 100)]
    found = cleanable_offsets(segments, first_dirty, limit)
    assert found == (first_dirty, first_uncleanable, clean, cleanable)


def test_segments_are_put_together_as_far_as_sizes_indexes_and_offsets_allow():
    by_size = [SegmentSizes(0, 4), SegmentSizes(10, 4), SegmentSizes(20, 4), SegmentSizes(30, 9)]
    assert group_segments_by_size(by_size, 8, 100, 40) == [[0, 1], [2], [3]]
    by_index = [SegmentSizes(0, 1, 60), SegmentSizes(10, 1, 50), SegmentSizes(20, 1, 50)]
    assert group_segments_by_size(by_index, 8, 100, 40) == [[0], [1, 2]]
    by_offset = [SegmentSizes(0, 1), SegmentSizes(2**31 - 10, 1), SegmentSizes(2**31 + 10, 0)]
    assert group_segments_by_size(by_offset, 8, 100, 2**31 + 20) == [[0], [1, 2]]
