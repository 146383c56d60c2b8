"""Convert a message of magic 0 or 1 to a batch of magic 2, uncompressed, with the same records. pure

Readers that know only magic 2 read the batch instead of the message. Kafka did the reverse for old clients, until 4.0.
"""

from itertools import islice
from typing import Final

from ottla.protocol.batch_header import LEGACY_ATTRIBUTES, MAGIC, TIMESTAMP_TYPE, BatchHeader, assemble, read_header
from ottla.protocol.compression import NONE, READ_LIMIT_BYTES
from ottla.protocol.compression_steps import decompress_steps
from ottla.protocol.errors import ProtocolError
from ottla.protocol.legacy_records import LegacyRecord, iter_records_of_message, packed_records
from ottla.protocol.record_frames import SLICE_RECORDS
from ottla.protocol.records import encode_record
from ottla.protocol.steps import RECORD_US, Steps
from ottla.protocol.varints import Buffer

_ENCODE_US: Final = 3 * RECORD_US


def up_convert(message: Buffer, header: BatchHeader) -> Steps[bytearray]:
    """Return a batch of the records in the message at the start of `message`, which must be the caller's own.

    The batch has the records' offsets, timestamps and timestamp type, and no producer and leader epoch. It spans the
    offsets up to that of the message. Raises ProtocolError if Kafka's consumer cannot read the message.
    """
    raw: Buffer = b""
    if header.compression != NONE:
        packed = packed_records(message, header)
        raw = yield from decompress_steps(packed, header.compression, limit_bytes=READ_LIMIT_BYTES)
    records = iter_records_of_message(message, header, 0, raw)
    first = next(records)
    payload = bytearray()
    most_ms, last = first.timestamp, first
    _append(payload, first, first)
    count = 1
    while some := list(islice(records, SLICE_RECORDS)):
        for record in some:
            _append(payload, first, record)
            most_ms = max(most_ms, record.timestamp)
        count += len(some)
        last = some[-1]
        yield len(some) * _ENCODE_US
    end_offset = max(last.offset, header.last_offset)
    if end_offset - first.offset >= 2**31:
        raise ProtocolError(f"offsets {first.offset} to {end_offset} in one compressed message")
    return assemble(
        header._replace(
            base_offset=first.offset,
            magic=MAGIC,
            attributes=header.attributes & LEGACY_ATTRIBUTES & TIMESTAMP_TYPE,
            last_offset_delta=end_offset - first.offset,
            base_timestamp=first.timestamp,
            max_timestamp=most_ms,
            record_count=count,
        ),
        payload,
    )


def convert_if_old(message: Buffer, header: BatchHeader) -> Steps[tuple[BatchHeader, Buffer]]:
    """Return (header, batch): the given batch, or the batch that an old message is converted to."""
    if header.magic >= MAGIC:
        return header, message
    batch = yield from up_convert(message, header)
    return read_header(batch), batch


def _append(payload: bytearray, first: LegacyRecord, record: LegacyRecord) -> None:
    time_delta = record.timestamp - first.timestamp
    if not -(2**63) <= time_delta < 2**63:
        raise ProtocolError(f"timestamps {first.timestamp} and {record.timestamp} in one compressed message")
    encode_record(payload, record.offset - first.offset, time_delta, record.key, record.value)
