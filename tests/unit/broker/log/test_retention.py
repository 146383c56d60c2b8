"""Deletion of segments: by log start offset, by size, by age; its effects on a reader, a restart and a crash."""

from dataclasses import replace
from itertools import count, pairwise

import pytest

from ottla.broker.log import retention
from ottla.broker.log.file_deleter import STEP_BYTES, FileDeleter
from ottla.broker.log.results import FetchIsolation
from ottla.broker.log.retention import SEGMENTS_PER_STEP, Retention, count_deletable
from ottla.broker.turns import SHARE_US, Turns
from ottla.protocol.errors import ErrorCode
from ottla.protocol.values import TransactionMarker

NOW_MS = 1_700_000_000_000
DAY_MS = 86_400_000
KEEP = {"retention_ms": -1, "retention_bytes": -1}
ONE_BATCH = {"segment_bytes": 100}


def clean_up(logs):
    manager = logs.manager
    made = Retention(lambda: manager, logs.disk, logs.clock, logs.turns, manager.deleter, manager.fail)
    logs.turns.start(made.run(), lambda result: None, logs.bugs.append)


def fill(partition, produce, times=5, **more):
    """Append segments of one record each. The last one is active."""
    for _ in range(times):
        assert produce(partition, **more).error is ErrorCode.NONE


def bases(partition):
    return [segment.base_offset for segment in partition.log.segments]


def names(logs, suffix):
    return sorted(path.name for path in logs.path().iterdir() if path.name.endswith(suffix))


def test_size_takes_the_oldest_segments_that_are_in_excess(logs, produce):
    partition = logs.partition(**ONE_BATCH, retention_ms=-1, retention_bytes=-1)
    fill(partition, produce)
    size = partition.log.size_bytes // 5
    partition.log.config = replace(partition.log.config, retention_bytes=3 * size - 1)
    clean_up(logs)
    assert bases(partition) == [2, 3, 4]
    assert (partition.log_start_offset, partition.log_end_offset) == (2, 5)
    assert partition.read(1, 1000).error is ErrorCode.OFFSET_OUT_OF_RANGE
    assert len(partition.read(2, 1000).records) == size


def test_no_limit_of_size_or_age_keeps_everything(logs, produce):
    partition = logs.partition(**ONE_BATCH, **KEEP)
    fill(partition, produce, timestamp_ms=1)
    clean_up(logs)
    assert bases(partition) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(("before", "after"), [(0, 2), (1, 2), (4, 4)])
def test_deletion_raises_the_recovery_point_to_the_log_start_if_lower(logs, produce, before, after):
    partition = logs.partition(**ONE_BATCH, **KEEP)
    fill(partition, produce)
    partition.log.recovery_point = before
    partition.raise_log_start(2)
    clean_up(logs)
    assert bases(partition) == [2, 3, 4]
    assert partition.log.recovery_point == after


def test_age_is_that_of_the_youngest_record_of_a_segment(logs, produce):
    partition = logs.partition(**ONE_BATCH, retention_ms=DAY_MS)
    for age_ms in (3 * DAY_MS, 2 * DAY_MS, DAY_MS, 3 * DAY_MS, 0):
        fill(partition, produce, 1, timestamp_ms=NOW_MS - age_ms)
    clean_up(logs)
    # The third is exactly as old as it may be, and keeps an older one after it.
    assert bases(partition) == [2, 3, 4]
    logs.clock.advance(1)
    clean_up(logs)
    assert bases(partition) == [4]


def test_records_without_a_time_are_as_old_as_their_file(logs, produce):
    partition = logs.partition(**ONE_BATCH, retention_ms=1000)
    fill(partition, produce, 3, timestamp_ms=-1)
    written_ms = logs.disk.modified_ms(str(logs.path("00000000000000000001.log")))
    logs.clock.ms = written_ms + 1000
    clean_up(logs)
    assert 1 in bases(partition)
    logs.clock.ms = written_ms + 60_000
    clean_up(logs)
    assert bases(partition) == [3]


def test_active_segment_is_rolled_when_all_of_it_is_too_old(logs, produce):
    partition = logs.partition(retention_ms=DAY_MS)
    fill(partition, produce, 3, timestamp_ms=NOW_MS - 2 * DAY_MS)
    clean_up(logs)
    assert bases(partition) == [3]
    assert (partition.log_start_offset, partition.log_end_offset, partition.log.size_bytes) == (3, 3, 0)
    clean_up(logs)
    assert bases(partition) == [3]
    assert produce(partition).base_offset == 3


@pytest.mark.parametrize("end", ["kill", "stop"])
def test_a_log_emptied_by_retention_continues_at_its_end_after_a_restart(logs, produce, end):
    partition = logs.partition(retention_ms=DAY_MS)
    fill(partition, produce, 3, timestamp_ms=NOW_MS - 2 * DAY_MS)
    clean_up(logs)
    getattr(logs, end)()
    logs.start()
    partition = logs.partition(retention_ms=DAY_MS)
    assert (partition.log_start_offset, partition.log_end_offset) == (3, 3)
    assert names(logs, ".deleted") == []
    assert produce(partition).base_offset == 3


def test_topic_that_is_only_compacted_keeps_what_is_above_the_log_start(logs, produce):
    partition = logs.partition(**ONE_BATCH, cleanup_policy="compact", retention_ms=1, retention_bytes=0)
    fill(partition, produce, timestamp_ms=NOW_MS - DAY_MS)
    clean_up(logs)
    assert bases(partition) == [0, 1, 2, 3, 4]
    partition.raise_log_start(2)
    clean_up(logs)
    assert bases(partition) == [2, 3, 4]


def test_segments_below_the_log_start_go_but_not_the_one_that_holds_it(logs, produce):
    partition = logs.partition(segment_bytes=200, **KEEP)
    fill(partition, produce, 6)
    assert bases(partition) == [0, 2, 4]
    partition.raise_log_start(3)
    clean_up(logs)
    assert bases(partition) == [2, 4]
    partition.raise_log_start(6)
    clean_up(logs)
    assert bases(partition) == [4]
    assert partition.log_start_offset == 6


def test_records_above_the_high_watermark_are_not_deleted(logs, produce):
    logs.disk.held = []
    partition = logs.partition(**ONE_BATCH, retention_bytes=0, flush_messages=1)
    fill(partition, produce, 2)
    assert partition.high_watermark == 0
    clean_up(logs)
    assert bases(partition) == [0, 1]


def test_files_are_renamed_at_once_and_removed_after_the_delay(logs, produce):
    partition = logs.partition(**ONE_BATCH, retention_bytes=0, file_delete_delay_ms=5_000)
    fill(partition, produce, 2)
    clean_up(logs)
    assert names(logs, ".deleted") == [
        *(f"{0:020d}.{suffix}.deleted" for suffix in ("index", "log", "timeindex")),
        f"{1:020d}.index.deleted",
        f"{1:020d}.log.deleted",
        f"{1:020d}.snapshot.deleted",
        f"{1:020d}.timeindex.deleted",
    ]
    assert names(logs, ".log") == [f"{2:020d}.log"]
    assert names(logs, ".snapshot") == [f"{2:020d}.snapshot"]
    logs.clock.advance(4_999)
    assert names(logs, ".deleted") != []
    logs.clock.advance(1)
    assert names(logs, ".deleted") == []


def test_next_start_removes_what_the_last_stop_left(logs, produce):
    partition = logs.partition(**ONE_BATCH, retention_bytes=0)
    fill(partition, produce, 2)
    clean_up(logs)
    logs.kill()
    assert names(logs, ".deleted") != []
    logs.start()
    assert logs.partition().log_start_offset == 2
    assert names(logs, ".deleted") == []


def test_log_start_in_the_middle_of_a_segment_is_in_the_checkpoint(logs, produce):
    partition = logs.partition(**KEEP)
    fill(partition, produce)
    partition.raise_log_start(3)
    logs.manager.checkpoint()
    logs.kill()
    assert (logs.directory / "log-start-offset-checkpoint").read_text() == "0\n1\nt 0 3\n"
    logs.start()
    assert logs.partition().log_start_offset == 3


def test_log_start_is_never_lowered(logs, produce):
    partition = logs.partition(**KEEP)
    fill(partition, produce)
    partition.raise_log_start(3)
    partition.raise_log_start(1)
    assert partition.log_start_offset == 3


def test_open_transaction_holds_the_stable_offset_at_the_log_start_until_its_marker(logs, produce):
    partition = logs.partition(**ONE_BATCH, **KEEP)
    fill(partition, produce, 1)
    fill(partition, produce, 1, producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
    fill(partition, produce, 3)
    assert partition.last_stable_offset == 1
    partition.raise_log_start(3)
    assert partition.last_stable_offset == 3
    clean_up(logs)
    assert bases(partition) == [3, 4]
    assert partition.producer_of(7).current_txn_first_offset >= 0
    assert partition.append_marker(TransactionMarker(7, 0, 0, False, 0)).error is ErrorCode.NONE
    assert partition.last_stable_offset == 6
    assert partition.read(3, 1000, isolation=FetchIsolation.TXN_COMMITTED).aborted == [(7, 1)]


def test_epochs_begin_where_the_log_begins(logs, produce):
    for epoch in range(3):
        partition = logs.partition(leader_epoch=epoch, **ONE_BATCH, **KEEP)
        fill(partition, produce, 2)
        logs.stop()
        logs.start()
    partition = logs.partition(leader_epoch=3, **ONE_BATCH, **KEEP)
    fill(partition, produce, 1)
    partition.raise_log_start(3)
    clean_up(logs)
    assert partition.end_offset_for_epoch(0) == (0, 3)
    assert partition.end_offset_for_epoch(1) == (1, 4)
    fill(partition, produce, 1)
    assert logs.path("leader-epoch-checkpoint").read_text() == "0\n3\n1 3\n2 4\n3 6\n"


def test_renaming_that_fails_takes_the_directory_offline(logs, produce, monkeypatch):
    partition = logs.partition(**ONE_BATCH, retention_bytes=0)
    fill(partition, produce, 2)

    def fail(old, new):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(type(logs.disk), "rename", staticmethod(fail))
    clean_up(logs)
    assert "Input/output error" in logs.manager.offline
    assert produce(partition).error is ErrorCode.KAFKA_STORAGE_ERROR


@pytest.fixture
def slow(logs, monkeypatch):
    """Every look takes a share, by the ledger and by the clock; what is put off to later turns is in the list."""
    monkeypatch.setattr(retention, "ROW_US", SHARE_US)
    later = []
    ticks = count(0, 10)
    logs.clock.monotonic_ms = lambda: float(next(ticks))
    logs.clock.next_turn = later.append
    logs.turns = Turns(later.append, logs.bugs.append)
    return later


def test_many_segments_are_deleted_in_slices(logs, produce, slow):
    partition = logs.partition(**ONE_BATCH, **KEEP)
    fill(partition, produce, 100)
    partition.log.config = replace(partition.log.config, retention_bytes=0)
    clean_up(logs)
    left = [len(bases(partition))]
    while slow:
        logs.turns.event(slow.pop(0))
        left.append(len(bases(partition)))
    assert bases(partition) == [100]
    assert {before - after for before, after in pairwise(left)} <= set(range(SEGMENTS_PER_STEP + 1))


def test_a_retention_step_reads_the_age_of_a_few_segments_only(logs, produce):
    partition = logs.partition(**ONE_BATCH, **KEEP)
    fill(partition, produce, 100)
    partition.log.config = replace(partition.log.config, retention_ms=DAY_MS)
    opened = []
    for _ in range(2):
        logs.manager.checkpoint()  # the segments are closed: reading one opens its index
    real = type(logs.disk).open
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(logs.disk), "open", lambda disk, path, *more: opened.append(path) or real(disk, path, *more))
        assert count_deletable(partition, NOW_MS + 2 * DAY_MS, logs.disk.modified_ms, SEGMENTS_PER_STEP) == 8
        assert len({path.rpartition(".")[0] for path in opened}) <= SEGMENTS_PER_STEP
    logs.clock.advance(2 * DAY_MS)
    clean_up(logs)
    assert bases(partition) == [100]


def test_large_file_is_removed_in_steps(logs, tmp_path, slow):
    large = tmp_path / "large.log.deleted"
    with large.open("wb") as file:
        file.truncate(2 * STEP_BYTES + 5)
    deleter = FileDeleter(logs.disk, logs.clock, logs.turns, logs.manager.fail)
    deleter.delete([str(large), str(tmp_path / "gone")])
    sizes = [large.stat().st_size]
    while slow:
        logs.turns.event(slow.pop(0))
        sizes.append(large.stat().st_size if large.exists() else 0)
    assert list(dict.fromkeys(sizes)) == [STEP_BYTES + 5, 5, 0]
