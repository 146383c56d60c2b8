"""What a topic's settings demand of a produced batch. pure

Source: Kafka's `UnifiedLog.analyzeAndValidateRecords`, `LogValidator`. What depends on the bytes alone is checked by
`ottla.protocol`; here are the checks that need the topic.
"""

from typing import NamedTuple

from ottla.broker.log.settings import PRODUCER_COMPRESSION, PartitionSettings
from ottla.protocol.batch import BatchHeader, NewRecord, build_batch, iter_records
from ottla.protocol.compression import NAMES
from ottla.protocol.errors import ErrorCode
from ottla.protocol.produced import BatchCheck

NO_TIMESTAMP = -1
_CODECS = {name: codec for codec, name in NAMES.items()} | {"uncompressed": 0}


class Refusal(NamedTuple):
    """Why a batch is not appended; `record_errors` are (index in the batch, message)."""

    error: ErrorCode
    message: str
    record_errors: tuple[tuple[int, str], ...] = ()


def refuse(check: BatchCheck, batch: memoryview, settings: PartitionSettings, now_ms: int) -> Refusal | None:
    """None if the batch may go on to the producer state."""
    if len(batch) > settings.max_message_bytes:
        return Refusal(
            ErrorCode.MESSAGE_TOO_LARGE, f"batch of {len(batch)} bytes, the topic allows {settings.max_message_bytes}"
        )
    header = check.header
    if check.error is not ErrorCode.NONE or header is None:
        return Refusal(check.error, check.message)
    if check.has_null_key and settings.cleanup_compact:
        return _refuse_records(header, batch, settings, now_ms)
    if settings.log_append_time:
        if header.is_log_append_time:
            return Refusal(ErrorCode.INVALID_TIMESTAMP, "the batch claims LogAppendTime, which only the broker may set")
    elif (
        check.max_timestamp - now_ms > settings.timestamp_after_max_ms
        or now_ms - check.min_timestamp > settings.timestamp_before_max_ms
        or header.is_log_append_time
    ):
        refusal = _refuse_records(header, batch, settings, now_ms)
        if refusal is not None:
            return refusal
    if len(batch) > settings.segment_bytes:
        return Refusal(
            ErrorCode.RECORD_LIST_TOO_LARGE, f"batch of {len(batch)} bytes, a segment holds {settings.segment_bytes}"
        )
    return None


def _refuse_records(header: BatchHeader, batch: memoryview, settings: PartitionSettings, now_ms: int) -> Refusal | None:
    """Look at every record: the slow path, taken when one of them is probably wrong."""
    errors: list[tuple[int, str]] = []
    bad_time = False
    for index, record in enumerate(iter_records(batch, header)):
        if settings.cleanup_compact and record.key is None:
            errors.append((index, "a compacted topic needs a key"))
            continue
        time_error = _time_error(record.timestamp, header, settings, now_ms)
        if time_error is not None:
            errors.append((index, time_error))
            bad_time = True
    if not errors:
        return None
    if bad_time:
        return Refusal(ErrorCode.INVALID_TIMESTAMP, "records with a timestamp out of range", tuple(errors))
    return Refusal(ErrorCode.INVALID_RECORD, f"{len(errors)} records without a key", tuple(errors))


def _time_error(timestamp_ms: int, header: BatchHeader, settings: PartitionSettings, now_ms: int) -> str | None:
    if settings.log_append_time or timestamp_ms == NO_TIMESTAMP:
        return "the batch claims LogAppendTime" if header.is_log_append_time else None
    if now_ms - timestamp_ms > settings.timestamp_before_max_ms:
        return f"timestamp {timestamp_ms} is more than {settings.timestamp_before_max_ms} ms old"
    if timestamp_ms - now_ms > settings.timestamp_after_max_ms:
        return f"timestamp {timestamp_ms} is more than {settings.timestamp_after_max_ms} ms ahead"
    return None


def recompress(header: BatchHeader, batch: memoryview, settings: PartitionSettings) -> bytearray | None:
    """The batch in the topic's codec; None if it is in that codec, or the topic keeps the producer's."""
    if settings.compression_type == PRODUCER_COMPRESSION:
        return None
    codec = _CODECS[settings.compression_type]
    if header.compression == codec:
        return None
    records = [NewRecord(r.key, r.value, r.headers, r.timestamp) for r in iter_records(batch, header)]
    return build_batch(
        records,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        transactional=header.is_transactional,
        compression=codec,
        compression_level=settings.compression_level,
    )
