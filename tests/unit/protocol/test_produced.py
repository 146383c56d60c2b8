import struct
import zlib

import pytest

from ottla.protocol import batch as b
from ottla.protocol.batch_header import CONTROL, HEADER_SIZE, TRANSACTIONAL, assemble, read_header, set_append_time
from ottla.protocol.errors import ErrorCode
from ottla.protocol.records import NewRecord
from ottla.protocol.requests.produced import check_at_once, check_produced_batch, check_steps
from ottla.protocol.steps import RECORD_US, to_the_end
from ottla.protocol.walked import SLICE_RECORDS

TS = 1700000000000
RECORDS = [NewRecord(b"k%d" % i, b"v" * i * 40, timestamp_ms=TS + i * 7) for i in range(5)]


def check(batch, **options):
    verdict = check_produced_batch(memoryview(bytes(batch)), **options)
    assert verdict == to_the_end(check_steps(memoryview(bytes(batch)), **options)).check
    return verdict


def check_refusal(batch, **options):
    verdict = check(batch, **options)
    assert verdict.error != ErrorCode.NONE
    assert verdict.message
    return verdict.error


def change_batch(batch=None, *, payload=None, **fields):
    """Return a batch with a valid CRC and changed header or record bytes."""
    batch = b.build_batch(RECORDS) if batch is None else batch
    header = read_header(batch)._replace(**fields)
    return assemble(header, batch[HEADER_SIZE:] if payload is None else payload)


def raw_batch(payload, count=1, **fields):
    return change_batch(payload=bytes.fromhex(payload), record_count=count, last_offset_delta=count - 1, **fields)


@pytest.mark.parametrize("compression", range(5))
def test_sound_batch_is_accepted_with_its_times_in_every_codec(compression):
    batch = b.build_batch(RECORDS, compression=compression, producer_id=7, producer_epoch=0, base_sequence=0)
    verdict = check(batch)
    assert (verdict.error, verdict.message) == (ErrorCode.NONE, "")
    assert verdict.header == read_header(batch)
    assert (verdict.min_timestamp, verdict.max_timestamp, verdict.has_null_key) == (TS, TS + 28, False)


def test_times_are_those_of_the_records_not_of_the_header():
    records = [NewRecord(b"", b"", timestamp_ms=TS + delta) for delta in (0, -90000, 70, 5)]
    verdict = check(change_batch(b.build_batch(records), max_timestamp=1))
    assert (verdict.min_timestamp, verdict.max_timestamp) == (TS - 90000, TS + 70)


def test_append_time_batch_has_the_header_time():
    batch = b.build_batch(RECORDS)
    set_append_time(batch, TS + 1000)
    verdict = check(batch)
    assert (verdict.min_timestamp, verdict.max_timestamp) == (TS + 1000, TS + 1000)


def test_first_record_without_key_is_reported():
    assert check(b.build_batch([(b"k", None), (None, b"v"), (None, None)])).first_null_key == 1


@pytest.mark.parametrize("size", [0, 1, 63, 64, 8191, 8192, 1 << 20, 1 << 21])
def test_every_varint_width_of_keys_and_values_is_accepted(size):
    assert check(b.build_batch([(bytes(size), None), (None, bytes(size))])).error == ErrorCode.NONE


@pytest.mark.parametrize("delta", [63, 64, 8191, 8192, 2**31, 2**60])
def test_every_varint_width_of_timestamps_is_accepted(delta):
    batch = b.build_batch([NewRecord(b"", b"", timestamp_ms=t) for t in (0, delta, -delta)])
    verdict = check(batch)
    assert (verdict.error, verdict.min_timestamp, verdict.max_timestamp) == (ErrorCode.NONE, -delta, delta)


def test_headers_are_walked():
    headers = [("h" * 70, None), ("", b""), ("x", bytes(9000))]
    assert check(b.build_batch([(b"k", b"v", headers)])).error == ErrorCode.NONE


def steps_of(steps):
    """Return (the result of the steps, the values that they yielded)."""
    seen = []
    while True:
        try:
            seen.append(next(steps))
        except StopIteration as stop:
            return stop.value, seen


def test_only_single_step_batches_are_checked_at_once():
    def at_once(batch):
        return check_at_once(memoryview(batch)) is not None

    def headers(count):
        return b.build_batch([(None, None, [("", None)] * count)])

    assert at_once(b.build_batch(RECORDS)) and at_once(b.build_batch(RECORDS)[:-1])
    assert at_once(b.build_batch([(None, None)] * SLICE_RECORDS)) and at_once(headers(SLICE_RECORDS))
    assert not at_once(b.build_batch([(None, None)] * (SLICE_RECORDS + 1))) and not at_once(headers(SLICE_RECORDS + 1))
    assert not at_once(b.build_batch([(None, bytes(1 << 20))]))
    assert not any(at_once(b.build_batch(RECORDS, compression=codec)) for codec in range(1, 5))


@pytest.mark.parametrize("count", [1, SLICE_RECORDS, SLICE_RECORDS + 1, 2 * SLICE_RECORDS, 5 * SLICE_RECORDS - 1])
def test_long_batches_are_checked_in_slices(count):
    records = [NewRecord(b"k", b"", timestamp_ms=TS - i) for i in range(count - 1)]
    records.append(NewRecord(None, b"", timestamp_ms=TS - 5))
    (verdict, _), seen = steps_of(check_steps(memoryview(b.build_batch(records))))
    assert sum(seen) == count * RECORD_US and max(seen) <= SLICE_RECORDS * RECORD_US
    assert verdict.error == ErrorCode.NONE
    assert (verdict.first_null_key, verdict.max_timestamp) == (count - 1, TS if count > 1 else TS - 5)


@pytest.mark.parametrize("counts", [[20_000], [1, 999, 1, 1, 1000, 1001, 0, 3], [40] * 2_000])
def test_many_headers_are_walked_in_slices(counts):
    records = [(b"k", b"v", [("", b"")] * count) for count in counts]
    (verdict, _), seen = steps_of(check_steps(memoryview(b.build_batch(records, timestamp_ms=TS))))
    assert (verdict.error, verdict.max_timestamp) == (ErrorCode.NONE, TS)
    assert max(seen) <= SLICE_RECORDS * RECORD_US
    assert sum(seen) >= max(counts) * RECORD_US


@pytest.mark.parametrize("cut", [1, 2, 3])
def test_a_record_of_many_headers_must_be_as_long_as_they_are(cut):
    batch = b.build_batch([(b"k", b"v", [("", b"x")] * 5_000)])
    header = read_header(batch)
    for payload in (batch[HEADER_SIZE:-cut], batch[HEADER_SIZE:] + bytes(cut)):
        assert check_refusal(assemble(header, payload)) == ErrorCode.INVALID_RECORD
    record = bytearray(batch[HEADER_SIZE:])
    record[-3 * 4_000] = 1  # of the next header: a key of length -1
    assert check_refusal(assemble(header, record)) == ErrorCode.INVALID_RECORD


def test_the_crc_of_a_large_batch_is_computed_in_slices():
    batch = b.build_batch([(None, bytes(5 << 20))])
    (verdict, _), seen = steps_of(check_steps(memoryview(batch)))
    assert verdict.error == ErrorCode.NONE and len(seen) == 6
    batch[-1] ^= 1
    assert check(batch).error == ErrorCode.CORRUPT_MESSAGE


def test_a_partial_batch_after_the_first_is_ignored():
    batch = b.build_batch(RECORDS)
    verdict = check(batch + batch[:-1])
    assert verdict.error == ErrorCode.NONE
    assert verdict.header.size_bytes == len(batch)


@pytest.mark.parametrize(
    ("batch", "error"),
    [
        (b"", ErrorCode.INVALID_RECORD),
        (b.build_batch(RECORDS)[:-1], ErrorCode.INVALID_RECORD),
        (b.build_batch(RECORDS) * 2, ErrorCode.INVALID_RECORD),
        (b.build_batch(RECORDS) + bytes(20), ErrorCode.CORRUPT_MESSAGE),
        (change_batch(base_offset=5), ErrorCode.INVALID_RECORD),
        (change_batch(magic=1), ErrorCode.INVALID_RECORD),
        (change_batch(magic=0), ErrorCode.INVALID_RECORD),
        (change_batch(magic=3), ErrorCode.CORRUPT_MESSAGE),
        (change_batch(magic=-1), ErrorCode.CORRUPT_MESSAGE),
        (bytes(8) + struct.pack(">i", 13) + bytes(60), ErrorCode.CORRUPT_MESSAGE),
        (bytes(8) + struct.pack(">i", -1) + bytes(60), ErrorCode.CORRUPT_MESSAGE),
        (bytes(8) + struct.pack(">i", 20) + bytes(4) + b"\2" + bytes(60), ErrorCode.CORRUPT_MESSAGE),
        (bytes(8) + struct.pack(">i", 20) + bytes(4) + b"\2" + bytes(15), ErrorCode.CORRUPT_MESSAGE),
        (bytes(8) + struct.pack(">i", 2**31 - 1) + bytes(4) + b"\2" + bytes(60), ErrorCode.INVALID_RECORD),
        (b.build_batch(RECORDS)[:-1] + b"\7", ErrorCode.CORRUPT_MESSAGE),
        (change_batch(record_count=4), ErrorCode.INVALID_RECORD),
        (change_batch(last_offset_delta=5), ErrorCode.INVALID_RECORD),
        (change_batch(record_count=0, last_offset_delta=-1), ErrorCode.INVALID_RECORD),
        (change_batch(record_count=-5, last_offset_delta=-6), ErrorCode.INVALID_RECORD),
        (change_batch(record_count=6, last_offset_delta=5), ErrorCode.INVALID_RECORD),
        (change_batch(record_count=2**31 - 1, last_offset_delta=2**31 - 2), ErrorCode.INVALID_RECORD),
        (change_batch(attributes=CONTROL | TRANSACTIONAL, producer_id=1, producer_epoch=0), ErrorCode.INVALID_RECORD),
        (change_batch(producer_id=1, producer_epoch=0, base_sequence=-1), ErrorCode.INVALID_RECORD),
        (change_batch(producer_id=1, producer_epoch=-1, base_sequence=0), ErrorCode.INVALID_RECORD),
        (change_batch(attributes=TRANSACTIONAL), ErrorCode.INVALID_RECORD),
        (change_batch(attributes=5), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        (change_batch(attributes=7), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        (b.build_batch(RECORDS, offset_deltas=[0, 1, 2, 4, 3], last_offset_delta=4), ErrorCode.INVALID_RECORD),
        (b.build_batch(RECORDS[:2], offset_deltas=[1, 2], last_offset_delta=1), ErrorCode.INVALID_RECORD),
        (b.build_batch(RECORDS[:1], offset_deltas=[-1], last_offset_delta=0), ErrorCode.INVALID_RECORD),
        (change_batch(payload=b.build_batch(RECORDS)[HEADER_SIZE:] + b"\0"), ErrorCode.INVALID_RECORD),
    ],
)
def test_broken_batch_gets_its_error(batch, error):
    assert check_refusal(batch) == error


@pytest.mark.parametrize(
    "payload",
    [
        "0e 00 00 00 01 01 00",  # length one more than there is
        "0a 00 00 00 01 01 00",  # length one less than its fields
        "0b 00 00 00 01 01 00 00",  # negative length
        "0c 00 00 00 03 01 00",  # key of length -2
        "0c 00 00 00 01 03 00",  # value of length -2
        "0c 00 00 00 04 01 00",  # key longer than the record
        "0c 00 00 00 01 40 00",  # value longer than the record
        "0c 00 00 00 01 01 05",  # header count -3
        "14 00 00 00 01 01 8080808004",  # header count 2^30
        "10 00 00 00 01 01 02 03 00",  # header key of length -2
        "10 00 00 00 01 01 02 01 01",  # header without key
        "10 00 00 00 01 01 02 00 03",  # header value of length -2
        "10 00 00 00 01 01 02 00 04",  # header value longer than the record
        "0e 00 00 00 01 01 02 00",  # header without value
        "16 00 00 00 808080808001 01 00",  # six-byte varint
        "808080808001 00 00 00 01 01 00",  # six-byte varint
        "14 00 00 00 8080808020 01 00",  # five-byte varint beyond 32 bits
        "22 00 8080808080808080808001 00 01 01 00",  # eleven-byte varlong
        "0c 00 00 80",  # cut inside a varint
        "0c 00 00",
        "ff ff ff ff 0f 00 00",  # length -2^31
    ],
)
def test_broken_frame_is_an_invalid_record(payload):
    assert check_refusal(raw_batch(payload)) == ErrorCode.INVALID_RECORD
    packed = zlib.compressobj(wbits=31)
    gzip = packed.compress(bytes.fromhex(payload)) + packed.flush()
    assert check_refusal(raw_batch(gzip.hex(), attributes=1)) == ErrorCode.INVALID_RECORD


def test_smallest_record_is_sound():
    assert check(raw_batch("0c 00 00 00 01 01 00")).error == ErrorCode.NONE


def test_timestamp_beyond_64_bits_is_an_invalid_record():
    assert check_refusal(raw_batch("0c 00 02 00 01 01 00", base_timestamp=2**63 - 1)) == ErrorCode.INVALID_RECORD
    assert check_refusal(raw_batch("0c 00 01 00 01 01 00", base_timestamp=-(2**63))) == ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("compression", range(5))
def test_offset_deltas_must_count_up_in_every_codec(compression):
    same = b.build_batch(RECORDS[:3], offset_deltas=[0, 0, 0], last_offset_delta=2, compression=compression)
    assert check_refusal(same) == ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("compression", range(1, 5))
def test_garbage_in_a_codec_is_an_invalid_record(compression):
    for payload in (
        b"\x1enot compressed at all",
        b"",
        b"\x28\xb5\x2f\xfd",
        b"\x82SNAPPY\x00" + bytes(20),
        b"\x82SNAPPY\x00",
    ):
        assert check_refusal(change_batch(payload=payload, attributes=compression)) == ErrorCode.INVALID_RECORD
    whole = b.build_batch(RECORDS, compression=compression)
    for cut in range(1, len(whole) - HEADER_SIZE):
        assert check_refusal(change_batch(whole, payload=whole[HEADER_SIZE:-cut])) == ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("compression", range(1, 5))
def test_bomb_stops_at_the_cap(compression):
    bomb = b.build_batch([(b"k", bytes(20_000_000))], compression=compression)
    assert check_refusal(bomb, max_decompressed_bytes=1_000_000) == ErrorCode.MESSAGE_TOO_LARGE
    assert check(bomb, max_decompressed_bytes=20_000_100).error == ErrorCode.NONE
