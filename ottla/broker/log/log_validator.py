"""Validation of a produced batch by the settings of its topic: sizes, timestamps, keys, codec. pure

Source: Kafka's `LogValidator`, `UnifiedLog.analyzeAndValidateRecords`. `ottla.protocol` makes the checks that depend
on the bytes alone, this module those that need the topic.
"""

from typing import Final, NamedTuple

from ottla.broker.log.log_config import PRODUCER_COMPRESSION, LogConfig
from ottla.protocol.batch_header import HEADER_SIZE, TIMESTAMP_TYPE, TRANSACTIONAL, BatchHeader, assemble, read_header
from ottla.protocol.compression import NAMES, NONE, READ_LIMIT_BYTES
from ottla.protocol.compression_steps import compress_steps, decompress_steps
from ottla.protocol.errors import NO_ERROR, ErrorCode
from ottla.protocol.record_frames import iter_frames
from ottla.protocol.requests.produced import BatchCheck, Checked
from ottla.protocol.steps import BYTE_US, RECORD_US, SHORT_BYTES, Steps
from ottla.protocol.values import NO_TIMESTAMP
from ottla.protocol.varints import Buffer

_CODECS: Final = {name: codec for codec, name in NAMES.items()} | {"uncompressed": 0}


MAX_RECORD_ERRORS: Final = 1_000
"""Limit of record errors that are reported of one batch."""


class ValidationFailure(NamedTuple):
    """The error of a batch that is refused (Kafka throws `RecordValidationException`, `RecordTooLargeException`).

    `record_errors` are (index in the batch, message) of invalid records, if single records are invalid.
    """

    error: ErrorCode
    message: str
    record_errors: tuple[tuple[int, str], ...] = ()


class ValidationResult(NamedTuple):
    """Result of the validation of a batch before its append; valid for these settings only.

    `failure` is the error, whatever the producer's state. `recompressed` is the batch in the topic's codec, or the
    error of a batch that is too large in it, which applies unless the batch is a duplicate.
    """

    settings: LogConfig
    failure: ValidationFailure | None = None
    recompressed: bytearray | ValidationFailure | None = None


def validate(checked: Checked, batch: memoryview, settings: LogConfig, now_ms: int) -> Steps[ValidationResult]:
    """Validate a batch by the settings of its topic. If `checked.raw` is None the batch is decompressed again."""
    check = checked.check
    validated = validate_at_once(check, batch, settings, now_ms)
    if validated is not None:
        return validated
    header = check.header
    assert header is not None
    batch = batch[: header.size_bytes]
    raw = checked.raw
    if _must_validate_records(check, header, settings, now_ms):
        if settings.log_append_time and not (check.has_null_key and settings.cleanup_compact):
            message = "the batch has the timestamp type LogAppendTime, which only the broker may set"
            return ValidationResult(settings, ValidationFailure(ErrorCode.INVALID_TIMESTAMP, message))
        raw = raw if raw is not None else (yield from _decompress(header, batch))
        failure = yield from _validate_records(header, raw, settings, now_ms)
        if failure is not None:
            return ValidationResult(settings, failure)
    codec = _codec(header, settings)
    if codec == header.compression:
        return _keep_codec(header, settings)
    raw = raw if raw is not None else (yield from _decompress(header, batch))
    return ValidationResult(settings, None, (yield from _recompress(check, header, raw, codec, settings)))


def validate_at_once(check: BatchCheck, batch: memoryview, settings: LogConfig, now_ms: int) -> ValidationResult | None:
    """Return the result of `validate` in the common case that needs no records and no codec; else None."""
    header = check.header
    size_bytes = len(batch) if header is None else min(len(batch), header.size_bytes)
    if size_bytes > settings.max_message_bytes:
        return ValidationResult(settings, too_large_for_topic(size_bytes, settings))
    if check.error is not NO_ERROR or header is None:
        return ValidationResult(settings, ValidationFailure(check.error, check.message))
    if settings.compression_type != PRODUCER_COMPRESSION and _codec(header, settings) != header.compression:
        return None
    if _must_validate_records(check, header, settings, now_ms):
        return None
    return _keep_codec(header, settings)


def _codec(header: BatchHeader, settings: LogConfig) -> int:
    """Return the codec in which the topic stores the batch."""
    return _CODECS.get(settings.compression_type, header.compression)


def _keep_codec(header: BatchHeader, settings: LogConfig) -> ValidationResult:
    """Return the result for a batch that is not recompressed: an error if it is larger than a segment."""
    size_bytes = header.size_bytes
    if size_bytes > settings.segment_bytes:
        return ValidationResult(settings, too_large_for_segment(size_bytes, settings))
    return ValidationResult(settings)


def is_recompressed(batch: memoryview, settings: LogConfig) -> bool:
    """Return whether the topic sets a codec and the batch has another one. The bytes need not be a valid batch."""
    if settings.compression_type == PRODUCER_COMPRESSION or len(batch) < HEADER_SIZE:
        return False
    return read_header(batch).compression != _CODECS[settings.compression_type]


def too_large_for_topic(size_bytes: int, settings: LogConfig) -> ValidationFailure:
    """Return the error of a batch that is larger than the topic allows."""
    message = f"batch of {size_bytes} bytes exceeds the topic's max.message.bytes, {settings.max_message_bytes}"
    return ValidationFailure(ErrorCode.MESSAGE_TOO_LARGE, message)


def too_large_for_segment(size_bytes: int, settings: LogConfig) -> ValidationFailure:
    """Return the error of a batch that would be larger than a segment when it is written."""
    message = f"batch of {size_bytes} bytes exceeds the topic's segment.bytes, {settings.segment_bytes}"
    return ValidationFailure(ErrorCode.RECORD_LIST_TOO_LARGE, message)


def _must_validate_records(check: BatchCheck, header: BatchHeader, settings: LogConfig, now_ms: int) -> bool:
    """Return whether a record is probably invalid, so that all records must be validated."""
    if settings.cleanup_compact and check.has_null_key:
        return True
    if header.attributes & TIMESTAMP_TYPE:  # the batch claims LogAppendTime
        return True
    return not settings.log_append_time and (
        check.max_timestamp - now_ms > settings.message_timestamp_after_max_ms
        or now_ms - check.min_timestamp > settings.message_timestamp_before_max_ms
    )


def _validate_records(
    header: BatchHeader, raw: Buffer, settings: LogConfig, now_ms: int
) -> Steps[ValidationFailure | None]:
    """Validate every record, the slow path; return the error or None."""
    errors: list[tuple[int, str]] = []
    bad_time = False
    index = 0
    for frames in iter_frames(raw, header.record_count):
        for _, timestamp_delta, key, _, _, _ in frames:
            timestamp_ms = (
                header.max_timestamp if header.is_log_append_time else header.base_timestamp + timestamp_delta
            )
            if settings.cleanup_compact and key is None:
                errors.append((index, "a compacted topic needs a key"))
            elif (time_error := _validate_timestamp(timestamp_ms, header, settings, now_ms)) is not None:
                errors.append((index, time_error))
                bad_time = True
            index += 1
        if len(errors) >= MAX_RECORD_ERRORS:
            break
        yield 2 * len(frames) * RECORD_US
    if not errors:
        return None
    del errors[MAX_RECORD_ERRORS:]
    if bad_time:
        return ValidationFailure(ErrorCode.INVALID_TIMESTAMP, "records with a timestamp out of range", tuple(errors))
    return ValidationFailure(ErrorCode.INVALID_RECORD, f"{len(errors)} records without a key", tuple(errors))


def _decompress(header: BatchHeader, batch: memoryview) -> Steps[Buffer]:
    payload = batch[HEADER_SIZE : header.size_bytes]
    return decompress_steps(payload, header.compression, limit_bytes=READ_LIMIT_BYTES)


def _validate_timestamp(timestamp_ms: int, header: BatchHeader, settings: LogConfig, now_ms: int) -> str | None:
    if settings.log_append_time or timestamp_ms == NO_TIMESTAMP:
        return "the batch has the timestamp type LogAppendTime" if header.is_log_append_time else None
    if now_ms - timestamp_ms > settings.message_timestamp_before_max_ms:
        return f"timestamp {timestamp_ms} is more than {settings.message_timestamp_before_max_ms} ms old"
    if timestamp_ms - now_ms > settings.message_timestamp_after_max_ms:
        return f"timestamp {timestamp_ms} is more than {settings.message_timestamp_after_max_ms} ms ahead"
    return None


def _recompress(
    check: BatchCheck, header: BatchHeader, raw: Buffer, codec: int, settings: LogConfig
) -> Steps[bytearray | ValidationFailure]:
    """Return the batch in `codec`, or an error if it is too large in it.

    The bytes of the records are not changed: a check has found their offsets to be 0, 1, 2...
    """
    own = bytes(raw) if header.compression == NONE and len(raw) > SHORT_BYTES else raw
    payload = yield from compress_steps(own, codec, settings.compression_level)
    size_bytes = HEADER_SIZE + len(payload)
    if size_bytes > settings.max_message_bytes:
        return ValidationFailure(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"batch of {size_bytes} bytes as {settings.compression_type} exceeds the topic's max.message.bytes",
        )
    if size_bytes > settings.segment_bytes:
        return too_large_for_segment(size_bytes, settings)
    yield 2 * size_bytes * BYTE_US
    attributes = codec | (header.attributes & TRANSACTIONAL)
    return assemble(header._replace(attributes=attributes, max_timestamp=check.max_timestamp), payload)
