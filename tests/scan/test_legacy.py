"""Messages of magic 0 and 1 in the scan: read in pieces and whole, torn at the end, damaged in the middle."""

import pytest

pytest.importorskip("numba", reason="the spark extra is not installed")

from ottla.protocol.batch_header import MAGIC, crc_is_valid, iter_batches
from ottla.protocol.compression import GZIP
from ottla.scan import chunks, legacy, schemas, states
from ottla.scan.damage_log import DamagedSegment, DamageLog
from ottla.scan.listing import list_partitions
from ottla.scan.ranges import cut_partition
from ottla.scan.records import RecordScan, uncommitted_visibility
from ottla.scan.walk import range_fates
from tests.legacy_messages import at_offset, legacy_log, message, wrapper

CONTENT, RECORDS = legacy_log()
WHOLE_LOG = 1 << 40


@pytest.fixture
def put(tmp_path):
    """Write the segment of a partition, with its index if entries are given; the directory."""

    def write(content, index=b""):
        folder = tmp_path / "old-0"
        folder.mkdir(exist_ok=True)
        (folder / f"{0:020d}.log").write_bytes(content)
        (folder / f"{0:020d}.index").write_bytes(index)
        return tmp_path

    return write


def walk(root, on_damage="fail", target_bytes=WHOLE_LOG):
    (log,) = list_partitions(str(root))
    return [
        range_fates(part, states.empty(), on_damage=on_damage, check_crc=True)
        for part in cut_partition(0, log, target_bytes)
    ]


def count(ranges):
    return sum(int(part.totals[2]) for part in ranges)


def read(root, target_bytes=WHOLE_LOG, on_damage="fail"):
    """Return (records, damage) of the record scan."""
    (log,) = list_partitions(str(root))
    damage = DamageLog(on_damage)
    schema = schemas.arrow_schema(schemas.RECORDS, [(name, True) for name in ("offset", "key", "value")])
    scan = RecordScan(schema, damage)
    rows = [
        row
        for part in cut_partition(0, log, target_bytes)
        for batch in scan.read(part, uncommitted_visibility(0))
        for row in batch.to_pylist()
    ]
    return [(row["offset"], row["key"], row["value"]) for row in rows], damage.found


def rows_of(records):
    return [(one.offset, one.key, one.value) for one in records]


def index_of(content):
    return b"".join(
        header.last_offset.to_bytes(4, "big") + at.to_bytes(4, "big") for at, header in iter_batches(content) if at
    )


@pytest.mark.parametrize("target_bytes", [1, 100, 700, WHOLE_LOG])
def test_pieces_of_any_size_have_every_record_once(put, target_bytes):
    root = put(CONTENT, index_of(CONTENT))
    assert len(walk(root, target_bytes=target_bytes)) > (1 if target_bytes < WHOLE_LOG else 0)
    assert count(walk(root, target_bytes=target_bytes)) == len(RECORDS)
    assert read(root, target_bytes) == (rows_of(RECORDS), [])


@pytest.mark.parametrize("chunk_bytes", [64, 1_000, 1_100])
def test_messages_that_cross_the_ends_of_chunks_are_read_whole(put, monkeypatch, chunk_bytes):
    monkeypatch.setattr(chunks, "CHUNK_BYTES", chunk_bytes)
    monkeypatch.setattr(chunks, "ROWS_PER_CHUNK", 3)
    assert read(put(CONTENT)) == (rows_of(RECORDS), [])


def test_torn_message_is_the_end_at_every_length(put):
    messages = [message(offset, b"k", b"v" * 20, magic=offset % 2) for offset in range(3)]
    for last in range(3):
        before = b"".join(messages[:last])
        for size in range(1, len(messages[last])):
            (part,) = walk(put(before + messages[last][:size]))
            assert (count([part]), part.damage) == (last, ())
            assert [tail.position for tail in part.torn] == [len(before)]


@pytest.mark.parametrize("at", [0, 9, 12, 16, 17, 20, 40])
def test_spoiled_message_is_damage_and_alone_is_lost(put, at):
    messages = [message(offset, b"k", b"v" * 30, magic=offset % 2) for offset in range(4)]
    content = bytearray(b"".join(messages))
    first, behind = len(messages[0]), len(messages[0] + messages[1])
    content[first + at] ^= 0x41
    root = put(bytes(content))
    with pytest.raises(DamagedSegment, match=f"position {first} "):
        walk(root)
    (part,) = walk(root, "report")
    assert count([part]) == 3
    assert [(one.position, one.end_position) for one in part.damage] == [(first, behind)]
    assert [row[0] for row in read(root, on_damage="report")[0]] == [0, 2, 3]


def test_a_message_of_26_bytes_after_damage_is_found(put):
    batch = bytearray(at_offset(0, [(b"k", b"v" * 90)]))
    batch[80] ^= 1
    (part,) = walk(put(bytes(batch) + message(1, None, b"", magic=0)), "report")
    assert count([part]) == 1
    assert [(one.position, one.end_position) for one in part.damage] == [(0, len(batch))]


def test_wrapper_whose_content_is_spoiled_is_damage(put):
    bad = message(1, None, b"no gzip", magic=1, attributes=GZIP)
    content = message(0, b"k", b"v", magic=1) + bad + message(2, b"k", b"v", magic=1)
    assert all(crc_is_valid(content, header, at) for at, header in iter_batches(content))
    (part,) = walk(put(content), "report")
    assert count([part]) == 2
    assert "gzip" in part.damage[0].reason


def test_wrapper_that_is_too_large_for_the_walk_is_sound(put, monkeypatch):
    monkeypatch.setattr(legacy, "SHALLOW_LIMIT_BYTES", 1_000)
    some = [(offset, 5, b"k", bytes(500)) for offset in range(10)]
    root = put(wrapper(some, magic=1, codec=GZIP) + message(10, b"k", b"v", magic=1))
    (part,) = walk(root)
    assert part.damage == ()
    assert [row[0] for row in read(root)[0]] == list(range(11))


def test_batch_with_the_magic_of_a_message_is_damage(put):
    batches = [bytes(at_offset(offset, [(b"k", b"v" * 90)])) for offset in range(3)]
    for magic in range(MAGIC):
        content = bytearray(b"".join(batches))
        content[len(batches[0]) + 16] = magic
        (part,) = walk(put(bytes(content)), "report")
        assert count([part]) == 2
        assert part.damage[0].position == len(batches[0])
