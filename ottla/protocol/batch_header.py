"""The 61-byte header of a record batch v2: reading it, its CRC, and rewriting it in place. pure frozen

Source: `org.apache.kafka.common.record.DefaultRecordBatch`. All integers are big endian. The CRC-32C covers everything
from the attributes on, but not base offset and leader epoch, which the broker assigns.

A message of magic 0 or 1 (before Kafka 0.11) has a shorter header. It is read into a `BatchHeader` too, as the batch
that Kafka makes of it (`LegacyRecord`, `FileLogInputStream.LegacyFileChannelRecordBatch`). `legacy_records.py` reads
its records.
"""

from collections.abc import Iterator
from struct import Struct
from struct import error as StructError
from typing import Final, NamedTuple
from zlib import crc32

from ottla.checksum import crc32c
from ottla.protocol.errors import ProtocolError
from ottla.protocol.values import (
    NO_PARTITION_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
)
from ottla.protocol.varints import Buffer

HEADER_SIZE: Final = 61
# The size field counts the bytes after itself: total size = LOG_OVERHEAD + batch_length.
LOG_OVERHEAD: Final = 12
MIN_BATCH_LENGTH: Final = HEADER_SIZE - LOG_OVERHEAD
MAGIC: Final = 2

# A message of magic 0: offset, size, CRC, magic, attributes, then two lengths. Magic 1 has a timestamp of 8 bytes more.
LEGACY_SMALLEST: Final = 26
LEGACY_TIMESTAMP_SIZE: Final = 8
LEGACY_HEADER_SIZE: Final = 18
"""Bytes of a message of magic 0 before its key; in magic 1 the timestamp follows."""
LEGACY_ATTRIBUTES: Final = 0x0F
"""The attributes that magic 0 and 1 know: the codec, and in magic 1 the timestamp type."""

COMPRESSION_MASK: Final = 0x07
TIMESTAMP_TYPE: Final = 0x08
TRANSACTIONAL: Final = 0x10
CONTROL: Final = 0x20
DELETE_HORIZON: Final = 0x40

MAX_SEQUENCE: Final = 2**31 - 1

MAGIC_OFFSET: Final = 16
CRC_OFFSET: Final = 17
ATTRIBUTES_OFFSET: Final = 21
MAX_TIMESTAMP_OFFSET: Final = 35

HEADER: Final = Struct(">qiibIhiqqqhii")
AFTER_CRC: Final = Struct(">hiqqqhii")
"""The fields of the header that the CRC covers; the records after them are covered too."""
_UP_TO_CRC: Final = Struct(">qiibI")
_new: Final = tuple.__new__  # takes half the time of the class itself; every request and append makes one
_OFFSET_AND_SIZE: Final = Struct(">qi")
_OFFSET: Final = Struct(">q")
_LEADER_EPOCH: Final = Struct(">i")
_CRC: Final = Struct(">I")
PLACE: Final = Struct(">qii")
"""The first fields of a batch: base offset, size of the bytes after the size, and leader epoch."""
_APPENDED: Final = Struct(">23xi8xqq")
_ATTRIBUTES: Final = Struct(">h")
LEGACY_HEAD: Final = Struct(">qiIbB")
"""Offset, size, CRC, magic and attributes of a message of magic 0 or 1."""
_TIMESTAMP: Final = Struct(">q")


class BatchHeader(NamedTuple):
    """The header fields in file order. Times are ms since 1970; -1 means "none" for producer id, epoch and sequence."""

    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size_bytes(self) -> int:
        """Size of the whole batch, header included."""
        return LOG_OVERHEAD + self.batch_length

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        """Sequence of the last record, -1 for none. Compaction keeps the last offset delta and so this sequence."""
        sequence = self.base_sequence
        return NO_SEQUENCE if sequence == NO_SEQUENCE else (sequence + self.last_offset_delta) & MAX_SEQUENCE

    @property
    def compression(self) -> int:
        """Codec id: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd; 5 to 7 are invalid."""
        return self.attributes & COMPRESSION_MASK

    @property
    def is_transactional(self) -> bool:
        return self.attributes & TRANSACTIONAL != 0

    @property
    def is_control(self) -> bool:
        return self.attributes & CONTROL != 0

    @property
    def is_log_append_time(self) -> bool:
        return self.attributes & TIMESTAMP_TYPE != 0

    @property
    def delete_horizon_ms(self) -> int | None:
        """Time from which compaction may drop the batch's tombstones or marker; base_timestamp holds it."""
        return self.base_timestamp if self.attributes & DELETE_HORIZON else None


def increment_sequence(sequence: int, count: int) -> int:
    """Return `sequence + count` modulo 2^31 (`DefaultRecordBatch.incrementSequence`)."""
    return (sequence + count) & MAX_SEQUENCE


def decrement_sequence(sequence: int, count: int) -> int:
    """Return `sequence - count` modulo 2^31 (`DefaultRecordBatch.decrementSequence`)."""
    return (sequence - count) & MAX_SEQUENCE


def read_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """Return the header at `position`, unchecked. Raises ProtocolError if it is cut short."""
    try:
        fields = HEADER.unpack_from(buffer, position)
    except StructError:
        header = read_legacy_header(buffer, position)
        # Fewer bytes than a header of magic 2 must be a whole message.
        if header is None or not least_size(header.magic) <= header.size_bytes <= len(buffer) - position:
            raise ProtocolError(f"batch header cut short at position {position} of {len(buffer)} bytes") from None
        return header
    if fields[3] >= MAGIC:
        return _new(BatchHeader, fields)
    return read_legacy_header(buffer, position) or _new(BatchHeader, fields)


def is_legacy(magic: int) -> bool:
    """Return whether a message of this magic has a format before Kafka 0.11."""
    return 0 <= magic < MAGIC


def read_legacy_header(buffer: Buffer, position: int = 0) -> BatchHeader | None:
    """Return the header of a message of magic 0 or 1, unchecked; None if none begins at `position`.

    The offset is that of the last record. Only the payload of a compressed message has its records' offsets and count.
    """
    if len(buffer) - position < LEGACY_SMALLEST or not is_legacy(buffer[position + MAGIC_OFFSET]):
        return None
    offset, length, crc, magic, attributes = LEGACY_HEAD.unpack_from(buffer, position)
    timestamp = NO_TIMESTAMP
    if magic:
        timestamp = _TIMESTAMP.unpack_from(buffer, position + LEGACY_HEADER_SIZE)[0]
    else:
        attributes &= COMPRESSION_MASK
    return BatchHeader(
        base_offset=offset,
        batch_length=length,
        partition_leader_epoch=NO_PARTITION_LEADER_EPOCH,
        magic=magic,
        crc=crc,
        attributes=attributes & LEGACY_ATTRIBUTES,
        last_offset_delta=0,
        base_timestamp=timestamp,
        max_timestamp=timestamp,
        producer_id=NO_PRODUCER_ID,
        producer_epoch=NO_PRODUCER_EPOCH,
        base_sequence=NO_SEQUENCE,
        record_count=1,
    )


def least_size(magic: int) -> int:
    """Return the smallest size in bytes of a batch of this magic, with the fields before its length."""
    if is_legacy(magic):
        return LEGACY_SMALLEST + (LEGACY_TIMESTAMP_SIZE if magic else 0)
    return HEADER_SIZE


def read_append_fields(buffer: Buffer) -> tuple[int, int, int]:
    """Return last offset delta, largest timestamp and producer id, in a third of the time of `read_header`."""
    return _APPENDED.unpack_from(buffer)


def says_transactional(buffer: Buffer) -> bool:
    """Return whether the attributes of a batch, sound or not, have the flag of transactions."""
    if len(buffer) < HEADER_SIZE or buffer[MAGIC_OFFSET] != MAGIC:
        return False
    return buffer[ATTRIBUTES_OFFSET + 1] & TRANSACTIONAL != 0


def write_header(buffer: bytearray | memoryview, header: BatchHeader, position: int = 0) -> None:
    """Write the fields of `header` at `position`, the CRC as given (`seal` computes it)."""
    HEADER.pack_into(buffer, position, *header)


def crc_is_valid(buffer: Buffer, header: BatchHeader, position: int = 0) -> bool:
    """Return whether the batch at `position` is complete and its CRC is the one in `header`."""
    end = position + LOG_OVERHEAD + header.batch_length
    if header.magic < MAGIC:
        has_size = header.size_bytes >= least_size(header.magic) and end <= len(buffer)
        return has_size and crc32(memoryview(buffer)[position + MAGIC_OFFSET : end]) == header.crc
    if end > len(buffer) or header.batch_length < MIN_BATCH_LENGTH:
        return False
    return bool(crc32c(memoryview(buffer)[position + ATTRIBUTES_OFFSET : end]) == header.crc)


def iter_batches(buffer: Buffer, position: int = 0) -> Iterator[tuple[int, BatchHeader]]:
    """Yield (position, header) of each complete batch, up to a cut one. Raises ProtocolError if a size is too small."""
    unpack_from = HEADER.unpack_from
    make = BatchHeader._make
    length = len(buffer)
    while position + LOG_OVERHEAD <= length:
        size = _OFFSET_AND_SIZE.unpack_from(buffer, position)[1]
        end = position + LOG_OVERHEAD + size
        magic = buffer[position + MAGIC_OFFSET] if position + MAGIC_OFFSET < length else MAGIC
        if size < MIN_BATCH_LENGTH and end - position < least_size(magic):
            raise ProtocolError(f"batch of {size} bytes at position {position} is smaller than a header")
        if end > length:
            return
        yield position, make(unpack_from(buffer, position)) if magic >= MAGIC else read_header(buffer, position)
        position = end


def assign_offsets(buffer: bytearray | memoryview, base_offset: int, leader_epoch: int, position: int = 0) -> None:
    """Set base offset and leader epoch of the batch at `position`. The CRC covers neither."""
    _OFFSET.pack_into(buffer, position, base_offset)
    _LEADER_EPOCH.pack_into(buffer, position + LOG_OVERHEAD, leader_epoch)


def set_max_timestamp(buffer: bytearray | memoryview, max_timestamp_ms: int, position: int = 0) -> None:
    """Replace the largest timestamp (CreateTime: recomputed from the records) and rewrite the CRC if it changed."""
    at = position + MAX_TIMESTAMP_OFFSET
    if _TIMESTAMP.unpack_from(buffer, at)[0] != max_timestamp_ms:
        _TIMESTAMP.pack_into(buffer, at, max_timestamp_ms)
        seal(buffer, position)


def set_append_time(buffer: bytearray | memoryview, timestamp_ms: int, position: int = 0) -> None:
    """Mark the batch LogAppendTime: every record now has `timestamp_ms`. The CRC is rewritten."""
    at = position + ATTRIBUTES_OFFSET
    _ATTRIBUTES.pack_into(buffer, at, _ATTRIBUTES.unpack_from(buffer, at)[0] | TIMESTAMP_TYPE)
    _TIMESTAMP.pack_into(buffer, position + MAX_TIMESTAMP_OFFSET, timestamp_ms)
    seal(buffer, position)


def seal(buffer: bytearray | memoryview, position: int = 0) -> None:
    """Compute the CRC of the batch at `position` from its size field and write it."""
    end = position + LOG_OVERHEAD + _OFFSET_AND_SIZE.unpack_from(buffer, position)[1]
    _CRC.pack_into(buffer, position + CRC_OFFSET, crc32c(memoryview(buffer)[position + ATTRIBUTES_OFFSET : end]))


def build_with_crc(
    after_crc: bytes, partition_leader_epoch: int = NO_PARTITION_LEADER_EPOCH, base_offset: int = 0
) -> bytearray:
    """Build a batch from the bytes that its CRC covers (`AFTER_CRC`, records)."""
    batch_length = ATTRIBUTES_OFFSET - LOG_OVERHEAD + len(after_crc)
    batch = bytearray(_UP_TO_CRC.pack(base_offset, batch_length, partition_leader_epoch, MAGIC, crc32c(after_crc)))
    batch += after_crc
    return batch


def assemble(header: BatchHeader, payload: Buffer) -> bytearray:
    """Build a batch of `header`'s fields and the (already compressed) record bytes; size and CRC are computed."""
    batch = bytearray(HEADER_SIZE + len(payload))
    write_header(batch, header._replace(batch_length=MIN_BATCH_LENGTH + len(payload)))
    batch[HEADER_SIZE:] = payload
    seal(batch)
    return batch
