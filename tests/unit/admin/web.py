"""A client of the admin port without a socket, on a broker in memory with a virtual clock. free"""

import json
from typing import NamedTuple

from ottla.admin.access import Access
from ottla.admin.http import HttpConnection
from ottla.admin.routes import AdminError, AdminResponse, Route, Router
from ottla.broker.turns import Wait
from tests.memory_broker import MemoryBroker, Weight

ANYTHING = {"type": "object", "properties": {"value": {}}, "additionalProperties": True}


class Reply(NamedTuple):
    status: int
    headers: dict
    body: bytes

    @property
    def value(self):
        return json.loads(self.body)


class Transport:
    """`takes` is how many bytes its socket takes; None for all, at once."""

    def __init__(self):
        self.protocol = None
        self.takes = None
        self.written = bytearray()
        self.closed = self.aborted = self.ended = False
        self.reading = True

    def write(self, data):
        assert not self.closed and not self.ended
        self.written += data
        if self.takes is not None:
            self.takes -= len(data)
            if self.takes < 0:
                self.protocol.pause_writing()

    def take(self, size_bytes):
        """Let the reader take this many more bytes."""
        self.takes += size_bytes
        if self.takes >= 0:
            self.protocol.resume_writing()

    def get_extra_info(self, name):
        return ("127.0.0.1", 4711) if name == "peername" else None

    def set_write_buffer_limits(self, high):
        assert high == 0

    def pause_reading(self):
        self.reading = False

    def resume_reading(self):
        self.reading = True

    def write_eof(self):
        self.ended = True

    def close(self):
        self._lose()

    def abort(self):
        self.aborted = True
        self._lose()

    def _lose(self):
        if not self.closed:
            self.closed = True
            self.protocol.connection_lost(None)


class Web:
    """The routes of a test on a broker, and the connections that ask for them."""

    def __init__(self, routes=(), token=None, broker=None):
        self.broker = broker or MemoryBroker()
        self.waits = []
        self.asked = []
        self.router = Router([*self._own_routes(), *routes])
        self.access = Access("127.0.0.1", token)
        self.left = []
        self.refused = []

    def refuse(self, peer, reason):
        self.refused.append((peer, reason))

    def connect(self):
        return Visitor(self)

    def ask(self, *arguments, **fields):
        """Return the reply to a request on a new connection."""
        visitor = self.connect()
        visitor.send(request(*arguments, **fields))
        (reply,) = visitor.replies()
        return reply

    def weigh(self, work):
        """Run `work` and the turns after it. Return the highest charge and the most uncharged calls of an event."""
        scales = self.broker.scales
        with scales.weigh():
            work()
            self.broker.advance(10_000.0)
        return Weight(scales.most_us, scales.uncharged_calls)

    def _own_routes(self):
        async def echo(request):
            self.asked.append(request)
            return AdminResponse(body={"body": request.body, "query": request.query, **request.parameters})

        async def wait(request):
            wait = Wait(self.broker.turns, lambda: self.waits.remove(wait))
            self.waits.append(wait)
            return AdminResponse(body=await wait)

        async def large(request):
            return AdminResponse(body=b"x" * int(request.query["bytes"]), content_type="text/plain")

        async def rows(request):
            return AdminResponse(body=[{"row": row, "name": "é"} for row in range(int(request.query["rows"]))])

        async def gone(request):
            return AdminResponse(204)

        async def odd(request):
            return AdminResponse(body={"odd": object()})

        async def refuse(request):
            raise AdminError(409, "It is held by another", (("Retry-After", "1"),))

        async def fail(request):
            raise RuntimeError("a bug")

        return [
            Route("GET", "/echo/{name}", echo, "Says what was asked", query={"a": "A name.", "b": "Another."}),
            Route("POST", "/echo", echo, "Says what was sent", request_schema=ANYTHING),
            Route("PUT", "/number", echo, "Takes a number", request_schema={"properties": {"n": {"type": "integer"}}}),
            Route("GET", "/wait", wait, "Waits for the test"),
            Route("GET", "/large", large, "Sends many bytes", query={"bytes": "How many."}),
            Route("GET", "/rows", rows, "Sends many rows", query={"rows": "How many."}),
            Route("DELETE", "/gone", gone, "Has no body"),
            Route("GET", "/refused", refuse, "Is always refused"),
            Route("GET", "/bug", fail, "Fails"),
            Route("GET", "/odd", odd, "Answers with what is no JSON"),
        ]


class Visitor:
    """A client connection to the admin port."""

    def __init__(self, web):
        self.web = web
        self.unsent = b""
        self.transport = Transport()
        turns, clock = web.broker.turns, web.broker.clock
        left, refuse = web.left.append, web.refuse
        self.connection = HttpConnection(web.router, web.access, turns, clock, left, refuse, lambda _: True)
        self.transport.protocol = self.connection
        self.connection.connection_made(self.transport)

    def send(self, data, piece_bytes=65_536):
        """Send data in pieces as long as the port reads."""
        self.unsent += data
        while self.unsent and self.transport.reading and not self.transport.closed:
            piece, self.unsent = self.unsent[:piece_bytes], self.unsent[piece_bytes:]
            self.connection.data_received(piece)
            if not self.transport.reading:
                self.web.broker.advance(0.1)
        self.web.broker.advance(0.1)

    def end(self):
        """Stop sending, but continue to read."""
        if not self.connection.eof_received():
            self.transport.close()
        self.web.broker.advance(0.1)

    def hang_up(self):
        self.transport.closed = True
        self.connection.connection_lost(None)

    def replies(self):
        """Return the replies, parsed by hand: h11 must not check its own output."""
        found, data = [], bytes(self.transport.written)
        while data:
            head, _, data = data.partition(b"\r\n\r\n")
            line, *lines = head.decode("latin-1").split("\r\n")
            version, status, _ = line.split(" ", 2)
            assert version == "HTTP/1.1"
            headers = {name.lower(): value for name, value in (header.split(": ", 1) for header in lines)}
            size_bytes = int(headers.get("content-length", 0))
            found.append(Reply(int(status), headers, data[:size_bytes]))
            data = data[size_bytes:]
        return found


def request(method, target, body=None, version="1.1", **headers):
    """Return the bytes of a request. A body is encoded as JSON unless it is bytes."""
    lines = {"host": "localhost:9644"} | {name.replace("_", "-"): value for name, value in headers.items()}
    data = b""
    if body is not None:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        lines = {"content-type": "application/json", "content-length": len(data)} | lines
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items() if value is not None)
    return f"{method} {target} HTTP/{version}\r\n{head}\r\n".encode() + data
