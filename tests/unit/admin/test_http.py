"""Replies of one connection of the admin port to requests that arrive in pieces of any size."""

import json
import random
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from web import Web, request

from ottla.admin.routes import AdminResponse, Route


@pytest.fixture(scope="module")
def shared_web():
    return Web()


@pytest.fixture
def web(shared_web):
    shared_web.asked.clear()
    shared_web.waits.clear()
    shared_web.left.clear()
    yield shared_web
    assert shared_web.broker.bugs == []
    assert shared_web.waits == []


def encode_chunks(*pieces):
    return b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"


def test_a_request_is_answered_in_json(web):
    reply = web.ask("GET", "/echo/ledger?a=1&b=")
    assert reply.status == 200
    assert reply.value == {"body": None, "query": {"a": "1", "b": ""}, "name": "ledger"}
    assert reply.headers["content-type"] == "application/json"
    assert reply.headers["cache-control"] == "no-store"
    assert reply.headers["x-content-type-options"] == "nosniff"
    assert reply.headers["cross-origin-resource-policy"] == "same-origin"


@pytest.mark.parametrize("piece_bytes", [1, 2, 3, 7, 64])
def test_a_request_that_arrives_in_pieces_is_answered(web, piece_bytes):
    visitor = web.connect()
    body = {"value": "é" * 20}
    visitor.send(request("POST", "/echo", body), piece_bytes)
    head, _, _ = request("POST", "/echo").partition(b"\r\n\r\n")
    head += b"\r\ncontent-type: application/json; charset=UTF-8\r\ntransfer-encoding: chunked\r\n\r\n"
    visitor.send(head + encode_chunks(*[bytes([byte]) for byte in json.dumps(body).encode()]), piece_bytes)
    assert [reply.value["body"] for reply in visitor.replies()] == [body, body]
    assert not visitor.transport.closed


def test_requests_may_be_sent_ahead_and_are_answered_in_order(web):
    visitor = web.connect()
    ahead = b"".join(request("POST", "/echo", {"value": number}) + b"\r\n" for number in range(200))
    visitor.send(ahead, 1_000)
    assert [reply.value["body"]["value"] for reply in visitor.replies()] == [*range(200)]


@pytest.mark.slow
def test_a_waiting_request_delays_later_ones_and_pauses_reading(web):
    visitor = web.connect()
    visitor.send(request("GET", "/wait"))
    visitor.send(request("GET", "/echo/x") * 2_000, 1_000)
    assert visitor.replies() == [] and not visitor.transport.reading
    (wait,) = web.waits
    web.waits.clear()
    web.broker.turns.event(lambda: wait.wake("done"))
    for _ in range(1_000):
        web.broker.advance()
        visitor.send(b"", 1_000)
    first, *advance = visitor.replies()
    assert (first.value, len(advance)) == ("done", 2_000)


def test_a_disconnect_cancels_the_waiting_request(web):
    visitor = web.connect()
    visitor.send(request("GET", "/wait"))
    assert len(web.waits) == 1
    visitor.hang_up()
    assert web.waits == [] and web.left == [visitor.connection]


def test_a_half_close_while_a_request_waits_cancels_it(web):
    visitor = web.connect()
    visitor.send(request("GET", "/wait"))
    visitor.end()
    assert web.waits == [] and visitor.transport.closed and visitor.replies() == []


def test_a_half_close_during_a_reply_does_not_cut_it_short(web):
    visitor = web.connect()
    visitor.transport.takes = 0
    visitor.send(request("GET", "/large?bytes=200000"))
    visitor.end()
    while not visitor.transport.closed:
        visitor.transport.take(100_000)
        web.broker.advance(0.1)
    (reply,) = visitor.replies()
    assert reply.body == b"x" * 200_000


def test_head_is_answered_as_get_without_its_body(web):
    visitor = web.connect()
    visitor.send(request("HEAD", "/echo/x") + request("GET", "/echo/x"))
    head, _, behind = bytes(visitor.transport.written).partition(b"\r\n\r\n")
    assert b"HTTP/1.1 200 OK" in head and behind.startswith(b"HTTP/1.1 200 OK")
    assert head == behind.partition(b"\r\n\r\n")[0]


def test_a_204_reply_has_no_content_length_and_keeps_the_connection(web):
    visitor = web.connect()
    visitor.send(request("DELETE", "/gone") * 2)
    first, second = visitor.replies()
    assert (first.status, second.status) == (204, 204)
    assert "content-length" not in first.headers


def test_a_handler_error_is_returned_with_its_headers(web):
    reply = web.ask("GET", "/refused")
    assert (reply.status, reply.value) == (409, {"error": "It is held by another"})
    assert reply.headers["retry-after"] == "1"


def test_an_exception_in_a_handler_is_logged_and_returned_as_500(web, caplog):
    visitor = web.connect()
    visitor.send(request("GET", "/bug") + request("GET", "/echo/x"))
    assert [reply.status for reply in visitor.replies()] == [500, 200]
    assert "RuntimeError('a bug')" in visitor.replies()[0].value["error"]
    assert caplog.messages == ["GET /bug on the admin port failed"]


def test_a_reply_that_cannot_be_json_is_logged_and_returned_as_500(web, caplog):
    visitor = web.connect()
    visitor.send(request("GET", "/odd") + request("GET", "/echo/x"))
    assert [reply.status for reply in visitor.replies()] == [500, 200]
    assert "The reply cannot be written as JSON" in visitor.replies()[0].value["error"]
    assert caplog.messages[0].startswith("A reply of the admin port cannot be written as JSON: {'odd': <object")


def test_forbidden_requests_are_recorded_and_unknown_paths_are_not(web):
    web.refused.clear()
    web.ask("GET", "/echo/x", host="evil.example")
    web.ask("GET", "/nowhere")
    assert web.refused == [
        ("127.0.0.1:4711", "The Host header evil.example is not a name of this port: send requests to localhost")
    ]


def test_data_received_in_the_same_turn_as_the_end_is_read(web):
    visitor = web.connect()
    sent = request("POST", "/echo", {"value": 1})
    visitor.send(sent[:-5])

    def both():  # in one turn, as where the broker was busy
        visitor.connection.data_received(sent[-5:])
        visitor.connection.eof_received()

    web.broker.turns.event(both)
    web.broker.advance()
    assert [reply.status for reply in visitor.replies()] == [200]
    assert visitor.transport.closed


@pytest.mark.parametrize(
    ("asked", "status", "told"),
    [
        (request("GET", "/nowhere"), 404, "There is nothing at /nowhere"),
        (request("PATCH", "/echo"), 405, "/echo takes POST, not PATCH"),
        (request("GET", "/echo/x?c=1"), 400, "The query has an unknown parameter 'c'"),
        (request("GET", "/echo/x", {}), 400, "GET /echo/x takes no body"),
        (request("POST", "/echo", {}, content_type="text/plain"), 415, "A body must be JSON"),
        (request("POST", "/echo", {}, content_type=None), 415, "A body must be JSON"),
        (request("POST", "/echo", {}, content_type="application/json; charset=latin-1"), 415, "A body must be JSON"),
        (
            request("POST", "/echo", b"{"),
            400,
            "The body is not JSON: Expecting property name",
        ),
        (request("POST", "/echo", b'{"value":"\xff"}'), 400, "The body is not UTF-8"),
        (request("POST", "/echo", b"[]"), 422, "The body must be an object"),
        (request("PUT", "/number", {"m": 1}), 422, "m is not known: there is n"),
        (
            request("GET", "/echo/x", host="evil.example"),
            403,
            "The Host header evil.example is not a name of this port",
        ),
        (
            request("GET", "/echo/x", origin="http://evil.example"),
            403,
            "A web page of http://evil.example may not send",
        ),
        (
            request("OPTIONS", "/echo", origin="http://evil.example"),
            403,
            "A web page of http://evil.example may not send",
        ),
        (request("GET", "/echo/x", sec_fetch_site="cross-site"), 403, "A web page of another site may not send"),
        (request("GET", "/../../etc/passwd"), 404, "There is nothing at /../../etc/passwd"),
        (request("GET", "http://localhost:9644/echo/x"), 400, "The path must begin with /"),
        (request("OPTIONS", "*"), 400, "The path must begin with /"),
        (request("CONNECT", "localhost:80"), 400, "The path must begin with /"),
        (request("GET", "/echo/x", upgrade="websocket", connection="upgrade"), 200, ""),
    ],
)
def test_request_errors_close_the_connection_only_with_a_close_header(web, asked, status, told):
    visitor = web.connect()
    visitor.send(asked)
    visitor.send(request("GET", "/echo/next"))
    web.broker.advance(5_000)
    first, *advance = visitor.replies()
    assert first.status == status
    assert first.value.get("error", "").startswith(told)
    if first.headers.get("connection") == "close":
        assert advance == [] and visitor.transport.closed
    else:
        assert [reply.status for reply in advance] == [200]


@pytest.mark.parametrize(
    ("sent", "status", "told"),
    [
        (b"GET /echo/x HTTP/1.1\r\n\r\n", 400, "This is not HTTP/1.1: Missing mandatory Host"),
        (b"GET /echo/x HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n", 400, "This is not HTTP/1.1: "),
        (b"GET /echo/x HTTP/1.1\r\nHost: localhost\r\nOrigin: a\r\nOrigin: b\r\n\r\n", 400, "The header origin occurs"),
        (b"GET /echo/x HTTP/1.1\nHost localhost\n\n", 400, "This is not HTTP/1.1: illegal header"),
        (
            request("GET", "/echo/x", x=" " * 16_000 + "\x0b"),
            400,
            "This is not HTTP/1.1: the head contains a control character",
        ),
        (request("GET", "/echo/x", x="\x00"), 400, "This is not HTTP/1.1: the head contains a control character"),
        (request("GET", "/echo/x", x="a\rb"), 400, "This is not HTTP/1.1: the head contains a control character"),
        (b"nonsense\r\n\r\n", 400, "This is not HTTP/1.1: illegal request line"),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505, "This port serves HTTP/1.1 only"),
        (b"\x00\x00\x00\x20\x00\x12\x00\x04", 400, "This is not HTTP: "),
        (b"\x16\x03\x01\x02\x00\x01", 400, "This is not HTTP: "),
        (request("POST", "/echo", b"{}", content_length="-1"), 400, "This is not HTTP/1.1: "),
        (request("POST", "/echo", b"{}", content_length="2, 3"), 400, "This is not HTTP/1.1: "),
        (request("POST", "/echo", b"{}", transfer_encoding="gzip"), 501, "This is not HTTP/1.1: "),
        (
            request("POST", "/echo", b"zz\r\n{}\r\n", content_length=None, transfer_encoding="chunked"),
            400,
            "This is not ",
        ),
        (request("POST", "/echo", b"x", content_length=1 << 16), 400, "The request ended before it was complete"),
        (request("POST", "/echo", b"x", content_length=(1 << 16) + 1), 413, "A body must have at most 65536 bytes"),
        (request("POST", "/echo", b"x", content_length="9" * 20), 413, "A body must have at most 65536 bytes"),
        (b"GET /echo/x HTTP/1.1\r\nHost: localhost\r\n", 400, "The request ended before it was complete"),
        (b"GET /" + b"x" * 20_000, 431, "The head of a request must have at most 16384 bytes"),
        (request("GET", "/echo/x", x="x" * 16_384), 431, "The head of a request must have at most 16384 bytes"),
        (
            request("GET", "/echo/x", **{f"x{n}": "" for n in range(100)}),
            431,
            "The head of a request must have at most 100 lines",
        ),
    ],
)
@pytest.mark.parametrize("piece_bytes", [100, 65_536])
def test_a_malformed_or_oversized_request_gets_an_error_and_a_close(web, sent, status, told, piece_bytes):
    visitor = web.connect()
    visitor.send(sent, piece_bytes)
    visitor.end()
    (reply,) = visitor.replies()
    assert (reply.status, reply.headers["connection"]) == (status, "close")
    assert reply.value["error"].startswith(told)
    assert visitor.transport.closed and not visitor.transport.aborted


def test_a_head_of_the_largest_size_is_read(web):
    room = 16_384 - len(request("GET", "/echo/x", x=""))
    assert web.ask("GET", "/echo/x", x="x" * room).status == 200
    assert web.ask("GET", "/echo/x", x="x" * (room + 1)).status == 431


@pytest.mark.parametrize("is_chunked", [False, True])
def test_a_body_of_the_largest_size_is_read(web, is_chunked):
    def ask(size_bytes):
        body = b'{"value":"' + b"x" * (size_bytes - 12) + b'"}'
        assert len(body) == size_bytes
        visitor = web.connect()
        if is_chunked:
            pieces = [body[start : start + 1_000] for start in range(0, len(body), 1_000)]
            body = encode_chunks(*pieces)
            visitor.send(request("POST", "/echo", body, content_length=None, transfer_encoding="chunked"))
        else:
            visitor.send(request("POST", "/echo", body))
        for _ in range(3_000):
            web.broker.advance()
            visitor.send(b"")
        (reply,) = visitor.replies()
        return reply.status

    assert (ask(1 << 16), ask((1 << 16) + 1)) == (200, 413)


def test_a_client_refused_during_its_body_may_finish_sending(web):
    visitor = web.connect()
    visitor.send(request("POST", "/echo", b"x" * 100_000, content_type="text/plain"))
    assert [reply.status for reply in visitor.replies()] == [415]
    assert visitor.transport.ended and not visitor.transport.closed
    visitor.send(b"x" * 100_000)
    visitor.end()
    assert visitor.transport.closed and not visitor.transport.aborted


def test_a_refused_client_that_keeps_sending_is_disconnected(web):
    visitor = web.connect()
    visitor.send(request("POST", "/echo", b"x", content_length=1 << 30))
    for _ in range(30):
        visitor.send(b"x" * 1_000)
        web.broker.advance(100.0)
    assert visitor.transport.closed


def test_expect_100_continue_is_answered_before_the_body_arrives(web):
    visitor = web.connect()
    head, _, _ = request("POST", "/echo", b"{}", expect="100-continue").partition(b"{}")
    visitor.send(head)
    assert bytes(visitor.transport.written).startswith(b"HTTP/1.1 100")
    visitor.send(b"{}")
    assert b"HTTP/1.1 200 OK" in visitor.transport.written
    refused = web.connect()
    refused.send(request("POST", "/nowhere", content_type="application/json", content_length=9, expect="100-continue"))
    assert bytes(refused.transport.written).startswith(b"HTTP/1.1 404")


def test_http_1_0_is_answered_once(web):
    visitor = web.connect()
    visitor.send(request("GET", "/echo/x", version="1.0", host=None))
    (reply,) = visitor.replies()
    assert (reply.status, reply.headers["connection"]) == (200, "close")
    assert visitor.transport.closed


def test_a_connection_close_header_ends_the_connection_after_one_reply(web):
    visitor = web.connect()
    visitor.send(request("GET", "/echo/x", connection="close") + request("GET", "/echo/x"))
    assert len(visitor.replies()) == 1 and visitor.transport.closed


def test_a_request_incomplete_after_10_seconds_gets_408(web):
    visitor = web.connect()
    sent = request("POST", "/echo", {"value": 1})
    for byte in sent[:-1]:
        visitor.send(bytes([byte]))
        web.broker.advance(100.0)
    web.broker.advance(1_000.0)
    (reply,) = visitor.replies()
    assert (reply.status, reply.value) == (408, {"error": "The request was not complete after 10 s"})
    web.broker.advance(3_000.0)
    assert visitor.transport.closed


def test_an_idle_connection_is_closed_after_a_minute(web):
    fresh, used = web.connect(), web.connect()
    used.send(request("GET", "/echo/x"))
    web.broker.advance(59_000.0)
    assert not fresh.transport.closed and not used.transport.closed
    used.send(request("GET", "/echo/x"))
    web.broker.advance(2_000.0)
    assert fresh.transport.closed and fresh.replies() == []
    assert not used.transport.closed
    web.broker.advance(60_000.0)
    assert used.transport.closed and len(used.replies()) == 2


def test_a_handler_may_wait_for_as_long_as_it_likes(web):
    visitor = web.connect()
    visitor.send(request("GET", "/wait"))
    web.broker.advance(600_000.0)
    assert not visitor.transport.closed
    (wait,) = web.waits
    web.waits.clear()
    wait.wake("done")
    web.broker.advance()
    assert visitor.replies()[0].value == "done"


def test_a_client_that_stops_reading_is_cut_off_with_little_buffered(web):
    visitor = web.connect()
    visitor.transport.takes = 0
    visitor.send(request("GET", "/large?bytes=10000000"))
    for _ in range(20):
        visitor.transport.take(70_000)
        web.broker.advance(9_000.0)
    assert not visitor.transport.closed
    assert len(visitor.transport.written) < 20 * 70_000 + 200_000
    web.broker.advance(11_000.0)
    assert visitor.transport.aborted and visitor.connection in web.left


def test_closing_a_connection_cancels_its_waiting_request(web):
    visitor = web.connect()
    visitor.send(request("GET", "/wait"))
    visitor.connection.close()
    assert web.waits == [] and visitor.transport.aborted


def test_a_connection_closed_before_its_first_request_is_released(web):
    visitor = web.connect()
    visitor.connection.close()
    assert visitor.transport.closed and web.left == [visitor.connection]


def test_any_bytes_are_answered_or_end_the_connection(web):
    chance = random.Random(15)
    parts = [
        b"GET /echo/x HTTP/1.1\r\n",
        b"POST /echo HTTP/1.1\r\n",
        b"Host: localhost\r\n",
        b"Content-Type: application/json\r\n",
        b"Content-Length: 2\r\n",
        b"Transfer-Encoding: chunked\r\n",
        b"Expect: 100-continue\r\n",
        b"Connection: close\r\n",
        b"\r\n",
        b"{}",
        b"2\r\n{}\r\n",
        b"0\r\n\r\n",
        b"0\r\nA: b\r\n\r\n",
        b"\x00",
        b" x\r\n",
    ]
    for _ in range(1_000):
        visitor = web.connect()
        visitor.send(b"".join(chance.choices(parts, k=chance.randint(1, 12))), chance.choice([1, 5, 1_000]))
        visitor.end()
        web.broker.advance(5_000.0)
        assert visitor.transport.closed


async def show_page(request):
    return AdminResponse(body=b"<!doctype html>", content_type="text/html; charset=utf-8")


PAGES = (
    Route("GET", "/", show_page, "The page", is_public=True),
    Route("GET", "/page/{name}", show_page, "What it is made of", is_public=True),
)
LINKED = {"sec_fetch_site": "cross-site", "sec_fetch_mode": "navigate", "sec_fetch_dest": "document"}


def test_page_files_need_no_token_and_all_other_paths_do():
    web = Web(PAGES, token="correct-horse-battery")
    assert [web.ask("GET", path).status for path in ("/", "/page/app.js", "/echo/x", "/nothing", "/%ff")] == [
        200,
        200,
        401,
        401,
        401,
    ]
    assert web.ask("POST", "/page/app.js", {}).status == 401


def test_a_link_from_another_site_opens_the_page_alone():
    web = Web(PAGES)
    assert web.ask("GET", "/", **LINKED).status == 200
    for path in ("/page/app.js", "/echo/x", "/%2f", "//"):
        assert web.ask("GET", path, **LINKED).status == 403, path
    assert web.ask("POST", "/", {}, **LINKED).status == 403
    assert web.ask("GET", "/", **LINKED | {"sec_fetch_dest": "iframe"}).status == 403
