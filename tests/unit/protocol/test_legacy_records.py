"""Messages of magic 0 and 1: their contents with any compression, and refused messages."""

import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.protocol.batch_header import MAGIC, crc_is_valid, iter_batches, read_header
from ottla.protocol.compressed_blocks import descriptor_checksum
from ottla.protocol.compression import GZIP, LZ4, NONE, READ_LIMIT_BYTES, SNAPPY, ZSTD, TooLarge, compress
from ottla.protocol.errors import ProtocolError
from ottla.protocol.legacy_records import deep_header
from ottla.protocol.records import iter_records
from ottla.protocol.steps import to_the_end
from ottla.protocol.up_conversion import up_convert
from ottla.testkit.scanner import scan_content
from tests.legacy_messages import APPEND_TIME, legacy_log, message, wrapper

CONTENT = st.none() | st.binary(max_size=200)
TIMES = st.integers(-1, 2**62)
PACKED = [GZIP, SNAPPY, LZ4]


@st.composite
def messages(draw):
    """(bytes, records) of a message of any kind."""
    magic, codec = draw(st.sampled_from([0, 1])), draw(st.sampled_from([NONE, *PACKED]))
    append_time = draw(st.none() | TIMES) if magic else None
    count = draw(st.integers(1, 20)) if codec else 1
    first = draw(st.integers(0, 2**30))
    gaps = draw(st.lists(st.integers(1, 3), min_size=count, max_size=count))
    offsets = [first + sum(gaps[:at]) for at in range(count)]
    some = [(offset, draw(TIMES), draw(CONTENT), draw(CONTENT)) for offset in offsets]
    if codec:
        content = wrapper(some, magic=magic, codec=codec, append_time=append_time)
    else:
        ((offset, time, key, value),) = some
        time = time if append_time is None else append_time
        attributes = 0 if append_time is None else APPEND_TIME
        content = message(offset, key, value, magic=magic, attributes=attributes, timestamp=time)
    times = [-1 if magic == 0 else time if append_time is None else append_time for _, time, _, _ in some]
    return content, [(offset, time, key, value) for (offset, _, key, value), time in zip(some, times, strict=True)]


def read(content):
    header = read_header(content)
    assert crc_is_valid(content, header)
    return [(r.offset, r.timestamp, r.key, r.value) for r in iter_records(content, header)]


def expect_refusal(content, match):
    header = read_header(content)
    for reading in (
        lambda: list(iter_records(content, header)),
        lambda: to_the_end(up_convert(content, header)),
        lambda: deep_header(content, header, 0, READ_LIMIT_BYTES),
    ):
        with pytest.raises(ProtocolError, match=match):
            reading()


@pytest.mark.slow
@given(messages())
def test_records_are_those_that_were_written(pair):
    content, records = pair
    assert read(content) == records
    (scanned,), damage = scan_content("segment", content)
    assert damage is None
    assert [(r.offset, r.timestamp, r.key, r.value) for r in scanned.records()] == records


@given(messages())
def test_converted_batch_has_the_same_records(pair):
    content, records = pair
    old = read_header(content)
    batch = to_the_end(up_convert(content, old))
    header = read_header(batch)
    assert (header.magic, header.compression, header.producer_id) == (MAGIC, NONE, -1)
    assert header.is_log_append_time == old.is_log_append_time
    assert (header.base_offset, header.last_offset, header.record_count) == (
        records[0][0],
        records[-1][0],
        len(records),
    )
    assert read(batch) == records


@given(messages())
def test_deep_header_has_the_offsets_and_the_count(pair):
    content, records = pair
    shallow = read_header(content)
    assert (shallow.base_offset, shallow.last_offset) == (records[-1][0],) * 2
    deep = deep_header(content, shallow, 0, READ_LIMIT_BYTES)
    assert (deep.base_offset, deep.last_offset, deep.record_count) == (records[0][0], records[-1][0], len(records))
    assert [(r.offset, r.value) for r in iter_records(content, deep)] == [(row[0], row[3]) for row in records]


@pytest.mark.slow
@given(messages(), st.data())
def test_a_flipped_bit_after_the_offset_and_size_is_detected(pair, data):
    content = bytearray(pair[0])
    at = data.draw(st.integers(12, len(content) - 1))
    content[at] ^= 1 << data.draw(st.integers(0, 7))
    try:
        header = read_header(content)
    except ProtocolError:
        return  # too short for the magic that it has now
    assert not crc_is_valid(content, header)


@pytest.mark.slow
@given(messages(), st.data())
def test_spoiled_records_end_in_records_or_a_refusal(pair, data):
    """A message with a valid CRC and any content raises no other error, and reading it ends."""
    content = bytearray(pair[0])
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(17, len(content) - 1))] = data.draw(st.integers(0, 255))
    content[12:16] = struct.pack(">I", zlib.crc32(content[16:]))
    header = read_header(content)
    try:
        records = list(iter_records(content, header))
    except ProtocolError:
        expect_refusal(bytes(content), ".")
    else:
        converted = to_the_end(up_convert(content, header))
        assert [r[:4] for r in iter_records(converted, read_header(converted))] == [r[:4] for r in records]


def test_batches_of_all_magics_are_walked_one_after_the_other():
    log, expected = legacy_log()
    found = [record for at, header in iter_batches(log) for record in iter_records(log, header, at)]
    assert [(r.offset, r.timestamp, r.key, r.value) for r in found] == [(e[0], e[1], e[3], e[4]) for e in expected]
    assert {header.magic for _, header in iter_batches(log)} == {0, 1, 2}


@pytest.mark.parametrize("size", range(26))
def test_message_without_its_first_26_bytes_is_cut_short(size):
    with pytest.raises(ProtocolError, match="cut short"):
        read_header(message(0, None, b"", magic=0)[:size])


@pytest.mark.parametrize(("magic", "found"), [(0, True), (1, False)])
def test_lz4_with_the_wrong_checksum_of_its_header_is_read_in_magic_0_alone(magic, found):
    inner = message(0, b"k", b"v", magic=magic)
    payload = bytearray(compress(inner, LZ4))
    payload[6] ^= 0x55
    content = message(0, None, bytes(payload), magic=magic, attributes=LZ4)
    if found:
        assert read(content) == [(0, -1, b"k", b"v")]
    else:
        expect_refusal(content, "lz4")


@pytest.mark.parametrize(("text", "value"), [(b"", 0x02CC5D05), (b"a", 0x550D7456), (b"abc", 0x32D153FF)])
def test_checksum_of_lz4_is_of_the_xxhash_of_its_specification(text, value):
    assert descriptor_checksum(text) == value >> 8 & 0xFF


@pytest.mark.parametrize("codec", PACKED)
def test_record_that_is_cut_short_at_the_end_is_left_out_as_in_kafka(codec):
    whole, cut = message(7, b"k", b"v", magic=0), message(8, b"k", b"v" * 30, magic=0)[:-1]
    content = message(8, None, compress(whole + cut, codec), magic=0, attributes=codec)
    assert read(content) == [(7, -1, b"k", b"v")]


def pack(inner, offset=9, magic=0, codec=GZIP):
    return message(offset, None, compress(inner, codec), magic=magic, attributes=codec)


def one(offset=9, magic=0, attributes=0):
    return message(offset, b"k", b"v", magic=magic, attributes=attributes)


def overwrite(content, at, new):
    return content[:at] + new + content[at + len(new) :]


@pytest.mark.parametrize(
    ("content", "match"),
    [
        (message(0, None, None, magic=1, attributes=GZIP), "without a value"),
        (message(0, None, b"", magic=1, attributes=GZIP), "gzip"),
        (message(0, None, b"no gzip", magic=0, attributes=GZIP), "gzip"),
        (message(0, None, b"v", magic=0, attributes=ZSTD), "compression type 4"),
        (message(0, None, b"v", magic=1, attributes=7), "compression type 7"),
        (pack(b""), "without records"),
        (pack(pack(one())), "a compressed message in"),
        (pack(overwrite(one(), 16, b"\2")), "magic 2 in"),
        (pack(overwrite(one(), 12, b"\0\0\0\0")), "wrong CRC"),
        (pack(overwrite(one(), 8, b"\0\0\0\x0d")), "of 25 bytes"),
        (pack(overwrite(one(), 8, b"\xff\xff\xff\xff")), "of 11 bytes"),
        (pack(one(5) + one(5)), "offset 5 after 5"),
        (pack(one(10)), "offset 10 in a compressed message of offset 9"),
        (pack(one(10, magic=1), magic=1), "offset 10 in a compressed message of offset 9"),
        (overwrite(message(0, b"k", b"v", magic=0), 18, b"\0\0\1\0"), "key of 256 bytes"),
        (overwrite(message(0, b"k", b"v", magic=0), 18, b"\xff\xff\xff\xfe"), "key of -2 bytes"),
        (overwrite(message(0, b"k", b"v", magic=0), 23, b"\0\0\1\0"), "value of 256 bytes"),
    ],
)
def test_refused(content, match):
    expect_refusal(content, match)


def test_timestamps_that_are_too_far_apart_for_magic_2_are_not_converted():
    some = [message(at, None, b"", magic=1, timestamp=time) for at, time in enumerate((-(2**63), 2**63 - 1))]
    content = pack(b"".join(some), offset=1, magic=1)
    assert len(read(content)) == 2
    with pytest.raises(ProtocolError, match="timestamps"):
        to_the_end(up_convert(content, read_header(content)))


@pytest.mark.parametrize("codec", PACKED)
def test_more_than_the_limit_is_too_large_and_not_held(codec):
    content = pack(message(9, None, bytes(1 << 20), magic=0), codec=codec)
    with pytest.raises(TooLarge):
        list(iter_records(content, read_header(content), limit_bytes=1 << 16))


def test_wrapper_of_offset_0_that_librdkafka_left_counts_from_0():
    content = pack(one(0, magic=1) + one(1, magic=1), offset=0, magic=1)
    assert [row[0] for row in read(content)] == [0, 1]
