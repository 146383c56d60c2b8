"""Records of one batch for people: the wanted ones, with long keys and values cut. pure

A batch is hostile: its size, its decompressed size and the number of its records are bounded, and a record is parsed
only if it is wanted.
"""

from collections import deque
from itertools import islice
from typing import Final, NamedTuple

from ottla.protocol.batch_header import HEADER_SIZE, BatchHeader, crc_is_valid, is_legacy
from ottla.protocol.compression_steps import decompress_steps
from ottla.protocol.errors import ProtocolError
from ottla.protocol.legacy_records import iter_records_of_message, packed_records
from ottla.protocol.steps import BYTE_US, RECORD_US, Steps
from ottla.protocol.varints import Buffer, read_varint, read_varlong

RAW_BYTES: Final = 16 * 1024 * 1024
"""The most bytes of the records of one batch after decompression."""
MOST_WALKED: Final = 200_000
"""The most records of one batch: all before a wanted record are passed."""
SHOWN_BYTES: Final = 4096
"""Bytes of a key or a value that are kept."""
HEADER_BYTES: Final = 256
"""Bytes of the name or the value of a header that are kept."""
MOST_HEADERS: Final = 20
_KEY_BYTES: Final = 64 * 1024
"""Bytes of a key that are searched."""
_RUN_RECORDS: Final = 500


class Unreadable(Exception):
    """A batch that is too large to show, or damaged. The text is the reason."""


class Content(NamedTuple):
    """The first bytes of a key, a value or a header, and its whole size."""

    data: bytes
    size_bytes: int


class ShownRecord(NamedTuple):
    """A record with cut contents. `headers` is None if the headers are after the bytes that were read."""

    offset: int
    timestamp_ms: int
    key: Content | None
    value: Content | None
    headers: list[tuple[str, Content | None]] | None
    headers_left_out: int = 0


class Wanted(NamedTuple):
    """Offsets [first, end), and at most `most` records: the first, or the last ones. `key`: bytes that keys contain."""

    first: int
    end: int
    most: int
    last_ones: bool = False
    key: bytes | None = None


class Walked(NamedTuple):
    """The wanted records, and the offset after the last one that was read: the rest is missing if `is_cut`."""

    records: list[ShownRecord]
    is_cut: bool = False
    raw_bytes: int = 0


def walk_batch(data: memoryview, header: BatchHeader, wanted: Wanted) -> Steps[Walked]:
    """Return the wanted records of a batch. Raises Unreadable."""
    is_cut = len(data) < header.size_bytes
    if is_cut and (header.compression or is_legacy(header.magic)):
        raise Unreadable(f"a compressed batch of {header.size_bytes:,} bytes is not read: at most 2 MiB are")
    if header.record_count > MOST_WALKED:
        raise Unreadable(f"a batch of {header.record_count:,} records is not read: at most {MOST_WALKED:,} are")
    yield len(data) * BYTE_US
    if not is_cut and not crc_is_valid(data, header):
        raise Unreadable("the CRC of the batch is wrong: `ottla dump` shows it")
    try:
        if is_legacy(header.magic):
            return (yield from _walk_legacy(data, header, wanted))
        if not header.record_count:
            return Walked([])
        payload = data[HEADER_SIZE : header.size_bytes]
        limit_bytes = RAW_BYTES if header.compression else len(payload)
        raw = yield from decompress_steps(payload, header.compression, limit_bytes=limit_bytes)
        return (yield from _walk(memoryview(raw), header, wanted, is_cut))
    except (ProtocolError, IndexError) as error:
        raise Unreadable(f"the batch cannot be read: {error}") from None


def _walk(raw: memoryview, header: BatchHeader, wanted: Wanted, is_cut: bool) -> Steps[Walked]:
    places: deque[tuple[int, int]] = deque(maxlen=wanted.most if wanted.last_ones else None)
    at, size_bytes, ends_early = 0, len(raw), False
    for number in range(header.record_count):
        if not number % _RUN_RECORDS:
            yield _RUN_RECORDS * RECORD_US
        if is_cut and at + 32 > size_bytes:
            ends_early = True
            break
        length, start = read_varint(raw, at)
        stop = start + length
        if length < 0 or (stop > size_bytes and not is_cut):
            raise ProtocolError(f"a record of {length} bytes overruns its batch")
        _, place = read_varlong(raw, start + 1)
        delta, place = read_varint(raw, place)
        offset = header.base_offset + delta
        if offset >= wanted.end:
            break
        if offset >= wanted.first and (wanted.key is None or wanted.key in _key(raw, place, stop)):
            places.append((start, stop))
            if not wanted.last_ones and len(places) == wanted.most:
                break
        at = stop
    records = []
    for start, stop in places:
        records.append(_parse(raw, start, stop, header))
        if not len(records) % 20:
            yield 20 * 10 * RECORD_US
    return Walked(records, ends_early, size_bytes)


def _key(raw: memoryview, at: int, stop: int) -> bytes:
    length, at = read_varint(raw, at)
    return bytes(raw[at : min(at + min(length, _KEY_BYTES), stop)]) if length > 0 else b""


def _parse(raw: memoryview, at: int, stop: int, header: BatchHeader) -> ShownRecord:
    """Return the record at `at`. Its end may be missing if the bytes are cut."""
    timestamp_delta, at = read_varlong(raw, at + 1)
    offset_delta, at = read_varint(raw, at)
    timestamp_ms = header.max_timestamp if header.is_log_append_time else header.base_timestamp + timestamp_delta
    key, at = _content(raw, at, stop, SHOWN_BYTES)
    headers: list[tuple[str, Content | None]] | None = None
    value, left_out = None, 0
    if at < len(raw):
        value, at = _content(raw, at, stop, SHOWN_BYTES)
    if at < len(raw):
        count, at = read_varint(raw, at)
        if not 0 <= count <= stop - at:
            raise ProtocolError(f"a record claims {count} headers")
        headers = []
        for _ in range(min(count, MOST_HEADERS)):
            name, at = _content(raw, at, stop, HEADER_BYTES)
            content, at = _content(raw, at, stop, HEADER_BYTES)
            if name is None:
                raise ProtocolError("a record has a header without a key")
            headers.append((name.data.decode(errors="replace"), content))
        left_out = count - len(headers)
    return ShownRecord(header.base_offset + offset_delta, timestamp_ms, key, value, headers, left_out)


def _content(raw: Buffer, at: int, stop: int, most: int) -> tuple[Content | None, int]:
    length, at = read_varint(raw, at)
    if length < -1 or at + length > stop:
        raise ProtocolError(f"a field of {length} bytes overruns its record")
    if length < 0:
        return None, at
    return Content(bytes(raw[at : at + min(length, most)]), length), at + length


def _walk_legacy(data: memoryview, header: BatchHeader, wanted: Wanted) -> Steps[Walked]:
    """Return the wanted records of a message of magic 0 or 1."""
    raw: Buffer = b""
    if header.compression:
        raw = yield from decompress_steps(packed_records(data, header), header.compression, limit_bytes=RAW_BYTES)
    found: deque[ShownRecord] = deque(maxlen=wanted.most if wanted.last_ones else None)
    records = islice(iter_records_of_message(data, header, 0, raw), MOST_WALKED)
    while some := list(islice(records, _RUN_RECORDS)):
        for offset, timestamp_ms, key, value, _ in some:
            is_wanted = wanted.first <= offset < wanted.end
            if is_wanted and (wanted.key is None or wanted.key in (key or b"")[:_KEY_BYTES]):
                found.append(ShownRecord(offset, timestamp_ms, _cut(key), _cut(value), []))
        yield len(some) * RECORD_US * 5
        if not wanted.last_ones and len(found) >= wanted.most:
            break
    return Walked(list(found)[: wanted.most], raw_bytes=len(raw))


def _cut(content: bytes | None) -> Content | None:
    return None if content is None else Content(content[:SHOWN_BYTES], len(content))
