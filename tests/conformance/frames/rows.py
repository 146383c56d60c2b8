"""Compressed record sections that no usual client writes: the rows of the table of odd frames."""

import gzip
import struct
import zlib
from collections.abc import Iterator

import cramjam
import zstandard
from lz4 import frame

from ottla.protocol.batch import build_batch
from ottla.protocol.batch_header import HEADER_SIZE
from ottla.protocol.compressed_blocks import descriptor_checksum
from ottla.protocol.compression import GZIP, LZ4, NONE, SNAPPY, ZSTD
from ottla.protocol.records import NewRecord
from tests.unusual_frames import TIMESTAMP_MS, Row

GZIP_HEAD = b"\x1f\x8b\x08\0\0\0\0\0\0\0"
LZ4_MAGIC, LZ4_END = b"\x04\x22\x4d\x18", bytes(4)
SKIPPABLE = b"\x50\x2a\x4d\x18\x04\0\0\0abcd"
ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
XERIAL = b"\x82SNAPPY\0"
NOISE = b"".join(struct.pack("<I", number * 2_654_435_761 % 2**32) for number in range(12_000))


def records(values: list[bytes]) -> bytes:
    """Records as they stand in a batch without a codec."""
    new = [NewRecord(b"k%d" % number, value) for number, value in enumerate(values)]
    return bytes(build_batch(new, timestamp_ms=TIMESTAMP_MS))[HEADER_SIZE:]


FEW = records([b"one" * 10, b"two" * 12, b"three" * 12])
MANY = records([bytes([65 + number % 26]) * 9_000 + b"%d" % number for number in range(40)])
HARD = records([NOISE[at : at + 16_000] for at in (0, 16_000, 32_000)])
EMPTY = records([])
CONTENTS = {FEW: 3, MANY: 40, HARD: 3}


def rows() -> list[Row]:
    """All rows. The payloads depend on the libraries that compress: the recorded ones count."""
    found = [*_plain(), *_gzip(), *_lz4(), *_snappy(), *_zstd()]
    assert len({row.name for row in found}) == len(found)
    return found


def _plain() -> Iterator[Row]:
    for codec in (5, 6, 7):
        yield Row(f"codec {codec}", codec, FEW, 3)
    yield Row("no codec, one byte behind the records", NONE, FEW + b"\0", 3)
    for codec, name in ((GZIP, "gzip"), (SNAPPY, "snappy"), (LZ4, "lz4"), (ZSTD, "zstd")):
        yield Row(f"{name}: no bytes, three records", codec, b"", 3)
        yield Row(f"{name}: no bytes, no records", codec, b"", 0)
        packed = {GZIP: gzip.compress, SNAPPY: xerial, LZ4: lz4, ZSTD: zstandard.ZstdCompressor().compress}[codec]
        yield Row(f"{name}: usual", codec, packed(FEW), 3)
        yield Row(f"{name}: usual, long", codec, packed(MANY), 40)
        yield Row(f"{name}: usual, hardly compressible", codec, packed(HARD), 3)
        yield Row(f"{name}: one byte behind the records", codec, packed(FEW + b"\0"), 3)
        yield Row(f"{name}: a record more than the batch counts", codec, packed(FEW), 2)
        yield Row(f"{name}: a record less than the batch counts", codec, packed(FEW), 4)
        yield Row(f"{name}: the records uncompressed", codec, FEW, 3)
        yield Row(f"{name}: empty content, no records", codec, packed(b""), 0)
        for cut in (1, 4, 8, 9, 20):
            yield Row(f"{name}: cut by {cut}", codec, packed(FEW)[:-cut], 3)
        yield Row(f"{name}: long, cut in the middle", codec, packed(MANY)[:-700], 40)
        for tail_name, tail in (("a zero", b"\0"), ("three letters", b"xyz"), ("ten zeros", bytes(10))):
            yield Row(f"{name}: {tail_name} behind the end", codec, packed(FEW) + tail, 3)
        for count in (100, 20_000):
            yield Row(f"{name}: {count} zeros behind the end", codec, packed(FEW) + bytes(count), 3)
            yield Row(f"{name}: {count} letters behind the end", codec, packed(FEW) + b"x" * count, 3)
        yield Row(f"{name}: half a record in each of two", codec, packed(FEW[:60]) + packed(FEW[60:]), 3)
        yield Row(f"{name}: all twice", codec, packed(FEW) * 2, 3)
        yield Row(f"{name}: an empty one before", codec, packed(b"") + packed(FEW), 3)
        yield Row(f"{name}: an empty one behind", codec, packed(FEW) + packed(b""), 3)
        yield Row(
            f"{name}: fifty", codec, b"".join(packed(MANY[at : at + 7_300]) for at in range(0, len(MANY), 7_300)), 40
        )
        yield Row(f"{name}: two, the second cut", codec, packed(FEW[:60]) + packed(FEW[60:])[:-3], 3)
        yield Row(f"{name}: two, the second cut in its head", codec, packed(FEW) + packed(FEW)[:6], 3)


def member(content: bytes, flags: int = 0, extra: bytes = b"", method: int = 8, level: int = 6) -> bytes:
    """A member of gzip with these bytes behind its fixed head."""
    packer = zlib.compressobj(level, wbits=-15)
    deflated = packer.compress(content) + packer.flush()
    head = b"\x1f\x8b" + bytes([method, flags]) + bytes(6) + extra
    return head + deflated + struct.pack("<II", zlib.crc32(content), len(content))


def _gzip() -> Iterator[Row]:
    def row(name: str, payload: bytes, count: int = 3) -> Row:
        return Row(f"gzip: {name}", GZIP, payload, count)

    sound, first, second = member(FEW), member(FEW[:60]), member(FEW[60:])
    yield row("with a name", member(FEW, 8, b"a.txt\0"))
    yield row("with a comment", member(FEW, 16, b"hello\0"))
    yield row("with an extra field", member(FEW, 4, b"\4\0abcd"))
    yield row("with an extra field longer than the rest", member(FEW, 4, b"\xff\xffabcd"))
    every = b"\4\0abcd" + b"name\0" + b"comment\0"
    right = zlib.crc32(b"\x1f\x8b\x08\x1e" + bytes(6) + every) & 0xFFFF
    yield row("with all fields and a CRC of the head", member(FEW, 30, every + struct.pack("<H", right)))
    yield row("with a wrong CRC of the head", member(FEW, 30, every + struct.pack("<H", right ^ 1)))
    yield row("the second member with a wrong CRC of the head", first + member(FEW[60:], 2, b"ab"))
    yield row("marked as text", member(FEW, 1))
    for bit in (32, 64, 128):
        yield row(f"with the reserved flag {bit}", member(FEW, bit))
    yield row("with another method", member(FEW, method=7))
    for name, at in (("CRC", -8), ("size", -4)):
        broken = bytearray(sound)
        broken[at] ^= 1
        yield row(f"with a wrong {name}", bytes(broken))
        broken = bytearray(member(FEW[:60]))
        broken[at] ^= 1
        yield row(f"two, the first with a wrong {name}", bytes(broken) + second)
        broken = bytearray(member(FEW[60:]))
        broken[at] ^= 1
        yield row(f"two, the second with a wrong {name}", first + bytes(broken))
        broken = bytearray(member(MANY))
        broken[at] ^= 1
        yield row(f"long, with a wrong {name}", bytes(broken), 40)
    yield row("a member of no content between two", first + member(b"") + second)
    yield row("a hundred members of no content behind", sound + member(b"") * 100)
    for size in (7, 8, 17, 18, 19, 20, 25, 40):
        yield row(f"{size} bytes of zeros behind", sound + bytes(size))
        yield row(f"{size} bytes behind that begin a member", sound + (GZIP_HEAD + b"\3\0" + bytes(30))[:size])
        yield row(
            f"{size} bytes behind that begin a member of a block", sound + (GZIP_HEAD + b"\x73" + bytes(30))[:size]
        )
        yield row(f"{size} bytes behind that begin a head only", sound + (b"\x1f\x8b" + b"x" * 40)[:size])
    yield row("another method in the second member", first + member(FEW[60:], method=7))
    yield row("all there, another method in a second member", sound + member(FEW, method=7))
    stored = zlib.compressobj(level=0, wbits=31)
    yield row("stored", stored.compress(HARD) + stored.flush())
    hard = member(HARD)
    for over in (-30, -19, -9, -1, 0, 1, 9, 19, 30):
        cut = HARD_CUT + over - len(member(b"x", level=0)) + 1
        first, second = member(HARD[:cut], level=0), member(HARD[cut:], level=0)
        yield row(f"the second member at {over} of the third 8 KiB", first + second)
        yield row(
            f"a head only behind, at {over} of the third 8 KiB", ending_at(HARD_CUT + over) + GZIP_HEAD + b"\3\0", 1
        )
    yield row("hard, begins a member behind", hard + GZIP_HEAD + b"\3\0")
    yield row("zlib instead", zlib.compress(FEW))
    yield row("deflate instead", zlib.compress(FEW)[2:-4])


# The JDK's buffer begins behind the fixed head.
HARD_CUT = 10 + 2 * 8_192


def ending_at(size: int) -> bytes:
    """A member of one record that is so long."""
    less = size - len(member(b"x", level=0)) + 1
    content = next(found for n in range(less - 20, less) if len(found := records([HARD[:n]])) == less)
    return member(content, level=0)


def lz4_block(content: bytes) -> bytes:
    """A block with its size, compressed whatever that takes."""
    packed = bytes(cramjam.lz4.compress_block(content, store_size=False))
    return struct.pack("<I", len(packed)) + packed


def raw_block(content: bytes) -> bytes:
    """A block that is not compressed."""
    return struct.pack("<I", len(content) | 0x80000000) + content


def lz4_head(flags: int = 0x60, block: int = 0x40, size: int | None = None) -> bytes:
    """Magic, descriptor and its checksum."""
    descriptor = bytes([flags | (0 if size is None else 8), block])
    descriptor += b"" if size is None else struct.pack("<Q", size)
    return LZ4_MAGIC + descriptor + bytes([descriptor_checksum(descriptor)])


def lz4(content: bytes) -> bytes:
    """A frame of blocks of 64 KiB, as Kafka's Java producer writes it."""
    blocks = b"".join(lz4_block(content[at : at + 65_536]) for at in range(0, len(content), 65_536))
    return lz4_head() + blocks + LZ4_END


def _lz4() -> Iterator[Row]:

    def row(name: str, payload: bytes, count: int = 3) -> Row:
        return Row(f"lz4: {name}", LZ4, payload, count)

    def of(content: bytes, **options: object) -> bytes:
        return frame.compress(content, **({"block_linked": False, "store_size": False} | options))

    def spoil(content: bytes, at: int) -> bytes:
        broken = bytearray(content)
        broken[at] ^= 1
        return bytes(broken)

    sound = lz4_head() + lz4_block(FEW) + LZ4_END
    yield row("wrong checksum of the head", spoil(sound, 6))
    yield row("linked blocks", of(MANY, block_linked=True), 40)
    yield row("one block, said to be linked", of(FEW, block_linked=True))
    yield row("content size", of(FEW, store_size=True))
    yield row("content size that is wrong", lz4_head(size=len(FEW) + 1) + lz4_block(FEW) + LZ4_END)
    yield row("content size of gigabytes", lz4_head(size=1 << 40) + lz4_block(FEW) + LZ4_END)
    yield row("content size, cut in it", lz4_head(size=len(FEW))[:10])
    yield row("content checksum of one block", of(FEW, content_checksum=True))
    yield row("content checksum of many blocks", of(MANY, content_checksum=True), 40)
    yield row("wrong content checksum", spoil(of(FEW, content_checksum=True), -1))
    yield row("wrong content checksum of many blocks", spoil(of(MANY, content_checksum=True), -1), 40)
    yield row("no content checksum where one is named", of(FEW, content_checksum=True)[:-4])
    yield row("half a content checksum where one is named", of(FEW, content_checksum=True)[:-2])
    yield row("block checksums", of(MANY, block_checksum=True), 40)
    yield row("wrong block checksum", spoil(of(FEW, block_checksum=True), -5))
    yield row("both checksums", of(MANY, block_checksum=True, content_checksum=True), 40)
    yield row("both checksums, the content's wrong", spoil(of(FEW, block_checksum=True, content_checksum=True), -1))
    yield row("block checksums of blocks that are not compressed", of(HARD, block_checksum=True))
    yield row("no end mark", sound[:-4])
    yield row("no end mark, many blocks", lz4(MANY)[:-4], 40)
    yield row("half an end mark", sound[:-2])
    yield row("an end mark with its highest bit set", sound[:-1] + b"\x80")
    yield row("a head only", lz4_head())
    yield row("no blocks", lz4_head() + LZ4_END)
    yield row("a skippable frame before", SKIPPABLE + sound)
    yield row("a skippable frame behind", sound + SKIPPABLE)
    yield row("a legacy frame", b"\x02\x21\x4c\x18" + lz4_block(FEW))
    yield row("no magic", sound[4:])
    yield row("block not compressed", lz4_head() + raw_block(FEW) + LZ4_END)
    yield row("blocks compressed and not", lz4_head() + lz4_block(FEW[:60]) + raw_block(FEW[60:]) + LZ4_END)
    yield row("a block of no content before", lz4_head() + lz4_block(b"") + lz4_block(FEW) + LZ4_END)
    yield row(
        "a block of no content between",
        lz4_head() + lz4_block(FEW[:60]) + lz4_block(b"") + lz4_block(FEW[60:]) + LZ4_END,
    )
    yield row("a block of no content behind", lz4_head() + lz4_block(FEW) + lz4_block(b"") + LZ4_END)
    yield row("a block that is damaged", spoil(sound, 11))
    yield row("a block that overruns", lz4_head() + struct.pack("<I", 5_000) + lz4_block(FEW)[4:] + LZ4_END)
    for block in (0x00, 0x10, 0x30, 0x40, 0x50, 0x60, 0x70, 0xC0, 0x41):
        yield row(f"blocks of the size {block:#04x}", lz4_head(block=block) + lz4_block(FEW) + LZ4_END)
    yield row("blocks of 4 MiB", lz4_head(block=0x70) + lz4_block(MANY) + LZ4_END, 40)
    yield row("a block that holds more than it may", lz4_head() + lz4_block(MANY) + LZ4_END, 40)
    yield row("a block, not compressed, that is larger than it may be", lz4_head() + raw_block(MANY) + LZ4_END, 40)
    yield row("a block, not compressed, as large as it may be", lz4_head(block=0x50) + raw_block(HARD) + LZ4_END)
    for flags in (0x00, 0x20, 0x40, 0x61, 0x62, 0xA0, 0xE0):
        yield row(f"with the flags {flags:#04x}", lz4_head(flags) + lz4_block(FEW) + LZ4_END)
    yield row("with a dictionary", LZ4_MAGIC + _dictionary() + lz4_block(FEW) + LZ4_END)
    yield row("two frames, the second with garbage", sound + sound[:4] + b"garbage")


def _dictionary() -> bytes:
    descriptor = bytes([0x61, 0x40]) + struct.pack("<I", 7)
    return descriptor + bytes([descriptor_checksum(descriptor)])


def chunk(content: bytes) -> bytes:
    """A chunk of the framing of snappy-java."""
    packed = bytes(cramjam.snappy.compress_raw(content))
    return struct.pack(">i", len(packed)) + packed


def xerial_head(version: int = 1, compatible: int = 1) -> bytes:
    """Magic and versions."""
    return XERIAL + struct.pack(">ii", version, compatible)


def xerial(content: bytes) -> bytes:
    """Chunks of 32 KiB behind a head."""
    return xerial_head() + b"".join(chunk(content[at : at + 32_768]) for at in range(0, len(content), 32_768))


def _snappy() -> Iterator[Row]:
    def row(name: str, payload: bytes, count: int = 3) -> Row:
        return Row(f"snappy: {name}", SNAPPY, payload, count)

    raw = bytes(cramjam.snappy.compress_raw(FEW))
    yield row("raw", raw)
    yield row("raw, long", bytes(cramjam.snappy.compress_raw(MANY)), 40)
    yield row("raw, hardly compressible", bytes(cramjam.snappy.compress_raw(HARD)))
    for cut in (1, 10):
        yield row(f"raw, cut by {cut}", raw[:-cut])
    for size in (1, 4, 100):
        yield row(f"raw, {size} zeros behind", raw + bytes(size))
        yield row(f"raw, {size} letters behind", raw + b"x" * size)
    yield row("raw, twice", raw * 2)
    yield row("raw, a wrong size", bytes([raw[0] ^ 1]) + raw[1:])
    yield row("raw of no content", b"\0", 0)
    yield row("raw, a size of gigabytes", b"\xff\xff\xff\xff\x0f" + raw[2:])
    yield row("raw, a size beyond 32 bits", b"\xff\xff\xff\xff\x7f" + raw[2:])
    for versions in ((0, 0), (0, 1), (1, 0), (1, 2), (2, 1), (2, 2), (100, 100), (-1, 1), (1, -1), (1 << 24, 1 << 24)):
        yield row(f"xerial of the versions {versions}", xerial_head(*versions) + chunk(FEW))
    yield row("a head only", xerial_head())
    yield row("half a head", xerial_head()[:12])
    yield row("half a head, a chunk", XERIAL + chunk(FEW))
    yield row("a wrong magic", b"\x82SNAPPX\0" + xerial_head()[8:] + chunk(FEW))
    yield row("a wrong first byte", b"\x81" + xerial(FEW)[1:])
    yield row("several chunks", xerial_head() + chunk(FEW[:60]) + chunk(FEW[60:100]) + chunk(FEW[100:]))
    yield row("a chunk of no content between", xerial_head() + chunk(FEW[:60]) + chunk(b"") + chunk(FEW[60:]))
    yield row("a chunk of no content before", xerial_head() + chunk(b"") + chunk(FEW))
    yield row("a chunk of no content behind", xerial_head() + chunk(FEW) + chunk(b""))
    yield row("a chunk of no bytes between", xerial_head() + chunk(FEW[:60]) + bytes(4) + chunk(FEW[60:]))
    yield row("a chunk of no bytes behind", xerial_head() + chunk(FEW) + bytes(4))
    for size in (1, 2, 3):
        yield row(f"{size} bytes of a chunk's size behind", xerial(FEW) + b"\0\0\0\7"[:size])
    yield row("a negative size of a chunk", xerial_head() + chunk(FEW) + b"\xff\xff\xff\xff")
    yield row("a chunk that overruns", xerial_head() + chunk(FEW)[:-5])
    yield row("all there, a chunk that overruns", xerial(FEW) + chunk(FEW)[:-5])
    yield row("a chunk with bytes behind its block", xerial_head() + struct.pack(">i", len(raw) + 3) + raw + b"abc")
    yield row(
        "a chunk with a wrong size in it", xerial_head() + struct.pack(">i", len(raw)) + bytes([raw[0] ^ 1]) + raw[1:]
    )
    yield row("a head of version 0 between", xerial(FEW[:60]) + xerial_head(0, 0) + chunk(FEW[60:]))
    yield row("a head of version 2 between", xerial(FEW[:60]) + xerial_head(2, 2) + chunk(FEW[60:]))
    yield row("a head behind", xerial(FEW) + xerial_head())
    yield row("half a head behind", xerial(FEW) + xerial_head()[:9])
    yield row("two heads in a row", xerial_head() + xerial(FEW))
    yield row(
        "a head of a wrong magic between", xerial(FEW[:60]) + b"\x82SNAPPX\0" + xerial_head()[8:] + chunk(FEW[60:])
    )
    yield row("a chunk of 300 KB", xerial_head() + chunk(MANY), 40)
    yield row("a chunk that claims gigabytes", xerial_head() + struct.pack(">i", 8) + b"\xff\xff\xff\xff\x0fabc")


def zstd_block(content: bytes, kind: int = 0, *, last: bool = True, size: int | None = None) -> bytes:
    """A block of `kind` 0 (raw), 1 (RLE), 2 (compressed) or 3 (reserved)."""
    return struct.pack("<I", last | kind << 1 | (len(content) if size is None else size) << 3)[:3] + content


def zstd_head(window: int = 0x60, descriptor: int = 0, more: bytes = b"") -> bytes:
    """The head of a frame; `window` is log 22 unless given."""
    return ZSTD_MAGIC + bytes([descriptor, window]) + more


def _zstd() -> Iterator[Row]:
    def row(name: str, payload: bytes, count: int = 3) -> Row:
        return Row(f"zstd: {name}", ZSTD, payload, count)

    def of(content: bytes, **options: object) -> bytes:
        return zstandard.ZstdCompressor(**options).compress(content)

    sound = of(FEW)
    spoiled = bytearray(of(FEW, write_checksum=True))
    yield row("with a checksum", bytes(spoiled))
    spoiled[-1] ^= 1
    yield row("with a wrong checksum", bytes(spoiled))
    yield row("with half a checksum", bytes(spoiled[:-2]))
    yield row("long, with a checksum", of(MANY, write_checksum=True), 40)
    yield row("without content size", of(FEW, write_content_size=False))
    yield row("long, without content size", of(MANY, write_content_size=False), 40)
    yield row("a skippable frame before", SKIPPABLE + sound)
    yield row("a skippable frame behind", sound + SKIPPABLE)
    yield row("a skippable frame between", of(FEW[:60]) + SKIPPABLE + of(FEW[60:]))
    yield row("a skippable frame that overruns", sound + SKIPPABLE[:-1])
    yield row("a skippable frame only, no records", SKIPPABLE, 0)
    yield row("a skippable frame only", SKIPPABLE)
    for log in (10, 20, 23, 26, 27, 28, 31, 41):
        yield row(f"a window of 2^{log}", zstd_head((log - 10) << 3) + zstd_block(FEW))
    yield row("a window of 2^27 and an eighth", zstd_head((17 << 3) | 1) + zstd_block(FEW))
    yield row("a window of 2^26 and seven eighths", zstd_head((16 << 3) | 7) + zstd_block(FEW))
    yield row("a window of 1 KiB, a block of 3 KiB", zstd_head(0) + zstd_block(MANY[:3_000]), 1)
    yield row("a dictionary id", zstd_head(descriptor=1, more=b"\7") + zstd_block(FEW))
    yield row("a dictionary id of zero", zstd_head(descriptor=1, more=b"\0") + zstd_block(FEW))
    yield row("the reserved bit", zstd_head(descriptor=8) + zstd_block(FEW))
    yield row("the unused bit", zstd_head(descriptor=16) + zstd_block(FEW))
    yield row("a content size that is too small", ZSTD_MAGIC + bytes([0x20, len(FEW) - 1]) + zstd_block(FEW))
    yield row("a content size that is too large", ZSTD_MAGIC + bytes([0x20, len(FEW) + 1]) + zstd_block(FEW))
    yield row(
        "a content size of gigabytes", ZSTD_MAGIC + bytes([0xC0, 0x60]) + struct.pack("<Q", 1 << 40) + zstd_block(FEW)
    )
    yield row("several raw blocks", zstd_head() + zstd_block(FEW[:60], last=False) + zstd_block(FEW[60:]))
    yield row(
        "a raw block of no content between",
        zstd_head() + zstd_block(FEW[:60], last=False) + zstd_block(b"", last=False) + zstd_block(FEW[60:]),
    )
    yield row("no last block", zstd_head() + zstd_block(FEW, last=False))
    yield row("a reserved block", zstd_head() + zstd_block(FEW, 3))
    yield row("a block that is damaged", zstd_head() + zstd_block(FEW, 2))
    yield row("a frame of version 0.7", b"\x27" + sound[1:])
    yield row("the magic only", ZSTD_MAGIC)
    yield row("all there, the magic behind", sound + ZSTD_MAGIC)
    yield row("all there, a damaged frame behind", sound + ZSTD_MAGIC + b"garbage")
