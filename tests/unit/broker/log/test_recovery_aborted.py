"""Recovery of the transaction index: truncated entries do not hide records that are appended later."""

from dataclasses import replace

import pytest

from ottla.broker.log.results import FetchIsolation
from ottla.broker.log.segments.log_segment import ABORTED_AT_ONCE
from ottla.protocol.errors import ErrorCode
from ottla.protocol.indexes import TXN_ENTRY
from ottla.testkit.scanner import scan_partition

LOG = f"{0:020d}.log"


def log(logs):
    return logs.path(LOG)


def sizes(logs):
    return [batch.size_bytes for batch in scan_partition(logs.path()).batches]


def test_an_aborted_transaction_that_was_cut_off_hides_nothing_later(logs, produce, transactor):
    """The index file of a clean stop remains after the end of the log was lost and its offsets are used again."""
    partition = logs.partition()
    produce(partition)
    kept_bytes = partition.log.size_bytes
    transactor(partition, 7).send()
    transactor(partition, 7).end(commit=False)
    logs.stop()
    log = logs.path("00000000000000000000.log")
    log.write_bytes(log.read_bytes()[:kept_bytes])
    for name in (".kafka_cleanshutdown", "recovery-point-offset-checkpoint"):
        (logs.directory / name).unlink()
    logs.start()
    partition = logs.partition()
    transactor(partition, 7).send()
    transactor(partition, 7).end(commit=True)
    logs.stop()
    logs.start()
    assert logs.partition().read(0, 10_000, isolation=FetchIsolation.TXN_COMMITTED).aborted == []


@pytest.fixture
def log_of_two_aborts(logs, produce, transactor):
    """Return a log that was stopped cleanly between two aborted transactions and lost the second in a power loss."""
    partition = logs.partition()
    transactor(partition, 7).send()
    transactor(partition, 7).end(commit=False)
    logs.stop()
    synced = logs.path("00000000000000000000.log").read_bytes()
    logs.start()
    partition = logs.partition()
    transactor(partition, 8).send()
    transactor(partition, 8).end(commit=False)
    partition.log.save()
    logs.kill()
    logs.path("00000000000000000000.log").write_bytes(synced)
    return logs.path("00000000000000000000.txnindex")


@pytest.mark.parametrize("kept_bytes", [34, 62, 68])
def test_a_power_cut_leaves_no_aborted_transaction_too_many(logs, transactor, log_of_two_aborts, kept_bytes):
    """The log ends at its recovery point and is valid up to it. The index has later entries, or a part of one."""
    log_of_two_aborts.write_bytes(log_of_two_aborts.read_bytes()[:kept_bytes])
    logs.start()
    partition = logs.partition()
    assert partition.log_end_offset == 2
    transactor(partition, 8).send()
    transactor(partition, 8).end(commit=True)
    assert partition.read(0, 10_000, isolation=FetchIsolation.TXN_COMMITTED).aborted == [(7, 0)]
    logs.stop()
    logs.start()
    assert logs.partition().read(0, 10_000, isolation=FetchIsolation.TXN_COMMITTED).aborted == [(7, 0)]
    assert log_of_two_aborts.stat().st_size == 34


def test_the_synced_part_of_a_transaction_index_is_never_written_again(logs, transactor, monkeypatch):
    """A power loss may empty a file that is written again, and these entries were already durable."""
    transactor(logs.partition(), 7).send()
    transactor(logs.partition(), 7).end(commit=False)
    logs.stop()
    logs.start()
    written = []
    write = type(logs.disk).write
    monkeypatch.setattr(
        type(logs.disk), "write", lambda disk, path, data: (written.append(path), write(disk, path, data))
    )
    transactor(logs.partition(), 8).send()
    transactor(logs.partition(), 8).end(commit=False)
    logs.stop()
    index = logs.path("00000000000000000000.txnindex")
    assert index.stat().st_size == 68
    assert str(index) not in written
    assert any(path.endswith(".timeindex") for path in written)


def test_a_log_that_lost_everything_keeps_no_aborted_transaction(logs, produce, transactor):
    partition = logs.partition()
    transactor(partition, 7).send()
    transactor(partition, 7).end(commit=False)
    partition.log.save()
    logs.kill()
    logs.path("00000000000000000000.log").write_bytes(b"")
    logs.start()
    partition = logs.partition()
    assert partition.log_end_offset == 0
    produce(partition)
    assert partition.read(0, 10_000, isolation=FetchIsolation.TXN_COMMITTED).aborted == []


def test_a_damaged_transaction_index_takes_the_partition_offline(logs, produce, transactor, caplog):
    partition = logs.partition(segment_bytes=200)
    transactor(partition, 7).send()
    transactor(partition, 7).end(commit=False)
    for _ in range(4):
        produce(partition)
    logs.stop()
    index = next(logs.path().glob("*.txnindex"))
    index.write_bytes(index.read_bytes()[:-3])
    logs.start()
    partition = logs.partition(segment_bytes=200)
    assert partition.read(0, 10_000, isolation=FetchIsolation.TXN_COMMITTED).error is ErrorCode.KAFKA_STORAGE_ERROR
    assert "ends inside an entry" in caplog.text


@pytest.mark.parametrize("ends", ["killed", "stopped", "rolled"])
def test_an_index_of_many_aborted_transactions_is_written_as_they_end(logs, produce, transactor, ends):
    """The end of a segment then has few entries to write while requests wait. No entry is lost or written twice."""
    partition = logs.partition()
    index = logs.path("00000000000000000000.txnindex")
    for number in range(ABORTED_AT_ONCE + 10):
        transactor(partition, number).send()
        transactor(partition, number).end(commit=False)
    assert index.stat().st_size == ABORTED_AT_ONCE * TXN_ENTRY.size
    if ends == "rolled":
        partition.log.config = replace(partition.log.config, segment_bytes=partition.log.size_bytes)
        produce(partition)
        assert index.stat().st_size == (ABORTED_AT_ONCE + 10) * TXN_ENTRY.size
    else:
        logs.kill() if ends == "killed" else logs.stop()
        logs.start()
    read = logs.partition().read(0, 1_000_000, isolation=FetchIsolation.TXN_COMMITTED)
    assert read.aborted == [(number, 2 * number) for number in range(ABORTED_AT_ONCE + 10)]
