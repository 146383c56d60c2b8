"""A client of a connection without a socket, and its requests."""

import struct
from types import SimpleNamespace

from ottla.broker.api.context import Api, Broker
from ottla.broker.api.request import Encoded
from ottla.broker.config import Config
from ottla.broker.connection import Connection
from ottla.broker.dispatch import Dispatcher
from ottla.broker.turns import Turns
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.requests.frames import SharedMemory

HEARTBEAT = ApiKey.HEARTBEAT
STILL = SimpleNamespace(monotonic_ms=lambda: 0.0)


class Transport:
    """A transport without a socket. It accepts `takes` bytes before it pauses the protocol; None for all."""

    def __init__(self):
        self.protocol = None
        self.takes = None
        self.written = []
        self.closed = False
        self.aborted = False
        self.reading = True

    def write(self, data):
        self.written.append(bytes(data))
        if self.takes is not None:
            self.takes -= len(data)
            if self.takes <= 0:
                self.protocol.pause_writing()

    def writelines(self, buffers):
        self.write(b"".join(buffers))

    def get_extra_info(self, name):
        return ("10.0.0.1", 4711) if name == "peername" else None

    def set_write_buffer_limits(self, high):
        assert high == 0

    def pause_reading(self):
        self.reading = False

    def resume_reading(self):
        self.reading = True

    def get_write_buffer_size(self):
        return 0 if self.takes is None else max(0, -self.takes)

    def close(self):
        self.closed = True

    def abort(self):
        self.closed = self.aborted = True


class Peer:
    """A client of one connection whose handlers are given by the test; of the broker of `other`, or of its own."""

    def __init__(self, handle, memory_bytes=256 << 20, other=None, first_use=False):
        self.bugs = []
        self.later = [] if other is None else other.later
        self.unsent = b""
        self.turns = Turns(self.later.append, self.bugs.append) if other is None else other.turns
        self.broker = broker = (
            Broker(Config(), STILL, self.turns, None, None, None, None, {}, memory_bytes)
            if other is None
            else other.broker
        )
        table = {
            HEARTBEAT: Api(HEARTBEAT, 0, 2).with_handler(handle),
            ApiKey.PRODUCE: Api(ApiKey.PRODUCE, 3, 3).with_handler(handle),
        }
        self.connections = {}
        self.shared = SharedMemory() if other is None else other.shared
        dispatcher = Dispatcher(broker, table, first_use)
        self.connection = Connection(dispatcher, self.turns, self.connections, Config(), self.shared)
        self.transport = Transport()
        self.transport.protocol = self.connection
        self.connection.connection_made(self.transport)

    def receive(self, data):
        while data:
            data = data[self._receive_once(data) :]

    def _receive_once(self, data):
        memory = self.connection.get_buffer(-1)
        count = min(len(memory), len(data))
        memory[:count] = data[:count]
        del memory
        self.connection.buffer_updated(count)
        return count

    def receive_while_read(self, data=b"", most_bytes=4_096):
        """Receive data while the connection is read. Another call receives the rest."""
        self.unsent += data
        while self.unsent and self.transport.reading and not self.transport.closed:
            self.unsent = self.unsent[self._receive_once(self.unsent[:most_bytes]) :]

    def next_turn(self):
        """Run the callbacks of the next turn. Return whether there were any."""
        due, self.later[:] = self.later[:], []
        for callback in due:
            self.turns.event(callback)
        return bool(due)

    @property
    def sent(self):
        return b"".join(self.transport.written)


def heartbeat(correlation_id, version=0, group=b"g"):
    body = struct.pack(">h", len(group)) + group + struct.pack(">i", 1) + struct.pack(">h", 1) + b"m"
    payload = struct.pack(">hhih", HEARTBEAT, version, correlation_id, -1) + body
    return struct.pack(">i", len(payload)) + payload


async def echo(broker, request):
    return Encoded([struct.pack(">i", request.correlation_id)])
