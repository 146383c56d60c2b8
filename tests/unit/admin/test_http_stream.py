"""Answers of unknown length on one connection of the admin port: server-sent events, a trace."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from web import Web, request

from ottla.admin.http import PIECE_BYTES, REQUEST_MS
from ottla.admin.routes import AdminResponse, Route
from ottla.broker.turns import Wait


class Ticker:
    """A stream of the events that the test adds, until it adds None."""

    def __init__(self):
        self.web = Web([Route("GET", "/ticks", self.open, "Streams")])
        self.waits, self.taken, self.ends = [], 0, 0

    async def open(self, request):
        return AdminResponse(body=self.stream, content_type="text/event-stream")

    async def stream(self, send):
        while (piece := await self.next()) is not None:
            await send(piece)
            self.taken += 1
        self.ends += 1

    def next(self):
        wait = Wait(self.web.broker.turns, lambda: self.waits.remove(wait))
        self.waits.append(wait)
        return wait

    def say(self, piece):
        wait = self.waits.pop()
        self.web.broker.turns.event(lambda: wait.wake(piece))
        self.web.broker.advance(0.1)


@pytest.fixture
def ticker():
    ticker = Ticker()
    yield ticker
    assert ticker.web.broker.bugs == []


def body_of(visitor):
    return bytes(visitor.transport.written).partition(b"\r\n\r\n")[2]


def test_each_piece_of_a_stream_is_sent_as_soon_as_it_is_produced(ticker):
    visitor = ticker.web.connect()
    visitor.send(request("GET", "/ticks"))
    head = bytes(visitor.transport.written)
    assert head.startswith(b"HTTP/1.1 200 OK") and head.endswith(b"\r\n\r\n")
    assert b"Content-Type: text/event-stream\r\n" in head and b"Content-Length" not in head
    ticker.say(b"one")
    assert body_of(visitor) == b"3\r\none\r\n"
    ticker.say(b"two")
    ticker.say(None)
    assert body_of(visitor) == b"3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n"
    visitor.send(request("GET", "/echo/x"))
    assert body_of(visitor).partition(b"0\r\n\r\n")[2].startswith(b"HTTP/1.1 200 OK")


def test_an_old_client_reads_to_the_end_of_the_connection(ticker):
    visitor = ticker.web.connect()
    visitor.send(request("GET", "/ticks", version="1.0"))
    ticker.say(b"one")
    ticker.say(None)
    assert body_of(visitor) == b"one" and visitor.transport.closed


def test_head_on_a_stream_returns_headers_and_does_not_start_it(ticker):
    visitor = ticker.web.connect()
    visitor.send(request("HEAD", "/ticks"))
    assert visitor.transport.written.startswith(b"HTTP/1.1 200 OK") and body_of(visitor) == b""
    assert ticker.waits == []


@pytest.mark.parametrize("leave", ["hang_up", "end"])
def test_a_stream_ends_with_its_reader(ticker, leave):
    visitor = ticker.web.connect()
    visitor.send(request("GET", "/ticks"))
    getattr(visitor, leave)()
    assert ticker.waits == [] and ticker.ends == 0 and ticker.web.left == [visitor.connection]


def test_a_reader_that_takes_nothing_is_cut_off(ticker):
    visitor = ticker.web.connect()
    visitor.send(request("GET", "/ticks"))
    visitor.transport.takes = PIECE_BYTES
    ticker.say(b"x" * 3 * PIECE_BYTES)
    assert ticker.taken == 0 and len(visitor.transport.written) < 3 * PIECE_BYTES
    ticker.web.broker.advance(REQUEST_MS + 1)
    assert visitor.transport.aborted and ticker.waits == []


def test_a_slow_reader_gets_it_all(ticker):
    visitor = ticker.web.connect()
    visitor.send(request("GET", "/ticks"))
    visitor.transport.takes = 0
    ticker.say(b"x" * 3 * PIECE_BYTES)
    for _ in range(3):
        ticker.web.broker.advance(REQUEST_MS / 2)
        visitor.transport.take(PIECE_BYTES + 100)
        ticker.web.broker.advance(0.1)
    assert body_of(visitor).count(b"x") == 3 * PIECE_BYTES
    assert ticker.taken == 1 and not visitor.transport.closed


def test_a_stream_that_fails_is_broken_off(caplog):
    async def stream(send):
        await send(b"half")
        raise RuntimeError("a bug")

    async def handler(request):
        return AdminResponse(body=stream)

    web = Web([Route("GET", "/broken", handler, "Fails")])
    visitor = web.connect()
    visitor.send(request("GET", "/broken"))
    assert body_of(visitor) == b"4\r\nhalf\r\n" and visitor.transport.aborted
    assert caplog.messages == ["The connection of 127.0.0.1:4711 to the admin port failed"]
