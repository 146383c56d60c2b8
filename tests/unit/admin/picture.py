"""The routes of the live picture on a broker in memory, and their client. free"""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from web import Web, request

from ottla.admin.routes import Router
from ottla.admin.serving import picture_routes
from tests.api.callers import coordinating


class Picture:
    """A broker in memory, and the client of its live picture."""

    def __init__(self, **options):
        self.broker = coordinating(**options)
        self.parts = self.broker.assembly.broker
        self.web = Web(broker=self.broker)
        self.web.router = Router(picture_routes(self.parts, self.broker.clock))
        self.events = self.parts.events

    def get(self, target, status=200):
        """Return the answer as a value."""
        return json.loads(self.fetch(target, status))

    def fetch(self, target, status=200):
        """Return the bytes of an answer, which may come in chunks."""
        visitor = self.web.connect()
        visitor.send(request("GET", target))
        for _ in range(2_000):
            written = bytes(visitor.transport.written)
            head, _, body = written.partition(b"\r\n\r\n")
            is_chunked = b"chunked" in head
            if head and (body.endswith(b"0\r\n\r\n") if is_chunked else len(body) >= length_of(head)):
                break
            self.broker.advance()
        assert int(head.split(b" ")[1]) == status, written[:1000]
        return decode_chunks(body) if is_chunked else body

    def follow(self, target="/v1/events"):
        """Open the event stream and return its reader."""
        return Follower(self, target)


class Follower:
    """A reader of the event stream. `news` returns the events since the last call."""

    def __init__(self, picture, target):
        self.picture = picture
        self.visitor = picture.web.connect()
        self.visitor.send(request("GET", target))
        self._seen = 0

    @property
    def head(self):
        return bytes(self.visitor.transport.written).partition(b"\r\n\r\n")[0].decode()

    def news(self, after_ms=300.0):
        """Return [(event, data)] for the events that arrive in this time."""
        self.picture.broker.advance(after_ms)
        body = decode_chunks(bytes(self.visitor.transport.written).partition(b"\r\n\r\n")[2])
        new, self._seen = body[self._seen :], len(body)
        return [parse_event(block) for block in new.decode().split("\n\n") if block and not block.startswith(":")]


def parse_event(block):
    fields = dict(line.split(": ", 1) for line in block.split("\n"))
    data = json.loads(fields["data"])
    if "id" in fields:
        assert int(fields["id"]) == data["seq"]
    return fields["event"], data


def length_of(head):
    return next(int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length"))


def decode_chunks(data):
    """Return the part of the body that has arrived, without chunk headers."""
    found = b""
    while data:
        size, _, data = data.partition(b"\r\n")
        size_bytes = int(size, 16)
        found += data[:size_bytes]
        data = data[size_bytes + 2 :]
    return found
