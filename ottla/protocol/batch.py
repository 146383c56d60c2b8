"""Build record batches v2 and markers, and read markers. pure frozen

Source: `org.apache.kafka.common.record.MemoryRecordsBuilder`, `EndTransactionMarker`, `ControlRecordType`.
"""

from collections.abc import Sequence
from struct import Struct
from typing import Final, NamedTuple

from ottla.protocol.batch_header import AFTER_CRC, CONTROL, TRANSACTIONAL, BatchHeader, build_with_crc
from ottla.protocol.compression import compress
from ottla.protocol.errors import ProtocolError
from ottla.protocol.records import Headers, NewRecord, encode_record, iter_records
from ottla.protocol.values import (
    NO_PARTITION_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
)
from ottla.protocol.varints import SMALL_VARINTS, Buffer, varint_of

# Control record types (`ControlRecordType`).
ABORT: Final = 0
COMMIT: Final = 1
LEADER_CHANGE: Final = 2
SNAPSHOT_HEADER: Final = 3
SNAPSHOT_FOOTER: Final = 4
KRAFT_VERSION: Final = 5
KRAFT_VOTERS: Final = 6

MARKER_SIZE: Final = 78
_CONTROL_KEY: Final = Struct(">hh")
_MARKER_VALUE: Final = Struct(">hi")
# The header after its CRC, then the one record: length, attributes, two deltas, key length; key; value length; value;
# headers.
_MARKER: Final = Struct(f"{AFTER_CRC.format}5bhhbhib")
_MARKER_KEY_FRAME: Final = (32, 0, 0, 0, 8)  # zig-zag: a record of 16 bytes, a key of 4
_MARKER_VALUE_SIZE: Final = 12  # zig-zag: 6

RecordLike = NewRecord | tuple[bytes | None, bytes | None] | tuple[bytes | None, bytes | None, Headers]


class Marker(NamedTuple):
    """The end of a transaction: `control_type` is ABORT or COMMIT (other control types have coordinator epoch -1)."""

    control_type: int
    coordinator_epoch: int


def build_batch(
    records: Sequence[RecordLike],
    *,
    base_offset: int = 0,
    timestamp_ms: int = NO_TIMESTAMP,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    transactional: bool = False,
    control: bool = False,
    compression: int = 0,
    compression_level: int | None = None,
    partition_leader_epoch: int = NO_PARTITION_LEADER_EPOCH,
    offset_deltas: Sequence[int] | None = None,
    last_offset_delta: int | None = None,
) -> bytearray:
    """Build a CreateTime batch of `records`, each (key, value[, headers[, timestamp_ms]]).

    `timestamp_ms` is the time of records without a timestamp. `offset_deltas` and `last_offset_delta` leave gaps, as
    compaction does; without them the deltas are 0..n-1. For other attributes change the header and `seal`.
    """
    new = [NewRecord(*record) for record in records]
    times = [timestamp_ms if record.timestamp_ms is None else record.timestamp_ms for record in new]
    deltas = range(len(new)) if offset_deltas is None else offset_deltas
    base_timestamp = times[0] if times else NO_TIMESTAMP
    payload = bytearray()
    for record, time, delta in zip(new, times, deltas, strict=True):
        encode_record(payload, delta, time - base_timestamp, record.key, record.value, record.headers)
    if last_offset_delta is None:
        last_offset_delta = deltas[-1] if new else 0
    attributes = compression | (TRANSACTIONAL if transactional else 0) | (CONTROL if control else 0)
    compressed = compress(payload, compression, compression_level) if new else b""
    header = AFTER_CRC.pack(
        *(attributes, last_offset_delta, base_timestamp, max(times, default=NO_TIMESTAMP)),
        *(producer_id, producer_epoch, base_sequence, len(new)),
    )
    return build_with_crc(header + compressed, partition_leader_epoch, base_offset)


def build_marker(
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
    commit: bool,
    timestamp_ms: int,
    partition_leader_epoch: int = NO_PARTITION_LEADER_EPOCH,
) -> bytearray:
    """Build the 78-byte control batch that ends a transaction in a partition. The append assigns the base offset."""
    return build_with_crc(
        _MARKER.pack(
            *(TRANSACTIONAL | CONTROL, 0, timestamp_ms, timestamp_ms, producer_id, producer_epoch, NO_SEQUENCE, 1),
            *_MARKER_KEY_FRAME,
            *(0, COMMIT if commit else ABORT, _MARKER_VALUE_SIZE, 0, coordinator_epoch, 0),
        ),
        partition_leader_epoch,
    )


def build_record_batch(key: bytes, value: bytes, timestamp_ms: int, base_sequence: int = NO_SEQUENCE) -> bytearray:
    """Build the batch of one record without producer, codec and headers, as coordinators append it."""
    # Before it the record's attributes, timestamp delta and offset delta, after it its headers: all of them 0.
    try:
        record = b"\0\0\0%b%b%b%b\0" % (SMALL_VARINTS[len(key)], key, SMALL_VARINTS[len(value)], value)
        size = SMALL_VARINTS[len(record)]
    except IndexError:
        record = b"\0\0\0%b%b%b%b\0" % (varint_of(len(key)), key, varint_of(len(value)), value)
        size = varint_of(len(record))
    header = AFTER_CRC.pack(0, 0, timestamp_ms, timestamp_ms, NO_PRODUCER_ID, NO_PRODUCER_EPOCH, base_sequence, 1)
    return build_with_crc(b"%b%b%b" % (header, size, record))


def read_marker(buffer: Buffer, header: BatchHeader, position: int = 0) -> Marker | None:
    """Return the marker in the control batch at `position`; None if compaction left the batch empty.

    A cleaned marker may be longer than it was written, so the record is parsed. Higher key and value versions are read
    as version 0 (`ControlRecordType.parse`); a negative version or a short key raises ProtocolError.
    """
    record = next(iter_records(buffer, header, position), None)
    if record is None:
        return None
    if record.key is None or len(record.key) < _CONTROL_KEY.size:
        raise ProtocolError(f"control record at offset {record.offset} has no type")
    version, control_type = _CONTROL_KEY.unpack_from(record.key)
    if version < 0:
        raise ProtocolError(f"control record at offset {record.offset} has version {version}")
    if control_type not in (ABORT, COMMIT):
        return Marker(control_type, -1)
    if record.value is None or len(record.value) < _MARKER_VALUE.size:
        raise ProtocolError(f"marker at offset {record.offset} has no coordinator epoch")
    value_version, coordinator_epoch = _MARKER_VALUE.unpack_from(record.value)
    if value_version < 0:
        raise ProtocolError(f"marker at offset {record.offset} has value version {value_version}")
    return Marker(control_type, coordinator_epoch)
