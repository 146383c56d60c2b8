"""Header scan and fates: against a real Kafka's directories, against its transaction index, and case by case."""

import struct

import pytest

pytest.importorskip("numba", reason="the spark extra is not installed")

from ottla.spark_jobs.listing import list_partitions
from ottla.spark_jobs.plan import cut_partition
from ottla.spark_jobs.scan import merge_partition, scan_partitions, scan_range

TXN_INDEX = struct.Struct(">hqqqq")


def scan(root):
    logs = list_partitions(str(root))
    return dict(
        zip(
            [log.name for log in logs],
            scan_partitions(logs, on_damage="fail", check_crc=True, threads=2),
            strict=True,
        )
    )


@pytest.mark.parametrize("name", ["clean", "unclean"])
def test_end_offsets_are_those_that_kafkas_consumer_saw(reference, consumed, name):
    fates = scan(reference(name))
    high_watermarks = {name: one.high_watermark for name, one in fates.items() if not name.startswith("__")}
    last_stable = {name: one.last_stable_offset for name, one in fates.items() if not name.startswith("__")}
    assert high_watermarks == consumed("read_uncommitted")[0]
    assert last_stable == consumed("read_committed")[0]


@pytest.mark.parametrize("name", ["clean", "unclean"])
def test_aborted_ranges_are_those_of_kafkas_transaction_index(reference, name):
    root = reference(name)
    entries = 0
    for partition, fates in scan(root).items():
        data = b"".join(path.read_bytes() for path in sorted((root / partition).glob("*.txnindex")))
        expected = sorted((pid, first, last) for _, pid, first, last, _ in TXN_INDEX.iter_unpack(data))
        assert [tuple(row) for row in fates.aborted_ranges.tolist()] == expected, partition
        entries += len(expected)
    assert entries == 337


@pytest.mark.parametrize("target_bytes", [1, 300, 5_000, 20_000])
def test_ranges_cut_anywhere_merge_to_the_same_fates(reference, target_bytes):
    for name in ("clean", "unclean"):
        root = reference(name)
        whole = scan(root)
        cuts = 0
        for index, log in enumerate(list_partitions(str(root))):
            parts = cut_partition(index, log, target_bytes)
            cuts += len(parts)
            merged = merge_partition(log, [scan_range(part, on_damage="fail", check_crc=False) for part in parts])
            expected = whole[log.name]
            assert merged.aborted_ranges.tolist() == expected.aborted_ranges.tolist()
            for field in ("high_watermark", "last_stable_offset", "committed", "aborted", "opened", "plain_records"):
                assert getattr(merged, field) == getattr(expected, field), (log.name, field)
            assert merged.open_transactions == expected.open_transactions
        assert cuts > len(whole) or target_bytes > 10_000


def test_marker_closes_the_transaction_whatever_its_epoch(write_log):
    log = write_log()
    log.data(2, producer_id=7, epoch=0)
    log.marker(7, commit=False, epoch=1)
    fates = scan(write_log.root)["ledger-0"]
    assert (fates.aborted.transactions, fates.aborted.records) == (1, 2)
    assert fates.last_stable_offset == fates.high_watermark == 3


def test_marker_that_closes_nothing_counts_for_nothing(write_log):
    log = write_log()
    log.marker(7, commit=True)
    log.data(1, producer_id=7)
    log.marker(7, commit=False)
    log.marker(7, commit=False)
    fates = scan(write_log.root)["ledger-0"]
    assert (fates.committed.transactions, fates.aborted.transactions) == (0, 1)
    assert fates.aborted_ranges.tolist() == [[7, 1, 2]]


def test_open_transaction_holds_the_last_stable_offset_and_interleaved_ones_are_told_apart(write_log):
    log = write_log()
    log.data(3)
    log.data(2, producer_id=1)
    log.data(1, producer_id=2)
    log.data(1, producer_id=1)
    log.marker(2, commit=True)
    log.data(4, producer_id=3, transactional=False)
    fates = scan(write_log.root)["ledger-0"]
    assert (fates.last_stable_offset, fates.high_watermark) == (3, 12)
    assert (fates.opened.transactions, fates.opened.records, fates.plain_records) == (1, 3, 7)
    assert fates.open_transactions[0].first_offset == 3


def test_log_start_clamps_the_last_stable_offset_and_the_counts(write_log):
    log = write_log()
    log.data(5)
    log.data(2, producer_id=1)
    log.data(3)
    (write_log.root / "log-start-offset-checkpoint").write_text("0\n1\nledger 0 7\n")
    fates = scan(write_log.root)["ledger-0"]
    assert (fates.log_start, fates.last_stable_offset, fates.high_watermark) == (7, 7, 10)
    assert (fates.plain_records, fates.opened.records) == (3, 0)


def test_empty_partition_ends_where_its_segment_begins(write_log):
    write_log(base_offset=42)
    fates = scan(write_log.root)["ledger-0"]
    assert (fates.log_start, fates.high_watermark, fates.last_stable_offset) == (42, 42, 42)


def test_many_producers_outgrow_the_table(write_log):
    log = write_log()
    for producer_id in range(3_000):
        log.data(1, producer_id=producer_id)
    for producer_id in range(0, 3_000, 2):
        log.marker(producer_id, commit=producer_id % 4 == 0)
    fates = scan(write_log.root)["ledger-0"]
    assert (fates.committed.transactions, fates.aborted.transactions, fates.opened.transactions) == (750, 750, 1500)
    assert fates.last_stable_offset == 1
