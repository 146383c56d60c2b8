"""Compress and decompress the record section of a batch, into a capped buffer. pure frozen

Every reader of Ottla decompresses here: broker, commands, scan, cleaner and test kit. The module accepts the bytes that
Kafka's Java classes accept and returns the same content (`compressed_blocks`). Records beyond the cap raise TooLarge,
and no more memory than the cap is held. Other bytes raise ProtocolError.
"""

import mmap
from collections import deque
from collections.abc import Callable, Iterator
from itertools import accumulate
from types import ModuleType
from typing import Final

import cramjam

from ottla.protocol.compressed_blocks import (
    XERIAL_HEADER,
    Discarded,
    Full,
    Output,
    gzip_blocks,
    lz4_blocks,
    snappy_blocks,
    snappy_sizes,
    zstd_blocks,
    zstd_frames,
)
from ottla.protocol.errors import ProtocolError
from ottla.protocol.steps import SHORT_BYTES
from ottla.protocol.varints import Buffer

NONE: Final = 0
GZIP: Final = 1
SNAPPY: Final = 2
LZ4: Final = 3
ZSTD: Final = 4
NAMES: Final = {NONE: "none", GZIP: "gzip", SNAPPY: "snappy", LZ4: "lz4", ZSTD: "zstd"}

_STREAMS: dict[int, ModuleType] = {GZIP: cramjam.gzip, ZSTD: cramjam.zstd}
# Kafka's defaults; cramjam's own are up to ten times slower.
DEFAULT_LEVELS: Final = {GZIP: 6, ZSTD: 3}
_LZ4_DEFAULT_LEVEL: Final = 9
_XERIAL_BLOCK_SIZE: Final = 32 * 1024

_WALKS: dict[int, Callable[[memoryview, Output], Iterator[int]]] = {
    GZIP: gzip_blocks,
    SNAPPY: snappy_blocks,
    LZ4: lz4_blocks,
    ZSTD: zstd_blocks,
}
_FIRST_BYTES, _FIRST_RATIO, _GROWTH = 4096, 4, 4
_LEAST_WINDOW_BYTES: Final = 1024
_FILLED_BYTES: Final = 16 * 1024 * 1024
"""Memory up to this size is faster to use if it is filled with zeros at once."""
UNMEASURED_BYTES: Final = 32 * 1024 * 1024
"""A buffer up to this size is tried before the size of the content is known."""


READ_LIMIT_BYTES: Final = 256 * 1024 * 1024
"""Most decompressed bytes of one batch that readers of files accept."""


class TooLarge(ProtocolError):
    """The decompressed records exceed a limit of Ottla's. They may be sound."""

    def __init__(self, compression: int, limit_bytes: int) -> None:
        size = f"{limit_bytes >> 20:,} MiB" if limit_bytes % (1 << 20) == 0 else f"{limit_bytes:,} bytes"
        super().__init__(f"larger than Ottla reads: the {NAMES[compression]} records take more than {size}")


def compress(payload: Buffer, compression: int, level: int | None = None) -> bytes:
    """Return `payload` in codec `compression`, framed as Kafka's own clients frame it.

    `level` is one of `compression.gzip.level`, `.lz4.level` or `.zstd.level`; None is Kafka's default.
    """
    if compression == NONE:
        return bytes(payload)
    if compression == SNAPPY:
        return _compress_xerial(memoryview(payload))
    if compression == LZ4:
        stream, _ = lz4_compressor(level)
        stream.compress(bytes(payload))
        return bytes(stream.finish())
    if compression not in DEFAULT_LEVELS:
        raise ProtocolError(f"unknown compression type {compression}")
    return bytes(_STREAMS[compression].compress(payload, level=DEFAULT_LEVELS[compression] if level is None else level))


def lz4_compressor(level: int | None) -> tuple[cramjam.lz4.Compressor, bool]:
    """Return a stream, and whether it is the fast one of Kafka's default level (`Lz4BlockOutputStream`)."""
    fast = level in (None, _LZ4_DEFAULT_LEVEL)
    return cramjam.lz4.Compressor(level=0 if fast else level, content_checksum=False, block_linked=False), fast


def decompress(payload: Buffer, compression: int, *, limit_bytes: int) -> bytes:
    """Return the decompressed bytes of `payload` (the section after a batch header), at most `limit_bytes`.

    Raises TooLarge beyond the limit and ProtocolError for an unknown codec or bytes that are not of that codec.
    """
    if compression == NONE:
        if len(payload) > limit_bytes:
            raise TooLarge(NONE, limit_bytes)
        return bytes(payload)
    view = memoryview(payload)
    size = first_size(view, compression, limit_bytes)
    while True:
        out = memoryview(bytearray(size)) if size <= _FILLED_BYTES else allocate(size)
        written = decompress_into(view, compression, out)
        if written is not None:
            return bytes(out[:written])
        del out
        size = larger_size(view, compression, size, limit_bytes)


def decompress_into(payload: memoryview, compression: int, out: memoryview) -> int | None:
    """Decompress to `out` and return the number of bytes, None if `out` is too small. Raises ProtocolError."""
    return next(iter(deque(blocks_into(payload, compression, out), maxlen=1)), 0)


def blocks_into(payload: memoryview, compression: int, out: Output) -> Iterator[int | None]:
    """Decompress block by block. Yield the number of bytes in `out`, at the end None if `out` is too small.

    Raises ProtocolError.
    """
    walk = _WALKS.get(compression)
    if walk is None:
        raise ProtocolError(f"unknown compression type {compression}")
    try:
        yield from walk(payload, out)
    except Full:
        yield None
    except cramjam.DecompressionError as broken:
        raise ProtocolError(f"{NAMES[compression]} does not decompress: {broken}") from None


def first_size(payload: memoryview, compression: int, limit_bytes: int) -> int:
    """Return the size of the buffer to try first."""
    return min(limit_bytes, UNMEASURED_BYTES, max(_FIRST_BYTES, _FIRST_RATIO * len(payload)))


def larger_size(payload: memoryview, compression: int, tried_bytes: int, limit_bytes: int) -> int:
    """Return the size of the buffer to try after one of `tried_bytes`. Raises TooLarge, ProtocolError.

    A size beyond UNMEASURED_BYTES is returned only after the content was measured.
    """
    if tried_bytes >= limit_bytes:
        raise TooLarge(compression, limit_bytes)
    if tried_bytes * _GROWTH <= UNMEASURED_BYTES:
        return min(limit_bytes, tried_bytes * _GROWTH)
    return measured_size(payload, compression, limit_bytes)


def measured_size(payload: memoryview, compression: int, limit_bytes: int) -> int:
    """Return a size that the content fits. The content is not held in memory. Raises TooLarge, ProtocolError."""
    found: int | None = 0
    for found in content_sizes(payload, compression, limit_bytes):
        if found is None or found > limit_bytes:
            break
    if not found or found > limit_bytes:
        raise TooLarge(compression, limit_bytes)
    return found


def content_sizes(payload: memoryview, compression: int, limit_bytes: int) -> Iterator[int | None]:
    """Yield the size of the content up to each block. Raises ProtocolError.

    A zstd block counts as 128 KiB, because its size is unknown before it is decompressed.
    """
    if compression == ZSTD:
        return accumulate(content for _, content in zstd_frames(payload, limit_bytes // _LEAST_WINDOW_BYTES))
    if compression == SNAPPY:
        return snappy_sizes(payload)
    return blocks_into(payload, compression, Discarded())


def allocate(size_bytes: int) -> memoryview:
    """Return memory of zeros. A large one takes memory only when it is written."""
    if size_bytes <= SHORT_BYTES:
        return memoryview(bytearray(size_bytes))
    return memoryview(mmap.mmap(-1, size_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))


def _compress_xerial(payload: memoryview) -> bytes:
    out = bytearray(XERIAL_HEADER)
    for at in range(0, len(payload), _XERIAL_BLOCK_SIZE):
        block = bytes(cramjam.snappy.compress_raw(payload[at : at + _XERIAL_BLOCK_SIZE]))
        out += len(block).to_bytes(4, "big")
        out += block
    return bytes(out)
