"""Encode and decode the records inside a batch v2. pure frozen

Source: `org.apache.kafka.common.record.DefaultRecord`. A record is varint length, int8 attributes, varlong timestamp
delta, varint offset delta, key, value and headers, each with a varint length of which -1 means null.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ottla.protocol.batch_header import HEADER_SIZE, MAGIC, BatchHeader, increment_sequence, is_legacy
from ottla.protocol.compression import NONE, READ_LIMIT_BYTES, decompress
from ottla.protocol.errors import ProtocolError
from ottla.protocol.legacy_records import iter_legacy_records
from ottla.protocol.values import NO_SEQUENCE
from ottla.protocol.varints import Buffer, read_varint, read_varlong, write_varint

Headers = Sequence[tuple[str, bytes | None]]


class NewRecord(NamedTuple):
    """A record to write. With `timestamp_ms` None it has the default timestamp of the batch."""

    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    timestamp_ms: int | None = None


class Record(NamedTuple):
    """A record as read. `timestamp` is in ms (the append time in a LogAppendTime batch); `sequence` -1 means none."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    sequence: int


def encode_record(
    out: bytearray,
    offset_delta: int,
    timestamp_delta: int,
    key: bytes | None,
    value: bytes | None,
    headers: Headers = (),
) -> None:
    """Append one record to `out`."""
    body = bytearray(1)
    write_varint(body, timestamp_delta)
    write_varint(body, offset_delta)
    _write_bytes(body, key)
    _write_bytes(body, value)
    write_varint(body, len(headers))
    for name, content in headers:
        _write_bytes(body, name.encode())
        _write_bytes(body, content)
    write_varint(out, len(body))
    out += body


def _write_bytes(out: bytearray, content: bytes | None) -> None:
    if content is None:
        out.append(1)  # zig-zag of -1
    else:
        write_varint(out, len(content))
        out += content


def iter_records(
    buffer: Buffer, header: BatchHeader, position: int = 0, *, limit_bytes: int = READ_LIMIT_BYTES
) -> Iterator[Record]:
    """Yield the records of the batch at `position`, of any magic and codec; control batches too.

    Raises ProtocolError for a magic that Kafka does not know, a cut batch, more than `limit_bytes` after decompression,
    or record lengths that do not fit. The CRC is not checked: call `crc_is_valid`.
    """
    if is_legacy(header.magic):
        for offset, timestamp, key, value, _ in iter_legacy_records(buffer, header, position, limit_bytes):
            yield Record(offset, timestamp, key, value, (), NO_SEQUENCE)
        return
    if header.magic != MAGIC:
        raise ProtocolError(f"batch at position {position} has magic {header.magic}, not 0 to 2")
    end = position + header.size_bytes
    if end > len(buffer):
        raise ProtocolError(f"batch at position {position} is cut short")
    if not header.record_count:
        return  # Kafka ignores the bytes of such a batch
    payload = memoryview(buffer)[position + HEADER_SIZE : end]
    if header.compression == NONE:
        raw = bytes(payload)
    else:
        raw = decompress(payload, header.compression, limit_bytes=limit_bytes)
    at = 0
    for _ in range(header.record_count):
        record, at = decode_record(raw, at, header)
        yield record
    if at != len(raw):
        raise ProtocolError(f"{len(raw) - at} bytes after the last record of the batch at position {position}")


def decode_record(raw: bytes, position: int, header: BatchHeader) -> tuple[Record, int]:
    """Return (record, position after it) of the record at `position` in the decompressed section of `header`'s batch.

    U+FFFD replaces bytes of header names that are not UTF-8, as in the Java client.
    """
    length, at = read_varint(raw, position)
    end = at + length
    if length < 0 or end > len(raw):
        raise ProtocolError(f"record of {length} bytes at {position} overruns its batch")
    timestamp_delta, at = read_varlong(raw, at + 1)
    offset_delta, at = read_varint(raw, at)
    key, at = _read_bytes(raw, at, end)
    value, at = _read_bytes(raw, at, end)
    count, at = read_varint(raw, at)
    if not 0 <= count <= end - at:
        raise ProtocolError(f"record at {position} claims {count} headers")
    headers = []
    for _ in range(count):
        name, at = _read_bytes(raw, at, end)
        if name is None:
            raise ProtocolError(f"record at {position} has a header without a key")
        content, at = _read_bytes(raw, at, end)
        headers.append((name.decode(errors="replace"), content))
    if at != end:
        raise ProtocolError(f"record at {position} is {end - at} bytes longer than its fields")
    timestamp = header.max_timestamp if header.is_log_append_time else header.base_timestamp + timestamp_delta
    sequence = header.base_sequence
    if sequence != NO_SEQUENCE:
        sequence = increment_sequence(sequence, offset_delta)
    return Record(header.base_offset + offset_delta, timestamp, key, value, tuple(headers), sequence), end


def _read_bytes(raw: bytes, position: int, end: int) -> tuple[bytes | None, int]:
    length, at = read_varint(raw, position)
    if length < 0:
        if length != -1:
            raise ProtocolError(f"length {length} at {position} of a record")
        return None, at
    if at + length > end:
        raise ProtocolError(f"field of {length} bytes at {position} overruns its record")
    return raw[at : at + length], at + length
