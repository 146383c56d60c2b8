"""Durability on the device: the offsets that a flush covers, its callbacks, and the effects of a failed flush."""

import pytest

from ottla.broker.log.log_config import LogConfig
from ottla.broker.log.results import FetchIsolation
from ottla.protocol.errors import ErrorCode

FLUSHED = {"flush_messages": 1}


@pytest.fixture
def syncs(logs):
    """Collect the syncs that have started and not ended."""
    logs.disk.held = []
    return logs.disk.held


def names(job):
    return [path.rpartition("/")[2] for path in job.paths]


def test_unsynced_records_are_not_visible_to_consumers(logs, produce, syncs):
    partition = logs.partition(**FLUSHED)
    heard = []
    result = produce(partition)
    partition.when_durable(result.last_offset, heard.append)
    assert (partition.log_end_offset, partition.high_watermark, heard) == (1, 0, [])
    assert partition.read(0, 1000).records == b""
    assert partition.read(0, 1000, isolation=FetchIsolation.LOG_END).records != b""
    syncs.pop().end()
    assert (partition.high_watermark, heard) == (1, [ErrorCode.NONE])


def test_one_sync_covers_all_appends_made_during_the_previous_sync(logs, produce, syncs):
    first, second = logs.partition(**FLUSHED), logs.partition(index=1, **FLUSHED)
    produce(first)
    for _ in range(3):
        produce(first)
        produce(second)
    assert len(syncs) == 1
    syncs.pop().end()
    assert (first.high_watermark, second.high_watermark) == (1, 0)
    assert len(syncs) == 1
    assert {"00000000000000000000.log"} == {name for name in names(syncs[0]) if name.endswith(".log")}
    syncs.pop().end()
    assert (first.high_watermark, second.high_watermark) == (4, 3)
    assert syncs == []


def test_waiters_are_notified_in_the_order_of_their_appends(logs, produce, syncs):
    partition = logs.partition(**FLUSHED)
    heard = []
    for name in "abc":
        result = produce(partition)
        partition.when_durable(result.last_offset, lambda error, name=name: heard.append(name))
    syncs.pop(0).end()
    assert heard == ["a"]
    syncs.pop(0).end()
    assert heard == ["a", "b", "c"]


def test_a_new_log_is_flushed_with_its_names(logs, produce, syncs):
    produce(logs.partition(**FLUSHED))
    assert names(syncs[0]) == ["00000000000000000000.log", "partition.metadata", "t-0", "data"]
    syncs.pop().end()
    produce(logs.partition(**FLUSHED))
    assert names(syncs[0]) == ["00000000000000000000.log"]


def test_sealed_segments_are_flushed_with_what_follows_them(logs, produce, syncs):
    partition = logs.partition(segment_bytes=200, **FLUSHED)
    produce(partition)
    for _ in range(4):
        produce(partition)
    syncs.pop().end()
    log_files = sorted(path.name for path in logs.path().glob("*.log"))
    assert len(log_files) == 3
    assert [name for name in names(syncs[0]) if name.endswith(".log")] == log_files
    assert "t-0" in names(syncs[0])
    syncs.pop().end()
    assert partition.high_watermark == 5


def test_a_failed_sync_acknowledges_nothing_and_is_never_repeated(logs, produce, syncs):
    partition, other = logs.partition(**FLUSHED), logs.partition(index=1, **FLUSHED)
    heard = []
    partition.when_durable(produce(partition).last_offset, heard.append)
    other.when_durable(produce(other).last_offset, heard.append)
    logs.disk.fail_sync = True
    syncs.pop().end()
    assert heard == [ErrorCode.KAFKA_STORAGE_ERROR] * 2
    assert syncs == []
    logs.disk.fail_sync = False
    assert produce(partition).error is ErrorCode.KAFKA_STORAGE_ERROR
    assert partition.high_watermark == other.high_watermark == 0
    partition.when_durable(0, heard.append)
    assert heard[2:] == [ErrorCode.KAFKA_STORAGE_ERROR]


def test_some_records_may_wait_together(logs, produce, syncs):
    partition = logs.partition(flush_messages=3)
    produce(partition)
    produce(partition)
    assert (partition.high_watermark, syncs) == (2, [])
    produce(partition)
    assert partition.high_watermark == 2
    syncs.pop().end()
    assert partition.high_watermark == 3


def test_a_duplicate_waits_for_its_original(logs, produce, syncs):
    partition = logs.partition(**FLUSHED)
    heard = []
    first = produce(partition, producer_id=1, producer_epoch=0, base_sequence=0)
    again = produce(partition, producer_id=1, producer_epoch=0, base_sequence=0)
    assert again.duplicate and again.last_offset == first.last_offset
    partition.when_durable(again.last_offset, heard.append)
    assert heard == []
    syncs.pop().end()
    assert heard == [ErrorCode.NONE]


def test_the_stable_offset_waits_for_the_marker(logs, transactor, syncs):
    partition = logs.partition(**FLUSHED)
    producer = transactor(partition, 7)
    producer.send()
    syncs.pop().end()
    assert (partition.high_watermark, partition.last_stable_offset) == (1, 0)
    producer.end(commit=True)
    assert partition.last_stable_offset == 0
    syncs.pop().end()
    assert (partition.high_watermark, partition.last_stable_offset) == (2, 2)


def test_the_stable_offset_is_not_above_the_high_watermark(logs, produce, transactor, syncs):
    partition = logs.partition(**FLUSHED)
    produce(partition)
    produce(partition)
    transactor(partition, 7).send()
    assert (partition.high_watermark, partition.last_stable_offset) == (0, 0)
    syncs.pop(0).end()
    assert (partition.high_watermark, partition.last_stable_offset) == (1, 1)
    syncs.pop(0).end()
    assert (partition.high_watermark, partition.last_stable_offset) == (3, 2)


def test_an_interval_that_is_changed_counts_from_the_next_append(logs, produce, syncs):
    partition = logs.partition()
    produce(partition)
    partition.log.config = LogConfig(**FLUSHED)
    produce(partition)
    assert partition.high_watermark == 1
    partition.log.config = LogConfig()
    syncs.pop().end()
    assert partition.high_watermark == 2


def test_a_partition_that_is_deleted_is_not_waited_for(logs, produce, syncs):
    partition = logs.partition(**FLUSHED)
    heard = []
    partition.when_durable(produce(partition).last_offset, heard.append)
    logs.manager.delete_later(logs.manager.rename_for_deletion("t", 0))
    assert heard == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    syncs.pop().end()
    assert not logs.manager.flusher.busy


def test_partitions_appended_to_in_one_turn_share_a_sync(logs, produce, syncs, monkeypatch):
    partitions = [logs.partition(index=index, **FLUSHED) for index in range(3)]
    next_turns = []
    monkeypatch.setattr(logs.clock, "next_turn", next_turns.append)
    for partition in partitions:
        produce(partition)
    assert (syncs, len(next_turns), logs.manager.flusher.busy) == ([], 1, True)
    logs.manager.flusher.start()
    assert len([name for name in names(syncs[0]) if name.endswith(".log")]) == 3
    next_turns.pop()()
    logs.manager.flusher.start()
    assert len(syncs) == 1
    syncs.pop().end()
    assert [partition.high_watermark for partition in partitions] == [1, 1, 1]
    assert not logs.manager.flusher.busy
