"""The checks of a batch that a client produced: everything that needs no topic configuration. pure

Source: `LogValidator`, `UnifiedLog.analyzeAndValidateRecords`, `ProduceRequest.validateRecords` of Kafka 4.3.1. Where
Kafka lets broken frames into the log (wrong offset deltas, a key of length -2, a producer id without an epoch), this
check does not: consumers would stop on them.
"""

from struct import Struct
from typing import Final, NamedTuple, TypeAlias

from crc32c import crc32c

from ottla.protocol.batch_header import (
    ATTRIBUTES_OFFSET,
    COMPRESSION_MASK,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    MIN_BATCH_LENGTH,
    TIMESTAMP_TYPE,
    BatchHeader,
    read_header,
)
from ottla.protocol.compression import NAMES, NONE, TooLarge
from ottla.protocol.compression_steps import decompress_steps
from ottla.protocol.errors import NO_ERROR, ErrorCode, ProtocolError
from ottla.protocol.steps import BYTE_US, RECORD_US, Steps, to_the_end
from ottla.protocol.values import NO_TIMESTAMP
from ottla.protocol.varints import MAX_VARLONG_SIZE, Buffer, read_unsigned_varint

DEFAULT_MAX_DECOMPRESSED_BYTES = 100 * 1024 * 1024
SLICE_RECORDS: Final = 1_000
"""Records, or headers of one, that are checked in one step."""
_SLICE_BYTES: Final = 1 << 20
"""Bytes whose CRC is computed in one step."""

# Length, attributes, timestamp delta, offset delta, key length, value length, header count: one byte each.
_MIN_RECORD_SIZE = 7
# Smallest size field of the oldest format, and where the magic stands in all of them (`LegacyRecord`, `Records`).
_MIN_LEGACY_LENGTH = 14
_UP_TO_MAGIC = 17
_CODEC_AT = ATTRIBUTES_OFFSET + 1
_SIZE = Struct(">i")
_MAX_INT64 = 2**63 - 1
_FAR = 1 << 70


class BatchCheck(NamedTuple):
    """The verdict. With `error` NONE the batch may be appended as `buffer[:header.size_bytes]`.

    Timestamps are in ms, over all records (those of a LogAppendTime batch all have the header's maximum); -1 is a
    record without timestamp. `first_null_key` is the index of the first record without key, -1 if all have one.
    """

    error: ErrorCode
    message: str
    header: BatchHeader | None
    max_timestamp: int = NO_TIMESTAMP
    min_timestamp: int = NO_TIMESTAMP
    first_null_key: int = -1

    @property
    def has_null_key(self) -> bool:
        return self.first_null_key >= 0


class Checked(NamedTuple):
    """The verdict, and the decompressed records: those of `buffer` where there is no codec, None if it is no batch."""

    check: BatchCheck
    raw: Buffer | None


_Slice: TypeAlias = tuple[int, int, int, int, int, int, int]
"""Records that were walked, in a plain tuple, because each batch has one: position and index behind them, twice the
largest and the smallest timestamp delta, the first null key; then, if the next record has too many headers to be walked
with others, how many of them begin at the position, and where they end, else 0 twice."""


def check_produced_batch(
    buffer: memoryview, *, max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES
) -> BatchCheck:
    """Check the one batch that a Produce request carries for a partition, without a pause.

    The topic's own rules (maximum size, timestamps, keys, whether zstd is allowed) are the caller's.
    """
    checked = check_at_once(buffer)
    if checked is None:
        checked = to_the_end(check_steps(buffer, max_decompressed_bytes=max_decompressed_bytes))
    return checked.check


def check_at_once(buffer: memoryview) -> Checked | None:
    """What `check_steps` comes to, where it takes one step: without a codec, many bytes, many records or headers.

    Most batches are like that, and driving steps takes longer than to check one record.
    """
    if not HEADER_SIZE <= len(buffer) <= _SLICE_BYTES or buffer[_CODEC_AT] & COMPRESSION_MASK:
        return None
    refused = _check_envelope(buffer)
    if refused is not None:
        return Checked(refused, None)
    header = read_header(buffer)
    count = header.record_count
    if count > SLICE_RECORDS:
        return None
    end = header.size_bytes
    refused = _check_header(header, crc32c(buffer[ATTRIBUTES_OFFSET:end]))
    if refused is not None:
        return Checked(refused, None)
    raw = buffer[HEADER_SIZE:end]
    try:
        _check_room(raw, count)
        at, _, high, low, first_null_key, _, many_headers = _check_slice(raw, 0, 0, count)
        if many_headers:
            return None
        _check_end(raw, at)
    except (ProtocolError, IndexError) as error:
        return _refuse_records(error, header)
    return _accept(header, raw, high, low, first_null_key)


def check_steps(buffer: memoryview, *, max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES) -> Steps[Checked]:
    """`check_produced_batch` in steps. `buffer` must not change meanwhile."""
    refused = _check_envelope(buffer)
    if refused is not None:
        return Checked(refused, None)
    header = read_header(buffer)
    crc = 0
    if header.batch_length >= MIN_BATCH_LENGTH:
        end = header.size_bytes
        crc = crc32c(buffer[ATTRIBUTES_OFFSET : min(_SLICE_BYTES, end)])
        for at in range(_SLICE_BYTES, end, _SLICE_BYTES):
            yield _SLICE_BYTES * BYTE_US
            crc = crc32c(buffer[at : min(at + _SLICE_BYTES, end)], crc)
    refused = _check_header(header, crc)
    if refused is not None:
        return Checked(refused, None)
    payload = buffer[HEADER_SIZE : header.size_bytes]
    raw: Buffer
    try:
        if header.compression == NONE:
            raw = payload
        else:
            raw = yield from decompress_steps(payload, header.compression, limit_bytes=max_decompressed_bytes)
        high, low, first_null_key = yield from _check_frames(raw, header.record_count)
    except TooLarge as error:
        return Checked(_refuse(ErrorCode.MESSAGE_TOO_LARGE, str(error), header), None)
    except (ProtocolError, IndexError) as error:
        return _refuse_records(error, header)
    return _accept(header, raw, high, low, first_null_key)


def _accept(header: BatchHeader, raw: Buffer, high: int, low: int, first_null_key: int) -> Checked:
    """The verdict on a batch whose records were walked; `high` and `low` are twice the timestamp deltas."""
    if header.attributes & TIMESTAMP_TYPE:
        high = low = header.max_timestamp
    else:
        high = header.base_timestamp + (high >> 1)
        low = header.base_timestamp + (low >> 1)
        if high > _MAX_INT64 or low < -_MAX_INT64 - 1:
            return Checked(_refuse(ErrorCode.INVALID_RECORD, "a timestamp does not fit 64 bits", header), None)
    return Checked(BatchCheck(NO_ERROR, "", header, high, low, first_null_key), raw)


def _refuse_records(error: ProtocolError | IndexError, header: BatchHeader) -> Checked:
    message = str(error) if isinstance(error, ProtocolError) else "the last record overruns the batch"
    return Checked(_refuse(ErrorCode.INVALID_RECORD, message, header), None)


def _refuse(error: ErrorCode, message: str, header: BatchHeader | None = None) -> BatchCheck:
    return BatchCheck(error, message, header)


def _check_envelope(buffer: memoryview) -> BatchCheck | None:
    """Exactly one complete batch of magic 2. A cut batch behind it does not count, as in `ByteBufferLogInputStream`."""
    error, magic, end = _next_batch(buffer, 0)
    if error is not None:
        return _refuse(ErrorCode.CORRUPT_MESSAGE, error)
    if end < 0:
        return _refuse(ErrorCode.INVALID_RECORD, f"no complete batch in {len(buffer)} bytes")
    if magic != MAGIC:
        return _refuse(ErrorCode.INVALID_RECORD, f"magic {magic}: only version 2 is served")
    if end < HEADER_SIZE:
        return _refuse(ErrorCode.CORRUPT_MESSAGE, f"batch of {end} bytes is smaller than its header")
    if end != len(buffer):
        error, _, second_end = _next_batch(buffer, end)
        if error is not None:
            return _refuse(ErrorCode.CORRUPT_MESSAGE, error)
        if second_end >= 0:
            return _refuse(ErrorCode.INVALID_RECORD, "more than one batch for a partition")
    return None


def _next_batch(buffer: memoryview, position: int) -> tuple[str | None, int, int]:
    """(what is corrupt or None, magic, end) of the batch at `position`; end -1 if it is not complete."""
    remaining = len(buffer) - position
    if remaining < LOG_OVERHEAD:
        return None, MAGIC, -1
    length = _SIZE.unpack_from(buffer, position + 8)[0]
    if length < _MIN_LEGACY_LENGTH:
        return f"batch length {length}", MAGIC, -1
    if remaining < _UP_TO_MAGIC:
        return None, MAGIC, -1
    magic = buffer[position + _UP_TO_MAGIC - 1]
    if magic > MAGIC:
        return f"magic {magic}", magic, -1
    if remaining < LOG_OVERHEAD + length:
        return None, magic, -1
    return None, magic, position + LOG_OVERHEAD + length


def _check_header(header: BatchHeader, crc: int) -> BatchCheck | None:
    """The fields of a complete batch whose bytes have this CRC, which decides whether they mean anything."""
    if header.base_offset != 0:
        return _refuse(ErrorCode.INVALID_RECORD, f"base offset {header.base_offset} instead of 0", header)
    if header.batch_length < MIN_BATCH_LENGTH or crc != header.crc:
        return _refuse(ErrorCode.CORRUPT_MESSAGE, "the CRC does not match", header)
    count = header.record_count
    if count <= 0 or count != header.last_offset_delta + 1:
        message = f"{count} records with last offset delta {header.last_offset_delta}"
        return _refuse(ErrorCode.INVALID_RECORD, message, header)
    if header.is_control:
        return _refuse(ErrorCode.INVALID_RECORD, "clients may not write control batches", header)
    if header.producer_id >= 0:
        if header.producer_epoch < 0 or header.base_sequence < 0:
            message = f"producer epoch {header.producer_epoch}, sequence {header.base_sequence}"
            return _refuse(ErrorCode.INVALID_RECORD, message, header)
    elif header.is_transactional:
        return _refuse(ErrorCode.INVALID_RECORD, "a transactional batch without producer id", header)
    if header.compression not in NAMES:
        message = f"compression type {header.compression}"
        return _refuse(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, message, header)
    return None


def _check_room(raw: Buffer, count: int) -> None:
    if count * _MIN_RECORD_SIZE > len(raw):
        raise ProtocolError(f"{count} records cannot be in {len(raw)} bytes")


def _check_end(raw: Buffer, at: int) -> None:
    if at != len(raw):
        raise ProtocolError(f"{len(raw) - at} bytes behind the last record")


def _check_frames(raw: Buffer, count: int) -> Steps[tuple[int, int, int]]:
    """Walk the `count` records of the decompressed section; raises ProtocolError or IndexError if they do not fit.

    Comes to twice the largest and the smallest timestamp delta, and the first null key.
    """
    _check_room(raw, count)
    high, low, first_null_key = -_FAR, _FAR, -1
    at = index = 0
    while index < count:
        first = index
        walked = _check_slice(raw, at, index, min(index + SLICE_RECORDS, count))
        at, index, highest, lowest, null_key, headers, stop = walked
        high = max(high, highest)
        low = min(low, lowest)
        if first_null_key < 0:
            first_null_key = null_key
        yield (index - first) * RECORD_US
        if stop:
            for left in range(headers, 0, -SLICE_RECORDS):
                at = _check_headers(raw, at, min(left, SLICE_RECORDS))
                yield SLICE_RECORDS * RECORD_US
            if at != stop:
                raise ProtocolError(f"record {index} is not as long as its fields")
            index += 1
    _check_end(raw, at)
    return high, low, first_null_key


# The hot loop of Produce: varints of one or two bytes are read in place and compared in zig-zag form (even is not
# negative, 1 is -1), longer ones by a call. Lengths are never negative here, so the position only grows and the one
# comparison with `stop` bounds every field of a record.
def _check_slice(raw: Buffer, at: int, first: int, behind: int) -> _Slice:
    """Walk the records of index `first` to `behind - 1` from position `at` on, or fewer if they have many headers."""
    end, headers_left = len(raw), SLICE_RECORDS
    high, low, first_null_key = -_FAR, _FAR, -1  # the first two are twice the timestamp deltas
    for index in range(first, behind):
        x = raw[at]
        at += 1
        if x > 127:
            if (y := raw[at]) < 128:
                x += (y << 7) - 128
                at += 1
            else:
                x, at = read_unsigned_varint(raw, at - 1)
        stop = at + (x >> 1)
        if x & 1 or stop > end:
            raise ProtocolError(f"record {index} overruns the batch")
        x = raw[at + 1]  # behind the attributes, which mean nothing yet
        at += 2
        if x > 127:
            x, at = _timestamp_delta(raw, at - 1)
        if x & 1:
            x = -x - 1
        if x > high:
            high = x
        if x < low:
            low = x
        x = raw[at]
        at += 1
        if x > 127:
            if (y := raw[at]) < 128:
                x += (y << 7) - 128
                at += 1
            else:
                x, at = read_unsigned_varint(raw, at - 1)
        if x != index << 1:
            raise ProtocolError(f"record {index} has another offset delta")
        x = raw[at]
        at += 1
        if x > 127:
            x, at = read_unsigned_varint(raw, at - 1)
        if not x & 1:
            at += x >> 1
        elif x != 1:
            raise ProtocolError(f"record {index} has a negative key length")
        elif first_null_key < 0:
            first_null_key = index
        x = raw[at]
        at += 1
        if x > 127:
            if (y := raw[at]) < 128:
                x += (y << 7) - 128
                at += 1
            else:
                x, at = read_unsigned_varint(raw, at - 1)
        if not x & 1:
            at += x >> 1
        elif x != 1:
            raise ProtocolError(f"record {index} has a negative value length")
        x = raw[at]
        at += 1
        if x:
            count, at = _count_headers(raw, at - 1, stop)
            headers_left -= count
            if headers_left < 0:
                return at, index, high, low, first_null_key, count, stop
            at = _check_headers(raw, at, count)
        if at != stop:
            raise ProtocolError(f"record {index} is not as long as its fields")
    return at, behind, high, low, first_null_key, 0, 0


def _timestamp_delta(raw: Buffer, at: int) -> tuple[int, int]:
    return read_unsigned_varint(raw, at, MAX_VARLONG_SIZE)


def _count_headers(raw: Buffer, at: int, stop: int) -> tuple[int, int]:
    """(how many, position behind their number) of the headers of a record that ends at `stop`."""
    count, at = read_unsigned_varint(raw, at)
    if count & 1 or count >> 1 > stop - at:
        raise ProtocolError("a record with an impossible number of headers")
    return count >> 1, at


def _check_headers(raw: Buffer, at: int, count: int) -> int:
    """The position behind the `count` headers that begin here."""
    for _ in range(count):
        size, at = read_unsigned_varint(raw, at)
        if size & 1:
            raise ProtocolError("a header without key")
        size, at = read_unsigned_varint(raw, at + (size >> 1))
        if not size & 1:
            at += size >> 1
        elif size != 1:
            raise ProtocolError("a header with a negative value length")
    return at
