"""Checks of a produced batch that need no topic configuration. pure

Source: `LogValidator`, `UnifiedLog.analyzeAndValidateRecords`, `ProduceRequest.validateRecords` of Kafka 4.3.1. Kafka
appends some broken batches (wrong offset deltas, a key of length -2, a producer id without an epoch). This check
refuses them, because consumers would stop at them.
"""

from struct import Struct
from typing import Final, NamedTuple

from ottla.checksum import crc32c
from ottla.protocol.batch_header import (
    ATTRIBUTES_OFFSET,
    COMPRESSION_MASK,
    CONTROL,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    MIN_BATCH_LENGTH,
    TIMESTAMP_TYPE,
    TRANSACTIONAL,
    BatchHeader,
    read_header,
)
from ottla.protocol.compression import NAMES, NONE, TooLarge
from ottla.protocol.compression_steps import decompress_steps
from ottla.protocol.errors import NO_ERROR, ErrorCode, ProtocolError
from ottla.protocol.steps import BYTE_US, Steps, to_the_end
from ottla.protocol.values import NO_TIMESTAMP
from ottla.protocol.varints import Buffer
from ottla.protocol.walked import SLICE_RECORDS, walk_at_once, walk_steps

DEFAULT_MAX_DECOMPRESSED_BYTES: Final = 100 * 1024 * 1024
_SLICE_BYTES: Final = 1 << 20
"""Bytes whose CRC is computed in one step."""

# Smallest size field of the oldest format, and position of the magic in all formats (`LegacyRecord`, `Records`).
_MIN_LEGACY_LENGTH: Final = 14
_UP_TO_MAGIC: Final = 17
_CODEC_AT: Final = ATTRIBUTES_OFFSET + 1
_SIZE: Final = Struct(">i")
_MAX_INT64: Final = 2**63 - 1


class BatchCheck(NamedTuple):
    """Result of a check. With `error` NONE the batch may be appended as `buffer[:header.size_bytes]`.

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
    """Result of a check, and the decompressed records: a slice of `buffer` without a codec, None if refused."""

    check: BatchCheck
    raw: Buffer | None


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
    """Return the result of `check_steps` for a small batch without a codec; None for others, which take several steps.

    Most batches are small, and driving the steps takes longer than checking one record.
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
    end = LOG_OVERHEAD + header.batch_length
    refused = _check_header(header, crc32c(buffer[ATTRIBUTES_OFFSET:end]))
    if refused is not None:
        return Checked(refused, None)
    raw = buffer[HEADER_SIZE:end]
    try:
        walked = walk_at_once(raw, count)
    except (ProtocolError, IndexError) as error:
        return _refuse_records(error, header)
    return None if walked is None else _accept(header, raw, *walked)


def check_steps(buffer: memoryview, *, max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES) -> Steps[Checked]:
    """Do the work of `check_produced_batch` in steps. `buffer` must not change meanwhile."""
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
        walked = yield from walk_steps(raw, header.record_count)
    except TooLarge as error:
        return Checked(_refuse(ErrorCode.MESSAGE_TOO_LARGE, str(error), header), None)
    except (ProtocolError, IndexError) as error:
        return _refuse_records(error, header)
    return _accept(header, raw, *walked)


def _accept(header: BatchHeader, raw: Buffer, high: int, low: int, first_null_key: int) -> Checked:
    """Return the result for a batch whose records were walked. `high` and `low` are twice the timestamp deltas."""
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
    """Refuse all but one complete batch of magic 2. A cut batch after it is ignored (`ByteBufferLogInputStream`)."""
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
    """Return (corruption or None, magic, end) of the batch at `position`; end -1 if it is not complete."""
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
    """Check the fields of a complete batch. `crc` is the CRC of its bytes; if it differs, most fields mean nothing."""
    if header.base_offset != 0:
        return _refuse(ErrorCode.INVALID_RECORD, f"base offset {header.base_offset} instead of 0", header)
    if header.batch_length < MIN_BATCH_LENGTH or crc != header.crc:
        return _refuse(ErrorCode.CORRUPT_MESSAGE, "the CRC does not match", header)
    count = header.record_count
    if count <= 0 or count != header.last_offset_delta + 1:
        message = f"{count} records with last offset delta {header.last_offset_delta}"
        return _refuse(ErrorCode.INVALID_RECORD, message, header)
    if header.attributes & CONTROL:
        return _refuse(ErrorCode.INVALID_RECORD, "clients may not write control batches", header)
    if header.producer_id >= 0:
        if header.producer_epoch < 0 or header.base_sequence < 0:
            message = f"producer epoch {header.producer_epoch}, sequence {header.base_sequence}"
            return _refuse(ErrorCode.INVALID_RECORD, message, header)
    elif header.attributes & TRANSACTIONAL:
        return _refuse(ErrorCode.INVALID_RECORD, "a transactional batch without producer id", header)
    if header.attributes & COMPRESSION_MASK not in NAMES:
        message = f"compression type {header.compression}"
        return _refuse(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, message, header)
    return None
