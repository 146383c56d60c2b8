"""Requests with so many entries that they are decoded in steps."""

import struct

import pytest

from ottla.broker.api.context import Api
from ottla.broker.config import Config
from ottla.broker.connection import Connection
from ottla.broker.costs import FREED_ENTRY_US
from ottla.broker.dispatch import DECODED_AT_ONCE_BYTES
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.walker import STEP_US
from tests.unit.broker.peer import Peer, Transport, echo

DELETE_GROUPS = ApiKey.DELETE_GROUPS
MANY_BYTES = 1 << 20


def delete_groups(correlation_id, names):
    """Return a DeleteGroups request of version 1: an array of strings."""
    body = struct.pack(">i", len(names)) + b"".join(struct.pack(">h", len(name)) + name for name in names)
    payload = struct.pack(">hhih", DELETE_GROUPS, 1, correlation_id, -1) + body
    return struct.pack(">i", len(payload)) + payload


@pytest.fixture
def counting():
    """Return a peer whose handler counts the names that it receives."""
    counts = []

    async def handle(broker, request):
        counts.append(len(request.body.groups_names))
        return await echo(broker, request)

    peer = Peer(handle)
    peer.connection._dispatcher._table[DELETE_GROUPS] = Api(DELETE_GROUPS, 0, 1).with_handler(handle)
    return peer, counts


def test_a_large_request_is_decoded_over_several_turns(counting):
    peer, counts = counting
    request = delete_groups(1, [b"group-%d" % number for number in range(5_000)])
    assert len(request) > DECODED_AT_ONCE_BYTES
    peer.receive(request + delete_groups(2, [b"g"]))
    turns = 0
    while peer.next_turn():
        turns += 1
        assert counts != [1]
    assert turns >= 4
    assert counts == [5_000, 1] and peer.sent == struct.pack(">2i", 1, 2)


def test_a_large_request_is_charged_for_decoding_and_for_freeing(counting):
    peer, counts = counting
    peer.receive(delete_groups(1, [b"group-%d" % number for number in range(5_000)]))
    while peer.next_turn():
        pass
    assert counts == [5_000]
    assert peer.turns.charged_us > 4 * STEP_US + 5_000 * FREED_ENTRY_US


def test_a_large_request_that_is_cut_short_closes_the_connection(counting, caplog):
    peer, counts = counting
    request = bytearray(delete_groups(1, [b"group-%d" % number for number in range(5_000)]))
    request[14:18] = struct.pack(">i", 5_001)
    peer.receive(bytes(request))
    while peer.next_turn():
        pass
    assert peer.transport.closed and counts == [] and peer.bugs == []
    assert "DeleteGroups v1: DeleteGroupsRequest v1: cut short" in caplog.text


@pytest.fixture
def producing():
    """Return a peer whose handler counts the partitions that it receives."""
    counts = []

    async def handle(broker, request):
        counts.append(sum(len(partitions) for _, partitions in request.body.topics))
        return await echo(broker, request)

    return Peer(handle), counts


def produce(correlation_id, partitions):
    """Return a Produce request of version 3: partitions of one topic, without records."""
    rows = b"".join(struct.pack(">ii", index, -1) for index in range(partitions))
    body = struct.pack(">hhiihci", -1, 1, 1_000, 1, 1, b"t", partitions) + rows
    payload = struct.pack(">hhih", ApiKey.PRODUCE, 3, correlation_id, -1) + body
    return struct.pack(">i", len(payload)) + payload


def test_a_produce_of_many_partitions_is_decoded_over_several_turns(producing):
    peer, counts = producing
    peer.receive(produce(1, 10_000) + produce(2, 1))
    turns = 0
    while peer.next_turn():
        turns += 1
        assert counts != [1]
    assert turns >= 4
    assert counts == [10_000, 1] and peer.sent == struct.pack(">2i", 1, 2)


@pytest.mark.slow
def test_large_requests_of_one_client_are_received_into_the_same_memory(producing):
    """Requests that are pipelined after a waiting one stay in the kernel, however many they are."""
    peer, counts = producing
    inbox = peer.connection._inbox
    memories = []
    peer.receive_while_read(b"".join(produce(number, 16_000) for number in range(10)), most_bytes=MANY_BYTES)
    while peer.next_turn():
        peer.receive_while_read(most_bytes=MANY_BYTES)
        if inbox.capacity_bytes >= len(produce(0, 16_000)) and not any(inbox._own is memory for memory in memories):
            memories.append(inbox._own)
    assert counts == [16_000] * 10 and peer.transport.reading
    assert len(memories) == 1


def test_a_produce_of_many_partitions_that_is_cut_short_closes_the_connection(producing, caplog):
    peer, counts = producing
    request = bytearray(produce(1, 10_000))
    request[-8:] = struct.pack(">ii", 9_999, 7)
    peer.receive(bytes(request))
    while peer.next_turn():
        pass
    assert peer.transport.closed and counts == [] and peer.bugs == []
    assert "Produce v3: 7 bytes of records exceed the request" in caplog.text


@pytest.fixture
def another(counting):
    """Return a second connection to the same broker."""
    peer, _ = counting
    other = Transport()
    connection = Connection(peer.connection._dispatcher, peer.turns, peer.connections, Config())
    connection.connection_made(other)
    other.protocol = connection
    return connection


def receive(connection, data):
    while data:
        memory = connection.get_buffer(-1)
        count = min(len(memory), len(data))
        memory[:count] = data[:count]
        del memory
        connection.buffer_updated(count)
        data = data[count:]


@pytest.mark.parametrize("leaves", ["first", "second", "broken", "nobody"])
def test_large_requests_are_decoded_one_at_a_time_even_if_one_is_dropped(counting, another, leaves):
    peer, counts = counting
    first = bytearray(delete_groups(1, [b"group-%d" % number for number in range(5_000)]))
    if leaves == "broken":
        first[14:18] = struct.pack(">i", 5_001)
    peer.receive(bytes(first))
    receive(another, delete_groups(2, [b"group-%d" % number for number in range(6_000)]))
    gate = peer.connection._dispatcher._decoding
    assert gate.taken
    if leaves == "first":
        peer.connection.connection_lost(None)
    if leaves == "second":
        another.connection_lost(None)
    while peer.next_turn():
        pass
    expected = {"first": [6_000], "second": [5_000], "broken": [6_000], "nobody": [5_000, 6_000]}
    assert counts == expected[leaves] and peer.bugs == []
    assert not gate.taken
