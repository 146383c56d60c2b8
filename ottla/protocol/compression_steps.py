"""`compress` and `decompress` in steps, for who has others to serve meanwhile. pure

zstd and gzip, and all decompression but that of xerial blocks, are calls for another thread: one call, because
cramjam's streams keep Python's lock, and because zstd takes tables for 128 MiB and twenty times as long at its highest
levels when it is not told the size. Nothing in cramjam compresses LZ4 blocks at a level without keeping the lock, so
LZ4 is compressed in slices.
"""

import mmap
from functools import partial
from typing import Final

import cramjam

from ottla.protocol import compression
from ottla.protocol.compression import GZIP, LZ4, NAMES, NONE, SNAPPY, ZSTD, TooLarge
from ottla.protocol.errors import ProtocolError
from ottla.protocol.steps import RECORD_US, SHORT_BYTES, Steps, Work, is_short
from ottla.protocol.varints import Buffer

MEDIUM_BYTES: Final = 2 * 1024 * 1024
"""What does not fit a short buffer is tried with this one before it gets all that it may have."""

# Microseconds for a byte that comes out, on one core, rounded up.
_DECOMPRESS_US: Final = {GZIP: 0.004, SNAPPY: 0.0005, LZ4: 0.001, ZSTD: 0.002}
# Microseconds for a byte that goes in, up to a level.
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
"""What zstd may take beside the records. Its highest levels take 640 MiB for large ones, and gain little by that."""

_PIECE_BYTES: Final = 64 * 1024
_BLOCKS: Final = 1_000
_FIRST_BYTES, _FIRST_RATIO, _GROWTH = 4096, 4, 4


def compress_steps(payload: Buffer, codec: int, level: int | None = None) -> Steps[Buffer]:
    """`compress`, to the same records though not always to the same bytes. `payload` must be the caller's own."""
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
    """The level that is asked for, or for large records the next lower one that `MOST_TABLES_BYTES` are enough for."""
    given = compression.DEFAULT_LEVELS[ZSTD] if level is None else level
    while zstd_tables_bytes(given, size_bytes) > MOST_TABLES_BYTES:
        given -= 1
    return given


def zstd_tables_bytes(level: int, size_bytes: int) -> int:
    """What zstd takes at a level for records of this size, beside them. Source: zstd's `clevels.h`, and
    `ZSTD_adjustCParams`, by which no table is larger than the records can fill."""
    chain, table = next((chain, table) for lowest, chain, table in _ZSTD_TABLES if level >= lowest)
    most = (size_bytes - 1).bit_length() + 1
    return 4 * ((1 << min(chain, most)) + (1 << min(table, most)))


def _zstd_us(level: int) -> float:
    return next(cost_us for highest, cost_us in _ZSTD_US if level <= highest or highest == _ZSTD_US[-1][0])


def _compress_xerial(view: memoryview) -> Steps[Buffer]:
    out = bytearray(compression.XERIAL_HEADER)
    for at in range(0, len(view), _PIECE_BYTES):
        piece = view[at : at + _PIECE_BYTES]
        out += compression.compress(piece, SNAPPY)[len(compression.XERIAL_HEADER) :]
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
    """`decompress`. What comes out is memory of its own, but for records that were not compressed."""
    view = memoryview(payload)
    if codec == NONE:
        if len(view) > limit_bytes:
            raise TooLarge(f"{len(view)} bytes of records, the limit is {limit_bytes}")
        return view
    try:
        if codec == SNAPPY:
            if compression.is_xerial(view):
                return (yield from _decompress_xerial(view, limit_bytes))
            return (yield from _decompress_snappy(view, limit_bytes))
        if codec == LZ4:
            yield from _check_lz4_frame(view)
        if codec in _DECOMPRESS_US:
            return (yield from _decompress_stream(view, codec, limit_bytes))
    except cramjam.DecompressionError as broken:
        raise ProtocolError(f"{NAMES[codec]} does not decompress: {broken}") from None
    raise ProtocolError(f"unknown compression type {codec}")


def _decompress_stream(view: memoryview, codec: int, limit_bytes: int) -> Steps[Buffer]:
    """Into ever larger buffers: a stream need not state its size, and a stated one may lie."""
    size = max(_FIRST_BYTES, _FIRST_RATIO * len(view))
    while True:
        if size > SHORT_BYTES:
            size = MEDIUM_BYTES if size <= MEDIUM_BYTES else limit_bytes
        size = min(size, limit_bytes)
        cost_us = size * _DECOMPRESS_US[codec]
        data = view if is_short(cost_us) else bytes(view)
        out: Buffer | None = yield Work(partial(_fill, data, codec, size), cost_us, size)
        if out is not None:
            return out
        if size >= limit_bytes:
            raise TooLarge(f"{NAMES[codec]} records exceed {limit_bytes} bytes")
        size *= _GROWTH


def _fill(data: Buffer, codec: int, size_bytes: int) -> Buffer | None:
    """What comes out; None if that is more than `size_bytes`."""
    out = _memory(size_bytes)
    written = compression.decompress_into(data, codec, out)
    if written is None:
        return None
    # Records are walked faster in bytes, which is worth the copy of a few.
    return bytes(out[:written]) if size_bytes <= SHORT_BYTES else out[:written]


def _memory(size_bytes: int) -> memoryview:
    """Zeros. Much of them costs nothing until it is written: a bytearray of 100 MiB takes 50 ms, with the lock."""
    if size_bytes <= SHORT_BYTES:
        return memoryview(bytearray(size_bytes))
    return memoryview(mmap.mmap(-1, size_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))


def _decompress_snappy(view: memoryview, limit_bytes: int) -> Steps[Buffer]:
    """One raw block, which states its size."""
    size = cramjam.snappy.decompress_raw_len(view)
    if size > limit_bytes:
        raise TooLarge(f"snappy records of {size} bytes exceed {limit_bytes}")
    cost_us = size * _DECOMPRESS_US[SNAPPY]
    out: Buffer = yield Work(partial(_unsnap, view if is_short(cost_us) else bytes(view), size), cost_us, size)
    return out


def _unsnap(data: Buffer, size_bytes: int) -> memoryview:
    out = _memory(size_bytes)
    return out[: cramjam.snappy.decompress_raw_into(data, out)]


def _decompress_xerial(view: memoryview, limit_bytes: int) -> Steps[Buffer]:
    total = 0
    for number, block in enumerate(compression.xerial_blocks(view)):
        total += cramjam.snappy.decompress_raw_len(block) if block else 0
        if number % _BLOCKS == _BLOCKS - 1:
            yield _BLOCKS * RECORD_US
    if total > limit_bytes:
        raise TooLarge(f"snappy records of {total} bytes exceed {limit_bytes}")
    out: memoryview = yield Work(partial(_memory, total), 0.0, total)
    at = told = count = 0
    for block in compression.xerial_blocks(view):
        at += cramjam.snappy.decompress_raw_into(block, out[at:]) if block else 0
        count += 1
        if count == _BLOCKS or at - told > SHORT_BYTES:
            yield count * RECORD_US + (at - told) * _DECOMPRESS_US[SNAPPY]
            told, count = at, 0
    yield count * RECORD_US + (at - told) * _DECOMPRESS_US[SNAPPY]
    return out


def _check_lz4_frame(view: memoryview) -> Steps[None]:
    for count, _ in enumerate(compression.lz4_blocks(view)):
        if count % _BLOCKS == _BLOCKS - 1:
            yield _BLOCKS * RECORD_US
