"""Work that a client of the admin port causes is charged to the ledger and split into turn budgets."""

import sys
from pathlib import Path

import pytest

from ottla.admin.json_text import BODY_BYTES
from ottla.broker.turns import SHARE_US

sys.path.insert(0, str(Path(__file__).parent))

from web import Web, request

MOST_UNCHARGED_CALLS = 2_000
"""As in `test_bounded.py`: what a step of fixed size may do without a charge."""


def fill_body(unit, size_bytes=BODY_BYTES, begin=b"[", end=b"0]"):
    return begin + unit * ((size_bytes - len(begin) - len(end)) // len(unit)) + end


BODIES = {
    "numbers": fill_body(b"0,"),
    "objects": fill_body(b'{"a":1},'),
    "lists": fill_body(b"[" * 60 + b"]" * 60 + b","),
    "names": b'{"value":{' + b",".join(b'"%x":1' % number for number in range(5_000)) + b"}}",
    "escapes": fill_body(b"\\u0041", begin=b'{"value":"', end=b'"}'),
    "text": fill_body(b"x", begin=b'{"value":"', end=b'"}'),
    "spaces": fill_body(b" ", begin=b"{", end=b"}"),
    "digits": fill_body(b"1" * 399 + b",", end=b"0]"),
    "long number": fill_body(b"1", end=b"]"),
}


@pytest.fixture(scope="module")
def web():
    web = Web()
    yield web
    assert web.broker.bugs == []


def weigh(web, *pieces, piece_bytes=65_536):
    visitor = web.connect()

    def ask():
        for piece in pieces:
            visitor.send(piece, piece_bytes)
        for _ in range(200):
            web.broker.advance()
            visitor.send(b"", piece_bytes)

    return web.weigh(ask), visitor.replies()


def holds_nobody(weight):
    return weight.us <= 2 * SHARE_US and weight.uncharged_calls <= MOST_UNCHARGED_CALLS


@pytest.mark.parametrize("kind", BODIES)
def test_a_large_body_is_charged(web, kind):
    weight, replies = weigh(web, request("POST", "/echo", BODIES[kind]))
    assert [reply.status for reply in replies] in ([200], [422], [400])
    assert holds_nobody(weight), weight


@pytest.mark.slow
def test_a_body_of_very_small_chunks_is_read_in_shares(web):
    body = b"1\r\n0\r\n" * 10_000 + b"0\r\n\r\n"
    sent = request("POST", "/echo", body, content_length=None, transfer_encoding="chunked")
    weight, replies = weigh(web, sent)
    assert len(replies) == 1
    assert holds_nobody(weight), weight


@pytest.mark.parametrize("piece_bytes", [1_000, 65_536])
def test_a_long_trailer_costs_little(web, piece_bytes):
    body = b"2\r\n{}\r\n0\r\n" + b"a:\r\n" * 15_000 + b"\r\n"
    sent = request("POST", "/echo", body, content_length=None, transfer_encoding="chunked")
    weight, replies = weigh(web, sent, piece_bytes=piece_bytes)
    assert len(replies) == 1
    assert holds_nobody(weight), weight


def test_a_head_of_many_lines_costs_little(web):
    weight, replies = weigh(web, b"GET / HTTP/1.1\r\n" + b"a:\r\n" * 4_000 + b"\r\n")
    assert [reply.status for reply in replies] == [431]
    assert holds_nobody(weight), weight


@pytest.mark.parametrize(
    "line", [b"x" * 16_000, b" " * 16_000, b"a:" + b" " * 15_000 + b"\x01", b"a:\r\n" + b" x\r\n" * 90]
)
def test_a_head_with_very_long_or_folded_lines_costs_little(web, line):
    weight, replies = weigh(web, b"GET / HTTP/1.1\r\n" + line + b"\r\n\r\n")
    assert len(replies) == 1
    assert holds_nobody(weight), weight


@pytest.mark.slow
def test_many_requests_at_once_are_answered_in_shares(web):
    weight, replies = weigh(web, request("GET", "/echo/x") * 1_000)
    assert len(replies) == 1_000
    assert holds_nobody(weight), weight


def test_many_empty_lines_between_requests_cost_little(web):
    weight, replies = weigh(web, request("GET", "/echo/x"), b"\r\n" * 500_000, request("GET", "/echo/x"))
    assert len(replies) == 2
    assert holds_nobody(weight), weight


@pytest.mark.slow
def test_an_answer_of_many_rows_is_written_in_shares(web):
    weight, (reply,) = weigh(web, request("GET", "/rows?rows=20000"))
    assert reply.value[-1] == {"row": 19_999, "name": "é"}
    assert holds_nobody(weight), weight


def test_a_large_answer_is_sent_in_shares(web):
    weight, (reply,) = weigh(web, request("GET", "/large?bytes=20000000"))
    assert len(reply.body) == 20_000_000
    assert holds_nobody(weight), weight


def test_a_query_of_many_names_costs_little(web):
    weight, (reply,) = weigh(web, request("GET", "/echo/x?" + "a&" * 8_000))
    assert reply.status == 400
    assert holds_nobody(weight), weight
