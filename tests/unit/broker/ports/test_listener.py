"""Accepting connections on real sockets: waiting, failing and closing."""

import asyncio
import errno
import socket

import pytest
import uvloop

from ottla.broker.ports.listener import Listener, bind

LOOPS = [asyncio.new_event_loop, uvloop.new_event_loop]


class Served(asyncio.BufferedProtocol):
    def connection_made(self, transport):
        transport.write(b"hello")
        transport.close()


class Door:
    def __init__(self):
        self.waits = []
        self.failures = []
        self.refuses = False
        self.others_are_due = False
        self.resting = []
        self.came = 0

    def wait_ms(self):
        return self.waits.pop(0) if self.waits else 0

    def accept(self, ip, port):
        assert ip == "127.0.0.1"
        self.came += 1
        return None if self.refuses else Served()

    def defer(self, go_on):
        if self.others_are_due:
            self.resting.append(go_on)
        return self.others_are_due

    def report_failure(self, error):
        self.failures.append(error.errno)


class Short(socket.socket):
    """A listening socket that finds no free descriptor for its first connection."""

    tries = 0

    def accept(self):
        self.tries += 1
        if self.tries == 1:
            raise OSError(errno.EMFILE, "Too many open files")
        return super().accept()


def read_answers(port, number=1):
    async def ask():
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            return await asyncio.wait_for(reader.read(), 10)
        finally:
            writer.close()

    return asyncio.gather(*(ask() for _ in range(number)))


@pytest.fixture(params=LOOPS, ids=["asyncio", "uvloop"])
def run(request):
    def live(scenario):
        with asyncio.Runner(loop_factory=request.param) as runner:
            runner.run(scenario())

    return live


async def listening(door):
    loop = asyncio.get_running_loop()
    return Listener(loop, await bind(loop, "127.0.0.1", 0), door)


class Resolver:
    """Resolve a host to an address that this machine lacks: 192.0.2.1 is unassigned, like ::1 without IPv6."""

    async def getaddrinfo(self, host, port, **_):
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in ("192.0.2.1", "127.0.0.1")]


def test_an_address_of_a_host_that_this_machine_lacks_is_passed_over():
    async def scenario():
        bound = await bind(Resolver(), "localhost", 0)
        assert "127.0.0.1" in [sock.getsockname()[0] for sock in bound]
        for sock in bound:
            sock.close()

    asyncio.run(scenario())


def test_connections_are_served_until_the_listener_is_closed(run):
    async def scenario():
        listener = await listening(Door())
        assert await read_answers(listener.port, 100) == [b"hello"] * 100
        port = listener.port
        listener.close()
        with pytest.raises(OSError):
            await read_answers(port)

    run(scenario)


def test_a_refused_connection_is_closed(run):
    async def scenario():
        door = Door()
        door.refuses = True
        listener = await listening(door)
        assert await read_answers(listener.port) == [b""]
        listener.close()

    run(scenario)


def test_accepting_is_retried_after_the_wait_and_on_resume(run):
    async def scenario():
        door = Door()
        listener = await listening(door)
        door.waits = [1.0, float("inf")]
        waiting = asyncio.ensure_future(read_answers(listener.port))
        while door.waits:
            await asyncio.sleep(0.001)
        assert door.came == 0
        listener.resume()
        assert await waiting == [b"hello"]
        listener.close()

    run(scenario)


def test_one_is_accepted_and_the_next_when_others_were_served(run):
    async def scenario():
        door = Door()
        door.others_are_due = True
        listener = await listening(door)
        waiting = asyncio.ensure_future(read_answers(listener.port, 3))
        for number in range(3):
            while not door.resting:
                await asyncio.sleep(0.001)
            await asyncio.sleep(0.02)
            assert door.came == number + 1
            door.resting.pop()()
        assert await waiting == [b"hello"] * 3
        listener.close()

    run(scenario)


def test_a_deferred_accept_does_nothing_after_the_close(run):
    async def scenario():
        door = Door()
        door.others_are_due = True
        listener = await listening(door)
        assert await read_answers(listener.port) == [b"hello"]
        listener.close()
        door.resting.pop()()
        assert door.came == 1

    run(scenario)


def test_a_lack_of_descriptors_is_reported_and_accepting_is_retried(run):
    async def scenario():
        loop = asyncio.get_running_loop()
        door = Door()
        sock = Short()
        sock.bind(("127.0.0.1", 0))
        sock.listen()
        listener = Listener(loop, [sock], door)
        assert await read_answers(listener.port) == [b"hello"]
        assert door.failures == [errno.EMFILE]
        listener.close()

    run(scenario)


def test_a_host_of_several_families_is_bound_on_one_port(run):
    async def scenario():
        sockets = await bind(asyncio.get_running_loop(), "", 0)
        assert len({each.getsockname()[1] for each in sockets}) == 1
        for each in sockets:
            each.close()

    run(scenario)


def test_a_port_that_is_taken_is_an_error_and_leaves_no_socket(run):
    async def scenario():
        with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(OSError) as caught:
            await bind(asyncio.get_running_loop(), "127.0.0.1", taken.getsockname()[1])
        assert caught.value.errno == errno.EADDRINUSE

    run(scenario)
