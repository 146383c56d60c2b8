"""What the records of a batch say, whenever and however they were sent: keys, values and headers. pure

Two batches say the same if these are the same, record by record. Timestamps do not count, nor does the codec: a client
may stamp the clock anew when it sends once more, and a topic may keep another codec.
"""

from hashlib import blake2b
from typing import Final

from ottla.protocol.batch_header import HEADER_SIZE, BatchHeader
from ottla.protocol.compression_steps import decompress_steps
from ottla.protocol.errors import ProtocolError
from ottla.protocol.steps import BYTE_US, RECORD_US, Steps
from ottla.protocol.varints import MAX_VARLONG_SIZE, Buffer, read_unsigned_varint

HASHED_BYTE_US: Final = 0.0015
_PIECE_BYTES: Final = 256 * 1024
_SLICE_RECORDS: Final = 500
_SLICE_BYTES: Final = 1 << 20


def differ(
    batch: Buffer, header: BatchHeader, other: Buffer, other_header: BatchHeader, limit_bytes: int
) -> Steps[bool]:
    """Whether two batches of as many records say something else.

    Of one of them at a time the records are held decompressed, `limit_bytes` at most. Raises ProtocolError, with which
    nothing is known, if there are more or if they are broken.
    """
    payload = memoryview(batch)[HEADER_SIZE : header.size_bytes]
    other_payload = memoryview(other)[HEADER_SIZE : other_header.size_bytes]
    if header.compression == other_header.compression and len(payload) == len(other_payload):
        same = yield from _are_equal(payload, other_payload)
        if same:
            return False
    digest = yield from _digest(payload, header, limit_bytes)
    return digest != (yield from _digest(other_payload, other_header, limit_bytes))


def _are_equal(payload: memoryview, other: memoryview) -> Steps[bool]:
    for at in range(0, len(payload), _SLICE_BYTES):
        end = at + _SLICE_BYTES
        # Views are compared byte by byte, which takes twenty times as long.
        if bytes(payload[at:end]) != bytes(other[at:end]):
            return False
        yield 3 * _SLICE_BYTES * BYTE_US
    return True


def _digest(payload: memoryview, header: BatchHeader, limit_bytes: int) -> Steps[bytes]:
    raw = yield from decompress_steps(payload, header.compression, limit_bytes=limit_bytes)
    try:
        return (yield from digest_steps(raw, header.record_count))
    except IndexError:
        raise ProtocolError("the last record overruns the batch") from None


def digest_steps(raw: Buffer, count: int) -> Steps[bytes]:
    """A digest of keys, values and headers of `count` decompressed records. Raises ProtocolError and IndexError.

    They are taken as they are encoded: the bytes of a record behind its deltas, which say themselves where they end.
    """
    view = memoryview(raw)
    digest = blake2b()
    at = walked = hashed_bytes = 0
    for _ in range(count):
        at, stop = _contents_at(raw, at)
        walked += 1
        while at < stop:
            end = min(at + _PIECE_BYTES, stop)
            digest.update(view[at:end])
            hashed_bytes += end - at
            at = end
            if walked >= _SLICE_RECORDS or hashed_bytes >= _PIECE_BYTES:
                yield 2 * walked * RECORD_US + hashed_bytes * HASHED_BYTE_US
                walked = hashed_bytes = 0
    yield 2 * walked * RECORD_US + hashed_bytes * HASHED_BYTE_US
    if at != len(raw):
        raise ProtocolError(f"{len(raw) - at} bytes behind the last record")
    return digest.digest()


def _contents_at(raw: Buffer, at: int) -> tuple[int, int]:
    """Where key, value and headers of the record at this position begin, and where they end."""
    size, at = read_unsigned_varint(raw, at)
    stop = at + (size >> 1)
    if size & 1 or stop > len(raw):
        raise ProtocolError(f"a record overruns its batch at {at}")
    _, at = read_unsigned_varint(raw, at + 1, MAX_VARLONG_SIZE)  # behind the attributes
    _, at = read_unsigned_varint(raw, at)
    if at >= stop:
        raise ProtocolError(f"a record is not as long as its fields at {at}")
    return at, stop
