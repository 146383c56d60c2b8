"""Boundaries of the records of a batch, and only those fields that compaction needs. pure

A `Frame` is a plain tuple, because compaction makes one for every record of a log:
(offset delta, timestamp delta, key or None, whether the value is null, position after the deltas, end). The bytes
between the last two are the encoded key, value and headers.
"""

from collections.abc import Generator, Sequence
from typing import Final, TypeAlias

from ottla.protocol.batch_header import (
    COMPRESSION_MASK,
    CONTROL,
    DELETE_HORIZON,
    HEADER_SIZE,
    TIMESTAMP_TYPE,
    TRANSACTIONAL,
    BatchHeader,
    assemble,
)
from ottla.protocol.compression import READ_LIMIT_BYTES, decompress
from ottla.protocol.compression_steps import compress_steps, decompress_steps
from ottla.protocol.errors import ProtocolError
from ottla.protocol.steps import RECORD_US, Steps
from ottla.protocol.values import NO_TIMESTAMP
from ottla.protocol.varints import MAX_VARLONG_SIZE, Buffer, read_unsigned_varint, write_varint

Frame: TypeAlias = tuple[int, int, bytes | None, bool, int, int]

# Records of one step, about 1 ms. The driver of these generators does other work between the steps.
SLICE_RECORDS: Final = 500

_NULL: Final = 1  # zig-zag of -1
_KEPT_ATTRIBUTES: Final = COMPRESSION_MASK | TIMESTAMP_TYPE | TRANSACTIONAL | CONTROL


def raw_records(batch: Buffer, header: BatchHeader) -> bytes:
    """Return the decompressed records of the batch at the start of `batch`. Raises ProtocolError."""
    payload = memoryview(batch)[HEADER_SIZE : header.size_bytes]
    return decompress(payload, header.compression, limit_bytes=_limit(payload, header)) if header.record_count else b""


def raw_steps(batch: Buffer, header: BatchHeader) -> Steps[Buffer]:
    """Do the work of `raw_records` in steps. `batch` must be the caller's own."""
    if not header.record_count:
        return b""
    payload = memoryview(batch)[HEADER_SIZE : header.size_bytes]
    return (yield from decompress_steps(payload, header.compression, limit_bytes=_limit(payload, header)))


def _limit(payload: memoryview, header: BatchHeader) -> int:
    """Return the largest size of the decompressed records. Records without a codec are in memory already."""
    return READ_LIMIT_BYTES if header.compression else len(payload)


def iter_frames(raw: Buffer, count: int, *, keys: bool = True) -> Generator[list[Frame], None, None]:
    """Yield the frames of `count` records, `SLICE_RECORDS` at a time. Raises ProtocolError if they do not fit.

    Without `keys` no key is copied: each is empty or None.
    """
    at = 0
    for start in range(0, count, SLICE_RECORDS):
        frames: list[Frame] = []
        try:
            at = _read_frames(raw, at, min(SLICE_RECORDS, count - start), frames, keys)
        except IndexError:
            raise ProtocolError("the last record overruns the batch") from None
        yield frames
    if at != len(raw):
        raise ProtocolError(f"{len(raw) - at} bytes after the last record")


def _read_frames(raw: Buffer, at: int, count: int, frames: list[Frame], keys: bool) -> int:
    """Read `count` records from position `at` on and return the position after them."""
    end = len(raw)
    for _ in range(count):
        x = raw[at]
        at += 1
        if x > 127:
            x, at = read_unsigned_varint(raw, at - 1)
        stop = at + (x >> 1)
        if x & 1 or stop > end:
            raise ProtocolError(f"a record overruns its batch at {at}")
        x = raw[at + 1]  # after the attributes
        at += 2
        if x > 127:
            x, at = read_unsigned_varint(raw, at - 1, MAX_VARLONG_SIZE)
        timestamp_delta = (x >> 1) ^ -(x & 1)
        x = raw[at]
        at += 1
        if x > 127:
            x, at = read_unsigned_varint(raw, at - 1)
        offset_delta = (x >> 1) ^ -(x & 1)
        tail = at
        x = raw[at]
        at += 1
        if x > 127:
            x, at = read_unsigned_varint(raw, at - 1)
        if x & 1:
            key = None
        else:
            key = bytes(raw[at : at + (x >> 1)]) if keys else b""
            at += x >> 1
        if at >= stop:
            raise ProtocolError(f"a record is not as long as its fields at {at}")
        frames.append((offset_delta, timestamp_delta, key, raw[at] == _NULL, tail, stop))
        at = stop
    return at


def find_record(
    raw: Buffer, count: int, least_timestamp_delta: int | None, least_offset_delta: int
) -> Steps[tuple[int, int] | None]:
    """Return (offset delta, timestamp delta) of the first of `count` records with at least these deltas, else None.

    `least_timestamp_delta` is None for a batch whose records have no own timestamps. Raises ProtocolError.
    """
    least = -(1 << 70) if least_timestamp_delta is None else least_timestamp_delta
    for frames in iter_frames(raw, count, keys=False):
        for frame in frames:
            if frame[1] >= least and frame[0] >= least_offset_delta:
                return frame[0], frame[1]
        yield len(frames) * RECORD_US
    return None


def rebuild_batch(
    header: BatchHeader, raw: Buffer, frames: Sequence[Frame], delete_horizon_ms: int | None
) -> Steps[bytearray]:
    """Build the batch of `header` with only the records `frames` of its `raw` records, at least one.

    Offsets, producer, sequence and codec stay. The time of the first record, or the delete horizon, becomes the base
    timestamp (`MemoryRecords.buildRetainedRecordsInto`, `MemoryRecordsBuilder`).
    """
    append_time = header.is_log_append_time
    times = [header.max_timestamp if append_time else header.base_timestamp + frame[1] for frame in frames]
    base_timestamp = times[0] if delete_horizon_ms is None else delete_horizon_ms
    payload = bytearray()
    for start in range(0, len(frames), SLICE_RECORDS):
        for frame, time in zip(frames[start : start + SLICE_RECORDS], times[start:], strict=False):
            deltas = bytearray(1)  # attributes
            write_varint(deltas, time - base_timestamp)
            write_varint(deltas, frame[0])
            write_varint(payload, len(deltas) + frame[5] - frame[4])
            payload += deltas
            payload += raw[frame[4] : frame[5]]
        yield SLICE_RECORDS * RECORD_US
    compressed = yield from compress_steps(payload, header.compression)
    attributes = header.attributes & _KEPT_ATTRIBUTES
    return assemble(
        header._replace(
            attributes=attributes if delete_horizon_ms is None else attributes | DELETE_HORIZON,
            base_timestamp=base_timestamp,
            max_timestamp=header.max_timestamp if append_time else max(times),
            record_count=len(frames),
        ),
        compressed,
    )


def empty_batch(header: BatchHeader) -> bytearray:
    """Build a batch without records that keeps offsets, sequences, producer (`DefaultRecordBatch.writeEmptyHeader`)."""
    return assemble(
        header._replace(
            attributes=header.attributes & (TIMESTAMP_TYPE | TRANSACTIONAL | CONTROL),
            base_timestamp=NO_TIMESTAMP,
            record_count=0,
        ),
        b"",
    )
