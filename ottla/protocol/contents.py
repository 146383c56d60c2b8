"""Fingerprints of the records of a batch: their keys, values and headers. pure

Two batches have equal contents if keys, values and headers are equal, record by record. Timestamps and the codec do not
count: a retry may have a new timestamp, and a topic may store another codec.
"""

from hashlib import blake2b
from typing import Final

from ottla.protocol.batch_header import HEADER_SIZE, BatchHeader
from ottla.protocol.compression_steps import decompress_steps
from ottla.protocol.record_frames import iter_frames
from ottla.protocol.steps import BYTE_US, RECORD_US, Steps
from ottla.protocol.varints import Buffer

HASHED_BYTE_US: Final = 0.0015
_PIECE_BYTES: Final = 256 * 1024
_SLICE_BYTES: Final = 1 << 20


def differ(
    batch: Buffer, header: BatchHeader, other: Buffer, other_header: BatchHeader, limit_bytes: int
) -> Steps[bool]:
    """Return whether two batches with the same number of records have different contents.

    Memory holds the decompressed records of one batch at a time, at most `limit_bytes`. Raises ProtocolError if the
    records are larger or broken; whether the contents differ is then unknown.
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
        # Views would be compared byte by byte, which takes twenty times as long.
        if bytes(payload[at:end]) != bytes(other[at:end]):
            return False
        yield 3 * _SLICE_BYTES * BYTE_US
    return True


def _digest(payload: memoryview, header: BatchHeader, limit_bytes: int) -> Steps[bytes]:
    """Return a digest of the encoded keys, values and headers: the bytes after the deltas of each record, which
    include their own lengths. Raises ProtocolError."""
    raw = yield from decompress_steps(payload, header.compression, limit_bytes=limit_bytes)
    view = memoryview(raw)
    digest = blake2b()
    hashed_bytes = 0
    for frames in iter_frames(raw, header.record_count, keys=False):
        yield 2 * len(frames) * RECORD_US
        for *_, at, stop in frames:
            while at < stop:
                end = min(at + _PIECE_BYTES, stop)
                digest.update(view[at:end])
                hashed_bytes += end - at
                at = end
                if hashed_bytes >= _PIECE_BYTES:
                    yield hashed_bytes * HASHED_BYTE_US
                    hashed_bytes = 0
    yield hashed_bytes * HASHED_BYTE_US
    return digest.digest()
