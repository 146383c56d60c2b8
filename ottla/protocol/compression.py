"""Compress and decompress the record section of a batch, into a capped buffer. pure frozen

Source: `org.apache.kafka.common.compress`: gzip stream, snappy in xerial framing (librdkafka: one raw block), LZ4
frame, zstd frame. What would grow beyond the cap raises TooLarge without more than the cap being held; garbage raises
ProtocolError. Whatever is accepted here decompresses to the same bytes in Kafka's Java classes; what they accept beyond
that is garbage behind a stream's end.
"""

import zlib
from collections.abc import Generator, Iterator
from struct import Struct
from types import ModuleType

import cramjam

from ottla.protocol.errors import ProtocolError
from ottla.protocol.varints import Buffer

NONE = 0
GZIP = 1
SNAPPY = 2
LZ4 = 3
ZSTD = 4
NAMES = {NONE: "none", GZIP: "gzip", SNAPPY: "snappy", LZ4: "lz4", ZSTD: "zstd"}

_STREAMS: dict[int, ModuleType] = {GZIP: cramjam.gzip, LZ4: cramjam.lz4, ZSTD: cramjam.zstd}
# Kafka's defaults; cramjam's own are up to ten times slower.
_LEVELS = {GZIP: 6, ZSTD: 3}
_LZ4_DEFAULT_LEVEL = 9

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"
_XERIAL_BLOCK_SIZE = 32 * 1024
_STEP_SIZE = 4 * _XERIAL_BLOCK_SIZE
# So much is decompressed in one go, a millisecond or two of the slowest codec.
STEP_BYTES = 1 << 20
_INT32 = Struct(">i")

_LZ4_MAGIC = b"\x04\x22\x4d\x18"
# Of the flags byte: version (must be 1), independent blocks (must be set), dictionary and reserved (must not be set).
_LZ4_FIXED_FLAGS, _LZ4_FLAGS = 0b1110_0011, 0b0110_0000
_LZ4_BLOCK_CHECKSUM, _LZ4_CONTENT_SIZE, _LZ4_CONTENT_CHECKSUM = 0x10, 0x08, 0x04
_LZ4_HEADER_SIZE = 7
_LZ4_END = bytes(4)
_GZIP_FORMAT = 31  # of zlib: a gzip header, the largest window
_GZIP_INPUT_BYTES = 256 * 1024
_LITTLE_UINT32 = Struct("<I")

# How cramjam (Rust's io::ErrorKind::WriteZero) says that the output buffer is full.
_FULL = "failed to write whole buffer"
_FIRST_RATIO = 4
_GROWTH = 4


class TooLarge(ProtocolError):
    """The decompressed records exceed the cap."""


def compress(payload: Buffer, compression: int, level: int | None = None) -> bytes:
    """`payload` in codec `compression`, framed as Kafka's own clients frame it.

    `level` is one of `compression.gzip.level`, `.lz4.level` or `.zstd.level`; None is Kafka's default.
    """
    if compression == NONE:
        return bytes(payload)
    if compression == SNAPPY:
        return _compress_xerial(memoryview(payload))
    if compression == LZ4:
        stream = _lz4_compressor(level)
        stream.compress(bytes(payload))
        return bytes(stream.finish())
    if compression not in _LEVELS:
        raise ProtocolError(f"unknown compression type {compression}")
    return bytes(_STREAMS[compression].compress(payload, level=_LEVELS[compression] if level is None else level))


def _lz4_compressor(level: int | None) -> cramjam.lz4.Compressor:
    """At its default level Kafka takes the fast compressor (`Lz4BlockOutputStream`)."""
    fast = level in (None, _LZ4_DEFAULT_LEVEL)
    return cramjam.lz4.Compressor(level=0 if fast else level, content_checksum=False, block_linked=False)


def compress_in_steps(payload: Buffer, compression: int, level: int | None = None) -> Generator[None, None, bytes]:
    """`compress` that yields after every 128 KiB, a few milliseconds of the slowest codec."""
    view = memoryview(payload)
    pieces = [view[at : at + _STEP_SIZE] for at in range(0, len(view), _STEP_SIZE)]
    if len(pieces) < 2 or compression == NONE:
        return compress(payload, compression, level)
    if compression == SNAPPY:
        out = bytearray(_XERIAL_HEADER)
        for piece in pieces:
            out += _compress_xerial(piece)[len(_XERIAL_HEADER) :]
            yield
        return bytes(out)
    if compression == LZ4:
        stream = _lz4_compressor(level)
    elif compression in _LEVELS:
        stream = _STREAMS[compression].Compressor(level=_LEVELS[compression] if level is None else level)
    else:
        raise ProtocolError(f"unknown compression type {compression}")
    for piece in pieces:
        stream.compress(bytes(piece))
        yield
    return bytes(stream.finish())


def decompress(payload: Buffer, compression: int, *, limit_bytes: int) -> bytes:
    """The decompressed bytes of `payload` (the section behind a batch header), `limit_bytes` at most.

    Raises TooLarge beyond the limit and ProtocolError for an unknown codec or bytes that are not of that codec.
    """
    if compression == NONE:
        if len(payload) > limit_bytes:
            raise TooLarge(f"{len(payload)} bytes of records, the limit is {limit_bytes}")
        return bytes(payload)
    try:
        if compression == SNAPPY:
            return _decompress_snappy(memoryview(payload), limit_bytes)
        if compression == LZ4:
            _check_lz4_frame(memoryview(payload))
        if compression in _STREAMS:
            return _decompress_stream(payload, compression, limit_bytes)
    except cramjam.DecompressionError as broken:
        raise ProtocolError(f"{NAMES[compression]} does not decompress: {broken}") from None
    raise ProtocolError(f"unknown compression type {compression}")


def decompress_in_steps(
    payload: Buffer, compression: int, *, limit_bytes: int
) -> Generator[int, None, bytes | bytearray]:
    """`decompress` that yields, after about every MiB, how many bytes it holds; nothing when all are not more.

    zstd, snappy in one block, and LZ4 frames that end with a checksum or state their size are decompressed in one go.
    """
    if compression == NONE:
        return decompress(payload, NONE, limit_bytes=limit_bytes)
    if len(payload) < STEP_BYTES:
        try:
            return decompress(payload, compression, limit_bytes=min(limit_bytes, STEP_BYTES))
        except TooLarge:
            if limit_bytes <= STEP_BYTES:
                raise
    yield 0
    view = memoryview(payload)
    pieces = _pieces(view, compression, limit_bytes)
    out = bytearray()
    try:
        if pieces is None:
            return (yield from _decompress_in_one_go(view, compression, limit_bytes))
        for piece in pieces:
            out += piece
            if len(out) > limit_bytes:
                raise TooLarge(f"{NAMES[compression]} records exceed {limit_bytes} bytes")
            yield len(out)
    except (cramjam.DecompressionError, zlib.error) as broken:
        raise ProtocolError(f"{NAMES[compression]} does not decompress: {broken}") from None
    return out


def _decompress_in_one_go(payload: memoryview, compression: int, limit_bytes: int) -> Generator[int, None, bytearray]:
    """Into a buffer that grows to the limit; it is made in a step of its own, which takes as long as filling it."""
    if compression == SNAPPY:
        into, size = cramjam.snappy.decompress_raw_into, cramjam.snappy.decompress_raw_len(payload)
        if size > limit_bytes:
            raise TooLarge(f"snappy records of {size} bytes exceed {limit_bytes}")
    else:
        into, size = _STREAMS[compression].decompress_into, max(STEP_BYTES, _FIRST_RATIO * len(payload))
    while True:
        size = min(size, limit_bytes)
        out = bytearray(size)
        yield size
        try:
            del out[into(payload, out) :]
        except cramjam.DecompressionError as error:
            if str(error) != _FULL:
                raise
            if size >= limit_bytes:
                raise TooLarge(f"{NAMES[compression]} records exceed {limit_bytes} bytes") from None
            size *= 2
        else:
            return out


def _pieces(payload: memoryview, compression: int, limit_bytes: int) -> Iterator[bytes] | None:
    """The decompressed bytes, `STEP_BYTES` or little more at a time; None where the format does not let us."""
    if compression == GZIP:
        return _gzip_pieces(payload)
    if compression == SNAPPY and payload[: len(_XERIAL_MAGIC)] == _XERIAL_MAGIC:
        return _xerial_pieces(_xerial_blocks(payload), limit_bytes)
    if compression == LZ4:
        ends = _check_lz4_frame(payload)
        if not payload[4] & (_LZ4_CONTENT_SIZE | _LZ4_CONTENT_CHECKSUM):
            return _lz4_pieces(payload, ends)
    return None


def _gzip_pieces(payload: memoryview) -> Iterator[bytes]:
    stream = zlib.decompressobj(_GZIP_FORMAT)
    for at in range(0, len(payload), _GZIP_INPUT_BYTES):
        left: Buffer = payload[at : at + _GZIP_INPUT_BYTES]
        while left:
            if stream.eof:  # a stream may be several, one behind the other
                stream = zlib.decompressobj(_GZIP_FORMAT)
            yield stream.decompress(left, STEP_BYTES)
            left = stream.unused_data if stream.eof else stream.unconsumed_tail
    while not stream.eof:
        piece = stream.decompress(b"", STEP_BYTES)
        if not piece:
            raise ProtocolError("gzip stream is cut short")
        yield piece


def _xerial_pieces(blocks: list[memoryview], limit_bytes: int) -> Iterator[bytes]:
    group: list[memoryview] = []
    size_bytes = 0
    for block in blocks:
        group.append(block)
        size_bytes += cramjam.snappy.decompress_raw_len(block)
        if size_bytes >= STEP_BYTES:
            yield _join_snappy(group, limit_bytes)
            group, size_bytes = [], 0
    yield _join_snappy(group, limit_bytes)


def _lz4_pieces(payload: memoryview, ends: list[int]) -> Iterator[bytes]:
    """Independent blocks, some at a time in a frame of their own. `ends` are their ends, from the header's on."""
    head = bytes(payload[:_LZ4_HEADER_SIZE])
    step = max(1, STEP_BYTES // _lz4_block_bytes(payload[5]))
    for first in range(0, len(ends) - 1, step):
        last = min(first + step, len(ends) - 1)
        yield bytes(cramjam.lz4.decompress(head + payload[ends[first] : ends[last]] + _LZ4_END))


def _lz4_block_bytes(descriptor: int) -> int:
    """The most that one block decompresses to: 64 KiB, 256 KiB, 1 MiB or 4 MiB."""
    return 1 << (8 + 2 * (descriptor >> 4 & 7))


def _decompress_stream(payload: Buffer, compression: int, limit_bytes: int) -> bytes:
    """Decompress into a buffer that grows to the limit: a stream need not state its size, and a stated one may lie."""
    decompress_into = _STREAMS[compression].decompress_into
    size = min(limit_bytes, max(4096, _FIRST_RATIO * len(payload)))
    while True:
        out = bytearray(size)
        try:
            written = decompress_into(payload, out)
        except cramjam.DecompressionError as error:
            if str(error) != _FULL:
                raise
            if size >= limit_bytes:
                raise TooLarge(f"{NAMES[compression]} records exceed {limit_bytes} bytes") from None
            size = min(limit_bytes, size * _GROWTH)
        else:
            return bytes(memoryview(out)[:written])


def _check_lz4_frame(payload: memoryview) -> list[int]:
    """Exactly one frame of independent blocks without dictionary: all that `Lz4BlockInputStream` reads.

    It fails on linked blocks and on a skippable frame, and stops at the first frame's end, where liblz4 goes on.
    Returns the ends of the header and of each block.
    """
    if len(payload) < _LZ4_HEADER_SIZE or payload[:4] != _LZ4_MAGIC:
        raise ProtocolError("no lz4 frame")
    flags = payload[4]
    if flags & _LZ4_FIXED_FLAGS != _LZ4_FLAGS:
        raise ProtocolError(f"lz4 frame with flags {flags:#04x}: its blocks must be independent")
    between = 4 + (4 if flags & _LZ4_BLOCK_CHECKSUM else 0)
    at = _LZ4_HEADER_SIZE + (8 if flags & _LZ4_CONTENT_SIZE else 0)
    ends = []
    last = len(payload) - _LITTLE_UINT32.size
    while at <= last:
        ends.append(at)
        size = _LITTLE_UINT32.unpack_from(payload, at)[0] & 0x7FFFFFFF
        if size == 0:
            at += 4 + (4 if flags & _LZ4_CONTENT_CHECKSUM else 0)
            break
        at += size + between
    else:
        raise ProtocolError("lz4 frame is cut short")
    if at != len(payload):
        raise ProtocolError("bytes behind the lz4 frame")
    return ends


def _decompress_snappy(payload: memoryview, limit_bytes: int) -> bytes:
    if payload[: len(_XERIAL_MAGIC)] == _XERIAL_MAGIC:
        blocks = _xerial_blocks(payload)
    else:
        blocks = [payload]
    return _join_snappy(blocks, limit_bytes)


def _join_snappy(blocks: list[memoryview], limit_bytes: int) -> bytes:
    raw_len = cramjam.snappy.decompress_raw_len
    sizes = [raw_len(block) for block in blocks]
    total = sum(sizes)
    if total > limit_bytes:
        raise TooLarge(f"snappy records of {total} bytes exceed {limit_bytes}")
    out = memoryview(bytearray(total))
    at = 0
    for block, size in zip(blocks, sizes, strict=True):
        cramjam.snappy.decompress_raw_into(block, out[at : at + size])
        at += size
    return bytes(out)


def _xerial_blocks(payload: memoryview) -> list[memoryview]:
    at, end = len(_XERIAL_HEADER), len(payload)
    blocks = []
    while at < end:
        if payload[at : at + len(_XERIAL_MAGIC)] == _XERIAL_MAGIC:  # a stream may be several, one behind the other
            at += len(_XERIAL_HEADER)
            continue
        if at + _INT32.size > end:
            raise ProtocolError("snappy block size is cut short")
        size = _INT32.unpack_from(payload, at)[0]
        at += _INT32.size
        if size <= 0 or at + size > end:
            raise ProtocolError(f"snappy block of {size} bytes overruns its stream")
        blocks.append(payload[at : at + size])
        at += size
    return blocks


def _compress_xerial(payload: memoryview) -> bytes:
    out = bytearray(_XERIAL_HEADER)
    for at in range(0, len(payload), _XERIAL_BLOCK_SIZE):
        block = bytes(cramjam.snappy.compress_raw(payload[at : at + _XERIAL_BLOCK_SIZE]))
        out += _INT32.pack(len(block))
        out += block
    return bytes(out)
