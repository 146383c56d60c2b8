"""A connection without a socket: order, backpressure, bad frames."""

import struct
import weakref

import pytest

from ottla.broker.api.request import NO_REPLY, Close, Encoded
from ottla.broker.connection import LARGE_BYTES
from ottla.broker.costs import HANG_UP_US, REQUEST_US
from ottla.broker.turns import SHARE_US, Wait
from ottla.protocol.api_keys import ApiKey
from tests.unit.broker.dropped import expect_no_garbage
from tests.unit.broker.peer import Peer, echo, heartbeat

REQUESTS_PER_SHARE = int(SHARE_US / REQUEST_US)


def test_pipelined_requests_are_answered_in_order_in_one_write():
    peer = Peer(echo)
    peer.receive(heartbeat(1) + heartbeat(2) + heartbeat(3))
    assert peer.transport.written == [struct.pack(">iii", 1, 2, 3)]


def test_request_in_pieces_is_answered_when_it_is_whole():
    peer = Peer(echo)
    for byte in heartbeat(9):
        assert not peer.sent
        peer.receive(bytes([byte]))
    assert peer.sent == struct.pack(">i", 9)


def test_a_waiting_request_delays_the_requests_pipelined_after_it():
    waits = []

    async def handle(broker, request):
        if request.correlation_id == 1:
            waits.append(Wait(broker.turns))
            await waits[0]
        return Encoded([struct.pack(">i", request.correlation_id)])

    peer = Peer(handle)
    peer.receive(heartbeat(1) + heartbeat(2))
    assert not peer.sent
    peer.turns.event(lambda: waits[0].wake(None))
    assert peer.sent == struct.pack(">ii", 1, 2)


def test_reading_pauses_while_much_is_pipelined_after_a_waiting_request():
    waits = []

    async def handle(broker, request):
        if not waits:
            waits.append(Wait(broker.turns))
            await waits[0]
        return NO_REPLY

    peer = Peer(handle)
    peer.receive(heartbeat(1) + heartbeat(2, group=b"x" * 30_000) * 50)
    assert not peer.transport.reading
    peer.turns.event(lambda: waits[0].wake(None))
    while peer.next_turn():
        pass
    assert peer.transport.reading


LARGE = struct.pack(">i", 1_000_000) + heartbeat(1, group=b"g" * 32_767)[4:]
"""The beginning of a large request."""


def test_large_requests_are_received_a_share_at_a_time():
    first = Peer(echo, memory_bytes=8 << 30)
    peers = [first, *(Peer(echo, other=first) for _ in range(99))]
    for peer in peers:
        peer.receive(LARGE + bytes(65_536))
    before = sum(peer.transport.reading for peer in peers)
    assert before < 50
    first.next_turn()
    assert before < sum(peer.transport.reading for peer in peers) < before + 30
    while first.next_turn():
        pass
    assert all(peer.transport.reading for peer in peers)


def test_a_client_whose_reading_is_paused_is_not_closed_as_stalled():
    peer = Peer(echo)
    peer.receive(LARGE + bytes(65_536))
    peer.turns.charge(10 * SHARE_US)
    peer.receive(bytes(65_536))
    assert not peer.transport.reading
    for _ in range(3):
        peer.connection.close_on_stall()
    assert not peer.transport.closed


def test_lost_connection_discards_the_waiting_handler():
    left = []

    async def handle(broker, request):
        await Wait(broker.turns, on_discard=lambda: left.append("taken back"))
        return NO_REPLY

    peer = Peer(handle)
    peer.receive(heartbeat(1))
    peer.connection.connection_lost(None)
    assert left == ["taken back"] and not peer.connections


def produce(correlation_id):
    """Return a Produce request without topics and with acks=0."""
    payload = struct.pack(">hhihhhii", ApiKey.PRODUCE, 3, correlation_id, -1, -1, 0, 1000, 0)
    return struct.pack(">i", len(payload)) + payload


class Served:
    """A handler that notes the requests that it has served. The first request waits until the test resumes it."""

    def __init__(self):
        self.waits = []
        self.ids = []
        self.peer = Peer(self.handle)

    async def handle(self, broker, request):
        if not self.waits:
            self.waits.append(Wait(broker.turns))
            await self.waits[0]
        self.ids.append(request.correlation_id)
        return NO_REPLY

    def go_on(self):
        self.peer.turns.event(lambda: self.waits[0].wake(None))
        while self.peer.next_turn():
            pass


def test_a_producer_without_acks_may_hang_up_at_once():
    served = Served()
    count = 3 * REQUESTS_PER_SHARE
    served.peer.receive(b"".join(map(produce, range(count))) + produce(count)[:-1])
    assert served.peer.connection.eof_received()
    served.go_on()
    assert served.ids == list(range(count))
    assert served.peer.transport.closed and served.peer.bugs == []


def test_deferred_produce_requests_are_served_after_the_peer_hangs_up():
    ids = []

    async def handle(broker, request):
        ids.append(request.correlation_id)
        return NO_REPLY

    peer = Peer(handle)
    peer.receive(b"".join(map(produce, range(2 * REQUESTS_PER_SHARE))))
    assert len(ids) == REQUESTS_PER_SHARE
    assert peer.connection.eof_received()
    while peer.next_turn():
        pass
    assert ids == list(range(2 * REQUESTS_PER_SHARE))
    assert peer.transport.closed


def test_a_hangup_while_a_reply_is_pending_closes_the_connection():
    served = Served()
    served.peer.receive(heartbeat(1))
    assert not served.peer.connection.eof_received()


def test_a_request_waiting_after_an_acks_0_produce_is_dropped_on_hangup():
    left = []

    async def handle(broker, request):
        if request.api_key == ApiKey.PRODUCE:
            await broker.turns.pause()
            return NO_REPLY
        await Wait(broker.turns, on_discard=lambda: left.append("taken back"))
        return NO_REPLY

    peer = Peer(handle)
    peer.receive(produce(1) + heartbeat(2))
    assert peer.connection.eof_received()
    while peer.next_turn():
        pass
    assert peer.transport.closed
    peer.connection.connection_lost(None)
    assert left == ["taken back"]


def test_an_idle_peer_that_hangs_up_is_let_go():
    peer = Peer(echo)
    peer.receive(heartbeat(1))
    assert not peer.connection.eof_received()


def test_peers_that_hang_up_together_are_let_go_a_share_at_a_time():
    first = Peer(echo)
    peers = [first, *(Peer(echo, other=first) for _ in range(999))]
    kept = [peer for peer in peers if peer.connection.eof_received()]
    per_share = SHARE_US / HANG_UP_US
    assert per_share <= len(peers) - len(kept) < per_share + 1
    shares = 0
    while before := sum(not peer.transport.closed for peer in kept):
        assert first.next_turn()
        shares += 1
        assert 0 < before - sum(not peer.transport.closed for peer in kept) < per_share + 1
    assert shares > 10 and first.bugs == []


def test_a_hung_up_peer_is_not_served_while_its_close_is_deferred():
    served = Served()
    served.peer.receive(heartbeat(1) + heartbeat(2) + produce(3))
    served.peer.turns.charge(SHARE_US)
    assert served.peer.connection.eof_received()
    served.peer.turns.event(lambda: served.waits[0].wake(None))
    assert not served.peer.transport.closed
    served.peer.next_turn()
    assert served.peer.transport.closed and served.ids == [1]


def test_a_connection_lost_before_its_deferred_close_is_not_closed_again():
    peer = Peer(echo)
    peer.turns.charge(SHARE_US)
    assert peer.connection.eof_received()
    peer.connection.connection_lost(None)
    charged_us = peer.turns.charged_us
    peer.next_turn()
    assert not peer.transport.closed and peer.turns.charged_us == charged_us


@pytest.mark.parametrize(
    "data",
    [
        struct.pack(">i", -1),
        struct.pack(">i", 0),
        struct.pack(">i", 2**31 - 1),
        b"GET / HTTP/1.1\r\n\r\n",
        struct.pack(">ihhih", 10, 999, 0, 1, -1),
        heartbeat(1, version=3),
        heartbeat(1)[:4] + heartbeat(1)[4:14] + b"\x7f\xff" + heartbeat(1)[16:],
        heartbeat(1, group=b"\xff\xfe"),
    ],
    ids=["negative size", "zero size", "huge size", "http", "unknown api", "version", "string too long", "utf-8"],
)
def test_frame_that_breaks_the_protocol_closes_the_connection(data, caplog):
    peer = Peer(echo)
    peer.receive(data)
    assert peer.transport.closed and not peer.sent
    assert "10.0.0.1:4711" in caplog.text
    assert len(caplog.records) == 1


def test_replies_before_a_bad_frame_still_leave():
    peer = Peer(echo)
    peer.receive(heartbeat(1) + struct.pack(">i", -5))
    assert peer.sent == struct.pack(">i", 1) and peer.transport.closed


def test_handler_that_gives_no_reply_keeps_the_connection():
    async def handle(broker, request):
        return NO_REPLY

    peer = Peer(handle)
    peer.receive(heartbeat(1))
    assert not peer.sent and not peer.transport.closed


def test_handler_may_close_the_connection_with_a_reason(caplog):
    async def handle(broker, request):
        return Close("acks=0 and it failed")

    peer = Peer(handle)
    peer.receive(heartbeat(1))
    assert peer.transport.closed and "acks=0 and it failed" in caplog.text


def test_bug_in_a_handler_closes_only_that_connection(caplog):
    async def handle(broker, request):
        raise KeyError("bug")

    peer = Peer(handle)
    peer.receive(heartbeat(1))
    assert peer.transport.closed and peer.bugs == []
    assert "Heartbeat v0" in caplog.text


def test_reply_that_cannot_be_encoded_closes_the_connection(caplog):
    async def handle(broker, request):
        return "no reply"

    peer = Peer(handle)
    peer.receive(heartbeat(1))
    assert peer.transport.closed and peer.bugs == []
    assert "Heartbeat v0" in caplog.text


def test_reply_that_cannot_be_encoded_after_a_wait_closes_the_connection():
    waits = []

    async def handle(broker, request):
        waits.append(Wait(broker.turns))
        await waits[0]
        return "no reply"

    peer = Peer(handle)
    peer.receive(heartbeat(1))
    peer.turns.event(lambda: waits[0].wake(None))
    assert peer.transport.closed and peer.bugs == []


def test_bug_in_a_decoder_closes_only_that_connection(caplog, monkeypatch):
    def broken(key, version, body):
        raise IndexError("bug")

    monkeypatch.setattr("ottla.protocol.requests.codec.read_request", broken)
    peer = Peer(echo)
    peer.receive(heartbeat(1))
    assert peer.transport.closed and peer.bugs == []
    assert "Heartbeat v0" in caplog.text


def test_requests_are_not_served_while_writing_is_paused():
    peer = Peer(echo)
    peer.connection.pause_writing()
    assert not peer.transport.reading
    peer.receive(heartbeat(1))
    assert not peer.sent
    peer.connection.resume_writing()
    assert peer.sent == struct.pack(">i", 1) and peer.transport.reading


def test_draining_connection_ends_after_the_request_in_progress():
    waits = []

    async def handle(broker, request):
        waits.append(Wait(broker.turns))
        await waits[-1]
        return Encoded([struct.pack(">i", request.correlation_id)])

    peer = Peer(handle)
    peer.receive(heartbeat(1) + heartbeat(2))
    peer.connection.drain()
    peer.turns.event(lambda: waits[0].wake(None))
    assert peer.sent == struct.pack(">i", 1) and peer.transport.closed


def test_idle_connection_is_closed_after_its_sweeps():
    peer = Peer(echo)
    for _ in range(4):
        peer.connection.sweep(4)
    assert not peer.transport.closed
    peer.connection.sweep(4)
    assert peer.transport.closed


def test_many_pipelined_requests_are_served_over_several_turns():
    peer = Peer(echo)
    count = 3 * REQUESTS_PER_SHARE
    peer.receive(b"".join(heartbeat(n) for n in range(count)))
    assert peer.transport.written == [struct.pack(f">{REQUESTS_PER_SHARE}i", *range(REQUESTS_PER_SHARE))]
    peer.receive(heartbeat(count))
    assert len(peer.transport.written) == 1 and len(peer.later) == 1
    while peer.next_turn():
        pass
    assert peer.sent == struct.pack(f">{count + 1}i", *range(count + 1))


def test_first_uses_of_api_versions_are_served_a_share_at_a_time():
    peer = Peer(echo, first_use=True)
    requests = heartbeat(0, version=0) + heartbeat(1, version=1) + heartbeat(2, version=2)
    peer.receive(requests)
    assert peer.sent == struct.pack(">ii", 0, 1)
    while peer.next_turn():
        pass
    assert peer.sent == struct.pack(">iii", 0, 1, 2)
    peer.receive(requests)
    assert peer.sent == struct.pack(">iii", 0, 1, 2) * 2


def test_a_first_request_waits_for_a_free_share_and_later_ones_do_not():
    peer = Peer(echo)
    peer.turns.charge(SHARE_US)
    peer.receive(heartbeat(1))
    assert peer.sent == b""
    assert peer.next_turn()
    assert peer.sent == struct.pack(">i", 1)
    peer.turns.charge(SHARE_US)
    peer.receive(heartbeat(2))
    assert peer.sent == struct.pack(">2i", 1, 2)


def test_a_deferred_first_request_counts_as_an_event_on_arrival():
    peer = Peer(echo)
    peer.turns.charge(SHARE_US)
    before = peer.turns.events
    peer.receive(heartbeat(1))
    assert not peer.sent and peer.turns.events > before


def test_large_input_waits_for_a_free_share_and_a_small_request_does_not():
    peer = Peer(echo)
    peer.receive(heartbeat(0))
    peer.transport.written.clear()
    peer.turns.charge(SHARE_US)
    peer.receive(heartbeat(1))
    assert peer.sent == struct.pack(">i", 1)
    large = bytes(LARGE_BYTES // 3)  # three of them are: what has arrived counts, not only the next request
    peer.receive(b"".join(heartbeat(n, group=large) for n in (2, 3, 4)))
    assert peer.sent == struct.pack(">i", 1)
    while peer.next_turn():
        pass
    assert peer.sent == struct.pack(">4i", 1, 2, 3, 4)


def test_replies_to_pipelined_requests_do_not_pile_up():
    async def handle(broker, request):
        return Encoded([bytes(400_000)])

    peer = Peer(handle)
    peer.receive(heartbeat(1) * 20)
    assert len(peer.sent) == 400_000
    peer.connection.pause_writing()
    peer.next_turn()
    assert len(peer.sent) == 400_000 and not peer.later
    peer.connection.resume_writing()
    assert len(peer.sent) == 2 * 400_000


def test_idle_connection_that_does_not_read_is_cut_off():
    peer = Peer(echo)
    peer.connection.pause_writing()
    for _ in range(3):
        peer.connection.sweep(2)
    assert peer.transport.aborted


def test_reading_replies_is_a_sign_of_life():
    peer = Peer(echo)
    peer.connection.sweep(1)
    peer.connection.pause_writing()
    peer.connection.resume_writing()
    peer.connection.sweep(1)
    assert not peer.transport.closed


def test_abort_discards_the_waiting_handler():
    left = []

    async def handle(broker, request):
        await Wait(broker.turns, on_discard=lambda: left.append("taken back"))
        return NO_REPLY

    peer = Peer(handle)
    peer.receive(heartbeat(1))
    peer.connection.drain()
    assert not peer.transport.closed
    peer.connection.abort()
    assert left == ["taken back"] and peer.transport.aborted
    peer.connection.connection_lost(None)
    assert left == ["taken back"] and not peer.connections


def test_a_request_that_waits_holds_no_memory_for_receiving():
    waits = []

    async def handle(broker, request):
        waits.append(Wait(broker.turns))
        await waits[-1]
        return Encoded([struct.pack(">i", request.correlation_id)])

    peer = Peer(handle)
    peer.receive(heartbeat(1))
    assert peer.connection._inbox.capacity_bytes == 0
    peer.receive(heartbeat(2))
    assert 0 < peer.connection._inbox.capacity_bytes < 1000
    for number in range(2):
        peer.turns.event(lambda number=number: waits[number].wake(None))
    assert peer.sent == struct.pack(">ii", 1, 2)
    assert peer.connection._inbox.capacity_bytes == 0


def test_a_lost_connection_and_its_transport_end_without_a_collection():
    """A TLS transport refers to its protocol, as this one does."""
    with expect_no_garbage():
        peer = Peer(echo)
        peer.receive(heartbeat(1))
        peer.connection.connection_lost(None)
        peer.connection.abort()  # deferred callbacks may still run
        peer.connection.close()
        transport = weakref.ref(peer.transport)
        peer.transport = None
        assert transport() is None
        del peer
