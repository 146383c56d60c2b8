"""Frames, headers and the receive buffer."""

import random
import struct

import pytest

from ottla.protocol.errors import ProtocolError
from ottla.protocol.requests import frames
from ottla.protocol.requests.frames import ReceiveBuffer, RequestHeader, parse_request_header


def encode_frame(payload):
    return struct.pack(">i", len(payload)) + payload


def receive(buffer, data, step=None):
    """Feed `data` as a socket would, in pieces of at most `step` bytes."""
    data = memoryview(data)
    while data:
        room = buffer.get_buffer(65536)
        assert len(room) > 0
        taken = min(len(room), len(data), step or len(data))
        room[:taken] = data[:taken]
        buffer.commit(taken)
        data = data[taken:]


def frames_of(buffer):
    while (frame := buffer.next_frame()) is not None:
        yield bytes(frame)
        buffer.release()


def test_frames_are_intact_for_any_size_of_received_pieces():
    rng = random.Random(7)
    payloads = [rng.randbytes(rng.choice((1, 3, 100, 5000, 70_000))) for _ in range(60)]
    stream = b"".join(map(encode_frame, payloads))
    for step in (1000, 4096, 65536, len(stream)):
        buffer, got = ReceiveBuffer(), []
        for start in range(0, len(stream), step):
            receive(buffer, stream[start : start + step])
            got += frames_of(buffer)
        assert got == payloads
        assert buffer.buffered_bytes == 0


def test_single_bytes_make_a_frame():
    buffer = ReceiveBuffer(small_limit_bytes=100)
    for byte in encode_frame(b"abcdefgh"):
        assert buffer.next_frame() is None
        receive(buffer, bytes([byte]))
    assert bytes(buffer.next_frame()) == b"abcdefgh"


@pytest.mark.parametrize("size", [-1, 0, -(2**31), 1001, 2**31 - 1, 0x47455420])
def test_size_outside_the_limit_is_refused_before_memory_is_taken(size):
    buffer = ReceiveBuffer(limit_bytes=1000)
    receive(buffer, struct.pack(">i", size))
    with pytest.raises(ProtocolError, match="frame size"):
        buffer.next_frame()
    assert buffer.capacity_bytes == frames.INITIAL_BYTES


def test_large_request_is_refused_by_its_api_key_unless_it_is_produce():
    buffer = ReceiveBuffer(small_limit_bytes=1_000_000)
    receive(buffer, struct.pack(">ih", 1_000_001, 3))
    with pytest.raises(ProtocolError, match="API 3"):
        buffer.next_frame()
    produce = ReceiveBuffer(small_limit_bytes=1_000_000)
    receive(produce, struct.pack(">ih", 1_000_001, 0))
    assert produce.next_frame() is None


def test_memory_follows_received_bytes_not_the_claimed_size():
    buffer = ReceiveBuffer()
    receive(buffer, struct.pack(">i", frames.MAX_FRAME_BYTES) + bytes(2))
    assert buffer.next_frame() is None
    buffer.get_buffer()
    assert buffer.capacity_bytes == frames.INITIAL_BYTES
    for _ in range(8):
        receive(buffer, bytes(1_000_000))
        assert buffer.next_frame() is None
        assert buffer.capacity_bytes <= (frames.GROWTH + 1) * buffer.buffered_bytes


def test_a_large_frame_after_a_held_one_is_not_moved_on_every_receive():
    buffer = ReceiveBuffer()
    receive(buffer, encode_frame(b"held"))
    assert buffer.next_frame() is not None
    memories = set()
    for chunk in [struct.pack(">ih", 5_000_000, 0), bytes(9_997), *[bytes(10_000)] * 499]:
        receive(buffer, chunk)
        assert buffer.next_frame() is None
        memories.add(buffer.capacity_bytes)
    receive(buffer, b"!")
    assert len(buffer.next_frame()) == 5_000_000
    assert len(memories) < 8


def test_a_held_frame_keeps_its_content_while_others_arrive():
    buffer = ReceiveBuffer()
    held = bytes(range(256)) * 150
    receive(buffer, encode_frame(held))
    frame = buffer.next_frame()
    slice_of_frame = frame[100:200]
    for filler in (b"x" * 30_000, b"y" * 60_000, b"z" * 500_000):
        receive(buffer, encode_frame(filler), step=20_000)
        other = buffer.next_frame()
        assert bytes(other) == filler
        buffer.release()
    assert bytes(frame) == held
    assert bytes(slice_of_frame) == held[100:200]


def test_memory_is_moved_only_when_no_frame_is_out():
    buffer = ReceiveBuffer()
    receive(buffer, encode_frame(b"a" * 60_000) + encode_frame(b"b" * 5_000)[:2_000])
    frame = buffer.next_frame()
    receive(buffer, encode_frame(b"b" * 5_000)[2_000:])
    assert bytes(frame) == b"a" * 60_000
    assert bytes(buffer.next_frame()) == b"b" * 5_000


def test_memory_shrinks_after_a_huge_frame():
    buffer = ReceiveBuffer()
    receive(buffer, encode_frame(bytes(5_000_000)), step=300_000)
    assert len(buffer.next_frame()) == 5_000_000
    assert buffer.capacity_bytes > 5_000_000
    buffer.release()
    assert buffer.capacity_bytes == frames.INITIAL_BYTES


def test_memory_of_large_frames_is_kept_and_dropped_after_small_ones():
    buffer = ReceiveBuffer()
    for _ in range(5):
        receive(buffer, encode_frame(bytes(1_000_000)))
        assert len(buffer.next_frame()) == 1_000_000
        buffer.release()
    kept = buffer.capacity_bytes
    assert 1_000_000 < kept <= frames.RETAINED_BYTES
    for _ in range(frames.SHRINK_AFTER_FRAMES):
        receive(buffer, encode_frame(b"heartbeat"))
        buffer.next_frame()
        buffer.release()
    assert buffer.capacity_bytes == frames.INITIAL_BYTES


def test_trim_keeps_what_was_received_and_memory_that_is_out():
    buffer = ReceiveBuffer()
    receive(buffer, encode_frame(bytes(1_000_000)) + encode_frame(b"next")[:6])
    frame = buffer.next_frame()
    buffer.trim()
    assert buffer.capacity_bytes > 1_000_000
    del frame
    buffer.release()
    buffer.trim()
    assert buffer.capacity_bytes == frames.INITIAL_BYTES
    receive(buffer, encode_frame(b"next")[6:])
    assert list(frames_of(buffer)) == [b"next"]


def test_release_without_a_frame_is_a_bug():
    with pytest.raises(RuntimeError):
        ReceiveBuffer().release()


def test_header_v1_has_a_nullable_client_id():
    named = struct.pack(">hhih", 3, 1, 77, 4) + b"java" + b"body"
    header, body = parse_request_header(memoryview(named))
    assert header == RequestHeader(3, 1, 77, "java")
    assert bytes(body) == b"body"
    null = struct.pack(">hhih", 3, 1, -5, -1)
    assert parse_request_header(memoryview(null))[0] == RequestHeader(3, 1, -5, "")


def test_header_v2_keeps_the_short_client_id_and_skips_tags():
    tags = b"\x02" + b"\x05\x01x" + b"\x80\x01\x03yyy"
    raw = struct.pack(">hhih", 3, 9, 1, 2) + b"me" + tags + b"body"
    header, body = parse_request_header(memoryview(raw))
    assert header.client_id == "me"
    assert bytes(body) == b"body"


def test_unknown_api_key_still_parses_so_that_it_can_be_named():
    raw = struct.pack(">hhih", 999, 7, 1, 0)
    assert parse_request_header(memoryview(raw))[0] == RequestHeader(999, 7, 1, "")


@pytest.mark.parametrize("version", [1, 9])
def test_every_cut_of_a_header_is_refused(version):
    raw = frames.encode_request_header(RequestHeader(3, version, 1, "client"))
    parse_request_header(memoryview(raw))
    for cut in range(len(raw)):
        with pytest.raises(ProtocolError):
            parse_request_header(memoryview(raw[:cut]))


@pytest.mark.parametrize(
    "tail",
    [
        b"\x41" + b"\x00\x00" * 65,  # 65 tags
        b"\xff\xff\xff\xff\x07",  # 2^31 - 1 tags and nothing after them
        b"\x80\x80\x80\x80\x80\x01",  # a varint of six bytes
        b"\x01\x00\x7f",  # a tag longer than the frame
    ],
)
def test_hostile_header_tags_are_refused(tail):
    raw = struct.pack(">hhih", 18, 99, 1, -1) + tail
    with pytest.raises(ProtocolError):
        parse_request_header(memoryview(raw))


def test_client_id_must_be_utf8_and_not_shorter_than_null():
    with pytest.raises(ProtocolError, match="UTF-8"):
        parse_request_header(memoryview(struct.pack(">hhih", 3, 1, 1, 2) + b"\xff\xfe"))
    with pytest.raises(ProtocolError, match="-2"):
        parse_request_header(memoryview(struct.pack(">hhih", 3, 1, 1, -2)))


def test_response_header_has_tags_in_flexible_versions_but_never_for_api_versions():
    assert frames.response_prefix(3, 8, 5, 10) == struct.pack(">ii", 14, 5)
    assert frames.response_prefix(3, 9, 5, 10) == struct.pack(">ii", 15, 5) + b"\0"
    assert frames.response_prefix(18, 3, 5, 10) == struct.pack(">ii", 14, 5)
