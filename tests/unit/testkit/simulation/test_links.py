"""The network of the simulation: order, pieces, resets, and bytes that arrive after their client has closed."""

from random import Random

import pytest

from lab.simulation.network import CALM, Link, NetworkConditions
from ottla.testkit.in_memory.ports import PortCalls
from ottla.testkit.in_memory.schedule import Schedule, VirtualClock


class FakeConnection:
    """A stand-in for the broker's `Connection`."""

    def __init__(self):
        self.data = b""
        self.chunks = 0
        self.lost = False

    def connection_made(self, transport):
        self.transport = transport

    def get_buffer(self, sizehint):
        self.buffer = bytearray(5)
        return memoryview(self.buffer)

    def buffer_updated(self, size):
        self.data += self.buffer[:size]
        self.chunks += 1

    def connection_lost(self, error):
        self.lost = True


class Ends:
    """Both sides of a link: the world, and the client."""

    def __init__(self, seed, network):
        self.schedule = Schedule()
        self.random = Random(seed)
        self.network = network
        self.answers = b""
        self.client_lost = False
        self.connection = FakeConnection()
        self.link = Link(self, self, self.connection, "c.0")

    def note(self, what, data):
        """Discard the trace."""

    def guard(self, work):
        work()

    def on_data(self, link, data):
        self.answers += data

    def lost(self, link):
        self.client_lost = True

    def settle(self):
        while self.schedule.run_next():
            pass


@pytest.mark.parametrize("seed", range(20))
def test_bytes_arrive_in_order_in_pieces_of_any_size(seed):
    ends = Ends(seed, NetworkConditions(split=1.0, stall=0.3, reset=0.0))
    sent = [bytes([n]) * 9 for n in range(20)]
    for data in sent:
        ends.link.send(data)
    ends.connection.transport.writelines([b"re", b"ply"])
    ends.settle()
    assert ends.connection.data == b"".join(sent)
    assert ends.answers == b"reply"


@pytest.mark.parametrize("seed", range(20))
def test_a_reset_loses_a_suffix(seed):
    ends = Ends(seed, CALM._replace(late=0.0))
    for data in (b"one", b"two", b"three"):
        ends.link.send(data)
    ends.connection.transport.write(b"lost")
    ends.link.reset()
    assert ends.client_lost
    ends.settle()
    assert ends.connection.data in (b"", b"one", b"onetwo", b"onetwothree")
    assert ends.connection.lost
    assert ends.answers == b""


def test_late_bytes_arrive_after_their_client_has_left_the_link():
    ends = Ends(3, CALM._replace(late=1.0, late_ms=5000.0))
    ends.link.send(b"late")
    ends.link.leave()
    ends.schedule.after(2.0, lambda: None)
    ends.schedule.run_next()
    assert ends.connection.data == b""
    ends.settle()
    assert ends.connection.data == b"late"
    assert ends.schedule.now_ms > 100


def test_a_broker_that_does_not_read_gets_nothing():
    ends = Ends(1, CALM)
    ends.connection.transport.pause_reading()
    ends.link.send(b"held")
    ends.settle()
    assert ends.connection.data == b""
    ends.connection.transport.resume_reading()
    assert ends.connection.data == b"held"


def test_bytes_written_before_the_broker_closes_arrive():
    ends = Ends(1, CALM)
    ends.connection.transport.write(b"bye")
    ends.connection.transport.close()
    ends.connection.transport.write(b"never")
    ends.settle()
    assert ends.answers == b"bye"
    assert ends.client_lost
    assert ends.connection.lost


def test_a_dead_clock_runs_no_pending_timer():
    schedule, ran = Schedule(), []
    clock = VirtualClock(schedule, PortCalls(), 0.0, lambda work: work())
    clock.enter = lambda callback: callback()
    clock.call_later(5, lambda: ran.append("timer"))
    clock.next_turn(lambda: ran.append("turn"))
    clock.call_later(1, lambda: ran.append("cancelled")).cancel()
    schedule.run_next()
    clock.alive = False
    assert schedule.run_next()
    assert not schedule.run_next()
    assert ran == ["turn"]
    assert schedule.now_ms == 5
