"""Decompress the blocks of a record section one after the other, as Apache Kafka's Java classes do. pure frozen

Each walk writes to `out` and yields the number of bytes in it after each block. It raises Full if the next block does
not fit, and ProtocolError or cramjam.DecompressionError where Kafka's class fails.

Source: `GzipCompression` (the JDK's `GZIPInputStream`), `Lz4BlockInputStream`, snappy-java's `SnappyInputStream`,
zstd-jni's `ZstdInputStream`, of Kafka 4.3.1. `tests/data/frames` has Kafka's results for odd frames.
"""

import sys
import zlib
from collections.abc import Iterator
from functools import lru_cache
from struct import Struct
from typing import Any, Final, Protocol, cast

import cramjam

from ottla.protocol.errors import ProtocolError

_UINT32, _INT32 = Struct("<I"), Struct(">i")

# Text of cramjam's error (Rust's io::ErrorKind) for a full output.
_FULL: Final = "failed to write whole buffer"

# Bytes given to inflate at once, and taken from it.
_INFLATE_BYTES: Final = 64 * 1024
_INFLATED_BYTES: Final = 256 * 1024
_GZIP_HEAD_SIZE: Final = 10
_GZIP_TRAILER: Final = Struct("<II")
_GZIP_HEAD_CRC, _GZIP_EXTRA, _GZIP_NAME, _GZIP_COMMENT = 2, 4, 8, 16
# The JDK reads this many bytes at once. After a member it searches another one if unread bytes follow, or if it has
# read more than these after the deflated content.
_JDK_BUFFER_BYTES, _JDK_LEAST_BYTES = 8192, 26

_LZ4_MAGIC: Final = b"\x04\x22\x4d\x18"
_LZ4_HEAD_SIZE: Final = 7
# Of the flags byte: version (must be 1), independent blocks (must be set), dictionary and reserved (must not be set).
_LZ4_FIXED_FLAGS, _LZ4_FLAGS = 0b1110_0011, 0b0110_0000
_LZ4_BLOCK_CHECKSUM, _LZ4_CONTENT_SIZE, _LZ4_CONTENT_CHECKSUM = 0x10, 0x08, 0x04
_LZ4_PLAIN: Final = 0x80000000
_LZ4_BLOCK_BYTES: Final = {0x40: 1 << 16, 0x50: 1 << 18, 0x60: 1 << 20, 0x70: 1 << 22}
_PRIME_1, _PRIME_2, _PRIME_3, _PRIME_4, _PRIME_5 = 2654435761, 2246822519, 3266489917, 668265263, 374761393

_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
XERIAL_HEADER: Final = _XERIAL_MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"
# snappy-java recognizes a further header by these bytes, and takes no larger chunk.
_XERIAL_BEGIN: Final = 4
_XERIAL_MOST_BYTES: Final = 512 * 1024 * 1024
# A copy of 64 bytes takes three bytes: a block that claims a larger output does not decompress.
_SNAPPY_MOST_RATIO: Final = 22

_ZSTD_CUT: Final = "incomplete frame"
_ZSTD_MAGIC, _ZSTD_SKIPPABLE = 0xFD2FB528, 0x184D2A50
_ZSTD_BLOCK_BYTES: Final = 128 * 1024
_ZSTD_RLE: Final = 1
# zstd-jni reads this many bytes at once, and treats a cut frame as the end if another frame ends in the same bytes.
_ZSTD_BUFFER_BYTES: Final = 131_075
_ZSTD_MOST_BLOCKS: Final = 1_000


class Output(Protocol):
    """A buffer that blocks are written to: a memoryview, or Discarded."""

    def __len__(self) -> int: ...

    def __getitem__(self, part: slice, /) -> Any: ...

    def __setitem__(self, part: slice, content: Any, /) -> None: ...


class Discarded:
    """An output of any size that drops the bytes and only counts them."""

    def __init__(self) -> None:
        self._scratch = memoryview(bytearray(max(_LZ4_BLOCK_BYTES.values())))

    def __len__(self) -> int:
        return sys.maxsize

    def __getitem__(self, part: slice, /) -> memoryview:
        return self._scratch[: part.stop - part.start]

    def __setitem__(self, part: slice, content: Any, /) -> None:
        pass


class Full(Exception):
    """The output is too small for the next block."""


def gzip_blocks(payload: memoryview, out: Output) -> Iterator[int]:
    """Inflate the members. Like the JDK, ignore bytes after a member that do not begin another one."""
    at, end, written = _gzip_head(payload, 0), len(payload), 0
    if at < 0:
        raise ProtocolError("not a gzip member")
    filled = at
    while True:
        begin, crc = written, 0
        stream = zlib.decompressobj(wbits=-zlib.MAX_WBITS)
        for inflated, after in _inflate(stream, payload, at):
            at = after
            if len(inflated) > len(out) - written:
                raise Full
            out[written : written + len(inflated)] = inflated
            written += len(inflated)
            crc = zlib.crc32(inflated, crc)
            yield written
        trailer = at + _GZIP_TRAILER.size
        if trailer > end:
            raise ProtocolError("the gzip member is cut short")
        if _GZIP_TRAILER.unpack_from(payload, at) != (crc, written - begin & 0xFFFFFFFF):
            raise ProtocolError("the gzip member has a wrong CRC or size")
        if at > filled:
            filled = min(end, filled - (filled - at) // _JDK_BUFFER_BYTES * _JDK_BUFFER_BYTES)
        if filled == end and end - at <= _JDK_LEAST_BYTES:
            return
        at = _gzip_head(payload, trailer)
        if at < 0:
            return
        filled = max(filled, at)


def _inflate(stream: "zlib._Decompress", payload: memoryview, at: int) -> Iterator[tuple[bytes, int]]:
    """Yield (content, position after its compressed bytes) of the deflate stream at `at`."""
    while not stream.eof:
        piece = stream.unconsumed_tail or payload[at : at + _INFLATE_BYTES]
        try:
            inflated = stream.decompress(piece, _INFLATED_BYTES)
        except zlib.error as error:
            raise ProtocolError(f"gzip does not decompress: {error}") from None
        at += len(piece) - len(stream.unused_data if stream.eof else stream.unconsumed_tail)
        if not len(piece) and not inflated:
            raise ProtocolError("the gzip member is cut short")
        yield inflated, at


def _gzip_head(payload: memoryview, start: int) -> int:
    """Return the position after the head of a member at `start`, -1 if there is none."""
    at = start + _GZIP_HEAD_SIZE
    if bytes(payload[start : start + 3]) != b"\x1f\x8b\x08" or at > len(payload):
        return -1
    flags = payload[start + 3]
    if flags & _GZIP_EXTRA:
        at += 2 + int.from_bytes(payload[at : at + 2], "little")
    if flags & (_GZIP_NAME | _GZIP_COMMENT):
        rest = bytes(payload[at:])
        skipped = -1
        for flag in (_GZIP_NAME, _GZIP_COMMENT):
            if flags & flag:
                skipped = rest.find(0, skipped + 1)
                if skipped < 0:
                    return -1
        at += skipped + 1
    if flags & _GZIP_HEAD_CRC:
        if int.from_bytes(payload[at : at + 2], "little") != zlib.crc32(payload[start:at]) & 0xFFFF:
            return -1
        at += 2
    return at if at <= len(payload) else -1


def lz4_blocks(payload: memoryview, out: Output) -> Iterator[int]:
    """Decompress one frame of independent blocks. Ignore its content's size and checksum, and the bytes after it."""
    at, flags, most = _lz4_head(payload)
    end, written = len(payload), 0
    between = 4 if flags & _LZ4_BLOCK_CHECKSUM else 0
    while at + 4 <= end:
        (stated,) = _UINT32.unpack_from(payload, at)
        size = stated & ~_LZ4_PLAIN
        if size == 0:
            if flags & _LZ4_CONTENT_CHECKSUM and at + 8 > end:
                break
            return
        if size > most:
            raise ProtocolError(f"lz4 block of {size} bytes in a frame of blocks of {most}")
        after = at + 4 + size + between
        if after > end:
            break
        if between:
            got = _unpack_with_checksum(payload[at:after], payload[5], out, written, most)
        elif stated & _LZ4_PLAIN:
            got = _copy(payload[at + 4 : after], out, written)
        else:
            got = _unpack_block(payload[at + 4 : after], out, written, most)
        if not got:
            return  # to Kafka's readers an empty block is the end
        at = after
        written += got
        yield written
    raise ProtocolError("the lz4 frame is cut short")


def _lz4_head(payload: memoryview) -> tuple[int, int, int]:
    """Return (position of the first block, flags, largest size of a block)."""
    if len(payload) < _LZ4_HEAD_SIZE or bytes(payload[:4]) != _LZ4_MAGIC:
        raise ProtocolError("no lz4 frame")
    flags, most = payload[4], _LZ4_BLOCK_BYTES.get(payload[5])
    if flags & _LZ4_FIXED_FLAGS != _LZ4_FLAGS or most is None:
        raise ProtocolError(f"lz4 frame of the kind {flags:#04x} {payload[5]:#04x}: its blocks must be independent")
    at = 6 + (8 if flags & _LZ4_CONTENT_SIZE else 0)
    if at >= len(payload):
        raise ProtocolError("the lz4 frame is cut short")
    if payload[at] != descriptor_checksum(bytes(payload[4:at])):
        raise ProtocolError("the header of the lz4 frame has a wrong checksum")
    return at + 1, flags, most


def _copy(block: memoryview, out: Output, at: int) -> int:
    if len(block) > len(out) - at:
        raise Full
    out[at : at + len(block)] = block
    return len(block)


def _unpack_block(block: memoryview, out: Output, at: int, most: int) -> int:
    limit = min(most, len(out) - at)
    try:
        return int(cramjam.lz4.decompress_block_into(block, out[at : at + limit], limit))
    except cramjam.DecompressionError:
        if limit < most:
            cramjam.lz4.decompress_block(
                block, output_len=most
            )  # raises the error if the block is broken, not too large
            raise Full from None
        raise


def _unpack_with_checksum(block: memoryview, kind: int, out: Output, at: int, most: int) -> int:
    """Decompress a block with its size and checksum, as a frame of its own, so that liblz4 checks the checksum."""
    descriptor = bytes([_LZ4_FLAGS | _LZ4_BLOCK_CHECKSUM, kind])
    head = _LZ4_MAGIC + descriptor + bytes([descriptor_checksum(descriptor)])
    limit = min(most, len(out) - at)
    try:
        return int(cramjam.lz4.decompress_into(b"".join((head, block, bytes(4))), out[at : at + limit]))
    except cramjam.DecompressionError as error:
        if str(error) == _FULL and limit < most:
            raise Full from None
        raise


@lru_cache(maxsize=64)
def descriptor_checksum(descriptor: bytes) -> int:
    """Return the checksum of an LZ4 frame descriptor: the second byte of its XXH32.

    Source: xxHash's specification, for less than 16 bytes.
    """
    value = _PRIME_5 + len(descriptor)
    whole = len(descriptor) & ~3
    for (lane,) in _UINT32.iter_unpack(descriptor[:whole]):
        value = _rotate(value + lane * _PRIME_3, 17) * _PRIME_4
    for byte in descriptor[whole:]:
        value = _rotate(value + byte * _PRIME_5, 11) * _PRIME_1
    value &= 0xFFFFFFFF
    value = ((value ^ value >> 15) * _PRIME_2) & 0xFFFFFFFF
    value = ((value ^ value >> 13) * _PRIME_3) & 0xFFFFFFFF
    return (value ^ value >> 16) >> 8 & 0xFF


def _rotate(value: int, bits: int) -> int:
    value &= 0xFFFFFFFF
    return value << bits | value >> 32 - bits


def snappy_blocks(payload: memoryview, out: Output) -> Iterator[int]:
    """Decompress one raw block, or the chunks after a header of snappy-java."""
    written = 0
    for block in _snappy_parts(payload):
        if len(block):
            size = _snappy_size(block)
            if size > len(out) - written:
                raise Full
            written += cramjam.snappy.decompress_raw_into(block, out[written : written + size])
        yield written


def snappy_sizes(payload: memoryview) -> Iterator[int]:
    """Yield the total of the sizes in the blocks, up to each block."""
    total = 0
    for block in _snappy_parts(payload):
        total += _snappy_size(block) if len(block) else 0
        yield total


def _snappy_parts(payload: memoryview) -> Iterator[memoryview]:
    """Yield the blocks, and an empty one for each further header."""
    at, end = len(XERIAL_HEADER), len(payload)
    if end < at or bytes(payload[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        if not end:
            raise ProtocolError("not a snappy block")
        yield payload
        return
    while at + _INT32.size <= end:
        if payload[at : at + _XERIAL_BEGIN] == _XERIAL_MAGIC[:_XERIAL_BEGIN]:
            if at + len(XERIAL_HEADER) > end:
                raise ProtocolError("a snappy header is cut short")
            if _INT32.unpack_from(payload, at + len(_XERIAL_MAGIC))[0] < 1:
                raise ProtocolError("a snappy header has a version below 1")
            yield payload[at:at]
            at += len(XERIAL_HEADER)
            continue
        (size,) = _INT32.unpack_from(payload, at)
        at += _INT32.size
        if not 0 < size <= min(_XERIAL_MOST_BYTES, end - at):
            raise ProtocolError(f"snappy block of {size} bytes overruns its stream")
        yield payload[at : at + size]
        at += size


def _snappy_size(block: memoryview) -> int:
    size: int = cramjam.snappy.decompress_raw_len(block)
    if size > _SNAPPY_MOST_RATIO * len(block):
        raise ProtocolError(f"snappy block of {len(block)} bytes claims an output of {size} bytes")
    return size


def zstd_blocks(payload: memoryview, out: Output) -> Iterator[int]:
    """Decompress all frames at once. Ignore a cut frame if zstd-jni ignores it."""
    try:
        yield cramjam.zstd.decompress_into(payload, cast(memoryview, out))
    except cramjam.DecompressionError as error:
        if str(error) == _FULL:
            raise Full from None
        whole = max((end for end, _ in zstd_frames(payload, _ZSTD_MOST_BLOCKS)), default=0)
        if str(error) != _ZSTD_CUT or whole // _ZSTD_BUFFER_BYTES < len(payload) // _ZSTD_BUFFER_BYTES or not whole:
            raise
        yield from zstd_blocks(payload[:whole], out)


def zstd_frames(payload: memoryview, most_blocks: int) -> Iterator[tuple[int, int]]:
    """Yield (end, size of the content at most) of each whole frame, until there are more than `most_blocks`."""
    at = blocks = 0
    while at + 8 <= len(payload):
        magic, size = _UINT32.unpack_from(payload, at)[0], _UINT32.unpack_from(payload, at + 4)[0]
        if magic & ~0xF == _ZSTD_SKIPPABLE:
            at += 8 + size
            content = 0
        elif magic == _ZSTD_MAGIC:
            at, content, count = _zstd_frame(payload, at + 4, most_blocks - blocks)
            blocks += count
        else:
            return
        if not 0 <= at <= len(payload):
            return
        yield at, content


def _zstd_frame(payload: memoryview, at: int, most_blocks: int) -> tuple[int, int, int]:
    """Return (end or -1, size of the content at most, number of blocks) of the frame whose descriptor is at `at`."""
    descriptor, content = payload[at], 0
    is_single = descriptor >> 5 & 1
    at += 1 + (0, 1, 2, 4)[descriptor & 3] + (is_single, 2, 4, 8)[descriptor >> 6] + (not is_single)
    for count in range(1, most_blocks + 1):
        if at + 3 > len(payload):
            break
        header = int.from_bytes(payload[at : at + 3], "little")
        size, kind = header >> 3, header >> 1 & 3
        content += _ZSTD_BLOCK_BYTES if kind > _ZSTD_RLE else size
        at += 3 + (1 if kind == _ZSTD_RLE else size)
        if header & 1:
            return at + (4 if descriptor & 4 else 0), content, count
    return -1, content, 0
