"""Read the records in messages of magic 0 and 1, the formats before Kafka 0.11. pure frozen

A message is offset, size, CRC-32, magic, attributes, in magic 1 a timestamp, key and value, each with a length of which
-1 means null. The CRC covers everything from the magic on. Several records are compressed together as the value of one
message, the wrapper, whose offset is that of its last record. Records in a wrapper of magic 0 have absolute offsets;
those in a wrapper of magic 1 have offsets relative to its first record.

Source: `org.apache.kafka.common.record.LegacyRecord`, `AbstractLegacyRecordBatch.DeepRecordsIterator` of 4.3.1.
"""

from collections.abc import Iterator
from struct import Struct
from typing import Final, NamedTuple
from zlib import crc32

from ottla.protocol.batch_header import (
    COMPRESSION_MASK,
    LEGACY_HEAD,
    LEGACY_HEADER_SIZE,
    LEGACY_TIMESTAMP_SIZE,
    LOG_OVERHEAD,
    MAGIC_OFFSET,
    BatchHeader,
    is_legacy,
    least_size,
)
from ottla.protocol.compressed_blocks import descriptor_checksum
from ottla.protocol.compression import GZIP, LZ4, NONE, SNAPPY, decompress
from ottla.protocol.errors import ProtocolError
from ottla.protocol.values import NO_TIMESTAMP
from ottla.protocol.varints import Buffer

_TIMESTAMP: Final = Struct(">q")
_LENGTH: Final = Struct(">i")
_OFFSET_AND_SIZE: Final = Struct(">qi")

SHALLOW_LIMIT_BYTES: Final = 32 * 1024 * 1024
"""Limit of decompressed bytes for readers of headers. Of a larger message they read only the header."""

# The header of an LZ4 frame: magic number, then the descriptor (two flag bytes, perhaps the content size), then a byte
# of checksum.
_LZ4_DESCRIPTOR, _LZ4_CHECKSUM_AT, _LZ4_CONTENT_SIZE = 4, 6, 0x08


class LegacyRecord(NamedTuple):
    """A record of magic 0 or 1, and the CRC of its message. `timestamp` is in ms, -1 in magic 0."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    crc: int


def iter_legacy_records(buffer: Buffer, header: BatchHeader, position: int, limit_bytes: int) -> Iterator[LegacyRecord]:
    """Yield the records of the message at `position`. Raises ProtocolError if Kafka's consumer cannot read it."""
    raw: Buffer = b""
    if header.compression != NONE:
        raw = decompress(packed_records(buffer, header, position), header.compression, limit_bytes=limit_bytes)
    return iter_records_of_message(buffer, header, position, raw)


def deep_header(buffer: Buffer, header: BatchHeader, position: int, limit_bytes: int) -> BatchHeader:
    """Return `header` with the first offset and the count of the records in the message at `position`.

    The last offset stays. Raises ProtocolError for a message that Kafka's consumer cannot read.
    """
    records = iter_legacy_records(buffer, header, position, limit_bytes)
    first = next(records)
    count = 1 + sum(1 for _ in records)
    return header._replace(
        base_offset=first.offset, last_offset_delta=max(header.last_offset - first.offset, 0), record_count=count
    )


def is_message(buffer: Buffer, header: BatchHeader, position: int) -> bool:
    """Return whether key and value fit the message of `header`. In a batch of magic 2 with broken magic they do not."""
    try:
        _value_place(_whole(buffer, header, position), header.magic)
    except ProtocolError:
        return False
    return True


def packed_records(buffer: Buffer, header: BatchHeader, position: int = 0) -> Buffer:
    """Return the still compressed value of the wrapper at `position`. Raises ProtocolError."""
    if header.compression not in (GZIP, SNAPPY, LZ4):
        raise ProtocolError(f"compression type {header.compression} in a message of magic {header.magic}")
    message = _whole(buffer, header, position)
    start, length = _value_place(message, header.magic)
    if length < 0:
        raise ProtocolError("a compressed message without a value")
    payload = message[start : start + length]
    if header.compression == LZ4 and header.magic == 0:
        return _with_right_checksum(payload)
    return payload


def iter_records_of_message(buffer: Buffer, header: BatchHeader, position: int, raw: Buffer) -> Iterator[LegacyRecord]:
    """Yield the records of the message at `position`. `raw` is its decompressed value if it is compressed."""
    if header.compression == NONE:
        message = _whole(buffer, header, position)
        key, value = _key_and_value(message, header.magic)
        yield LegacyRecord(header.last_offset, header.base_timestamp, key, value, header.crc)
        return
    yield from _inner_records(memoryview(raw), header)


def _inner_records(raw: memoryview, header: BatchHeader) -> Iterator[LegacyRecord]:
    base_offset = _offset_of_first(raw, header)
    previous = -1
    for at, end in _inner_places(raw):
        offset, _, crc, magic, attributes = LEGACY_HEAD.unpack_from(raw, at)
        offset += base_offset
        _check_inner(raw[at + MAGIC_OFFSET : end], crc, magic, attributes, offset)
        if offset <= previous:
            raise ProtocolError(f"offset {offset} after {previous} in a compressed message")
        previous = offset
        timestamp = NO_TIMESTAMP
        if magic:
            timestamp = _TIMESTAMP.unpack_from(raw, at + LEGACY_HEADER_SIZE)[0]
            if header.is_log_append_time:
                timestamp = header.max_timestamp
        yield LegacyRecord(offset, timestamp, *_key_and_value(raw[at:end], magic), crc)
    # Data of some versions of librdkafka has wrappers of offset 0, whatever is in them.
    if previous > header.last_offset and not (header.magic and header.last_offset == 0):
        raise ProtocolError(f"offset {previous} in a compressed message of offset {header.last_offset}")


def _check_inner(covered: memoryview, crc: int, magic: int, attributes: int, offset: int) -> None:
    if not is_legacy(magic):
        raise ProtocolError(f"magic {magic} in a compressed message")
    if attributes & COMPRESSION_MASK:
        raise ProtocolError("a compressed message in a compressed message")
    if crc32(covered) != crc:
        raise ProtocolError(f"wrong CRC of the record at offset {offset} in a compressed message")


def _offset_of_first(raw: memoryview, header: BatchHeader) -> int:
    """Return the offset to add to those in a wrapper: 0 in magic 0. Raises ProtocolError if the wrapper is empty."""
    last: int | None = None
    for at, _ in _inner_places(raw):
        last = _OFFSET_AND_SIZE.unpack_from(raw, at)[0]
    if last is None:
        raise ProtocolError("a compressed message without records")
    if header.magic == 0 or header.last_offset == 0:
        return 0
    if last > header.last_offset:
        raise ProtocolError(f"offset {last} in a compressed message of offset {header.last_offset}")
    return header.last_offset - last


def _inner_places(raw: memoryview) -> Iterator[tuple[int, int]]:
    """Yield (start, end) of the messages in a wrapper. As in Kafka, a message that is cut short is ignored."""
    at, end = 0, len(raw)
    while at + LOG_OVERHEAD <= end:
        size = LOG_OVERHEAD + _OFFSET_AND_SIZE.unpack_from(raw, at)[1]
        if size < least_size(0):
            raise ProtocolError(f"a message of {size} bytes in a compressed message")
        if at + size > end:
            return
        yield at, at + size
        at += size


def _whole(buffer: Buffer, header: BatchHeader, position: int) -> memoryview:
    end = position + header.size_bytes
    if end > len(buffer):
        raise ProtocolError(f"message at position {position} is cut short")
    return memoryview(buffer)[position:end]


def _key_and_value(message: memoryview, magic: int) -> tuple[bytes | None, bytes | None]:
    start, length = _value_place(message, magic)
    value = None if length < 0 else bytes(message[start : start + length])
    at = LEGACY_HEADER_SIZE + (LEGACY_TIMESTAMP_SIZE if magic else 0)
    key_length = _LENGTH.unpack_from(message, at)[0]
    return None if key_length < 0 else bytes(message[at + 4 : at + 4 + key_length]), value


def _value_place(message: memoryview, magic: int) -> tuple[int, int]:
    """Return (start, length) of a message's value; length -1 if it is null. Raises ProtocolError if it does not fit."""
    if len(message) < least_size(magic):
        raise ProtocolError(f"a message of {len(message)} bytes of magic {magic}")
    at = LEGACY_HEADER_SIZE + (LEGACY_TIMESTAMP_SIZE if magic else 0)
    length = -1
    for part in ("key", "value"):
        at += max(length, 0)
        if at + _LENGTH.size > len(message):
            raise ProtocolError(f"the {part} overruns its message")
        length = _LENGTH.unpack_from(message, at)[0]
        at += _LENGTH.size
        if not -1 <= length <= len(message) - at:
            raise ProtocolError(f"a {part} of {length} bytes overruns its message")
    return at, length


def _with_right_checksum(payload: memoryview) -> Buffer:
    """Return the LZ4 frame with the right checksum of its header.

    Clients of magic 0 included the magic number in the checksum, and Kafka does not check it there
    (`Lz4BlockInputStream`, `ignoreFlagDescriptorChecksum`).
    """
    if len(payload) <= _LZ4_CHECKSUM_AT:
        return payload
    end = _LZ4_CHECKSUM_AT + (8 if payload[_LZ4_DESCRIPTOR] & _LZ4_CONTENT_SIZE else 0)
    if end >= len(payload):
        return payload
    frame = bytearray(payload)
    frame[end] = descriptor_checksum(bytes(payload[_LZ4_DESCRIPTOR:end]))
    return frame
