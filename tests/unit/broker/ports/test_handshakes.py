"""Sockets that are to speak TLS, on both event loops: clients with and without a hello, and the order of handshakes."""

import asyncio
import socket
import ssl
import struct

import pytest
import uvloop

from ottla.broker.ports import handshakes
from ottla.broker.ports.listener import Listener, bind

LOOPS = [asyncio.new_event_loop, uvloop.new_event_loop]


class Served(asyncio.BufferedProtocol):
    def __init__(self):
        self.ended = False

    def connection_made(self, transport):
        transport.write(b"hello")
        transport.close()

    def connection_lost(self, error):
        self.ended = True


class Door:
    def __init__(self):
        self.served = []

    def wait_ms(self):
        return 0

    def accept(self, ip, port):
        self.served.append(Served())
        return self.served[-1]

    def defer(self, go_on):
        return False


class Security:
    def __init__(self, certificates):
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(certificates.broker)
        self.queue, self.reasons, self.strangers = [], [], []
        self.is_busy = False

    def current_context(self):
        return self._context

    def begin(self, start):
        if self.is_busy:
            self.queue.append(start)
        else:
            start()

    def report_failure(self, peer, reason):
        self.reasons.append(reason)

    def report_non_tls(self, peer, first):
        self.strangers.append(first)


@pytest.fixture(params=LOOPS, ids=["asyncio", "uvloop"])
def run(request, certificates):
    def live(scenario):
        async def whole():
            loop, door, security = asyncio.get_running_loop(), Door(), Security(certificates)
            listener = Listener(loop, await bind(loop, "127.0.0.1", 0), door, security)
            await scenario(listener, door, security)
            listener.close()

        with asyncio.Runner(loop_factory=request.param) as runner:
            runner.run(whole())

    return live


async def until(condition):
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.005)


async def read_answer(listener, certificates):
    context = ssl.create_default_context(cafile=certificates.ca)
    reader, writer = await asyncio.open_connection("127.0.0.1", listener.port, ssl=context)
    try:
        return await reader.read()
    finally:
        writer.close()


def client_hello(certificates):
    """Return the first message of a TLS client."""
    said = ssl.MemoryBIO()
    client = ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), said, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    return said.read()


def test_tls_clients_are_served_after_their_handshake(run, certificates):
    async def scenario(listener, door, security):
        assert await asyncio.gather(*(read_answer(listener, certificates) for _ in range(20))) == [b"hello"] * 20
        assert security.reasons == security.strangers == []

    run(scenario)


def test_a_handshake_begins_when_a_fragmented_client_hello_is_complete(run, certificates):
    async def scenario(listener, door, security):
        security.is_busy = True
        hello = client_hello(certificates)
        with socket.create_connection(("127.0.0.1", listener.port)) as client:
            sent = 0
            for end in (1, 3, 5, 6, 100, len(hello) - 1):
                client.sendall(hello[sent:end])
                sent = end
                await asyncio.sleep(0.02)
                assert security.queue == []
            client.sendall(hello[sent:])
            await until(lambda: security.queue)
            assert len(security.queue) == 1

    run(scenario)


def test_each_begins_when_it_is_its_turn(run, certificates):
    async def scenario(listener, door, security):
        security.is_busy = True
        clients = [asyncio.create_task(read_answer(listener, certificates)) for _ in range(10)]
        await until(lambda: len(security.queue) == 10)
        assert not any(client.done() for client in clients)
        security.queue.pop(3)()
        await until(lambda: any(client.done() for client in clients))
        assert sum(client.done() for client in clients) == 1
        for start in security.queue:
            start()
        assert await asyncio.gather(*clients) == [b"hello"] * 10

    run(scenario)


@pytest.mark.parametrize("first", [b"\x00", b"\x00\x00\x00\x10\x00\x12", b"GET / HTTP/1.1\r\n\r\n"])
def test_a_client_without_tls_is_reported_and_closed_without_a_handshake(run, first):
    async def scenario(listener, door, security):
        with socket.create_connection(("127.0.0.1", listener.port)) as client:
            client.sendall(first)
            await until(lambda: security.strangers)
            assert first.startswith(security.strangers[0]) and security.reasons == []
            await until(lambda: door.served[0].ended)

    run(scenario)


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (b"", "it closed the connection"),
        (b"\x16\x03\x01\x00\x50abc", "it closed the connection"),
        (b"\x16\x03\x01\xff\xff", "is too large"),
    ],
)
def test_an_ended_or_oversized_client_hello_closes_the_connection(run, said, reason):
    async def scenario(listener, door, security):
        with socket.create_connection(("127.0.0.1", listener.port)) as client:
            client.sendall(said)
            client.shutdown(socket.SHUT_WR)
            await until(lambda: security.reasons)
            assert reason in security.reasons[0]
            await until(lambda: door.served[0].ended)

    run(scenario)


@pytest.mark.slow
@pytest.mark.parametrize("said", [b"", b"\x16", b"\x16\x03\x01\x00\x50abc"])
def test_an_incomplete_client_hello_is_closed_after_a_timeout(run, said, monkeypatch):
    monkeypatch.setattr(handshakes, "HELLO_S", 0.05)

    async def scenario(listener, door, security):
        with socket.create_connection(("127.0.0.1", listener.port)) as client:
            client.sendall(said)
            await until(lambda: security.reasons)
            assert security.reasons[0].startswith("no TLS handshake arrived")
            await until(lambda: door.served[0].ended)

    run(scenario)


@pytest.mark.parametrize("said", [b"", b"\x16\x03"])
def test_a_reset_before_the_handshake_closes_the_connection(run, said, monkeypatch):
    """uvloop does not call a reader after a reset, so the broker polls for it."""
    monkeypatch.setattr(handshakes, "HELLO_S", 3600)
    monkeypatch.setattr(handshakes, "CHECK_S", 0.05)

    async def scenario(listener, door, security):
        client = socket.create_connection(("127.0.0.1", listener.port))
        client.sendall(said)
        await until(lambda: door.served)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.close()
        await until(lambda: door.served[0].ended)
        assert len(security.reasons) == 1

    run(scenario)


def test_a_failed_handshake_is_reported_and_its_connection_closed(run, certificates):
    async def scenario(listener, door, security):
        with pytest.raises(ssl.SSLCertVerificationError):
            context = ssl.create_default_context()  # trusts others
            await asyncio.open_connection("127.0.0.1", listener.port, ssl=context, server_hostname="localhost")
        await until(lambda: security.reasons)
        assert door.served[0].ended

    run(scenario)


def test_a_listener_that_closes_lets_go_of_those_who_wait(run, certificates):
    async def scenario(listener, door, security):
        security.is_busy = True
        with (
            socket.create_connection(("127.0.0.1", listener.port)) as silent,
            socket.create_connection(("127.0.0.1", listener.port)) as waiting,
        ):
            waiting.sendall(client_hello(certificates))
            await until(lambda: security.queue and len(door.served) == 2)
            listener.close()
            silent.settimeout(60)
            waiting.settimeout(60)
            assert silent.recv(1) == b""
            security.queue[0]()  # its turn has come, but the client has gone

    run(scenario)
