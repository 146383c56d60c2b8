"""Header scan and fates: against a real Kafka's directories, against its transaction index, and case by case."""

import shutil
import struct
from functools import cache

import pytest

pytest.importorskip("numba", reason="the spark extra is not installed")

from ottla.protocol.snapshot import ProducerEntry, encode_snapshot
from ottla.scan.listing import list_partitions
from ottla.scan.partitions import merge_partition, scan_partition, visible_partitions
from ottla.scan.ranges import cut_partition
from ottla.scan.walk import range_fates
from tests.scan.entering import entering_ranges

TXN_INDEX = struct.Struct(">hqqqq")


def scan(root):
    logs = list_partitions(str(root))
    return dict(
        zip(
            [log.name for log in logs],
            [scan_partition(log, on_damage="fail", check_crc=True) for log in logs],
            strict=True,
        )
    )


def scan_cut(log, parts):
    """Scan each range alone, from the state that the cheap first pass gives."""
    starts = entering_ranges(log, parts, on_damage="fail")
    return [
        range_fates(part, start, on_damage="fail", check_crc=False) for part, start in zip(parts, starts, strict=True)
    ]


@pytest.fixture(scope="module")
def scan_once(reference, kind_of_kernels):
    """Return the fates of a directory of the reference; each kind of kernels reads it once."""
    return cache(lambda name: scan(reference(name)))


@pytest.mark.parametrize("name", ["clean", "unclean"])
def test_end_offsets_are_those_that_kafkas_consumer_saw(scan_once, consume, name):
    fates = scan_once(name)
    log_ends = {name: one.log_end for name, one in fates.items() if not name.startswith("__")}
    last_stable = {name: one.last_stable_offset for name, one in fates.items() if not name.startswith("__")}
    assert log_ends == consume("read_uncommitted")[0]
    assert last_stable == consume("read_committed")[0]


@pytest.mark.parametrize("name", ["clean", "unclean"])
def test_aborted_ranges_are_those_of_kafkas_transaction_index(reference, scan_once, name):
    root = reference(name)
    entries = 0
    for partition, fates in scan_once(name).items():
        data = b"".join(path.read_bytes() for path in sorted((root / partition).glob("*.txnindex")))
        expected = sorted((pid, first, last) for _, pid, first, last, _ in TXN_INDEX.iter_unpack(data))
        assert [tuple(row) for row in fates.aborted_ranges.tolist()] == expected, partition
        entries += len(expected)
    assert entries == 337


@pytest.mark.slow
@pytest.mark.parametrize("target_bytes", [1, 300, 5_000, 20_000])
def test_ranges_cut_anywhere_merge_to_the_same_fates(reference, scan_once, target_bytes):
    for name in ("clean", "unclean"):
        root = reference(name)
        whole = scan_once(name)
        cuts = 0
        for index, log in enumerate(list_partitions(str(root))):
            parts = cut_partition(index, log, target_bytes)
            cuts += len(parts)
            merged = merge_partition(log, scan_cut(log, parts))
            expected = whole[log.name]
            assert merged.aborted_ranges.tolist() == expected.aborted_ranges.tolist()
            for field in ("log_end", "last_stable_offset", "committed", "aborted", "opened", "plain_records"):
                assert getattr(merged, field) == getattr(expected, field), (log.name, field)
            assert merged.open_transactions == expected.open_transactions
        assert cuts > len(whole) or target_bytes > 10_000


def test_a_marker_of_a_newer_epoch_ends_the_transaction(write_log):
    log = write_log()
    log.data(2, producer_id=7, epoch=0)
    log.marker(7, commit=False, epoch=1)
    fates = scan(write_log.root)["ledger-0"]
    assert (fates.aborted.transactions, fates.aborted.records) == (1, 2)
    assert fates.last_stable_offset == fates.log_end == 3


def test_marker_that_closes_nothing_counts_for_nothing(write_log):
    log = write_log()
    log.marker(7, commit=True)
    log.data(1, producer_id=7)
    log.marker(7, commit=False)
    log.marker(7, commit=False)
    fates = scan(write_log.root)["ledger-0"]
    assert (fates.committed.transactions, fates.aborted.transactions) == (0, 1)
    assert fates.aborted_ranges.tolist() == [[7, 1, 2]]


def test_an_open_transaction_among_others_sets_the_last_stable_offset(write_log):
    log = write_log()
    log.data(3)
    log.data(2, producer_id=1)
    log.data(1, producer_id=2)
    log.data(1, producer_id=1)
    log.marker(2, commit=True)
    log.data(4, producer_id=3, transactional=False)
    fates = scan(write_log.root)["ledger-0"]
    assert (fates.last_stable_offset, fates.log_end) == (3, 12)
    assert (fates.opened.transactions, fates.opened.records, fates.plain_records) == (1, 3, 7)
    assert fates.open_transactions[0].first_offset == 3


def test_log_start_clamps_the_last_stable_offset_and_the_counts(write_log):
    log = write_log()
    log.data(5)
    log.data(2, producer_id=1)
    log.data(3)
    (write_log.root / "log-start-offset-checkpoint").write_text("0\n1\nledger 0 7\n")
    fates = scan(write_log.root)["ledger-0"]
    assert (fates.log_start, fates.last_stable_offset, fates.log_end) == (7, 7, 10)
    assert (fates.plain_records, fates.opened.records) == (3, 0)


def test_empty_partition_ends_where_its_segment_begins(write_log):
    write_log(base_offset=42)
    fates = scan(write_log.root)["ledger-0"]
    assert (fates.log_start, fates.log_end, fates.last_stable_offset) == (42, 42, 42)


def test_many_producers_outgrow_the_table(write_log):
    log = write_log()
    for producer_id in range(3_000):
        log.data(1, producer_id=producer_id)
    for producer_id in range(0, 3_000, 2):
        log.marker(producer_id, commit=producer_id % 4 == 0)
    fates = scan(write_log.root)["ledger-0"]
    assert (fates.committed.transactions, fates.aborted.transactions, fates.opened.transactions) == (750, 750, 1500)
    assert fates.last_stable_offset == 1


def what_is_visible(fates):
    opened = [(one.producer_id, one.producer_epoch, one.first_offset) for one in fates.open_transactions]
    ends = fates.log_start, fates.log_end, fates.last_stable_offset
    return ends, fates.aborted_ranges.tolist(), opened


@pytest.mark.parametrize("name", ["clean", "unclean"])
def test_indexes_of_a_real_kafka_give_the_same_result_as_the_scan(reference, name):
    logs = list_partitions(str(reference(name)))
    from_indexes = visible_partitions(logs, on_damage="fail", verify=False, threads=2)
    scanned = visible_partitions(logs, on_damage="fail", verify=True, threads=2)
    assert list(map(what_is_visible, from_indexes)) == list(map(what_is_visible, scanned))
    assert all(one.is_counted for one in scanned)
    # After a crash the recovery point is low, and no index above it is used.
    assert sum(not one.is_counted for one in from_indexes) > (10 if name == "clean" else 0)


@pytest.fixture
def clean_log(reference, tmp_path):
    """Copy a cleanly stopped partition with an aborted transaction; `read()` returns (fates, whether scanned)."""
    source = reference("clean")
    shutil.copytree(source / "ledger-0", tmp_path / "ledger-0")
    for name in ("recovery-point-offset-checkpoint", "meta.properties"):
        shutil.copy(source / name, tmp_path / name)

    def read():
        (fates,) = visible_partitions(list_partitions(str(tmp_path)), on_damage="fail", verify=False, threads=1)
        return what_is_visible(fates), fates.is_counted

    read.folder, read.root = tmp_path / "ledger-0", tmp_path
    read.sound, scanned = read()
    assert not scanned
    return read


def cut(path):
    path.write_bytes(path.read_bytes()[:-3])


def swap_entries(path):
    data = path.read_bytes()
    path.write_bytes(data[34:68] + data[:34] + data[68:])


@pytest.mark.parametrize(
    ("pattern", "break_it"),
    [
        ("*.txnindex", cut),
        ("*.txnindex", swap_entries),
        ("*.index", lambda path: path.unlink()),
        ("*.snapshot", cut),
        ("*.snapshot", lambda path: path.unlink()),
        ("*.snapshot", lambda path: path.rename(path.with_name(f"{int(path.stem) - 500:020d}.snapshot"))),
        ("../recovery-point-offset-checkpoint", lambda path: path.write_text("0\n0\n")),
    ],
)
def test_partition_is_scanned_where_its_indexes_cannot_be_relied_on(clean_log, pattern, break_it):
    for path in [clean_log.root / pattern[3:]] if pattern.startswith("..") else list(clean_log.folder.glob(pattern)):
        if path.stat().st_size:
            break_it(path)
    assert clean_log() == (clean_log.sound, True)


def test_damaged_snapshot_costs_no_more_than_the_walk_from_the_one_before(write_log):
    log = write_log()
    log.data(2, producer_id=1)
    log.roll().data(1, producer_id=2)
    log.marker(1, commit=False)
    log.path.with_suffix(".index").write_bytes(b"")
    first = sorted(log.folder.glob("*.log"))[0]
    first.with_suffix(".index").write_bytes(b"")
    (log.folder / f"{4:020d}.snapshot").write_bytes(b"broken")
    entry = ProducerEntry(1, 0, 1, 1, 1, 1000, -1, 0)
    (log.folder / f"{2:020d}.snapshot").write_bytes(encode_snapshot([entry]))
    (write_log.root / "recovery-point-offset-checkpoint").write_text("0\n1\nledger 0 4\n")
    (fates,) = visible_partitions(list_partitions(str(write_log.root)), on_damage="fail", verify=False, threads=1)
    assert not fates.is_counted
    assert what_is_visible(fates) == ((0, 4, 2), [[1, 0, 3]], [(2, 0, 2)])
    (scanned,) = visible_partitions(list_partitions(str(write_log.root)), on_damage="fail", verify=True, threads=1)
    assert what_is_visible(scanned) == what_is_visible(fates)
