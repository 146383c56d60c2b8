"""The order of buffers and slices, and the release of unsent ones."""

import logging
import struct

import pytest

from ottla.broker.api.request import Encoded
from ottla.broker.outbox import EDGE_BYTES, PIECE_BYTES
from ottla.broker.ports.slices import CutShort
from ottla.broker.turns import SHARE_US, Wait
from tests.unit.broker.peer import Peer, echo, heartbeat

LARGE = 3 * PIECE_BYTES


class Part:
    """A slice of a file. `alive` counts the slices that are held."""

    alive = 0

    def __init__(self, content, most=None):
        self.content = content
        self.most = len(content) if most is None else most
        Part.alive += 1

    def __del__(self):
        Part.alive -= 1

    def __len__(self):
        return len(self.content)

    def take(self, size_bytes):
        if self.most <= 0:
            raise CutShort("nothing is left")
        taken, self.content = self.content[:size_bytes], self.content[size_bytes:]
        self.most -= len(taken)
        return taken


@pytest.fixture(autouse=True)
def check_parts():
    Part.alive = 0
    yield
    assert Part.alive == 0


def make_handler(*more):
    """Return a handler that answers with a slice between two buffers."""

    async def handle(broker, request):
        number = struct.pack(">i", request.correlation_id)
        return Encoded([b"<" + number, Part(b"x" * LARGE, *more), b">"])

    return handle


def whole(correlation_id):
    return b"<" + struct.pack(">i", correlation_id) + b"x" * LARGE + b">"


def test_a_slice_is_sent_in_pieces_between_its_buffers():
    peer = Peer(make_handler())
    peer.receive(heartbeat(1))
    assert [len(piece) for piece in peer.transport.written] == [5, *[PIECE_BYTES] * 3, 1]


def test_the_end_of_a_slice_leaves_with_what_follows_it():
    async def handle(broker, request):
        return Encoded([b"<", Part(b"x" * (PIECE_BYTES + 100)), b"-", Part(b"y" * EDGE_BYTES), b">"])

    peer = Peer(handle)
    peer.receive(heartbeat(1))
    assert [len(piece) for piece in peer.transport.written] == [1, PIECE_BYTES, 101, EDGE_BYTES + 1]


def test_requests_are_not_read_while_the_socket_is_full():
    peer = Peer(make_handler())
    peer.transport.takes = 5 + PIECE_BYTES
    peer.receive(heartbeat(1))
    assert len(peer.sent) == 5 + PIECE_BYTES
    assert not peer.transport.reading
    peer.transport.takes = None
    peer.connection.resume_writing()
    assert peer.sent == whole(1)
    assert peer.transport.reading


def test_the_next_request_is_served_when_the_slice_is_sent():
    peer = Peer(make_handler())
    peer.receive(heartbeat(1) + heartbeat(2) + heartbeat(3))
    assert peer.sent == whole(1)
    while peer.next_turn():
        pass
    assert peer.sent == whole(1) + whole(2) + whole(3)


def test_a_fast_reader_is_sent_a_large_reply_over_several_turns():
    async def handle(broker, request):
        return Encoded([b"<", Part(b"x" * 100 * PIECE_BYTES), b">"])

    peer = Peer(handle)
    peer.receive(heartbeat(1))
    assert peer.turns.charged_us < 2 * SHARE_US
    assert len(peer.sent) < 40 * PIECE_BYTES
    turns = 0
    while peer.next_turn():
        turns += 1
    assert len(peer.sent) == 2 + 100 * PIECE_BYTES
    assert turns > 2


def test_a_client_that_hangs_up_half_way_lets_go_of_the_slice():
    peer = Peer(make_handler())
    peer.transport.takes = 10
    peer.receive(heartbeat(1))
    assert Part.alive == 1
    peer.connection.connection_lost(ConnectionResetError())
    assert Part.alive == 0


def test_a_client_that_never_reads_is_cut_off_when_it_was_idle_for_long():
    peer = Peer(make_handler())
    peer.transport.takes = 10
    peer.receive(heartbeat(1))
    for _ in range(3):
        peer.connection.sweep(2)
    assert peer.transport.aborted
    assert Part.alive == 0


def test_a_client_that_has_sent_all_still_gets_the_whole_slice():
    peer = Peer(make_handler())
    peer.transport.takes = 10
    peer.receive(heartbeat(1))
    assert peer.connection.eof_received()
    peer.transport.takes = None
    peer.connection.resume_writing()
    assert peer.sent == whole(1)
    assert peer.transport.closed


def test_a_stop_waits_until_the_slice_is_sent():
    peer = Peer(make_handler())
    peer.transport.takes = 10
    peer.receive(heartbeat(1))
    peer.connection.drain()
    assert not peer.transport.closed
    peer.transport.takes = None
    peer.connection.resume_writing()
    assert peer.sent == whole(1)
    assert peer.transport.closed


def test_a_stop_that_waits_no_longer_lets_go_of_the_slice():
    peer = Peer(make_handler())
    peer.transport.takes = 10
    peer.receive(heartbeat(1))
    peer.connection.close()
    assert peer.transport.closed
    assert Part.alive == 0


def test_a_file_that_was_cut_short_closes_the_connection_with_a_line(caplog):
    peer = Peer(make_handler(1))
    with caplog.at_level(logging.ERROR):
        peer.receive(heartbeat(1))
    assert peer.transport.aborted
    assert "Closing the connection of 10.0.0.1:4711: its reply cannot be read from the log" in caplog.text
    caplog.clear()


def test_a_pending_reply_frees_its_slices_when_the_connection_closes():
    waits = []

    async def handle(broker, request):
        waits.append(Wait(broker.turns))
        part = Part(b"x")
        await waits[0]
        return Encoded([part])

    peer = Peer(handle)
    peer.receive(heartbeat(1))
    peer.connection.connection_lost(None)
    assert Part.alive == 0
    peer.turns.event(lambda: waits[0].wake(None))
    assert not peer.sent


def test_a_small_reply_waits_while_the_socket_is_full():
    peer = Peer(echo)
    peer.connection.pause_writing()
    peer.receive(heartbeat(1))
    assert not peer.sent
    peer.connection.resume_writing()
    assert peer.sent == struct.pack(">i", 1)
