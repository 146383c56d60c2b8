"""Random logs, sound and damaged: rows do not depend on buffers, tasks, or where fates are computed."""

import json
import random
import struct

import pytest

pytest.importorskip("numba", reason="the spark extra is not installed")

from ottla.protocol.batch_header import HEADER_SIZE, seal
from ottla.scan import chunks, columns, ranges, records, schemas
from ottla.spark_jobs.views import deferred_fates, planning
from ottla.testkit.scanner import scan_content, scan_partition
from tests.scan.test_against_scanner import expected_rows, write_random_log
from tests.spark.views import read_view, reader_of

ALL = list(schemas.VIEWS[schemas.RECORDS])
LISTS = ["key", "value", "headers"]
ISOLATIONS = ("read_uncommitted", "read_committed")
# 2^63-1 as a varint: added to a position it would be negative.
LARGEST = b"\xfe" + b"\xff" * 8 + b"\x01"


@pytest.fixture
def buffers(monkeypatch):
    """Return `buffers(chance)`, which sets random sizes of reads and ranges."""

    def resize(chance):
        monkeypatch.setattr(chunks, "CHUNK_BYTES", chance.choice([512, 4_096, 1 << 21]))
        monkeypatch.setattr(chunks, "ROWS_PER_CHUNK", chance.choice([1, 2, 7, 16_384]))
        size = chance.choice([64, 1_000, 1 << 21])
        monkeypatch.setattr(columns, "BATCH_BYTES", size)
        monkeypatch.setattr(records, "BATCH_BYTES", size)
        monkeypatch.setattr(columns, "BATCH_ROWS", chance.choice([8, 100, 65_536]))
        monkeypatch.setattr(columns, "_RECORDS_PER_BATCH", chance.choice([1, 50, 4_096]))
        monkeypatch.setattr(records, "_SCRATCH_BYTES", chance.choice([16, 1 << 16]))
        monkeypatch.setattr(ranges, "SMALLEST_TASK_BYTES", 1)
        monkeypatch.setattr(planning, "LARGEST_TASK_BYTES", chance.choice([1, 3_000, 1 << 28]))
        monkeypatch.setattr(deferred_fates, "DRIVER_BYTES", chance.choice([-1, 1 << 40]))

    return resize


def write_indexes(folder, chance):
    for path in sorted(folder.glob("*.log")):
        batches, base = scan_content(path, path.read_bytes())[0], int(path.stem)
        entries = [
            struct.pack(">ii", batch.last_offset - base, batch.position)
            for batch in batches
            if batch.position and chance.random() < 0.5 and 0 <= batch.last_offset - base < 2**31
        ]
        path.with_suffix(".index").write_bytes(b"".join(entries) + bytes(8 * chance.randrange(3)))


def read(root, names, **options):
    """Return rows in the order of offsets, with Arrow times, because Python cannot represent hostile ones."""
    reader, found = reader_of(root, "records", names, **options), []
    for task in reader.partitions():
        for batch in reader.read(task):
            batch.validate(full=True)
            times = batch.column("timestamp").cast("int64")
            found += batch.set_column(batch.schema.get_field_index("timestamp"), "timestamp", times).to_pylist()
    return sorted(found, key=lambda row: row["offset"])


def break_somewhere(folder, chance):
    """Cut, insert, flip a bit; or change bytes of a batch and correct its CRC."""
    path = chance.choice(sorted(folder.glob("*.log")))
    content = bytearray(path.read_bytes())
    batches = scan_content(path, bytes(content))[0]
    dice = chance.random()
    at = chance.randrange(len(content) + 1)
    if dice < 0.2:
        del content[at:]
    elif dice < 0.3:
        content[at:at] = chance.randbytes(chance.choice([1, 61, 500]))
    elif dice < 0.5 and content:
        content[min(at, len(content) - 1)] ^= 1 << chance.randrange(8)
    elif batches:
        one = chance.choice(batches)
        batch = content[one.position : one.position + one.size_bytes]
        at = chance.choice([21, HEADER_SIZE]) + chance.randrange(len(batch) - HEADER_SIZE + 1)
        bytes_there = chance.choice([b"\0", b"\1", b"\x7f", b"\x80", b"\xff", LARGEST, chance.randbytes(1)])
        batch[at : at + len(bytes_there)] = bytes_there[: len(batch) - at]
        seal(batch)
        content[one.position : one.position + one.size_bytes] = batch
    path.write_bytes(content)


def row_of(row):
    """Return rows as in `expected_rows`, without the time."""
    headers = [(pair["key"], pair["value"]) for pair in row["headers"] or []]
    return row["offset"], row["key"], row["value"], headers, row["producerId"], row["producerEpoch"], row["sequence"]


@pytest.mark.parametrize("seed", range(12))
def test_sound_log_is_read_alike_with_all_buffers_and_cuts(write_log, buffers, seed):
    chance, log = random.Random(seed), write_log()
    write_random_log(log, chance, steps=chance.choice([5, 30, 80]))
    write_indexes(log.folder, chance)
    scanned = scan_partition(log.folder)
    first, end = sorted(chance.randrange(scanned.log_end_offset + 2) for _ in range(2))
    bounds = {"startingOffsets": first, "endingOffsets": end}
    bounds = {name: json.dumps({"ledger": {"0": offset}}) for name, offset in bounds.items()}
    names = ["offset", "timestamp", *chance.sample(LISTS, chance.randrange(3))]
    buffers(chance)
    for isolation in ISOLATIONS:
        rows = read(write_log.root, ALL, isolation_level=isolation)
        expected = expected_rows(scanned, isolation)
        assert [row["timestamp"] for row in rows] == [1_000 * record[1] for record in expected]
        assert list(map(row_of, rows)) == [(one[0], *one[2:]) for one in expected]
        some = read(write_log.root, names, isolation_level=isolation, **bounds)
        assert some == [{name: row[name] for name in names} for row in rows if first <= row["offset"] < end]


@pytest.mark.parametrize("seed", range(24))
def test_damaged_log_shows_the_same_committed_records_with_all_buffers_and_cuts(write_log, buffers, seed):
    chance, log = random.Random(seed), write_log()
    write_random_log(log, chance, steps=chance.choice([5, 30, 80]))
    for _ in range(chance.choice([1, 2, 5])):
        break_somewhere(log.folder, chance)
    committed = read(write_log.root, ALL, on_damage="report")
    all_rows = read(write_log.root, ALL, on_damage="report", isolation_level="read_uncommitted")
    assert all(row in all_rows for row in committed)
    write_indexes(log.folder, chance)
    buffers(chance)
    assert read(write_log.root, ALL, on_damage="report") == committed


@pytest.mark.parametrize("largest_task", [1, 1 << 40])
def test_batches_with_undetermined_fates_are_not_returned_as_committed(write_log, monkeypatch, largest_task):
    """An offset that jumps, which no CRC covers, hides the segments behind it from a walk, not from tasks there."""
    log = write_log()
    log.data(2)
    position, path = log.data(2), log.path
    log.roll()
    log.data(2, producer_id=1)
    log.marker(1, commit=False)
    log.roll().data(2)
    content = bytearray(path.read_bytes())
    content[position + 4] ^= 0x40
    path.write_bytes(content)
    monkeypatch.setattr(ranges, "SMALLEST_TASK_BYTES", 1)
    monkeypatch.setattr(planning, "LARGEST_TASK_BYTES", largest_task)
    found = {row["offset"] for row in read(write_log.root, ["offset", "timestamp"], on_damage="report")}
    assert {0, 1} <= found
    assert not found & {4, 5}
    batches = read_view(write_log.root, "batches", ["baseOffset", "fate"], on_damage="report")
    assert {"baseOffset": 0, "fate": "none"} in batches
    assert not {row["baseOffset"] for row in batches} & {4, 6}
