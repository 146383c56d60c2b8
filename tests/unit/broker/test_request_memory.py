"""Memory that large requests hold after they are received: decoded, suspended, waiting for others."""

import struct
import tracemalloc
from types import SimpleNamespace

import pytest

from lab.greedy import Fill, State, greedy
from ottla.broker.api import join_group, sync_group
from ottla.broker.api.context import Api
from ottla.broker.api.request import Request
from ottla.broker.api.table import TABLE
from ottla.broker.dispatch import SMALL_BODY_BYTES, memory_of
from ottla.broker.memory import ENTRY_BYTES, FREE_BYTES, decoded_bytes
from ottla.broker.security.session import Session
from ottla.broker.turns import Wait
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.requests import codec
from ottla.protocol.requests.frames import parse_request_header
from ottla.testkit.in_memory.wire import message
from tests.broker_stub import broker_of
from tests.unit.broker.peer import Peer, echo
from tests.unit.broker.test_large_requests import DELETE_GROUPS, delete_groups

BUDGET = 16 << 20
LARGE = [b"group-%05d" % number for number in range(12_000)]
MIDDLING = [b"group-%05d" % number for number in range(2_000)]
SMALL = [b"group-%05d" % number for number in range(200)]


class Waiting:
    """Handlers that wait until the test resumes them, on as many connections as the test opens."""

    def __init__(self):
        self.waits, self.counts = [], []
        self.first = Peer(self.handle, BUDGET)
        self.memory = self.first.broker.memory
        self._table(self.first)

    def _table(self, peer):
        peer.connection._dispatcher._table[DELETE_GROUPS] = Api(DELETE_GROUPS, 0, 1).with_handler(self.handle)

    async def handle(self, broker, request):
        wait = Wait(broker.turns)
        self.waits.append(wait)
        self.counts.append(len(request.body.groups_names))
        await wait
        return await echo(broker, request)

    def peer(self):
        peer = Peer(self.handle, other=self.first)
        self._table(peer)
        return peer

    def run(self):
        while self.first.next_turn():
            pass

    def answer(self):
        waits, self.waits = self.waits, []
        for wait in waits:
            self.first.turns.event(lambda wait=wait: wait.wake(None))
        self.run()

    @property
    def held(self):
        memory = self.memory
        return memory.requests.held_bytes + memory.medium.held_bytes, memory.decoded.held_bytes


@pytest.fixture
def waiting():
    return Waiting()


def test_a_large_request_holds_what_it_takes_decoded_until_it_is_answered(waiting):
    request = delete_groups(1, LARGE)
    assert len(request) > FREE_BYTES
    waiting.first.receive(request)
    waiting.run()
    assert waiting.counts == [12_000]
    lent = waiting.first.connection._inbox.capacity_bytes
    taken = waiting.held[0] - lent
    assert len(LARGE) * ENTRY_BYTES < taken < memory_of(DELETE_GROUPS, len(request)), (
        "known by now, and less than feared"
    )
    waiting.answer()
    assert waiting.held == (lent, 0) and waiting.first.sent == struct.pack(">i", 1)


def test_a_request_of_middle_size_is_counted_apart_from_large_ones(waiting):
    request = delete_groups(1, MIDDLING)
    assert SMALL_BODY_BYTES < len(request) < FREE_BYTES
    waiting.first.receive(request)
    assert waiting.held == (0, decoded_bytes(len(request) - 14))
    waiting.answer()
    assert waiting.held == (0, 0)


def test_a_small_request_holds_nothing(waiting):
    waiting.first.receive(delete_groups(1, SMALL))
    assert waiting.counts == [200] and waiting.held == (0, 0)


@pytest.mark.parametrize("names", [LARGE, MIDDLING])
def test_requests_beyond_the_memory_wait_and_are_all_answered(waiting, names):
    peers = [waiting.first, *(waiting.peer() for _ in range(30))]
    for peer in peers:
        peer.receive_while_read(delete_groups(1, names))
    waiting.run()
    assert 0 < len(waiting.waits) < len(peers)
    memory = waiting.memory
    for _ in range(100):
        assert memory.requests.held_bytes <= memory.requests.limit_bytes
        assert memory.decoded.held_bytes <= memory.decoded.limit_bytes
        waiting.answer()
        for peer in peers:
            peer.receive_while_read()
    assert [peer.sent for peer in peers] == [struct.pack(">i", 1)] * len(peers)
    assert waiting.counts == [len(names)] * len(peers) and not waiting.first.bugs


@pytest.mark.parametrize("names", [LARGE, MIDDLING])
def test_clients_that_hang_up_give_back_what_their_requests_hold_or_wait_for(waiting, names):
    peers = [waiting.first, *(waiting.peer() for _ in range(30))]
    for peer in peers:
        peer.receive_while_read(delete_groups(1, names))
    for peer in reversed(peers):
        peer.connection.connection_lost(None)
    waiting.run()
    assert waiting.held == (0, 0) and not waiting.memory.short and not waiting.first.bugs


class Groups:
    """A group coordinator that the handlers of group members call."""

    def __init__(self):
        self.asked = []

    async def join(self, ask):
        self.asked.append(ask.protocols)
        raise ConnectionError

    async def sync(self, caller, protocol, assignments):
        self.asked.append(assignments)
        raise ConnectionError


@pytest.mark.parametrize("api", [ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP])
def test_join_group_and_sync_group_release_the_request_memory(api):
    released = []
    claim = SimpleNamespace(release=lambda: released.append(True))
    groups, module = Groups(), join_group if api is ApiKey.JOIN_GROUP else sync_group
    rows = {"protocols": [{"name": "range", "metadata": b"m"}]}
    if api is ApiKey.SYNC_GROUP:
        rows = {"assignments": [{"member_id": "range", "assignment": b"m"}]}
    request = Request(
        api, 3, 1, "", Session(peer="10.0.0.1:1"), message(api, 3, group_id="g", member_id="", **rows), claim
    )
    with pytest.raises(ConnectionError):
        module.handle(broker_of(groups=groups, turns=Peer(echo).turns), request).send(None)
    assert request.body is None and released == [True]
    assert [[*rows] for rows in groups.asked] == [[("range", b"m")]]


ENTRIES = 2_000


def many(make):
    return [make(1_000 + number) for number in range(ENTRIES)]


STATE = State(many("t{:05d}".format), [], many("g{:05d}".format), many("x{:05d}".format), many(int), 0, b"x", b"x")


@pytest.mark.parametrize("api", [api for api in TABLE.values() if api.key != ApiKey.PRODUCE], ids=lambda api: api.title)
def test_no_request_takes_more_decoded_than_it_is_counted_for(api):
    """Before decoding, its bytes count; afterwards, its entries. All its strings and numbers are different."""
    for ask in greedy(api.key, api.max_version, api.max_version, STATE, ENTRIES):
        if ask.fill is not Fill.ROWS:
            continue
        _, body = parse_request_header(memoryview(codec.encode_request(ask.message(), ask.version, 1, "c"))[4:])
        body = bytes(body)
        tracemalloc.start()
        try:
            decoded = codec.read_request(api.key, ask.version, body)
            taken = tracemalloc.get_traced_memory()[0]
        finally:
            tracemalloc.stop()
        assert decoded and taken <= len(body) + ENTRIES * ENTRY_BYTES + 4_096
        assert taken <= decoded_bytes(len(body)) + 4_096
