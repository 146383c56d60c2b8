"""Compiled walk over batch headers, one row of integers per batch, and search for the next batch header. pure

Source: `org.apache.kafka.common.record.DefaultRecordBatch`, `ControlRecordType`.
"""

from struct import Struct
from typing import Any

import numpy as np

from ottla.protocol.batch import ABORT, COMMIT
from ottla.protocol.batch_header import (
    ATTRIBUTES_OFFSET,
    COMPRESSION_MASK,
    CONTROL,
    CRC_OFFSET,
    HEADER,
    HEADER_SIZE,
    LEGACY_SMALLEST,
    LEGACY_TIMESTAMP_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    MAX_TIMESTAMP_OFFSET,
)
from ottla.scan.compiled.kernels import Bytes, Long, Longs, inline, int16, int32, int64, kernel, plainly, uint32, varint

# Columns of a header row. POSITION is relative to the buffer, SIZE is that of the whole batch.
POSITION = 0
BASE_OFFSET = 1
SIZE = 2
CRC = 3
ATTRIBUTES = 4
LAST_OFFSET = 5
BASE_TIMESTAMP = 6
MAX_TIMESTAMP = 7
PRODUCER_ID = 8
PRODUCER_EPOCH = 9
BASE_SEQUENCE = 10
RECORD_COUNT = 11
CONTROL_TYPE = 12
COORDINATOR_EPOCH = 13
LEADER_EPOCH = 14
COLUMNS = 15
_ROW = Struct(f"{COLUMNS}q")

# CONTROL_TYPE of a data batch, and of a control batch that compaction left empty.
NOT_CONTROL = -1
EMPTY_CONTROL = -2
# CONTROL_TYPE of every type that Kafka does not have (`ControlRecordType.UNKNOWN`).
UNKNOWN_CONTROL = 32_767
_BROKEN = -3
NO_EPOCH = -1

# Set in ATTRIBUTES of a message of magic 0, whose timestamp has no type; beyond the 16 bits of a batch's attributes.
NO_TIMESTAMP_TYPE = 0x1_0000

# Reasons why a walk ended.
CUT = 0  # the batch at the position is not wholly in the buffer
FULL = 1  # no row is left
MAGIC_UNKNOWN = 2
LENGTH_WRONG = 3
COUNT_WRONG = 4
OFFSET_WRONG = 5
CONTROL_BROKEN = 6
CODEC_UNKNOWN = 7
MAGIC_OLD = 8  # a message of before Kafka 0.11 (magic 0 or 1), for `legacy.py`

REASONS = {
    MAGIC_UNKNOWN: "the magic byte is not 0 to 2",
    LENGTH_WRONG: "the batch length is impossible",
    COUNT_WRONG: "the record count or last offset delta is impossible",
    OFFSET_WRONG: "the base offset cannot be that of a batch here",
    CONTROL_BROKEN: "the control record cannot be parsed",
    CODEC_UNKNOWN: "the compression type is unknown",
}

_LENGTH_OFFSET = 8
_MAGIC_OFFSET = 16
_LAST_OFFSET_DELTA_OFFSET = 23
_BASE_TIMESTAMP_OFFSET = 27
_PRODUCER_ID_OFFSET = 43
_PRODUCER_EPOCH_OFFSET = 51
_BASE_SEQUENCE_OFFSET = 53
_RECORD_COUNT_OFFSET = 57
_LAST_CODEC = 4
# Version and coordinator epoch.
_MARKER_VALUE_SIZE = 6
# Codecs of old messages, and the position of the key length in magic 0; in magic 1 a timestamp is before it.
_LAST_OLD_CODEC = 3
_OLD_KEY_OFFSET = 18
# The smallest record: its length, attributes, two deltas, two null lengths and the header count, a byte each.
SMALLEST_RECORD = 7


@kernel
def control_record(buffer: Bytes, at: Long, end: Long) -> tuple[Long, Long]:
    """Return (type, coordinator epoch, or -1 if no marker) of the control record at `at`; type -3 if malformed."""
    length, at = varint(buffer, at, end)
    if at < 0 or length < 0 or length > end - at:
        return _BROKEN, NO_EPOCH
    at += 1
    for _ in range(2):
        _, at = varint(buffer, at, end)
        if at < 0:
            return _BROKEN, NO_EPOCH
    key_length, at = varint(buffer, at, end)
    if at < 0 or key_length < 4 or key_length > end - at or int16(buffer, at) < 0:
        return _BROKEN, NO_EPOCH
    kind = int16(buffer, at + 2)
    if kind != ABORT and kind != COMMIT:
        return (kind if kind >= 0 else UNKNOWN_CONTROL), NO_EPOCH
    value_length, value = varint(buffer, at + key_length, end)
    if value < 0 or value_length < _MARKER_VALUE_SIZE or value_length > end - value:
        return _BROKEN, NO_EPOCH
    return kind, int32(buffer, value + 2)


def _unpack_header(buffer: Any, at: Long, row: Any) -> None:
    base, size, leader_epoch, _, crc, attributes, *others = HEADER.unpack_from(buffer, at)
    fields = base, size + LOG_OVERHEAD, crc, attributes, *others
    _ROW.pack_into(row, 0, at, *fields, NOT_CONTROL, NO_EPOCH, leader_epoch)


@plainly(_unpack_header, inline)
def read_header(buffer: Bytes, at: Long, row: Longs) -> None:
    """Read the 61 bytes at `at` as the header of a data batch. LAST_OFFSET gets the offset delta."""
    row[POSITION] = at
    row[BASE_OFFSET] = int64(buffer, at)
    row[SIZE] = int32(buffer, at + _LENGTH_OFFSET) + LOG_OVERHEAD
    row[CRC] = uint32(buffer, at + CRC_OFFSET)
    row[ATTRIBUTES] = int16(buffer, at + ATTRIBUTES_OFFSET)
    row[LAST_OFFSET] = int32(buffer, at + _LAST_OFFSET_DELTA_OFFSET)
    row[BASE_TIMESTAMP] = int64(buffer, at + _BASE_TIMESTAMP_OFFSET)
    row[MAX_TIMESTAMP] = int64(buffer, at + MAX_TIMESTAMP_OFFSET)
    row[PRODUCER_ID] = int64(buffer, at + _PRODUCER_ID_OFFSET)
    row[PRODUCER_EPOCH] = int16(buffer, at + _PRODUCER_EPOCH_OFFSET)
    row[BASE_SEQUENCE] = int32(buffer, at + _BASE_SEQUENCE_OFFSET)
    row[RECORD_COUNT] = int32(buffer, at + _RECORD_COUNT_OFFSET)
    row[CONTROL_TYPE] = NOT_CONTROL
    row[COORDINATOR_EPOCH] = NO_EPOCH
    row[LEADER_EPOCH] = int32(buffer, at + LOG_OVERHEAD)


@kernel
def check_header(buffer: Bytes, at: Long, room: Long, next_offset: Long, offset_limit: Long, row: Longs) -> Long:
    """Return CUT if the 61 bytes at `at` can be a batch header, else the reason why not. Read it into `row`.

    `room`: bytes to the end of the file. The base offset must be in [next_offset, offset_limit).
    """
    read_header(buffer, at, row)
    size, base, count, delta = row[SIZE], row[BASE_OFFSET], row[RECORD_COUNT], row[LAST_OFFSET]
    codec = row[ATTRIBUTES] & COMPRESSION_MASK
    if buffer[at + _MAGIC_OFFSET] != MAGIC:
        is_old = buffer[at + _MAGIC_OFFSET] < MAGIC and LEGACY_SMALLEST <= size <= room
        return MAGIC_OLD if is_old else MAGIC_UNKNOWN
    if size < HEADER_SIZE or size > room:
        return LENGTH_WRONG
    if base < next_offset or base >= offset_limit:
        return OFFSET_WRONG
    if codec > _LAST_CODEC:
        return CODEC_UNKNOWN
    if delta < 0 or count < 0 or count > delta + 1:
        return COUNT_WRONG
    if codec == 0 and count * SMALLEST_RECORD > size - HEADER_SIZE:
        return COUNT_WRONG
    row[LAST_OFFSET] = base + delta
    return CUT


@kernel
def walk_headers(
    buffer: Bytes,
    at: Long,
    end: Long,
    to_file_end: Long,
    stop: Long,
    next_offset: Long,
    offset_limit: Long,
    rows: Longs,
) -> tuple[Long, Long, Long, Long]:
    """Read the batches of `buffer[at:end]` that start below `stop` into `rows`.

    `to_file_end` is the end of the file as a buffer position. Return (rows read, position of the first batch not read,
    reason to end there, next offset).
    """
    read = 0
    while at < stop:
        if read == rows.shape[0]:
            return read, at, FULL, next_offset
        if at + HEADER_SIZE > end:
            return read, at, CUT, next_offset
        row = rows[read]
        wrong = check_header(buffer, at, to_file_end - at, next_offset, offset_limit, row)
        if wrong != CUT:
            return read, at, wrong, next_offset
        size = row[SIZE]
        if at + size > end:
            return read, at, CUT, next_offset
        if row[ATTRIBUTES] & CONTROL:
            row[CONTROL_TYPE] = EMPTY_CONTROL
            if row[RECORD_COUNT] > 0:
                row[CONTROL_TYPE], row[COORDINATOR_EPOCH] = control_record(buffer, at + HEADER_SIZE, at + size)
                if row[CONTROL_TYPE] < EMPTY_CONTROL:
                    return read, at, CONTROL_BROKEN, next_offset
        next_offset = row[LAST_OFFSET] + 1
        at += size
        read += 1
    return read, at, CUT, next_offset


@kernel
def find_header(
    buffer: Bytes, at: Long, end: Long, to_file_end: Long, next_offset: Long, offset_limit: Long, row: Longs
) -> Long:
    """Return the first position from `at` on that can be a batch header, or -1. The caller checks the batch's CRC."""
    for position in range(at, end - LEGACY_SMALLEST + 1):
        room = to_file_end - position
        if buffer[position + _MAGIC_OFFSET] == MAGIC:
            if position + HEADER_SIZE <= end and (
                check_header(buffer, position, room, next_offset, offset_limit, row) == CUT
            ):
                return position
        elif buffer[position + _MAGIC_OFFSET] < MAGIC and (
            can_be_old(buffer, position, end, room, next_offset, offset_limit)
        ):
            return position
    return -1


@kernel
def can_be_old(buffer: Bytes, at: Long, end: Long, room: Long, next_offset: Long, offset_limit: Long) -> bool:
    """Return whether the bytes at `at`, whose magic is 0 or 1, can be a message of before Kafka 0.11."""
    size, offset = int32(buffer, at + _LENGTH_OFFSET) + LOG_OVERHEAD, int64(buffer, at)
    if size < LEGACY_SMALLEST or size > room or offset < next_offset or offset >= offset_limit:
        return False
    if buffer[at + _MAGIC_OFFSET + 1] & COMPRESSION_MASK > _LAST_OLD_CODEC:
        return False
    key_at = at + _OLD_KEY_OFFSET
    if buffer[at + _MAGIC_OFFSET] != 0:
        key_at += LEGACY_TIMESTAMP_SIZE
    return key_at + 4 > end or bool(-1 <= int32(buffer, key_at) <= size - LEGACY_SMALLEST)


def header_rows(capacity: int) -> Longs:
    """Return an array for `capacity` header rows, not initialized."""
    return np.empty((capacity, COLUMNS), dtype=np.int64)
