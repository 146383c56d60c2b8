"""What a topic's settings demand of a produced batch. pure

Source: Kafka's `UnifiedLog.analyzeAndValidateRecords`, `LogValidator`. What depends on the bytes alone is checked by
`ottla.protocol`; here are the checks that need the topic.
"""

from collections.abc import Generator
from typing import NamedTuple, TypeVar, cast

from ottla.broker.log.settings import PRODUCER_COMPRESSION, PartitionSettings
from ottla.protocol.batch import HEADER_SIZE, TRANSACTIONAL, BatchHeader, assemble
from ottla.protocol.compression import NAMES, compress_in_steps, decompress_in_steps
from ottla.protocol.errors import ErrorCode
from ottla.protocol.produced import BatchCheck
from ottla.protocol.records import READ_LIMIT_BYTES, decode_record

NO_TIMESTAMP = -1
_CODECS = {name: codec for codec, name in NAMES.items()} | {"uncompressed": 0}


# Records looked at in one go, about 1 ms.
SLICE_RECORDS = 500
MAX_RECORD_ERRORS = 1_000
"""Of a batch with more bad records these many are named."""

V = TypeVar("V")


class Refusal(NamedTuple):
    """Why a batch is not appended; `record_errors` are (index in the batch, message)."""

    error: ErrorCode
    message: str
    record_errors: tuple[tuple[int, str], ...] = ()


class Prepared(NamedTuple):
    """What takes long about a batch and was done before its append: it holds for these settings alone.

    `records` says what its records were refused for when that was looked at; `rebuilt` is the batch in the topic's
    codec, or why it has no place there.
    """

    settings: PartitionSettings
    records: Refusal | None
    rebuilt: bytearray | Refusal | None


def prepare(
    check: BatchCheck, batch: memoryview, settings: PartitionSettings, now_ms: int
) -> Generator[int, None, Prepared]:
    """Do in steps what `refuse` and `recompress` would do in one; it yields how many bytes it holds."""
    header = check.header
    assert header is not None
    records = None
    if _is_suspicious(check, header, settings, now_ms):
        records = yield from _judge(check, header, batch, settings, now_ms)
    rebuilt = None if records is not None else (yield from _recompress(check, header, batch, settings))
    return Prepared(settings, records, rebuilt)


def refuse(
    check: BatchCheck, batch: memoryview, settings: PartitionSettings, now_ms: int, prepared: Prepared | None = None
) -> Refusal | None:
    """None if the batch may go on to the producer state."""
    if len(batch) > settings.max_message_bytes:
        return Refusal(
            ErrorCode.MESSAGE_TOO_LARGE, f"batch of {len(batch)} bytes, the topic allows {settings.max_message_bytes}"
        )
    header = check.header
    if check.error is not ErrorCode.NONE or header is None:
        return Refusal(check.error, check.message)
    if _is_suspicious(check, header, settings, now_ms):
        if prepared is not None and prepared.settings is settings:
            refusal = prepared.records
        else:
            refusal = _to_the_end(_judge(check, header, batch, settings, now_ms))
        if refusal is not None:
            return refusal
    if len(batch) > settings.segment_bytes and _codec_for(header, settings) == header.compression:
        return _too_large_for_segment(len(batch), settings)
    return None


def _too_large_for_segment(size_bytes: int, settings: PartitionSettings) -> Refusal:
    """What counts is what would be written."""
    message = f"batch of {size_bytes} bytes, a segment holds {settings.segment_bytes}"
    return Refusal(ErrorCode.RECORD_LIST_TOO_LARGE, message)


def _is_suspicious(check: BatchCheck, header: BatchHeader, settings: PartitionSettings, now_ms: int) -> bool:
    """Whether a record is probably wrong, so that every one must be looked at."""
    if check.has_null_key and settings.cleanup_compact:
        return True
    if settings.log_append_time:
        return header.is_log_append_time
    return (
        check.max_timestamp - now_ms > settings.timestamp_after_max_ms
        or now_ms - check.min_timestamp > settings.timestamp_before_max_ms
        or header.is_log_append_time
    )


def _judge(
    check: BatchCheck, header: BatchHeader, batch: memoryview, settings: PartitionSettings, now_ms: int
) -> Generator[int, None, Refusal | None]:
    if settings.log_append_time and not (check.has_null_key and settings.cleanup_compact):
        return Refusal(ErrorCode.INVALID_TIMESTAMP, "the batch claims LogAppendTime, which only the broker may set")
    return (yield from _refuse_records(header, batch, settings, now_ms))


def _refuse_records(
    header: BatchHeader, batch: memoryview, settings: PartitionSettings, now_ms: int
) -> Generator[int, None, Refusal | None]:
    """Look at every record: the slow path."""
    errors: list[tuple[int, str]] = []
    bad_time = False
    raw = yield from _decompressed(header, batch)
    at = 0
    for index in range(header.record_count):
        record, at = decode_record(raw, at, header)
        if index % SLICE_RECORDS == SLICE_RECORDS - 1:
            yield len(raw)
        if settings.cleanup_compact and record.key is None:
            errors.append((index, "a compacted topic needs a key"))
        else:
            time_error = _time_error(record.timestamp, header, settings, now_ms)
            if time_error is None:
                continue
            errors.append((index, time_error))
            bad_time = True
        if len(errors) == MAX_RECORD_ERRORS:
            break
    if not errors:
        return None
    if bad_time:
        return Refusal(ErrorCode.INVALID_TIMESTAMP, "records with a timestamp out of range", tuple(errors))
    return Refusal(ErrorCode.INVALID_RECORD, f"{len(errors)} records without a key", tuple(errors))


def _decompressed(header: BatchHeader, batch: memoryview) -> Generator[int, None, bytes]:
    payload = batch[HEADER_SIZE : header.size_bytes]
    raw = yield from decompress_in_steps(payload, header.compression, limit_bytes=READ_LIMIT_BYTES)
    return cast(bytes, raw)  # a bytearray that nobody changes


def _time_error(timestamp_ms: int, header: BatchHeader, settings: PartitionSettings, now_ms: int) -> str | None:
    if settings.log_append_time or timestamp_ms == NO_TIMESTAMP:
        return "the batch claims LogAppendTime" if header.is_log_append_time else None
    if now_ms - timestamp_ms > settings.timestamp_before_max_ms:
        return f"timestamp {timestamp_ms} is more than {settings.timestamp_before_max_ms} ms old"
    if timestamp_ms - now_ms > settings.timestamp_after_max_ms:
        return f"timestamp {timestamp_ms} is more than {settings.timestamp_after_max_ms} ms ahead"
    return None


def recompress(check: BatchCheck, batch: memoryview, settings: PartitionSettings) -> bytearray | Refusal | None:
    """The batch in the topic's codec; None if it is in that codec, or the topic keeps the producer's."""
    if settings.compression_type == PRODUCER_COMPRESSION:
        return None
    assert check.header is not None
    return _to_the_end(_recompress(check, check.header, batch, settings))


def _codec_for(header: BatchHeader, settings: PartitionSettings) -> int:
    """The codec that the batch is written in."""
    return _CODECS.get(settings.compression_type, header.compression)


def _recompress(
    check: BatchCheck, header: BatchHeader, batch: memoryview, settings: PartitionSettings
) -> Generator[int, None, bytearray | Refusal | None]:
    """The bytes of the records stay as they are: their offsets were checked to be 0, 1, 2..."""
    codec = _codec_for(header, settings)
    if header.compression == codec:
        return None
    raw = yield from _decompressed(header, batch)
    compressed = compress_in_steps(raw, codec, settings.compression_level)
    while True:
        try:
            next(compressed)
        except StopIteration as stop:
            payload = stop.value
            break
        yield len(raw)
    size_bytes = HEADER_SIZE + len(payload)
    if size_bytes > settings.max_message_bytes:
        return Refusal(ErrorCode.MESSAGE_TOO_LARGE, f"{size_bytes} bytes as {settings.compression_type}")
    if size_bytes > settings.segment_bytes:
        return _too_large_for_segment(size_bytes, settings)
    attributes = codec | (header.attributes & TRANSACTIONAL)
    return assemble(header._replace(attributes=attributes, max_timestamp=check.max_timestamp), payload)


def _to_the_end(steps: Generator[int, None, V]) -> V:
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            value: V = stop.value
            return value
