"""The second scanner against Kafka itself: its consumer in both isolations, and its aborted-transaction indexes."""

import hashlib
import struct

import pytest

from ottla.testkit.scanner import OPEN, scan_partition


def plain_row(row):
    headers = [(name, content) for name, content in row["headers"]]
    return row["offset"], row["timestamp"], row["key"], row["value_sha256"], headers


def read(record):
    digest = None if record.value is None else hashlib.sha256(record.value).hexdigest()
    headers = [(name, None if content is None else content.decode()) for name, content in record.headers]
    key = None if record.key is None else record.key.decode()
    return record.offset, record.timestamp, key, digest, headers


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_scanner_sees_what_kafkas_consumer_returned(kafka_directory, consumed_rows, isolation):
    rows = [row for row in consumed_rows if row["isolation"] == isolation]
    ends = {row["end"]: row["offset"] for row in rows if "end" in row}
    assert len(ends) == 14
    for name, end in ends.items():
        partition = scan_partition(kafka_directory / name)
        stable = isolation == "read_committed"
        assert (partition.last_stable_offset if stable else partition.log_end_offset) == end
        expected = [plain_row(row) for row in rows if "end" not in row and f"{row['topic']}-{row['partition']}" == name]
        assert [read(record) for record in partition.records(isolation)] == expected


def test_scanner_recomputes_every_aborted_index(kafka_directory):
    count = 0
    for folder in sorted(path for path in kafka_directory.iterdir() if path.is_dir()):
        content = b"".join(path.read_bytes() for path in sorted(folder.glob("*.txnindex")))
        partition = scan_partition(folder)
        assert partition.aborted_index == [entry[1:] for entry in struct.iter_unpack(">hqqqq", content)]
        assert partition.damages == []
        count += len(partition.aborted_index)
    assert count == 337


def test_scanner_finds_the_transactions_left_open(kafka_directory):
    hanging = {
        (folder.name, transaction.first_offset)
        for folder in kafka_directory.glob("ledger*")
        for transaction in scan_partition(folder).transactions
        if transaction.fate == OPEN
    }
    assert ("ledger-2", 898) in hanging
    assert len(hanging) == 2
