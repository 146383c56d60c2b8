"""`compress` and `decompress` in steps, so that the caller can serve other clients in between. pure

Compression with zstd and gzip, and all decompression, are calls for another thread, because cramjam's streams keep
Python's lock, and because zstd without a known size takes tables for 128 MiB and twenty times as long at its highest
levels. cramjam has no call that compresses LZ4 blocks at a level and releases the lock, so LZ4 is compressed in slices.
"""

from collections.abc import Iterator
from functools import partial
from itertools import islice
from typing import Final

from ottla.protocol import compression
from ottla.protocol.compressed_blocks import XERIAL_HEADER
from ottla.protocol.compression import GZIP, LZ4, NONE, SNAPPY, ZSTD, TooLarge
from ottla.protocol.steps import RECORD_US, SHORT_BYTES, Steps, Work, is_short
from ottla.protocol.varints import Buffer

MEDIUM_BYTES: Final = 2 * 1024 * 1024
"""Size of the buffer to try after the short ones. The next buffer has the limit's size or the measured size."""

# Microseconds per byte of output, on one core, rounded up.
_DECOMPRESS_US: Final = {GZIP: 0.004, SNAPPY: 0.0005, LZ4: 0.001, ZSTD: 0.002}
# Microseconds per byte of input, up to a level.
_SNAPPY_US: Final = 0.002
_LZ4_US, _LZ4_HIGH_US = 0.003, 0.03
_GZIP_US: Final = 0.04
_ZSTD_US: Final = ((3, 0.01), (9, 0.03), (15, 0.2), (22, 0.7))

# Logarithms of zstd's tables (chain or tree, hash; entries of four bytes) for more than 256 KiB, from a level on.
_ZSTD_TABLES: Final = (
    *((22, 27, 25), (21, 26, 24), (20, 25, 23), (19, 24, 22), (17, 23, 22), (16, 22, 22), (15, 23, 23), (14, 22, 23)),
    *((13, 22, 22), (12, 22, 23), (10, 21, 22), (9, 20, 21), (7, 19, 20), (4, 18, 19), (-(1 << 17), 16, 17)),
)
MOST_TABLES_BYTES: Final = 48 * 1024 * 1024
"""Memory that zstd may take in addition to the records. Its highest levels take 640 MiB and gain little."""

_PIECE_BYTES: Final = 64 * 1024
# Blocks in one call: Python holds its lock between them.
_BLOCKS: Final = 500
_GROWTH: Final = 4
_UNMEASURED_BYTES: Final = 128 * 1024 * 1024
"""A buffer of the limit's size is tried at once up to this limit. For a higher limit the size is measured first."""


def compress_steps(payload: Buffer, codec: int, level: int | None = None) -> Steps[Buffer]:
    """Do the work of `compress` in steps. The bytes may differ from its result, the records do not.
    `payload` must be the caller's own."""
    if codec == NONE:
        return payload
    if codec == SNAPPY:
        return (yield from _compress_xerial(memoryview(payload)))
    if codec == LZ4:
        return (yield from _compress_lz4(memoryview(payload), level))
    size, cost_us, tables_bytes = len(payload), len(payload) * _GZIP_US, 0
    if codec == ZSTD:
        level = zstd_level(level, size)
        cost_us, tables_bytes = size * _zstd_us(level), zstd_tables_bytes(level, size)
    packed: Buffer = yield Work(partial(compression.compress, payload, codec, level), cost_us, size, tables_bytes)
    return packed


def zstd_level(level: int | None, size_bytes: int) -> int:
    """Return the given level, or for large records the next lower level whose tables fit `MOST_TABLES_BYTES`."""
    given = compression.DEFAULT_LEVELS[ZSTD] if level is None else level
    while zstd_tables_bytes(given, size_bytes) > MOST_TABLES_BYTES:
        given -= 1
    return given


def zstd_tables_bytes(level: int, size_bytes: int) -> int:
    """Return the memory that zstd allocates at a level for records of this size. Source: zstd's `clevels.h`, and
    `ZSTD_adjustCParams`, which makes no table larger than the records can fill."""
    chain, table = next((chain, table) for lowest, chain, table in _ZSTD_TABLES if level >= lowest)
    most = (size_bytes - 1).bit_length() + 1
    return 4 * ((1 << min(chain, most)) + (1 << min(table, most)))


def _zstd_us(level: int) -> float:
    return next(cost_us for highest, cost_us in _ZSTD_US if level <= highest or highest == _ZSTD_US[-1][0])


def _compress_xerial(view: memoryview) -> Steps[Buffer]:
    out = bytearray(XERIAL_HEADER)
    for at in range(0, len(view), _PIECE_BYTES):
        piece = view[at : at + _PIECE_BYTES]
        out += compression.compress(piece, SNAPPY)[len(XERIAL_HEADER) :]
        yield len(piece) * _SNAPPY_US
    return out


def _compress_lz4(view: memoryview, level: int | None) -> Steps[Buffer]:
    stream, fast = compression.lz4_compressor(level)
    for at in range(0, len(view), _PIECE_BYTES):
        piece = view[at : at + _PIECE_BYTES]
        stream.compress(bytes(piece))
        yield len(piece) * (_LZ4_US if fast else _LZ4_HIGH_US)
    return bytes(stream.finish())


def decompress_steps(payload: Buffer, codec: int, *, limit_bytes: int) -> Steps[Buffer]:
    """Do the work of `decompress` in steps. The result is new memory, or `payload` if it was not compressed."""
    view = memoryview(payload)
    if codec == NONE:
        if len(view) > limit_bytes:
            raise TooLarge(NONE, limit_bytes)
        return view
    size = compression.first_size(view, codec, limit_bytes)
    while True:
        out: Buffer | None = yield from _fill(view, codec, size)
        if out is not None:
            return out
        if size >= limit_bytes:
            raise TooLarge(codec, limit_bytes)
        size = min(size * _GROWTH, limit_bytes)
        if size > MEDIUM_BYTES and limit_bytes > _UNMEASURED_BYTES:
            size = yield from _measured_size(view, codec, limit_bytes)
        elif size > SHORT_BYTES:
            size = min(limit_bytes, MEDIUM_BYTES if size <= MEDIUM_BYTES else limit_bytes)


def _fill(view: memoryview, codec: int, size_bytes: int) -> Steps[Buffer | None]:
    """Return the content; None if it is larger than `size_bytes`."""
    cost_us = size_bytes * _DECOMPRESS_US.get(codec, 0.0)
    filling = _Filling(view if is_short(cost_us) else memoryview(bytes(view)), codec, size_bytes)
    count = _BLOCKS
    while count == _BLOCKS:
        count = yield Work(filling.advance, cost_us, size_bytes)
        if count == _BLOCKS:
            yield count * RECORD_US
    return filling.content


class _Filling:
    """Attempt to decompress a payload into `size_bytes`, in slices of blocks."""

    __slots__ = ("_codec", "_data", "_out", "_size_bytes", "_walk", "_written")

    def __init__(self, data: memoryview, codec: int, size_bytes: int) -> None:
        self._data, self._codec, self._size_bytes = data, codec, size_bytes
        self._walk: Iterator[int | None] | None = None
        self._written: int | None = 0
        self._out = memoryview(b"")

    def advance(self) -> int:
        """Decompress some blocks and return their number, less than `_BLOCKS` at the end."""
        if self._walk is None:
            self._out = compression.allocate(self._size_bytes)
            self._walk = compression.blocks_into(self._data, self._codec, self._out)
        written = list(islice(self._walk, _BLOCKS))
        if written:
            self._written = written[-1]
        return len(written)

    @property
    def content(self) -> Buffer | None:
        """The content, None if it was too large."""
        if self._written is None:
            return None
        # Records are walked faster in bytes, which is worth the copy of a few.
        content = self._out[: self._written]
        return bytes(content) if self._size_bytes <= SHORT_BYTES else content


def _measured_size(view: memoryview, codec: int, limit_bytes: int) -> Steps[int]:
    """Do the work of `measured_size` in slices of blocks."""
    sizes = compression.content_sizes(memoryview(bytes(view)), codec, limit_bytes)
    cost_us = limit_bytes * _DECOMPRESS_US[codec]
    found: int | None = 0
    while True:
        some: list[int | None] = yield Work(lambda: list(islice(sizes, _BLOCKS)), cost_us, 0)
        found = some[-1] if some else found
        if not found or found > limit_bytes:
            raise TooLarge(codec, limit_bytes)
        if len(some) < _BLOCKS:
            return found
        yield len(some) * RECORD_US
