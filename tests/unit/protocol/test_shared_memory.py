"""Many connections that receive into the same memory, one at a time."""

import random
import struct

import pytest

from ottla.protocol.requests import frames
from ottla.protocol.requests.frames import ReceiveBuffer, SharedMemory


def encode_frame(payload):
    return struct.pack(">i", len(payload)) + payload


class Line:
    """A connection whose data arrives in pieces. `got` holds the frames that it has received."""

    def __init__(self, shared, hold=0.0):
        self.buffer = ReceiveBuffer(shared=shared)
        self.hold = hold
        self.got = []
        self.held = []

    def receive(self, data, rng):
        room = self.buffer.get_buffer(65536)
        assert len(room) > 0
        taken = min(len(room), len(data))
        room[:taken] = data[:taken]
        self.buffer.commit(taken)
        while (frame := self.buffer.next_frame()) is not None:
            if rng.random() < self.hold:
                self.held.append((frame, bytes(frame)))
                self.got.append(bytes(frame))
                break  # one at a time, as a connection
            self.got.append(bytes(frame))
            self.buffer.release()
        self.buffer.return_shared_memory()
        return data[taken:]

    def let_go(self):
        for frame, content in self.held:
            assert bytes(frame) == content
            self.buffer.release()
        self.held.clear()
        while (frame := self.buffer.next_frame()) is not None:
            self.got.append(bytes(frame))
            self.buffer.release()
        self.buffer.return_shared_memory()


@pytest.mark.parametrize("seed", range(20))
def test_connections_on_shared_memory_receive_only_their_own_frames(seed):
    rng = random.Random(seed)
    shared = SharedMemory()
    lines, streams, sent = [], [], []
    for number in range(8):
        sizes = [rng.choice((1, 20, 300, 5000, 70_000, 300_000)) for _ in range(rng.randrange(1, 40))]
        payloads = [bytes([number]) * (size - 1) + rng.randbytes(1) for size in sizes]
        sent.append(payloads)
        streams.append(memoryview(b"".join(map(encode_frame, payloads))))
        lines.append(Line(shared, hold=rng.choice((0.0, 0.3))))
    while any(streams):
        number = rng.randrange(len(lines))
        line = lines[number]
        if rng.random() < 0.1:
            shared.most_bytes = rng.choice((frames.LITTLE_BYTES, frames.INITIAL_BYTES))
        if line.held and rng.random() < 0.5:
            line.let_go()
        size = rng.choice((1, 3, 50, 4000, 60_000, 1_000_000))
        streams[number] = memoryview(bytes(line.receive(streams[number][:size], rng)) + bytes(streams[number][size:]))
    for line in lines:
        line.let_go()
    assert [line.got for line in lines] == sent


def test_an_idle_connection_holds_no_receive_memory():
    line = Line(SharedMemory())
    for _ in range(3):
        line.receive(encode_frame(b"request") * 10, random.Random(1))
        assert line.buffer.capacity_bytes == 0


def test_a_part_of_a_small_frame_takes_little_memory_and_gives_it_back():
    line, rng = Line(SharedMemory()), random.Random(1)
    request = encode_frame(bytes(400))
    line.receive(request[:20], rng)
    assert 0 < line.buffer.capacity_bytes <= frames.SMALLEST_BYTES
    rest = request[20:]
    while rest:
        assert 0 < line.buffer.capacity_bytes <= 2 * len(request)
        rest = line.receive(rest, rng)
    assert line.got == [bytes(400)]
    assert line.buffer.capacity_bytes == 0


def test_while_one_must_wait_little_is_received_of_the_next_ones():
    shared = SharedMemory()
    first, second = ReceiveBuffer(shared=shared), ReceiveBuffer(shared=shared)
    for buffer, received in ((first, frames.INITIAL_BYTES), (second, frames.LITTLE_BYTES)):
        view = buffer.get_buffer()
        assert len(view) == buffer.most_ahead_bytes == received
        view[:] = encode_frame(bytes(1_000_000))[:received]
        buffer.commit(received)
        assert buffer.next_frame() is None
        buffer.may_grow = False
        buffer.shrink()
        buffer.return_shared_memory()
        assert received < buffer.capacity_bytes <= received + frames.SMALLEST_BYTES


def test_the_rest_of_a_small_frame_is_received_at_once():
    line, rng = Line(SharedMemory()), random.Random(1)
    request = encode_frame(bytes(400))
    line.receive(request[:100], rng)
    assert line.receive(request[100:], rng) == b""
    assert line.buffer.capacity_bytes == 0


def test_memory_of_large_frames_is_kept_until_it_is_trimmed():
    line, rng = Line(SharedMemory()), random.Random(1)
    rest = memoryview(encode_frame(bytes(1_000_000)))
    while rest:
        rest = line.receive(rest, rng)
    assert line.buffer.capacity_bytes > 1_000_000
    line.buffer.trim()
    assert line.buffer.capacity_bytes == 0


def test_a_receive_that_came_to_nothing_leaves_the_memory_to_others():
    shared = SharedMemory()
    first, second = Line(shared), Line(shared)
    first.buffer.get_buffer()  # and nothing was there
    second.receive(encode_frame(b"second"), random.Random(1))
    first.receive(encode_frame(b"first"), random.Random(1))
    assert (first.got, second.got) == ([b"first"], [b"second"])


def test_a_receive_inside_another_has_memory_of_its_own():
    shared = SharedMemory()
    outer, inner = ReceiveBuffer(shared=shared), Line(shared)
    outer.get_buffer()[:9] = encode_frame(b"outer")
    outer.commit(9)
    inner.receive(encode_frame(b"inner"), random.Random(1))
    assert bytes(outer.next_frame()) == b"outer"
    assert inner.got == [b"inner"]
    outer.release()
    outer.return_shared_memory()


def test_frames_that_are_held_for_long_do_not_hold_the_memory_of_all():
    shared = SharedMemory()
    rng = random.Random(1)
    lines = [Line(shared, hold=1.0) for _ in range(2000)]
    for number, line in enumerate(lines):
        line.receive(encode_frame(b"%04d" % number * 100), rng)
        assert line.buffer.capacity_bytes == 0
    for line in lines:
        line.let_go()
    assert [line.got for line in lines] == [[b"%04d" % number * 100] for number in range(2000)]
