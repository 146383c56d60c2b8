"""Commits without records behind aborts: what a client leaves that takes back the sequences of what it aborted.

`data/reused` was written by Apache Kafka 4.3.1 (`transaction.version=2`) with librdkafka 2.16.1, through a proxy that
twice kept the answer to a Produce request and cut the connection. Then the client aborted, and sent as many records in
its next transaction, which was committed: 2 and 3 records, told to be at offsets 4 and 11 of `orders-0`, are nowhere.
"""

import re
import shutil
import tarfile
from pathlib import Path

import pytest

pytest.importorskip("numba", reason="the spark extra is not installed")

from ottla.audit import pipeline, tasks
from ottla.audit.pipeline import audit
from ottla.audit.request import Request
from ottla.audit.runner import ThreadRunner
from ottla.protocol.batch_header import iter_batches
from ottla.protocol.snapshot import ProducerEntry, encode_snapshot
from ottla.testkit.scanner import scan_partition

ARCHIVE = Path(__file__).parents[1] / "data" / "reused" / "kafka-4.3.1.tar.gz"
NOW_MS = 1_795_394_000_000


def unpack(folder):
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(folder, filter="data")
    return folder / "log"


@pytest.fixture
def kafkas(tmp_path):
    return unpack(tmp_path)


def found(root, severity="warning", topics=()):
    findings = audit(ThreadRunner(1), Request((str(root),), topics, NOW_MS)).findings
    return [one for one in findings if (one.check, one.severity) == ("reused", severity)]


def test_records_that_apache_kafka_acknowledged_and_dropped_are_suspected(kafkas):
    wrong = audit(ThreadRunner(1), Request((str(kafkas),), (), NOW_MS)).at_least("warning")
    assert [(one.check, one.place, one.producer_id, one.transactional_id) for one in wrong] == [
        ("reused", "orders-0@7", 0, "order-1"),
        ("reused", "orders-0@15", 0, "order-1"),
    ]
    assert "COMMIT at 2026-11-23 00:18:43.770 UTC" in wrong[0].message
    assert "aborted at offset 6 (offsets 4 to 5, sequences 3 to 4)" in wrong[0].message
    assert "aborted at offset 14 (offsets 11 to 13, sequences 7 to 9)" in wrong[1].message
    assert wrong[0].message.endswith("; order-1 (producer 0, epoch 0)")
    (count,) = found(kafkas, severity="info")
    assert (count.topic, count.partition, count.offset) == ("orders", 0, None)
    assert re.match(r"2 commits without records after aborts, of 1 producer, from .* 00:18:43.770", count.message)
    read = {record.value.decode() for record in scan_partition(kafkas / "orders-0").records("read_committed")}
    assert read == {"before-0-0", "before-0-1", "before-0-2", "after-1-0-0", "after-1-0-1", "after-2-0-0"}


def test_dropped_records_are_suspected_without_the_coordinators_log(kafkas):
    shutil.rmtree(kafkas / "__transaction_state-0")
    assert [(one.offset, one.transactional_id) for one in found(kafkas)] == [(7, None), (15, None)]


@pytest.mark.slow
def test_findings_are_the_same_for_any_split_of_the_partition(kafkas, monkeypatch):
    whole, ranges = [one[:-2] for one in found(kafkas)], []
    read = tasks.scan
    monkeypatch.setattr(pipeline, "LARGEST_CUT_BYTES", 1)
    monkeypatch.setattr(tasks, "scan", lambda work: (ranges.append(work.part.ordinal), read(work))[1])
    log = kafkas / "orders-0" / f"{0:020d}.log"
    content = log.read_bytes()
    for position, head in [*iter_batches(content)][1:]:
        behind = log.with_name(f"{head.base_offset:020d}.log")
        log.write_bytes(content[:position])
        behind.write_bytes(content[position:])
        ranges.clear()
        assert [one[:-2] for one in found(kafkas, topics=("orders",))] == whole, head.base_offset
        assert max(ranges) == 1
        behind.unlink()


def abort_and_commit(log):
    log.data(2, producer_id=7)
    log.marker(7, False)
    log.marker(7, True)


def behind_a_sound_transaction(log):
    log.data(2, producer_id=7)
    log.marker(7, True)
    log.data(1, producer_id=7, base_sequence=2)
    log.marker(7, False)
    log.marker(7, True)


def with_others_between(log):
    log.data(2, producer_id=7)
    log.data(2, producer_id=8)
    log.marker(7, False)
    log.data(1)
    log.marker(8, True)
    log.roll()
    log.marker(7, True)


def aborted_twice(log):
    log.data(2, producer_id=7)
    log.marker(7, False)
    log.marker(7, False)
    log.marker(7, True)


def committed_twice(log):
    abort_and_commit(log)
    log.marker(7, True)


def wrapping(log):
    log.data(3, producer_id=7, base_sequence=2**31 - 2)
    log.marker(7, False)
    log.marker(7, True)


@pytest.mark.parametrize(
    ("write", "offset", "batch"),
    [
        (abort_and_commit, 3, "at offset 2 (offsets 0 to 1, sequences 0 to 1)"),
        (behind_a_sound_transaction, 5, "at offset 4 (offset 3, sequence 2)"),
        (with_others_between, 7, "at offset 4 (offsets 0 to 1, sequences 0 to 1)"),
        (aborted_twice, 4, "at offset 2 (offsets 0 to 1, sequences 0 to 1)"),
        (committed_twice, 3, "at offset 2 (offsets 0 to 1, sequences 0 to 1)"),
        (wrapping, 4, "at offset 3 (offsets 0 to 2, sequences 2,147,483,646 to 0)"),
    ],
)
def test_a_commit_without_records_after_an_abort_is_reported_once(write_log, write, offset, batch):
    write(write_log())
    (one,) = found(write_log.root)
    assert (one.offset, batch in one.message) == (offset, True), one.message


def records_in_both(log):
    log.data(2, producer_id=7)
    log.marker(7, False)
    log.data(2, producer_id=7, base_sequence=2)
    log.marker(7, True)


def a_commit_that_came_again(log):
    log.data(2, producer_id=7)
    log.marker(7, False)
    log.data(2, producer_id=7, base_sequence=2)
    log.marker(7, True)
    log.marker(7, True)


def an_abort_of_nothing(log):
    log.data(2, producer_id=7)
    log.marker(7, True)
    log.marker(7, False)
    log.marker(7, True)


def an_epoch_for_each_transaction(log):
    log.data(2, producer_id=7)
    log.marker(7, False, epoch=1)
    log.marker(7, True, epoch=2)


def an_abort_that_raised_the_epoch(log):
    log.data(2, producer_id=7)
    log.marker(7, False, epoch=1)
    log.marker(7, True, epoch=1)


def a_commit_of_a_newer_epoch(log):
    log.data(2, producer_id=7)
    log.marker(7, False)
    log.marker(7, True, epoch=1)


def fence_epoch(log):
    log.data(2, producer_id=7, epoch=1)
    log.data(2, producer_id=7, base_sequence=2)
    log.marker(7, False)
    log.marker(7, True)


def a_commit_of_another_producer(log):
    log.data(2, producer_id=7)
    log.marker(7, False)
    log.marker(8, True)


def records_that_compaction_took(log):
    log.data(2, producer_id=7)
    log.marker(7, False)
    log.next_offset += 2
    log.data(1)
    log.marker(7, True)


def records_that_compaction_took_just_before(log):
    log.data(2, producer_id=7)
    log.marker(7, False)
    log.next_offset += 2
    log.marker(7, True)


def records_without_sequences(log):
    log.data(2, producer_id=7, base_sequence=-1)
    log.marker(7, False)
    log.marker(7, True)


@pytest.mark.parametrize(
    "write",
    [
        records_in_both,
        a_commit_that_came_again,
        an_abort_of_nothing,
        an_epoch_for_each_transaction,
        an_abort_that_raised_the_epoch,
        a_commit_of_a_newer_epoch,
        fence_epoch,
        a_commit_of_another_producer,
        records_that_compaction_took,
        records_that_compaction_took_just_before,
        records_without_sequences,
    ],
)
def test_harmless_aborts_and_commits_are_not_suspected(write_log, write):
    write(write_log())
    assert found(write_log.root) == []


@pytest.mark.parametrize("opened_at", [-1, 8])
def test_a_batch_known_only_from_a_snapshot_raises_no_suspicion(write_log, opened_at):
    log = write_log(base_offset=10)
    entry = ProducerEntry(7, 0, 1, 9, 1, 1000, 0, opened_at)
    (log.folder / f"{10:020d}.snapshot").write_bytes(encode_snapshot([entry]))
    log.marker(7, False)
    log.marker(7, True)
    assert found(write_log.root) == []


def test_offsets_of_groups_have_no_sequences_that_could_be_taken_back(write_log):
    abort_and_commit(write_log("__consumer_offsets"))
    assert found(write_log.root) == []


def test_findings_beyond_the_limit_of_a_partition_are_counted(write_log, monkeypatch):
    monkeypatch.setattr(tasks, "MOST_ANOMALIES", 5)
    log = write_log()
    for producer_id in range(9):
        log.data(1, producer_id=producer_id)
        log.marker(producer_id, False)
        log.marker(producer_id, True, timestamp_ms=2000 + producer_id)
    rest, *one_by_one = found(write_log.root)
    assert len(one_by_one) == 5
    assert rest.message == "4 more places like these: commit without records after an abort"
    (count,) = found(write_log.root, severity="info")
    assert count.message.startswith("9 commits without records after aborts, those shown are of 5 producers, from ")
