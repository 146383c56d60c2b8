"""Connections between the brokers of a process: over a loopback listener that refuses all others, and in memory."""

import asyncio
import socket

import pytest

from ottla.broker.ports.peers import LOOPBACK, LoopPeers
from tests.timeout import EVENT_TIMEOUT_S


class Served(asyncio.BufferedProtocol):
    """The accepted end, which sends back what it receives."""

    def __init__(self, node_id):
        self.node_id, self.memory = node_id, bytearray(64)

    def connection_made(self, transport):
        self.transport = transport

    def get_buffer(self, sizehint):
        return self.memory

    def buffer_updated(self, nbytes):
        self.transport.write(bytes(self.memory[:nbytes]))


class End(asyncio.Protocol):
    """The end that connects."""

    def __init__(self):
        self.transport, self.received, self.lost = None, asyncio.Future(), asyncio.Future()

    def connection_made(self, transport):
        self.transport = transport
        transport.write(b"marker")

    def data_received(self, data):
        self.received.set_result(data)

    def connection_lost(self, exc):
        self.lost.set_result(exc)


async def wait(future):
    return await asyncio.wait_for(future, EVENT_TIMEOUT_S)


@pytest.fixture
def run():
    """Return a function that runs a test with peers that listen. `foreign` are the connections that they refuse."""
    foreign, accepted = [], []

    def accept(node_id):
        if node_id == 9:
            return None
        accepted.append(Served(node_id))
        return accepted[-1]

    async def listening(test):
        peers = LoopPeers(asyncio.get_running_loop())
        peers.listen(accept, foreign.append, foreign.append, lambda go_on: False)
        try:
            await test(peers, accepted, foreign)
        finally:
            peers.close()

    return lambda test: asyncio.run(listening(test))


def test_a_connection_of_this_process_reaches_the_broker_that_it_names(run):
    async def test(peers, accepted, foreign):
        ends = [End(), End()]
        for node_id, end in enumerate(ends, 2):
            peers.connect(node_id, end)
        assert [await wait(end.received) for end in ends] == [b"marker"] * 2
        assert sorted(each.node_id for each in accepted) == [2, 3] and foreign == []
        for end in ends:
            end.transport.abort()

    run(test)


def test_a_connection_of_another_process_is_closed_at_once(run):
    async def test(peers, accepted, foreign):
        reader, writer = await asyncio.open_connection(*peers._address)
        host, port = writer.get_extra_info("sockname")
        assert await wait(reader.read()) == b""
        writer.close()
        assert (accepted, foreign) == ([], [f"{host}:{port}"])

    run(test)


def test_the_address_of_a_closed_connection_lets_nothing_in(run):
    """The socket was never accepted, and another process has its port now."""

    async def test(peers, accepted, foreign):
        with socket.create_server((LOOPBACK, 0)) as former:
            address = former.getsockname()
        peers._outgoing[address] = former, 2
        with socket.create_connection(peers._address, EVENT_TIMEOUT_S, source_address=address) as other:
            other.setblocking(False)
            assert await wait(asyncio.get_running_loop().sock_recv(other, 1)) == b""
        assert (accepted, foreign) == ([], [f"{LOOPBACK}:{address[1]}"])

    run(test)


def test_a_refused_connection_ends(run):
    async def test(peers, accepted, foreign):
        end = End()
        peers.connect(9, end)
        await wait(end.lost)
        assert (accepted, foreign, peers._outgoing) == ([], [], {})

    run(test)


def test_a_connection_before_the_brokers_listen_ends():
    async def test():
        end = End()
        LoopPeers(asyncio.get_running_loop()).connect(2, end)
        assert isinstance(await wait(end.lost), ConnectionRefusedError)

    asyncio.run(test())
