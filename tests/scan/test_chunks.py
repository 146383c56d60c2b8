"""Torn tails are the end of the log; damage is named with file and position, and the sound data around it is read."""

import pytest

pytest.importorskip("numba", reason="the spark extra is not installed")

from ottla.scan import chunks, states
from ottla.scan.compiled import kernels
from ottla.scan.damage_log import DamagedSegment, DamageLog
from ottla.scan.listing import list_partitions
from ottla.scan.pieces import PieceReader
from ottla.scan.ranges import cut_partition
from ottla.scan.walk import range_fates


def scan(root, on_damage="fail", target_bytes=1 << 40):
    (log,) = list_partitions(str(root))
    return [
        range_fates(part, states.empty(), on_damage=on_damage, check_crc=True)
        for part in cut_partition(0, log, target_bytes)
    ]


def flip(path, position, mask=0xFF):
    data = bytearray(path.read_bytes())
    data[position] ^= mask
    path.write_bytes(data)


def records(ranges):
    return sum(int(part.totals[2]) for part in ranges)


@pytest.fixture
def three(write_log):
    """Return a segment of three batches of 10 records each, with their positions."""
    log = write_log()
    log.positions = [log.data(10, value=b"x" * 50) for _ in range(3)]
    return log


def test_torn_tail_is_the_end_at_every_length(write_log, three):
    whole = three.path.read_bytes()
    for size in range(three.positions[2] + 1, len(whole), 37):
        three.path.write_bytes(whole[:size])
        (part,) = scan(write_log.root)
        assert (records([part]), part.damage) == (20, ())
        assert [(tail.position, tail.end_position) for tail in part.torn] == [(three.positions[2], size)]


def test_zeros_after_the_last_batch_are_a_torn_tail(write_log, three):
    end = three.path.stat().st_size
    with three.path.open("ab") as file:
        file.write(bytes(10_000))
    (part,) = scan(write_log.root)
    assert (records([part]), part.torn[0].position) == (30, end)


def test_last_batch_with_a_wrong_crc_is_a_torn_tail(write_log, three):
    flip(three.path, three.positions[2] + 100)
    (part,) = scan(write_log.root)
    assert (records([part]), part.torn[0].position) == (20, three.positions[2])


def test_torn_segment_that_is_not_the_last_is_damage(write_log, three):
    whole = three.path.read_bytes()
    three.path.write_bytes(whole[:-5])
    path = three.path
    three.roll().data(1)
    with pytest.raises(DamagedSegment, match=f"{path}: position {three.positions[2]} "):
        scan(write_log.root)
    (part,) = scan(write_log.root, "report")
    assert records([part]) == 21
    assert [(one.path, one.position, one.end_position) for one in part.damage] == [
        (str(path), three.positions[2], len(whole) - 5)
    ]


@pytest.mark.parametrize(
    ("field", "reason"),
    [(100, "CRC"), (8, "length"), (11, "CRC|length|magic"), (16, "magic"), (0, "base offset"), (57, "count")],
)
def test_flipped_byte_in_the_middle_names_file_and_position(write_log, three, field, reason):
    flip(three.path, three.positions[1] + field, 0x40)
    with pytest.raises(DamagedSegment, match=rf"{three.path}: position {three.positions[1]} to .*({reason})"):
        scan(write_log.root)
    (part,) = scan(write_log.root, "report")
    assert records([part]) == 20
    assert [(one.position, one.end_position) for one in part.damage] == [(three.positions[1], three.positions[2])]


def test_a_base_offset_that_goes_backwards_is_damage(write_log, three):
    # The base offset is outside the CRC: a small jump shows only where the next batch goes backwards.
    flip(three.path, three.positions[1] + 6, 0x01)
    with pytest.raises(DamagedSegment, match=rf"{three.path}: position {three.positions[2]} to .*base offset"):
        scan(write_log.root)


def test_two_damaged_batches_in_a_row_are_both_skipped(write_log, three):
    last = three.data(10)
    flip(three.path, three.positions[1] + 80)
    flip(three.path, three.positions[2] + 80)
    (part,) = scan(write_log.root, "report")
    assert records([part]) == 20
    assert part.damage[0].position == three.positions[1]
    assert part.damage[-1].end_position == last


def test_torn_tail_below_the_recovery_point_is_damage(write_log, three):
    size = three.path.stat().st_size
    with three.path.open("r+b") as file:
        file.truncate(size - 5)
    checkpoint = write_log.root / "recovery-point-offset-checkpoint"
    checkpoint.write_text("0\n1\nledger 0 20\n")
    assert scan(write_log.root)[0].torn
    checkpoint.write_text("0\n1\nledger 0 30\n")
    with pytest.raises(DamagedSegment, match=f"{three.path}: position {three.positions[2]} "):
        scan(write_log.root)


def test_batch_larger_than_a_chunk_is_read_whole(write_log):
    log = write_log()
    log.data(1)
    log.data(1, value=bytes(9 * 1024 * 1024))
    log.data(1)
    (part,) = scan(write_log.root)
    assert records([part]) == 3


@pytest.mark.parametrize(("batches", "value", "steps"), [(100, b"", 100), (1, bytes(100 * 1024), 6)])
def test_a_step_is_expected_for_each_batch_and_for_16_kib(write_log, monkeypatch, batches, value, steps):
    log = write_log()
    for _ in range(batches):
        log.data(1, value=value)
    expected = []
    monkeypatch.setattr(kernels, "expect", expected.append)
    scan(write_log.root)
    assert sum(expected) == steps


def test_small_batches_are_expected_also_in_the_rest(write_log, monkeypatch):
    log = write_log()
    for _ in range(10):
        log.data(1)
    expected = []
    monkeypatch.setattr(kernels, "expect", expected.append)
    monkeypatch.setattr(chunks, "CHUNK_BYTES", log.path.stat().st_size // 2)
    (log,) = list_partitions(str(write_log.root))
    (part,) = cut_partition(0, log, 1 << 40)
    next(iter(PieceReader(DamageLog("fail"), check_crc=True).chunks(part.pieces[0])))
    assert sum(expected) in (9, 10, 11)


def test_a_wrong_offset_index_loses_no_records(write_log):
    log = write_log()
    entries = b""
    for _ in range(50):
        position = log.data(10)
        entries += (log.next_offset - 1).to_bytes(4, "big") + (position + 3).to_bytes(4, "big")
    log.path.with_suffix(".index").write_bytes(entries)
    assert records(scan(write_log.root, target_bytes=500)) == 500
    assert len(scan(write_log.root, target_bytes=500)) == 1
