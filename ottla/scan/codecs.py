"""Decompress record sections into a scratch buffer, each codec by the library that is fastest at it. free

The libraries are loaded when a codec is first met. Measured on batches of 14 KB: lz4 by lz4.frame 3.7 times as fast as
by cramjam, zstd by a stream into our own buffer as fast as in one piece. Source of the framing: `CompressionType`.
"""

import zlib
from collections.abc import Callable
from typing import cast

import numpy as np

from ottla.protocol.compression import GZIP, LZ4, SNAPPY, ZSTD, TooLarge, decompress
from ottla.protocol.errors import ProtocolError
from ottla.scan.kernels import Bytes

# Arrow's 32-bit offsets end at 2 GiB; no broker accepts a batch near this.
LIMIT_BYTES = 1024 * 1024 * 1024
_FIRST_BYTES = 8 * 1024 * 1024
# An LZ4 block cannot shrink its content more than this.
_LZ4_LARGEST_RATIO = 255
# Of the flags: the frame states its content's size, in eight bytes, of which lz4.frame believes all.
_LZ4_FLAGS_AT, _LZ4_STATES_SIZE, _LZ4_STATED_SIZE = 4, 0x08, slice(6, 14)


class Scratch:
    """Decompressed record sections, one behind the other."""

    def __init__(self) -> None:
        self.buffer: Bytes = np.empty(_FIRST_BYTES, dtype=np.uint8)
        self.filled = 0

    def clear(self) -> None:
        self.filled = 0

    def add(self, compression: int, payload: memoryview) -> tuple[int, int]:
        """Decompress `payload` behind what is there; returns (start, end). Raises ProtocolError, TooLarge."""
        start = self.filled
        if compression == ZSTD:
            self._add_zstd(payload)
        else:
            self._append(_WHOLE[compression](payload))
        return start, self.filled

    def _append(self, content: bytes) -> None:
        self._make_room(len(content))
        self.buffer[self.filled : self.filled + len(content)] = np.frombuffer(content, dtype=np.uint8)
        self.filled += len(content)

    def _add_zstd(self, payload: memoryview) -> None:
        import zstandard

        start = self.filled
        try:
            with zstandard.ZstdDecompressor().stream_reader(payload, read_across_frames=True) as stream:
                while True:
                    self._make_room(1)
                    read = stream.readinto(self.buffer[self.filled :].data)
                    if read == 0:
                        return
                    self.filled += read
                    if self.filled - start > LIMIT_BYTES:
                        raise TooLarge(f"zstd records exceed {LIMIT_BYTES} bytes")
        except zstandard.ZstdError as error:
            raise ProtocolError(f"zstd does not decompress: {error}") from error

    def _make_room(self, size: int) -> None:
        if self.filled + size > len(self.buffer):
            grown = np.empty(2 * (self.filled + size), dtype=np.uint8)
            grown[: self.filled] = self.buffer[: self.filled]
            self.buffer = grown


def _gzip(payload: memoryview) -> bytes:
    stream = zlib.decompressobj(wbits=31)
    try:
        content = stream.decompress(payload, LIMIT_BYTES)
    except zlib.error as error:
        raise ProtocolError(f"gzip does not decompress: {error}") from error
    if stream.unconsumed_tail:
        raise TooLarge(f"gzip records exceed {LIMIT_BYTES} bytes")
    if not stream.eof:
        raise ProtocolError("gzip does not decompress: the stream is cut short")
    return content


def _lz4(payload: memoryview) -> bytes:
    import lz4.frame

    stated = 0
    if len(payload) >= _LZ4_STATED_SIZE.stop and payload[_LZ4_FLAGS_AT] & _LZ4_STATES_SIZE:
        stated = int.from_bytes(payload[_LZ4_STATED_SIZE], "little")
    if max(stated, len(payload) * _LZ4_LARGEST_RATIO) > LIMIT_BYTES:
        return decompress(payload, LZ4, limit_bytes=LIMIT_BYTES)
    try:
        return cast(bytes, lz4.frame.decompress(payload))
    except RuntimeError as error:
        raise ProtocolError(f"lz4 does not decompress: {error}") from error


def _snappy(payload: memoryview) -> bytes:
    return decompress(payload, SNAPPY, limit_bytes=LIMIT_BYTES)


_WHOLE: dict[int, Callable[[memoryview], bytes]] = {GZIP: _gzip, SNAPPY: _snappy, LZ4: _lz4}
