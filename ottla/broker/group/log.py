"""Records of groups in `__consumer_offsets`: encode batches, replay batches. pure"""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from ottla.broker.costs import ASSIGNED_BYTE_US
from ottla.protocol.batch import build_batch, build_record_batch, read_marker
from ottla.protocol.batch_header import BatchHeader
from ottla.protocol.fields import UnknownVersion
from ottla.protocol.internal_topics.consumer_group_records import (
    ConsumerGroupKey,
    ConsumerGroupValue,
    decode_consumer_group_value,
    encode_consumer_group_key,
    encode_consumer_group_value,
    read_consumer_group_key,
)
from ottla.protocol.internal_topics.offsets_records import (
    GroupKey,
    GroupValue,
    OffsetKey,
    OffsetValue,
    decode_group_value,
    decode_offset_value,
    encode_group_value,
    encode_offset_value,
    group_key,
    offset_key,
    read_offsets_key,
)
from ottla.protocol.records import iter_records
from ottla.protocol.steps import Steps
from ottla.protocol.values import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, ProducerIdAndEpoch

COMMIT_MARKER: Final = 1

Key = OffsetKey | GroupKey | ConsumerGroupKey
Value = OffsetValue | GroupValue | ConsumerGroupValue


class CoordinatorRecord(NamedTuple):
    """A record, or marker, of `__consumer_offsets`.

    `producer_id` is -1 outside of transactions. `key` is None for a marker, and `committed` is its type. `value` is
    None for a tombstone.
    """

    producer_id: int
    record_offset: int
    key: Key | None
    value: Value | None
    committed: bool = False


LARGE_BYTES: Final = 10_000
"""A record with more bytes is encoded in a step of its own."""

EncodedRows = list[tuple[bytes, bytes | None, tuple[()]]]
"""Encoded records: key, value, and no headers."""

Rows = Sequence[tuple[Key, Value | None]]
"""Records, by key; None is a tombstone."""


def offsets_batch(
    rows: Sequence[tuple[OffsetKey, OffsetValue | None]], now_ms: int, producer: ProducerIdAndEpoch | None
) -> bytearray:
    """Build a batch of commits or tombstones; transactional if a producer is given."""
    records = [(offset_key(*key), None if value is None else encode_offset_value(value), ()) for key, value in rows]
    return _batch(records, now_ms, producer)


def group_batch(group_id: str, value: GroupValue | None, now_ms: int) -> bytearray:
    """Build a batch with the group's metadata, or with its tombstone."""
    return _batch([(group_key(group_id), None if value is None else encode_group_value(value), ())], now_ms, None)


def encode_rows(rows: Rows) -> Steps[EncodedRows]:
    """Encode records of one consumer group, or tombstones of the classic group that it replaces. Each large record is
    a step."""
    encoded: EncodedRows = []
    for key, value in rows:
        content = _encode(key, value)
        encoded.append((*content, ()))
        if content[1] is not None and len(content[1]) > LARGE_BYTES:
            yield len(content[1]) * ASSIGNED_BYTE_US
    return encoded


def consumer_group_batch(encoded: EncodedRows, now_ms: int) -> bytearray:
    """Build a batch of encoded records."""
    return _batch(encoded, now_ms, None)


def _encode(key: Key, value: Value | None) -> tuple[bytes, bytes | None]:
    """Return the bytes of a record of a group. Offsets have their own batches."""
    if isinstance(key, GroupKey):
        return group_key(key.group), encode_group_value(value) if isinstance(value, GroupValue) else None
    assert isinstance(key, ConsumerGroupKey)
    if value is None:
        return encode_consumer_group_key(key), None
    assert not isinstance(value, (OffsetValue, GroupValue))
    return encode_consumer_group_key(key), encode_consumer_group_value(value)


def _batch(records: EncodedRows, now_ms: int, producer: ProducerIdAndEpoch | None) -> bytearray:
    """Build a batch. The base sequence is 0 with and without a producer, as in Kafka's coordinators."""
    if producer is None and len(records) == 1:
        ((key, value, _),) = records
        if value is not None:
            return build_record_batch(key, value, now_ms, base_sequence=0)
    return build_batch(
        records,
        timestamp_ms=now_ms,
        producer_id=NO_PRODUCER_ID if producer is None else producer.producer_id,
        producer_epoch=NO_PRODUCER_EPOCH if producer is None else producer.epoch,
        base_sequence=0,
        transactional=producer is not None,
    )


def replay_batch(header: BatchHeader, batch: memoryview) -> Iterator[CoordinatorRecord]:
    """Yield the records of a batch. Unknown record types and versions are skipped."""
    if header.is_control:
        marker = read_marker(batch, header)
        if marker is not None:
            committed = marker.control_type == COMMIT_MARKER
            yield CoordinatorRecord(header.producer_id, header.base_offset, None, None, committed)
        return
    producer_id = header.producer_id if header.is_transactional else NO_PRODUCER_ID
    for record in iter_records(batch, header):
        if record.key is None:
            continue
        key = read_offsets_key(record.key) or read_consumer_group_key(record.key)
        if key is None:
            continue
        try:
            value = _value(key, record.value)
        except UnknownVersion:
            continue
        yield CoordinatorRecord(producer_id, record.offset, key, value)


def _value(key: Key, value: bytes | None) -> Value | None:
    if value is None:
        return None
    if isinstance(key, OffsetKey):
        return decode_offset_value(value)
    if isinstance(key, GroupKey):
        return decode_group_value(value)
    return decode_consumer_group_value(key.record_type, value)
