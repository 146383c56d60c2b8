"""The index check: no finding in files of a real Kafka, and one at the right place for each changed entry."""

import os
import shutil
import struct

import pytest

pytest.importorskip("numba", reason="the spark extra is not installed")

from ottla.audit.checks.index import IndexCheck
from ottla.protocol.snapshot import ProducerEntry, decode_snapshot, encode_snapshot
from ottla.scan import states
from ottla.scan.damage_log import DamageLog
from ottla.scan.listing import list_partitions
from ottla.scan.ranges import cut_partition
from ottla.scan.walk import Walk


def check(directory, target_bytes=None):
    """Return findings of all partitions, in ranges of about `target_bytes`, else one range per partition."""
    findings = []
    for log in list_partitions(str(directory)):
        leaving = []
        for part in cut_partition(0, log, target_bytes or log.size_bytes + 1):
            entering = states.enter(states.empty(), leaving)
            walked = Walk(part, entering, DamageLog("report"), check_crc=False)
            index = IndexCheck(part, entering)
            for step in walked:
                index.add(step, walked)
            findings += index.findings
            leaving.append(Walk(part, states.empty(), DamageLog("report"), check_crc=False).finish().leaving)
    return findings


@pytest.fixture
def sound(reference, tmp_path):
    """Copy one partition of the clean directory, which the test changes."""
    copy = tmp_path / "log"
    copy.mkdir()
    shutil.copytree(reference("clean") / "ledger-1", copy / "ledger-1")
    return copy


def change(path, at, content):
    whole = bytearray(path.read_bytes())
    whole[at : at + len(content)] = content
    path.write_bytes(whole)


def only(findings):
    assert len(findings) == 1, findings
    return findings[0]


@pytest.mark.parametrize("name", ["clean", "unclean"])
@pytest.mark.parametrize("target_bytes", [None, 20_000])
def test_files_of_a_real_kafka_are_as_recomputed(reference, name, target_bytes):
    assert check(reference(name), target_bytes) == []


def test_an_index_entry_that_points_into_a_batch(sound):
    path = next((sound / "ledger-1").glob("*.index"))
    offset, position = struct.unpack_from(">ii", path.read_bytes(), 80)
    change(path, 80, struct.pack(">ii", offset, position + 1))
    found = only(check(sound))
    assert (found.severity, found.offset, found.position, found.file) == ("error", offset, 80, str(path))


def test_an_index_entry_with_another_offset(sound):
    path = next((sound / "ledger-1").glob("*.index"))
    offset, position = struct.unpack_from(">ii", path.read_bytes(), 80)
    change(path, 80, struct.pack(">ii", offset - 1, position))
    assert only(check(sound)).position == 80


def test_index_entries_out_of_order(sound):
    path = next((sound / "ledger-1").glob("*.index"))
    change(path, 80, struct.pack(">ii", 0, 0))
    assert only(check(sound)).position == 80


def test_a_time_index_entry_with_another_time(sound):
    path = next((sound / "ledger-1").glob("*.timeindex"))
    stamp, offset = struct.unpack_from(">qi", path.read_bytes(), 120)
    change(path, 120, struct.pack(">qi", stamp - 1, offset))
    found = only(check(sound))
    assert (found.offset, found.position) == (offset, 120)


@pytest.mark.parametrize(
    ("field", "size", "words"),
    [(2, 8, "names producer id"), (10, 8, "begins at"), (26, 8, "has last stable offset")],
    ids=["producer id", "first offset", "last stable offset"],
)
def test_a_transaction_index_entry_that_is_changed(sound, field, size, words):
    path = next((sound / "ledger-1").glob("*.txnindex"))
    at = 3 * 34 + field
    value = int.from_bytes(path.read_bytes()[at : at + size], "big")
    change(path, at, (value - 1).to_bytes(size, "big"))
    found = only(check(sound))
    assert words in found.message
    assert found.position == 3 * 34


def test_a_transaction_index_entry_that_is_missing(sound):
    path = next((sound / "ledger-1").glob("*.txnindex"))
    content = path.read_bytes()
    (marker,) = struct.unpack_from(">q", content, 5 * 34 + 18)
    path.write_bytes(content[: 5 * 34] + content[6 * 34 :])
    found = only(check(sound))
    assert found.offset == marker
    assert found.message.endswith("has no entry")
    assert found.action.startswith("ottla repair")


def test_a_transaction_index_entry_too_many(sound):
    path = next((sound / "ledger-1").glob("*.txnindex"))
    content = path.read_bytes()
    entry = bytearray(content[5 * 34 : 6 * 34])
    (marker,) = struct.unpack_from(">q", entry, 18)
    struct.pack_into(">q", entry, 18, marker + 1)
    path.write_bytes(content[: 6 * 34] + entry + content[6 * 34 :])
    found = only(check(sound))
    assert (found.offset, found.position) == (marker + 1, 6 * 34)


def test_entries_of_a_deleted_transaction_index_are_reported(sound):
    path = next((sound / "ledger-1").glob("*.txnindex"))
    entries = len(path.read_bytes()) // 34
    path.unlink()
    assert len(check(sound)) == min(entries, 21)


def test_an_entry_that_the_next_flush_writes_is_nothing_to_repair(write_log):
    log = write_log()
    log.data(2, producer_id=7)
    log.marker(7, commit=False)
    for name in ("index", "timeindex", "txnindex"):
        (log.folder / f"{0:020d}.{name}").touch()
    found = only(check(write_log.root))
    assert (found.severity, found.offset, found.action) == ("info", 2, "nothing to do")
    assert found.message.endswith("has no entry yet; it is written with the next flush")


def test_files_rebuilt_from_the_log_start_may_lack_older_entries(write_log):
    log = write_log()
    log.marker(8, commit=True)
    log.data(2, producer_id=7)
    log.marker(7, commit=False)
    log.data(1, producer_id=8)
    log.roll()
    log.data(1, producer_id=8, base_sequence=1)
    rebuilt = ProducerEntry(8, 0, 0, 4, 0, 1_000, -1, 4)
    snapshot = log.folder / f"{5:020d}.snapshot"
    snapshot.write_bytes(encode_snapshot([rebuilt]))
    os.utime(snapshot, (3, 3))  # nobody was forgotten by then
    for name in ("index", "timeindex"):
        (log.folder / f"{0:020d}.{name}").touch()
    checkpoint = write_log.root / "log-start-offset-checkpoint"
    checkpoint.write_text("0\n1\nledger 0 4\n")
    assert [one.message for one in check(write_log.root) if one.severity == "error"] == []
    checkpoint.write_text("0\n0\n")
    assert [one.message.partition(": ")[2] for one in check(write_log.root) if one.severity == "error"] == [
        "the transaction aborted at offset 3 (first offset 1) has no entry",
        "producer id 8: coordinator epoch -1, but 0 in the log",
        "lacks producer id 7, last at offset 2",
    ]


@pytest.mark.parametrize("column", range(1, 8))
def test_a_snapshot_that_differs_in_one_column(sound, column):
    path = next((sound / "ledger-1").glob("*.snapshot"))
    entries = decode_snapshot(path.read_bytes())
    entries[1] = entries[1]._replace(**{entries[1]._fields[column]: entries[1][column] + 1})
    path.write_bytes(encode_snapshot(entries))
    assert only(check(sound)).producer_id == entries[1].producer_id


def test_a_snapshot_that_lacks_a_producer_or_has_a_foreign_one(sound):
    path = next((sound / "ledger-1").glob("*.snapshot"))
    entries = decode_snapshot(path.read_bytes())
    then_ns = path.stat().st_mtime_ns
    path.write_bytes(encode_snapshot([entries[0]._replace(producer_id=999_999), *entries[1:]]))
    # A snapshot that was written a day later may lack the producer, because the broker has expired it.
    os.utime(path, ns=(then_ns, then_ns))
    assert {found.producer_id for found in check(sound)} == {entries[0].producer_id, 999_999}


def test_a_snapshot_of_wrong_crc(sound):
    path = next((sound / "ledger-1").glob("*.snapshot"))
    change(path, 20, b"\xff")
    assert "CRC" in only(check(sound)).message
