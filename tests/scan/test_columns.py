"""Records gathered into Arrow columns: record batches do not depend on how the log is divided into batches."""

import random

import pytest

pytest.importorskip("numba", reason="the spark extra is not installed")

from ottla.protocol.batch import build_batch, build_marker
from ottla.protocol.batch_header import HEADER_SIZE, seal
from ottla.protocol.compression import compress
from ottla.scan import columns, schemas
from ottla.scan.damage_log import DamageLog
from ottla.scan.listing import list_partitions
from ottla.scan.ranges import cut_partition
from ottla.scan.records import EVERYTHING, RecordScan, uncommitted_visibility
from ottla.testkit.scanner import scan_partition

ALL = tuple(schemas.VIEWS[schemas.RECORDS])


def read(root, names=ALL, wanted=EVERYTHING, on_damage="fail"):
    """Return (record batches, damage) of the only partition."""
    (log,) = list_partitions(str(root))
    damage = DamageLog(on_damage)
    scan = RecordScan(schemas.arrow_schema(schemas.RECORDS, [(name, True) for name in names]), damage)
    found = []
    for part in cut_partition(0, log, 1 << 40):
        for batch in scan.read(part, uncommitted_visibility(log.log_start), wanted):
            batch.validate(full=True)
            found.append(batch)
    return found, damage.found


def rows_of(batches):
    return [row for batch in batches for row in batch.to_pylist()]


def append(log, records, **shape):
    return log.append(build_batch(records, timestamp_ms=1_000, **shape))


def test_small_batches_are_gathered_into_one_record_batch(write_log):
    log = write_log()
    for _ in range(300):
        log.data(3, compression=random.Random(log.next_offset).choice([0, 4]))
    (batch,), _ = read(write_log.root)
    assert batch.column("offset").to_pylist() == list(range(900))


def test_segments_are_not_mixed_in_a_record_batch(write_log):
    log = write_log()
    for _ in range(3):
        log.data(5)
        log.roll()
    batches, _ = read(write_log.root, ("segment", "offset"))
    assert [set(batch.column("segment").to_pylist()) for batch in batches] == [{0}, {5}, {10}]


def test_record_batches_stay_below_twice_their_size(write_log, monkeypatch):
    """Batches of 100 KB in record batches of 64: one is more than a record batch's worth, and is split."""
    monkeypatch.setattr(columns, "BATCH_BYTES", 65_536)
    log = write_log()
    for records in (10, 1_000, 10, 1_000, 1):
        log.data(records, value=b"x" * 200)
    batches, _ = read(write_log.root, ("offset", "value"))
    assert [row["offset"] for row in rows_of(batches)] == list(range(2_021))
    assert len(batches) > 3
    assert all(sum(map(len, batch.column("value").to_pylist())) <= 2 * 65_536 for batch in batches)


def test_record_batches_have_no_more_rows_than_their_limit(write_log, monkeypatch):
    monkeypatch.setattr(columns, "BATCH_ROWS", 100)
    log = write_log()
    for records in (30, 30, 30, 30, 250, 1, 250):
        log.data(records)
    batches, _ = read(write_log.root, ("offset", "topic"))
    assert [row["offset"] for row in rows_of(batches)] == list(range(621))
    assert max(map(len, batches)) <= 100


@pytest.mark.slow
def test_batch_larger_than_all_buffers_is_read(write_log):
    log = write_log()
    log.data(2)
    log.data(10_000, value=b"y" * 300)
    log.data(2)
    log.data(70_000, compression=4)
    batches, _ = read(write_log.root, ("offset", "key", "value"))
    found = rows_of(batches)
    assert [row["offset"] for row in found] == list(range(80_004))
    assert found[2] == {"offset": 2, "key": b"k0", "value": b"y" * 300}
    assert found[-1]["key"] == b"k69999"


def test_nulls_and_headers_stay_with_their_records_across_record_batches(write_log):
    log = write_log()
    values = [None, b"", b"v", b"long" * 50]
    expected = []
    for turn in range(40):
        records = [
            (values[(turn + index) % 4], values[(turn * index) % 4], [("h", values[index % 4])] * (index % 3), 1_000)
            for index in range(17)
        ]
        append(log, records)
        expected += [(key, value, headers) for key, value, headers, _ in records]
    batches, _ = read(write_log.root)
    found = [
        (row["key"], row["value"], [(pair["key"], pair["value"]) for pair in row["headers"] or []])
        for row in rows_of(batches)
    ]
    assert found == expected
    assert all(
        (row["headers"] is None) == (not pairs) for row, (_, _, pairs) in zip(rows_of(batches), expected, strict=True)
    )


def test_each_column_alone_is_as_it_is_among_all(write_log):
    log, chance = write_log(), random.Random(5)
    for _ in range(20):
        log.data(7, producer_id=chance.choice([-1, 3]), value=chance.randbytes(9), timestamp_ms=chance.randrange(10**6))
        append(log, [(None, None, [("a", b"b")], 5)])
        log.roll()
    whole, _ = read(write_log.root)
    for name in ALL:
        alone, _ = read(write_log.root, (name,))
        assert [row[name] for row in rows_of(alone)] == [row[name] for row in rows_of(whole)], name


def test_a_batch_with_a_wrong_crc_is_damage_and_returns_no_records(write_log):
    log = write_log()
    log.data(2)
    append(log, [(b"k", b"needle"), (b"k", b"v")])
    log.data(2)
    content = bytearray(log.path.read_bytes())
    content[content.index(b"needle")] ^= 1
    log.path.write_bytes(content)
    batches, damage = read(write_log.root, ("offset",), on_damage="report")
    assert [row["offset"] for row in rows_of(batches)] == [0, 1, 4, 5]
    assert [(each.path, "CRC" in each.reason) for each in damage] == [(str(log.path), True)]


def test_offsets_are_bounded_inside_batches(write_log):
    log = write_log()
    for codec in (0, 4, 0):
        log.data(100, compression=codec)
    for first, end in ((0, 1), (37, 41), (50, 250), (99, 101), (299, 300), (300, 900)):
        batches, _ = read(write_log.root, ("offset",), EVERYTHING._replace(first_offset=first, end_offset=end))
        assert [row["offset"] for row in rows_of(batches)] == list(range(first, min(end, 300)))


@pytest.mark.parametrize("seed", range(6))
def test_broken_record_bytes_are_damage_or_what_the_scanner_reads(write_log, seed):
    """Any byte of the records may be wrong although the CRC is right; sound data around the batch is read."""
    chance = random.Random(seed)
    log = write_log()
    records = [(b"key", b"v" * chance.choice([1, 9]), [("h", b"x")] * chance.randrange(3), 1_000) for _ in range(9)]
    for _ in range(120):
        batch = build_batch(records, timestamp_ms=1_000)
        position = HEADER_SIZE + chance.randrange(len(batch) - HEADER_SIZE)
        batch[position] = chance.choice([0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)])
        seal(batch)
        log.append(batch)
        log.data(1)
    batches, damage = read(write_log.root, ("offset", "key", "value"), on_damage="report")
    found = {row["offset"]: (row["key"], row["value"]) for row in rows_of(batches)}
    broken = {one.position for one in damage}
    scanned = scan_partition(log.folder)
    assert len(scanned.batches) == 240
    for batch in scanned.batches:
        offsets = range(batch.base_offset, batch.last_offset + 1)
        if batch.position in broken:
            assert not any(offset in found for offset in offsets)
        else:
            assert {o: found[o] for o in offsets if o in found} == {r.offset: (r.key, r.value) for r in batch.records()}
    assert 10 < len(broken) < 120


def test_header_key_that_is_no_utf8_is_read_with_replacement_characters(write_log):
    log = write_log()
    batch = build_batch([(b"k", b"v", [("key", b"\xff")] * 2, 1_000)], timestamp_ms=1_000)
    at = batch.index(b"key")
    batch[at + 1] = 0xFF
    seal(batch)
    log.append(batch)
    batches, _ = read(write_log.root, ("headers",))
    assert rows_of(batches) == [{"headers": [{"key": key, "value": b"\xff"} for key in ("k\ufffdy", "key")]}]


def test_lz4_frame_that_states_an_impossible_size_is_damage(write_log):
    log = write_log()
    batch = build_batch([(b"k", b"v")], timestamp_ms=1_000, compression=3)
    # 100 times x; the size is 2^62, and the checksum of the flags is right.
    batch[HEADER_SIZE:] = b'\x04"M\x18h@' + (2**62).to_bytes(8, "little") + b"\n\x0b\0\0\0\x1fx\1\0KPxxxxx" + bytes(4)
    batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
    seal(batch)
    log.append(batch)
    log.data(1)
    batches, (damage,) = read(write_log.root, ("offset",), on_damage="report")
    assert (rows_of(batches), damage.position) == ([{"offset": 1}], 0)


LARGEST = b"\xfe" + b"\xff" * 8 + b"\x01"  # 2^63-1 as a varint: added to a position it would be negative


def record(key=b"\x02k", value=b"\x02v", headers=b"\x00", length=None):
    body = b"\x00\x00\x00" + key + value + headers + bytes(20)
    return (bytes([2 * len(body)]) if length is None else length) + body


@pytest.mark.parametrize(
    "content",
    [
        record(length=LARGEST),
        record(key=LARGEST + b"k"),
        record(value=LARGEST + b"v"),
        record(headers=LARGEST),
        record(headers=b"\x02" + LARGEST + b"h"),
        record(headers=b"\x02\x02h" + LARGEST + b"x"),
    ],
    ids=["record", "key", "value", "headers", "header key", "header value"],
)
@pytest.mark.parametrize("codec", [0, 4])
def test_impossible_length_is_damage(write_log, content, codec):
    log = write_log()
    batch = build_batch([(b"k", b"v")], timestamp_ms=1_000, compression=codec)
    batch[HEADER_SIZE:] = compress(content, codec)
    batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
    seal(batch)
    log.append(batch)
    log.data(2)
    batches, (damage,) = read(write_log.root, on_damage="report")
    assert [row["offset"] for row in rows_of(batches)] == [1, 2]
    assert (damage.position, damage.end_position) == (0, len(batch))


@pytest.mark.parametrize("frame", [LARGEST, b"\x2e\x00\x00\x00" + LARGEST, b"\x2e\x00\x00\x00\x08\0\0\0\1" + LARGEST])
def test_impossible_length_in_a_marker_is_damage(write_log, frame):
    log = write_log()
    marker = build_marker(1, 0, 0, True, 1_000)
    marker[HEADER_SIZE : HEADER_SIZE + len(frame)] = frame[: len(marker) - HEADER_SIZE]
    seal(marker)
    log.append(marker)
    log.data(2)
    batches, (damage,) = read(write_log.root, on_damage="report")
    assert [row["offset"] for row in rows_of(batches)] == [1, 2]
    assert damage.position == 0
