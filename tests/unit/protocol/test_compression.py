import struct
import tracemalloc

import cramjam
import lz4.frame
import pytest
import zstandard

from ottla.protocol import compression as c
from ottla.protocol.errors import ProtocolError

TEXT = b"the castle, the trial, the burrow. " * 3000
CODECS = [c.GZIP, c.SNAPPY, c.LZ4, c.ZSTD]


@pytest.mark.parametrize("codec", [c.NONE, *CODECS])
@pytest.mark.parametrize("content", [b"", b"a", TEXT])
def test_content_survives(codec, content):
    assert c.decompress(c.compress(content, codec), codec, limit_bytes=len(content)) == content


@pytest.mark.parametrize("codec", [c.NONE, *CODECS])
def test_one_byte_above_the_limit_is_too_large(codec):
    with pytest.raises(c.TooLarge):
        c.decompress(c.compress(TEXT, codec), codec, limit_bytes=len(TEXT) - 1)


@pytest.mark.parametrize("codec", CODECS)
def test_bomb_never_holds_much_more_than_the_limit(codec):
    bomb = c.compress(bytes(50_000_000), codec)
    tracemalloc.start()
    try:
        with pytest.raises(c.TooLarge):
            c.decompress(bomb, codec, limit_bytes=1_000_000)
        assert tracemalloc.get_traced_memory()[1] < 2_500_000
    finally:
        tracemalloc.stop()


def test_raw_snappy_as_librdkafka_sends_it_is_read():
    assert c.decompress(bytes(cramjam.snappy.compress_raw(TEXT)), c.SNAPPY, limit_bytes=len(TEXT)) == TEXT


def test_snappy_is_refused_by_the_size_that_it_states():
    for block, error in ((b"\xff\xff\xff\xff\x0fabc", ProtocolError), (snappy_of(bytes(2_000)), c.TooLarge)):
        xerial = c.compress(b"", c.SNAPPY) + struct.pack(">i", len(block)) + block
        for payload in (block, xerial):
            with pytest.raises(ProtocolError) as caught:
                c.decompress(payload, c.SNAPPY, limit_bytes=1000)
            assert type(caught.value) is error


def snappy_of(content):
    return bytes(cramjam.snappy.compress_raw(content))


def test_zstd_with_a_wrong_stated_size_is_refused():
    frame = bytearray(zstandard.ZstdCompressor(write_content_size=True).compress(TEXT))
    assert zstandard.frame_content_size(bytes(frame)) == len(TEXT)
    at = bytes(frame).index(struct.pack("<I", len(TEXT)))
    frame[at : at + 4] = struct.pack("<I", 10)
    with pytest.raises(ProtocolError):
        c.decompress(frame, c.ZSTD, limit_bytes=len(TEXT))


def test_streams_of_other_libraries_are_read():
    sizeless = zstandard.ZstdCompressor(write_content_size=False).compress(TEXT)
    assert c.decompress(sizeless, c.ZSTD, limit_bytes=len(TEXT)) == TEXT
    assert c.decompress(lz4.frame.compress(TEXT, block_linked=False), c.LZ4, limit_bytes=len(TEXT)) == TEXT
    assert lz4.frame.decompress(c.compress(TEXT, c.LZ4)) == TEXT


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_unknown_codec_is_a_protocol_error(codec):
    with pytest.raises(ProtocolError, match=f"compression type {codec}"):
        c.decompress(b"", codec, limit_bytes=10)
    with pytest.raises(ProtocolError, match=f"compression type {codec}"):
        c.compress(b"", codec)


def lz4_of(**options):
    return lz4.frame.compress(TEXT, **({"block_linked": False} | options))


@pytest.mark.parametrize("option", ["content_checksum", "block_checksum", "store_size"])
def test_lz4_frames_with_each_option_of_the_format_are_read(option):
    for chosen in (True, False):
        assert c.decompress(lz4_of(**{option: chosen}), c.LZ4, limit_bytes=len(TEXT)) == TEXT


@pytest.mark.parametrize(
    "frame",
    [
        lz4_of(block_linked=True),  # "Dependent block stream is unsupported"
        b"\x50\x2a\x4d\x18\x04\0\0\0abcd" + lz4_of(),  # a skippable frame
        lz4_of(store_size=False)[:-4],
        lz4_of(content_checksum=True)[:-4],
        b"\x04\x22\x4d\x18\x60",
    ],
)
def test_lz4_that_kafkas_consumers_cannot_read_is_refused(frame):
    with pytest.raises(ProtocolError, match="lz4"):
        c.decompress(frame, c.LZ4, limit_bytes=10 * len(TEXT))


def test_our_lz4_has_independent_blocks():
    assert c.compress(TEXT, c.LZ4)[4] & 0x20


def test_concatenated_xerial_streams_are_read_as_one():
    assert c.decompress(c.compress(TEXT, c.SNAPPY) * 2, c.SNAPPY, limit_bytes=2 * len(TEXT)) == TEXT * 2


@pytest.mark.parametrize("tail", [b"\0\0\0\0", b"\0\0\0\1", b"\xff\xff\xff\xff"])
def test_xerial_blocks_that_overrun_their_stream_are_refused(tail):
    with pytest.raises(ProtocolError, match="snappy block"):
        c.decompress(c.compress(TEXT, c.SNAPPY) + tail, c.SNAPPY, limit_bytes=2 * len(TEXT))
