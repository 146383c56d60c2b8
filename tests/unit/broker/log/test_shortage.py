"""A shortage of descriptors or memory: the broker refuses and retries what needs them, and takes nothing offline."""

import errno
import os
from contextlib import contextmanager

import pytest

from ottla.broker.log.cleaning.log_cleaner import LogCleaner
from ottla.broker.log.log_config import LogConfig
from ottla.broker.log.results import FetchIsolation
from ottla.broker.log.retention import Retention
from ottla.broker.log.timestamps import max_timestamp_offset, offset_for_timestamp
from ottla.broker.ports.descriptors import Shortage
from ottla.broker.ports.disk import RealDisk, RealFile
from ottla.protocol.errors import ErrorCode
from ottla.protocol.steps import to_the_end


@contextmanager
def short(*calls, number=errno.EMFILE, places=(RealDisk,)):
    """Make these calls find no descriptor or no memory."""

    def refuse(disk, path, *more, **named):
        raise Shortage(number, os.strerror(number), path if isinstance(path, str) else None)

    with pytest.MonkeyPatch.context() as patch:
        for call in calls:
            patch.setattr(places[0], call, refuse)
        yield


TOPIC_ID = bytes(range(16))
EVERY_CALL = ("open", "read", "write", "write_atomically", "list", "sync_dir", "sync")


@pytest.fixture
def disk(logs, monkeypatch):
    """Return the disk of the broker, with the real `open`."""
    monkeypatch.delattr(type(logs.disk), "open")
    return logs.disk


@pytest.mark.parametrize("calls", [EVERY_CALL, *((call,) for call in EVERY_CALL)], ids=" ".join)
def test_an_append_that_must_roll_is_refused_and_the_next_one_is_not(logs, disk, produce, calls):
    partition = logs.partition(segment_bytes=300, flush_messages=1)
    for _ in range(20):
        produce(partition)
    end_offset = partition.log_end_offset
    with short(*calls):
        refused = [produce(partition).error for _ in range(10)]
    assert set(refused) <= {ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR}
    assert partition.offline is None and logs.manager.offline is None
    assert partition.log_end_offset == end_offset + refused.count(ErrorCode.NONE)
    for _ in range(10):
        assert not produce(partition).error
    offsets = [header.base_offset for header, _ in partition.scan(0)]
    assert offsets == list(range(partition.log_end_offset))
    logs.kill()
    logs.start()
    partition = logs.partition(segment_bytes=300)
    assert partition.offline is None
    assert [header.base_offset for header, _ in partition.scan(0)] == offsets


def test_a_descriptor_shortage_is_logged_once_a_minute(logs, disk, produce, caplog):
    partition = logs.partition(segment_bytes=300)
    with short("write"):
        for _ in range(60):
            produce(partition)
        logs.clock.advance(61_000)
        produce(partition)
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 2 and all("RLIMIT_NOFILE" in each and "tries again" in each for each in said)


def test_a_search_by_time_is_refused_and_not_answered_with_nothing(logs, disk, produce):
    partition = logs.partition()
    produce(partition)
    searches = [
        lambda: offset_for_timestamp(partition, 0, FetchIsolation.LOG_END),
        lambda: max_timestamp_offset(partition, FetchIsolation.LOG_END),
    ]
    with short("pread", number=errno.ENOMEM, places=(RealFile,)):
        assert [to_the_end(search()) for search in searches] == [None, None]
    assert [to_the_end(search()).offset for search in searches] == [0, 0]


def test_a_read_is_refused_and_the_next_one_is_not(logs, disk, produce):
    partition = logs.partition()
    produce(partition)
    with short("pread", number=errno.ENOMEM, places=(RealFile,)):
        assert partition.read(0, 1000).error is ErrorCode.KAFKA_STORAGE_ERROR
    assert partition.read(0, 1000).error is ErrorCode.NONE


def test_a_partition_that_cannot_be_opened_now_is_opened_later(logs, disk, produce):
    produce(logs.partition())
    logs.stop()
    logs.start()
    with short("list"), pytest.raises(Shortage):
        logs.manager.open_partition("t", 0, TOPIC_ID, 0, LogConfig(), patient=True)
    assert logs.manager.offline is None
    assert logs.partition().log_end_offset == 1


def test_checkpoints_that_cannot_be_written_now_are_written_later(logs, disk, produce):
    partition = logs.partition(segment_bytes=300)
    for _ in range(10):
        produce(partition)
    for call in ("write", "write_atomically"):
        with short(call):
            logs.manager.checkpoint()
        assert logs.manager.offline is None
    logs.manager.checkpoint()
    lines = (logs.directory / "replication-offset-checkpoint").read_text().splitlines()
    assert lines[2:] == ["t 0 10"]


def test_retention_waits_for_better_times(logs, disk, produce):
    partition = logs.partition(segment_bytes=300, retention_ms=1000, cleanup_policy="delete")
    for _ in range(10):
        produce(partition)
    logs.clock.advance(1_000_000)
    manager = logs.manager
    retention = Retention(lambda: [partition], disk, logs.clock, logs.turns, manager.deleter, manager.fail_unless_short)

    def run():
        logs.turns.start(retention.run(), lambda _: None, logs.bugs.append)

    with short("sync_dir"):
        run()
    assert partition.log_start_offset == 0 and manager.offline is None
    run()
    assert partition.log_start_offset == 10
    assert partition.log.segments.active.file.size_bytes == 0
    assert (logs.path() / f"{10:020d}.log").exists()


def test_a_cleaning_that_a_shortage_prevents_is_done_later(logs, disk, produce):
    settings = {"segment_bytes": 400, "cleanup_policy": "compact,delete", "min_cleanable_dirty_ratio": 0.3}
    partition = logs.partition(**settings)
    for _ in range(12):
        produce(partition, 3)
    before = partition.log.size_bytes
    cleaner = LogCleaner(logs.manager, disk, logs.clock, logs.turns, 1 << 20)
    for call in ("open", "write"):
        with short(call):
            cleaner.start()
        assert logs.manager.offline is None and partition.offline is None
    assert partition.log.size_bytes == before
    cleaner.start()
    assert partition.log.size_bytes < before


def test_half_of_a_swap_is_not_tried_again(logs, disk, produce):
    partition = logs.partition(segment_bytes=400, cleanup_policy="compact,delete", min_cleanable_dirty_ratio=0.3)
    for _ in range(12):
        produce(partition, 3)
    with short("sync_dir"):
        LogCleaner(logs.manager, disk, logs.clock, logs.turns, 1 << 20).start()
    assert logs.manager.offline is not None
