import pytest

from ottla.protocol import batch as b
from ottla.protocol.batch_header import (
    CRC_OFFSET,
    HEADER_SIZE,
    MAGIC_OFFSET,
    assign_offsets,
    crc_is_valid,
    decrement_sequence,
    increment_sequence,
    iter_batches,
    read_header,
    says_transactional,
    set_append_time,
    set_max_timestamp,
)
from ottla.protocol.errors import ProtocolError
from ottla.protocol.records import NewRecord, iter_records

TS = 1700000000000
COMMIT_MARKER = bytes.fromhex(
    "0000000000000000000000420000000502ce4cf28e0030000000000000018bcfe568000000018bcfe568000000000000000fa00003"
    "ffffffff000000012000000008000000010c00000000000700"
)
TWO_RECORDS = bytes.fromhex(
    "000000000000000000000045 00000000 02 b69bcd90 0010 00000001 0000018bcfe56800 0000018bcfe56805 0000000000000fa0"
    "0003"
    "00000000 00000002 10 00 00 00 02 6b 02 76 00 14 00 0a 02 01 02 77 02 02 68 01"
)


def two_records(**changes):
    options = {"producer_id": 4000, "producer_epoch": 3, "base_sequence": 0, "transactional": True}
    options["partition_leader_epoch"] = 0
    records = [NewRecord(b"k", b"v", timestamp_ms=TS), NewRecord(None, b"w", [("h", None)], TS + 5)]
    return b.build_batch(records, **(options | changes))


def test_batch_has_the_bytes_that_kafka_writes():
    assert two_records() == TWO_RECORDS


def test_header_of_kafkas_batch_reads_back_every_field():
    header = read_header(TWO_RECORDS)
    assert header == (0, 69, 0, 2, 0xB69BCD90, 0x10, 1, TS, TS + 5, 4000, 3, 0, 2)
    assert (header.size_bytes, header.last_offset, header.next_offset, header.last_sequence) == (81, 1, 2, 1)
    assert header.is_transactional and not header.is_control and not header.is_log_append_time
    assert crc_is_valid(TWO_RECORDS, header)


def test_records_of_kafkas_batch_read_back():
    records = list(iter_records(b"xx" + TWO_RECORDS, read_header(TWO_RECORDS), 2))
    assert records == [(0, TS, b"k", b"v", (), 0), (1, TS + 5, None, b"w", (("h", None),), 1)]


@pytest.mark.parametrize(
    ("commit", "crc", "control_type"), [(True, 0xCE4CF28E, b.COMMIT), (False, 0x3A7224C6, b.ABORT)]
)
def test_marker_has_the_bytes_that_kafka_writes(commit, crc, control_type):
    marker = b.build_marker(4000, 3, 7, commit, TS, partition_leader_epoch=5)
    header = read_header(marker)
    assert len(marker) == b.MARKER_SIZE
    assert header.crc == crc
    assert header.is_control and header.is_transactional and header.last_sequence == -1
    assert b.read_marker(marker, header) == b.Marker(control_type, 7)
    if commit:
        assert marker == COMMIT_MARKER


def test_marker_of_a_batch_emptied_by_compaction_is_none():
    empty = b.build_batch([], control=True, transactional=True, producer_id=1, producer_epoch=0)
    assert len(empty) == HEADER_SIZE
    assert b.read_marker(empty, read_header(empty)) is None


def test_marker_with_a_negative_version_is_corrupt():
    bad = b.build_batch([(b"\xff\xff\0\0", b"\0\0\0\0\0\1")], control=True)
    with pytest.raises(ProtocolError, match="version -1"):
        b.read_marker(bad, read_header(bad))


def test_assigned_offsets_leave_the_crc_valid():
    buffer = bytearray(b"prefix" + TWO_RECORDS)
    assign_offsets(buffer, 2**40, 17, position=6)
    header = read_header(buffer, 6)
    assert (header.base_offset, header.partition_leader_epoch, header.next_offset) == (2**40, 17, 2**40 + 2)
    assert crc_is_valid(buffer, header, 6)


def test_append_time_applies_to_every_record_and_reseals():
    batch = two_records()
    set_append_time(batch, TS + 99)
    header = read_header(batch)
    assert header.is_log_append_time and header.is_transactional and header.max_timestamp == TS + 99
    assert crc_is_valid(batch, header)
    assert [record.timestamp for record in iter_records(batch, header)] == [TS + 99, TS + 99]


def test_max_timestamp_is_rewritten_with_a_valid_crc():
    batch = two_records()
    set_max_timestamp(batch, TS + 7)
    header = read_header(batch)
    assert header.max_timestamp == TS + 7 and crc_is_valid(batch, header)
    set_max_timestamp(batch, TS + 5)
    assert batch == TWO_RECORDS


def test_damaged_or_cut_batch_fails_its_crc():
    header = read_header(TWO_RECORDS)
    damaged = bytearray(TWO_RECORDS)
    damaged[-1] ^= 1
    assert not crc_is_valid(damaged, header)
    assert not crc_is_valid(TWO_RECORDS[:-1], header)


def test_iteration_stops_at_a_cut_batch_and_refuses_a_size_below_the_header():
    buffer = TWO_RECORDS + COMMIT_MARKER + TWO_RECORDS
    found = [(at, header.size_bytes) for at, header in iter_batches(buffer)]
    assert found == [(0, 81), (81, 78), (159, 81)]
    for cut in range(1, 81):
        assert [at for at, _ in iter_batches(buffer[:-cut])] == [0, 81]
    with pytest.raises(ProtocolError, match="smaller than a header"):
        list(iter_batches(TWO_RECORDS + bytes(100)))


@pytest.mark.parametrize("transactional", [True, False])
def test_the_transactional_bit_is_read_even_from_a_damaged_batch(transactional):
    data = bytearray(b.build_batch([(b"k", b"v")], producer_id=1, producer_epoch=0, transactional=transactional))
    assert says_transactional(data) is says_transactional(memoryview(data)[:HEADER_SIZE]) is transactional
    assert not says_transactional(data[: HEADER_SIZE - 1])
    data[CRC_OFFSET] ^= 1
    assert says_transactional(data) is transactional
    data[MAGIC_OFFSET] = 1
    assert not says_transactional(data)


def test_short_header_is_a_protocol_error():
    with pytest.raises(ProtocolError, match="cut short"):
        read_header(bytes(60))


def test_sequences_wrap_at_two_to_the_31():
    top = 2**31 - 1
    assert increment_sequence(top, 1) == 0
    assert increment_sequence(top - 1, 3) == 1
    assert decrement_sequence(1, 3) == top - 1
    header = read_header(two_records(base_sequence=top))
    assert header.last_sequence == 0
    assert read_header(two_records(base_sequence=-1)).last_sequence == -1


def test_compacted_batch_keeps_gaps_and_sequences():
    batch = b.build_batch(
        [(b"a", b"1"), (b"b", None)],
        base_offset=10,
        base_sequence=5,
        producer_id=1,
        producer_epoch=0,
        offset_deltas=[2, 7],
        last_offset_delta=9,
        timestamp_ms=TS,
    )
    header = read_header(batch)
    assert (header.last_offset, header.last_sequence, header.record_count) == (19, 14, 2)
    assert [(r.offset, r.sequence) for r in iter_records(batch, header)] == [(12, 7), (17, 12)]


@pytest.mark.parametrize(("key", "value"), [(b"", b""), (b"k" * 30, b"v" * 80), (b"k" * 64, b"v" * 9000)])
def test_batch_of_one_record_is_what_the_general_builder_makes(key, value):
    assert b.build_record_batch(key, value, 5) == b.build_batch([(key, value)], timestamp_ms=5)
    assert b.build_record_batch(key, value, 5, 0) == b.build_batch([(key, value)], timestamp_ms=5, base_sequence=0)
