"""Requests with so many entries that they are decoded in steps."""

import struct

import pytest

from ottla.broker.api.context import Api
from ottla.broker.dispatch import DECODED_AT_ONCE_BYTES
from tests.unit.broker.peer import Peer, echo

DELETE_GROUPS = 42


def delete_groups(correlation_id, names):
    """Version 1: an array of strings."""
    body = struct.pack(">i", len(names)) + b"".join(struct.pack(">h", len(name)) + name for name in names)
    payload = struct.pack(">hhih", DELETE_GROUPS, 1, correlation_id, -1) + body
    return struct.pack(">i", len(payload)) + payload


@pytest.fixture
def counting():
    """A peer whose handler counts the names that it is given."""
    counts = []

    async def handle(broker, request):
        counts.append(len(request.body.groups_names))
        return await echo(broker, request)

    peer = Peer(handle)
    peer.connection._dispatcher._table[DELETE_GROUPS] = Api(DELETE_GROUPS, "DeleteGroups", 0, 1, handle)
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


def test_a_large_request_that_is_cut_short_closes_the_connection(counting, caplog):
    peer, counts = counting
    request = bytearray(delete_groups(1, [b"group-%d" % number for number in range(5_000)]))
    request[14:18] = struct.pack(">i", 5_001)
    peer.receive(bytes(request))
    while peer.next_turn():
        pass
    assert peer.transport.closed and counts == [] and peer.bugs == []
    assert "DeleteGroups v1: DeleteGroupsRequest v1: cut short" in caplog.text


def test_who_hangs_up_while_a_large_request_is_decoded_is_forgotten(counting):
    peer, counts = counting
    peer.receive(delete_groups(1, [b"group-%d" % number for number in range(5_000)]))
    peer.connection.connection_lost(None)
    while peer.next_turn():
        pass
    assert counts == [] and peer.bugs == []
