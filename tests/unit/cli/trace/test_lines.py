"""Requests and replies as lines of a packet dump."""

import re

import pytest

from ottla.cli.trace.lines import line_of

HEAD = {
    "time_ms": 1_700_000_000_123,
    "peer": "127.0.0.1:5",
    "client_id": "order-1",
    "correlation_id": 12,
    "api": "EndTxn",
    "version": 3,
}
REQUEST = HEAD | {"kind": "request", "size_bytes": 87}
REPLY = HEAD | {"kind": "reply", "size_bytes": 16, "took_ms": 1.2994, "errors": []}


def cut_time(line):
    """Return a line without its time."""
    assert re.match(r"\d\d:\d\d:\d\d\.123 ", line)
    return line.partition(" ")[2]


def test_a_request_line_is_ordered_like_a_packet_dump():
    fields = {"transactional_id": "tx-1", "producer_id": 0, "committed": True}
    line = cut_time(line_of(REQUEST | {"fields": fields}))
    assert line == "127.0.0.1:5 order-1 > EndTxn v3 #12 87 B: transactional_id=tx-1 producer_id=0 committed=true"


def test_a_line_names_the_broker_if_there_are_several():
    line = cut_time(line_of(REQUEST | {"broker": 2, "fields": {}}))
    assert line == "127.0.0.1:5 order-1 > [2] EndTxn v3 #12 87 B"


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        ({"errors": [], "fields": {}}, "16 B 1.30 ms: ok"),
        (
            {"errors": ["PRODUCER_FENCED"], "fields": {"error_code": "PRODUCER_FENCED"}},
            "16 B 1.30 ms: PRODUCER_FENCED",
        ),
        ({"errors": [], "fields": None, "size_bytes": 0}, "0 B 1.30 ms: no reply"),
        ({"errors": [], "fields": None}, "16 B 1.30 ms: ok (too large to be shown)"),
    ],
)
def test_a_reply_begins_with_what_came_of_the_request(answer, text):
    assert cut_time(line_of(REPLY | answer)) == f"127.0.0.1:5 order-1 < EndTxn v3 #12 {text}"


def test_partitions_are_printed_with_their_topic():
    rows = [
        {"name": "ledger", "partitions": [0, 1]},
        {"topic": "orders", "partitions": [{"partition_index": 3, "offset": 7}, {"partition_index": 4}]},
        {"name": "plain", "is_internal": False, "partitions": []},
    ]
    line = line_of(REQUEST | {"fields": {"topics": rows}, "rows_left_out": 5})
    shown = "ledger-0, ledger-1, orders-3(offset=7), orders-4, (name=plain is_internal=false partitions=[])"
    assert line.endswith(f": topics=[{shown}] (5 more rows)")


def test_a_closed_connection_line_has_the_reason():
    line = line_of(HEAD | {"kind": "closed", "took_ms": 0.5, "reason": "EndTxn v9 is not served, only 0-5"})
    assert cut_time(line) == "127.0.0.1:5 order-1 ! EndTxn v3 #12 0.50 ms: closed, EndTxn v9 is not served, only 0-5"


def test_dropped_requests_and_replies_are_counted_in_a_line():
    line = cut_time(line_of({"kind": "dropped", "time_ms": HEAD["time_ms"], "count": 7}))
    assert line == "7 requests and replies are missing: they came faster than they were read"


def test_names_of_clients_move_no_cursor():
    line = line_of(REQUEST | {"client_id": "\x1b[2J\n", "fields": {"transactional_id": "a\rb"}})
    assert line.isprintable()
