"""Compress and decompress the record section of a batch, into a capped buffer. pure frozen

Source: `org.apache.kafka.common.compress`: gzip stream, snappy in xerial framing (librdkafka: one raw block), LZ4
frame, zstd frame. What would grow beyond the cap raises TooLarge without more than the cap being held; garbage raises
ProtocolError. Whatever is accepted here decompresses to the same bytes in Kafka's Java classes; what they accept beyond
that is garbage behind a stream's end.
"""

from collections.abc import Iterator
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
DEFAULT_LEVELS = {GZIP: 6, ZSTD: 3}
_LZ4_DEFAULT_LEVEL = 9

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
XERIAL_HEADER = _XERIAL_MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"
_XERIAL_BLOCK_SIZE = 32 * 1024
_INT32 = Struct(">i")

_LZ4_MAGIC = b"\x04\x22\x4d\x18"
# Of the flags byte: version (must be 1), independent blocks (must be set), dictionary and reserved (must not be set).
_LZ4_FIXED_FLAGS, _LZ4_FLAGS = 0b1110_0011, 0b0110_0000
_LZ4_BLOCK_CHECKSUM, _LZ4_CONTENT_SIZE, _LZ4_CONTENT_CHECKSUM = 0x10, 0x08, 0x04
_LZ4_HEADER_SIZE = 7
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
        stream, _ = lz4_compressor(level)
        stream.compress(bytes(payload))
        return bytes(stream.finish())
    if compression not in DEFAULT_LEVELS:
        raise ProtocolError(f"unknown compression type {compression}")
    return bytes(_STREAMS[compression].compress(payload, level=DEFAULT_LEVELS[compression] if level is None else level))


def lz4_compressor(level: int | None) -> tuple[cramjam.lz4.Compressor, bool]:
    """A stream, and whether it is the fast one, which Kafka takes at its default level (`Lz4BlockOutputStream`)."""
    fast = level in (None, _LZ4_DEFAULT_LEVEL)
    return cramjam.lz4.Compressor(level=0 if fast else level, content_checksum=False, block_linked=False), fast


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
            for _ in lz4_blocks(memoryview(payload)):
                pass
        if compression in _STREAMS:
            return _decompress_stream(payload, compression, limit_bytes)
    except cramjam.DecompressionError as broken:
        raise ProtocolError(f"{NAMES[compression]} does not decompress: {broken}") from None
    raise ProtocolError(f"unknown compression type {compression}")


def _decompress_stream(payload: Buffer, compression: int, limit_bytes: int) -> bytes:
    """Decompress into a buffer that grows to the limit: a stream need not state its size, and a stated one may lie."""
    size = min(limit_bytes, max(4096, _FIRST_RATIO * len(payload)))
    while True:
        out = bytearray(size)
        written = decompress_into(payload, compression, out)
        if written is not None:
            return bytes(memoryview(out)[:written])
        if size >= limit_bytes:
            raise TooLarge(f"{NAMES[compression]} records exceed {limit_bytes} bytes")
        size = min(limit_bytes, size * _GROWTH)


def decompress_into(payload: Buffer, compression: int, out: bytearray | memoryview) -> int | None:
    """How many bytes of a gzip, LZ4 or zstd stream stand in `out` now; None if there are more than it holds.

    Raises cramjam.DecompressionError. Which blocks an LZ4 frame may have is not looked at: `lz4_blocks` does that.
    """
    try:
        written: int = _STREAMS[compression].decompress_into(payload, out)
    except cramjam.DecompressionError as error:
        if str(error) != _FULL:
            raise
        return None
    return written


def lz4_blocks(payload: memoryview) -> Iterator[int]:
    """Where the blocks begin. Raises ProtocolError, at the end at the latest, for what is not exactly one frame of
    independent blocks without dictionary: all that `Lz4BlockInputStream` reads.

    It fails on linked blocks and on a skippable frame, and stops at the first frame's end, where liblz4 goes on.
    """
    if len(payload) < _LZ4_HEADER_SIZE or payload[:4] != _LZ4_MAGIC:
        raise ProtocolError("no lz4 frame")
    flags = payload[4]
    if flags & _LZ4_FIXED_FLAGS != _LZ4_FLAGS:
        raise ProtocolError(f"lz4 frame with flags {flags:#04x}: its blocks must be independent")
    between = 4 + (4 if flags & _LZ4_BLOCK_CHECKSUM else 0)
    at = _LZ4_HEADER_SIZE + (8 if flags & _LZ4_CONTENT_SIZE else 0)
    last = len(payload) - _LITTLE_UINT32.size
    while at <= last:
        yield at
        size = _LITTLE_UINT32.unpack_from(payload, at)[0] & 0x7FFFFFFF
        if size == 0:
            at += 4 + (4 if flags & _LZ4_CONTENT_CHECKSUM else 0)
            break
        at += size + between
    else:
        raise ProtocolError("lz4 frame is cut short")
    if at != len(payload):
        raise ProtocolError("bytes behind the lz4 frame")


def _decompress_snappy(payload: memoryview, limit_bytes: int) -> bytes:
    blocks = [block for block in xerial_blocks(payload) if block] if is_xerial(payload) else [payload]
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


def is_xerial(payload: memoryview) -> bool:
    """Whether these are snappy blocks in the framing of Kafka's clients; librdkafka's is one block without any."""
    return payload[: len(_XERIAL_MAGIC)] == _XERIAL_MAGIC


def xerial_blocks(payload: memoryview) -> Iterator[memoryview]:
    """The blocks of a stream, or of several, one behind the other: each further header is given as an empty one."""
    at, end = len(XERIAL_HEADER), len(payload)
    while at < end:
        if is_xerial(payload[at:]):
            yield payload[at:at]
            at += len(XERIAL_HEADER)
            continue
        if at + _INT32.size > end:
            raise ProtocolError("snappy block size is cut short")
        size = _INT32.unpack_from(payload, at)[0]
        at += _INT32.size
        if size <= 0 or at + size > end:
            raise ProtocolError(f"snappy block of {size} bytes overruns its stream")
        yield payload[at : at + size]
        at += size


def _compress_xerial(payload: memoryview) -> bytes:
    out = bytearray(XERIAL_HEADER)
    for at in range(0, len(payload), _XERIAL_BLOCK_SIZE):
        block = bytes(cramjam.snappy.compress_raw(payload[at : at + _XERIAL_BLOCK_SIZE]))
        out += _INT32.pack(len(block))
        out += block
    return bytes(out)
