"""Connections that share a memory budget: large requests and replies wait in turn, and none waits for ever."""

import logging
import random
import socket
import struct

import pytest

from ottla.broker.api.request import Encoded
from ottla.broker.memory import FREE_BYTES
from ottla.broker.turns import Wait
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.requests.produce_wire import decode_produce_request
from tests.unit.broker.peer import Peer, echo, heartbeat

MIB = 1 << 20
BUDGET = 16 * MIB


def produce(size_bytes):
    """Return a Produce request with one batch of `size_bytes` of any content."""
    topic = struct.pack(">h", 1) + b"t"
    partition = struct.pack(">ii", 0, size_bytes) + bytes(size_bytes)
    body = struct.pack(">hhi", -1, -1, 1000) + struct.pack(">i", 1) + topic + struct.pack(">i", 1) + partition
    decode_produce_request(3, memoryview(body))
    payload = struct.pack(">hhih", ApiKey.PRODUCE, 3, 1, -1) + body
    return struct.pack(">i", len(payload)) + payload


class Sender:
    """A client that sends a stream of bytes as long as it is read."""

    def __init__(self, peer, data):
        self.peer = peer
        self.left = memoryview(data)

    def send(self, most_bytes):
        data, self.left = self.left[:most_bytes], self.left[most_bytes:]
        while data and self._is_read() and not self.peer.transport.closed:
            room = self.peer.connection.get_buffer(-1)
            taken = min(len(room), len(data))
            room[:taken] = data[:taken]
            self.peer.connection.buffer_updated(taken)
            data = data[taken:]
        self.left = memoryview(bytes(data) + bytes(self.left)) if data else self.left
        return self._is_read()

    def _is_read(self):
        """Return whether the connection is read, in this pass of the event loop or after others are served."""
        while not self.peer.transport.reading and self.peer.next_turn():
            pass
        return self.peer.transport.reading


def peers_of(count, handle=echo):
    first = Peer(handle, BUDGET)
    return [first, *(Peer(handle, other=first) for _ in range(count - 1))]


def count_bytes(peers):
    memory = peers[0].broker.memory
    return memory.requests.held_bytes + memory.medium.held_bytes, memory.replies.held_bytes


def run(peers):
    while peers[0].next_turn():
        pass


def received_bytes(peers):
    return sum(peer.connection._inbox.capacity_bytes for peer in peers)


def test_many_half_sent_requests_are_all_served_in_the_end():
    peers = peers_of(12)
    senders = [Sender(peer, produce(10 * MIB)) for peer in peers]
    rng = random.Random(1)
    for _ in range(100_000):
        sender = rng.choice(senders)
        if sender.left and sender.peer.transport.reading:
            sender.send(rng.choice((100, 40_000, MIB)))
        run(peers)
        assert received_bytes(peers) < BUDGET
        if not any(sender.left for sender in senders):
            break
    assert [peer.sent for peer in peers] == [struct.pack(">i", 1)] * 12


def test_small_requests_go_ahead_while_large_ones_wait():
    large, other, small = peers = peers_of(3)
    Sender(large, produce(7 * MIB)).send(5 * MIB)
    waiting = Sender(other, produce(7 * MIB))
    assert not waiting.send(7 * MIB)
    small.receive(heartbeat(1))
    run(peers)
    assert small.sent == struct.pack(">i", 1)
    assert received_bytes(peers) < 8 * MIB


def test_a_client_that_stops_half_way_gives_way_when_others_wait(caplog):
    stalled, other = peers = peers_of(2)
    Sender(stalled, produce(7 * MIB)).send(5 * MIB)
    stalled.connection.close_on_stall()
    waiting = Sender(other, produce(7 * MIB))
    assert not waiting.send(8 * MIB)
    with caplog.at_level(logging.WARNING):
        for peer in peers:
            peer.connection.close_on_stall()
    assert stalled.transport.aborted and not other.transport.closed
    assert "queued.max.request.bytes" in caplog.text
    stalled.connection.connection_lost(None)
    run(peers)
    assert waiting.send(8 * MIB)
    assert other.sent == struct.pack(">i", 1)


def test_large_requests_that_wait_take_little():
    holder, first, *others = peers = peers_of(40)
    Sender(holder, produce(6 * MIB - FREE_BYTES)).send(5 * MIB)
    before = received_bytes(peers)
    for peer in (first, *others):
        Sender(peer, produce(5 * MIB)).send(4 * MIB)
    assert first.transport.reading is False
    assert received_bytes(peers) - before < 2 * FREE_BYTES + len(others) * 5_000


@pytest.mark.parametrize("left_bytes", [0, 1])
def test_a_client_that_hangs_up_while_it_waits_is_missed_unless_it_has_sent_all(left_bytes):
    holder, gone = peers_of(2)
    Sender(holder, produce(5 * MIB)).send(4 * MIB)
    data = produce(3 * MIB)
    waiting = Sender(gone, data)
    assert not waiting.send(3 * MIB)
    received = gone.connection._inbox.buffered_bytes
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8 * MIB)
        theirs.setblocking(False)
        gone.connection._outbox._socket = ours.fileno()
        gone.connection.close_on_stall()
        assert not gone.transport.closed
        sent = theirs.send(bytes(100_000))
        gone.connection._inbox._needed = received + sent + left_bytes
        theirs.close()
        gone.connection.close_on_stall()
    assert gone.transport.aborted == bool(left_bytes)
    gone.connection.connection_lost(None)
    assert count_bytes([gone, holder])[0] >= 5 * MIB


def test_a_slow_client_that_keeps_sending_is_not_closed():
    slow, other = peers_of(2)
    sender = Sender(slow, produce(7 * MIB))
    sender.send(MIB)
    Sender(other, produce(7 * MIB)).send(8 * MIB)
    for _ in range(20):
        sender.send(100_000)
        slow.connection.close_on_stall()
        other.connection.close_on_stall()
    assert not slow.transport.closed and not other.transport.closed


def test_memory_of_a_large_request_is_kept_until_another_client_needs_it():
    first, second = peers = peers_of(2)
    Sender(first, produce(MIB)).send(2 * MIB)
    kept = first.connection._inbox.capacity_bytes
    assert kept > MIB
    assert count_bytes(peers)[0] >= MIB
    waiting = Sender(second, produce(8 * MIB - FREE_BYTES))
    waiting.send(9 * MIB)
    run(peers)
    waiting.send(9 * MIB)
    assert second.sent == struct.pack(">i", 1)


def test_a_connection_that_ends_gives_everything_back():
    peers = peers_of(3)
    senders = [Sender(peer, produce(7 * MIB)) for peer in peers]
    for sender in senders:
        sender.send(MIB)
    for peer in peers:
        peer.connection.connection_lost(None)
    run(peers)
    assert count_bytes(peers) == (0, 0)


def large_replies(size_bytes):
    async def handle(broker, request):
        room = broker.memory.replies.reserve()
        for built in range(0, size_bytes + 1, 256 * 1024):
            await room.grow(built)
        room.built(size_bytes)
        return Encoded([bytes(size_bytes)], room)

    return handle


def test_a_reply_is_held_until_the_socket_has_taken_it():
    peer = Peer(large_replies(2 * MIB), BUDGET)
    peer.transport.takes = 1000
    peer.receive(heartbeat(1))
    assert count_bytes([peer]) == (0, 2 * MIB)
    peer.transport.takes = None
    peer.connection.resume_writing()
    assert count_bytes([peer]) == (0, 0)


def test_clients_that_do_not_read_do_not_starve_a_client_that_reads():
    peers = peers_of(20, large_replies(2 * MIB))
    *idle, healthy = peers
    for peer in idle:
        peer.transport.takes = 1000
        peer.receive(heartbeat(1))
    assert count_bytes(peers)[1] <= BUDGET // 2
    healthy.receive(heartbeat(1))
    assert not healthy.sent
    for _ in range(2 * len(idle)):
        for peer in peers:
            peer.connection.close_on_stall()
            if peer.transport.aborted:
                peer.connection.connection_lost(None)
        run(peers)
    assert len(healthy.sent) == 2 * MIB
    assert not healthy.transport.closed


def test_an_unreserved_reply_is_counted_while_the_socket_is_full():
    async def handle(broker, request):
        return Encoded([bytes(MIB)])

    peer = Peer(handle, BUDGET)
    peer.transport.takes = 1000
    peer.receive(heartbeat(1))
    assert count_bytes([peer]) == (0, MIB)
    peer.connection.connection_lost(None)
    assert count_bytes([peer]) == (0, 0)


def test_a_reply_above_the_memory_limit_closes_the_connection_with_a_hint(caplog):
    peer = Peer(large_replies(5 * MIB), BUDGET)
    with caplog.at_level(logging.WARNING):
        peer.receive(heartbeat(1))
    assert peer.transport.closed and not peer.sent
    assert "queued.max.request.bytes" in caplog.text and "Heartbeat" in caplog.text
    assert count_bytes([peer]) == (0, 0)


def test_a_pending_reply_frees_its_memory_when_the_connection_closes():
    waits = []

    async def handle(broker, request):
        room = broker.memory.replies.reserve()
        await room.grow(MIB)
        waits.append(Wait(broker.turns))
        await waits[0]
        return Encoded([bytes(MIB)], room)

    peer = Peer(handle, BUDGET)
    peer.receive(heartbeat(1))
    assert count_bytes([peer]) == (0, MIB)
    peer.connection.connection_lost(None)
    assert count_bytes([peer]) == (0, 0)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_no_memory_is_held_after_random_clients_disconnect(seed):
    rng = random.Random(seed)
    peers = peers_of(15, large_replies(rng.choice((FREE_BYTES, MIB, 3 * MIB))))
    senders = [Sender(peer, heartbeat(1) + produce(rng.choice((1000, MIB, 9 * MIB))) + heartbeat(2)) for peer in peers]
    for _ in range(2000):
        sender = rng.choice(senders)
        transport, connection = sender.peer.transport, sender.peer.connection
        match rng.randrange(6):
            case 0 if transport.takes is None and not connection._outbox.paused:
                transport.takes = rng.choice((10, MIB))
            case 1:
                transport.takes = None
                connection.resume_writing()
            case 2:
                connection.close_on_stall()
            case 3 if rng.random() < 0.02:
                connection.connection_lost(None)
            case _:
                sender.send(rng.choice((10, 100_000, MIB)))
        run(peers)
        requests, _ = count_bytes(peers)
        # A request larger than all the memory of large requests is admitted alone, next to requests of middle size.
        assert requests <= max(BUDGET // 2, 9 * MIB + 10_000 + BUDGET // 8)
    for peer in peers:
        peer.connection.connection_lost(None)
    run(peers)
    assert count_bytes(peers) == (0, 0)
    assert not peers[0].broker.memory.short
