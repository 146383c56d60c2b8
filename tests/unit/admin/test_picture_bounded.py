"""Thousands of everything: each answer of the live picture is made in turn budgets, and is bounded."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from picture import Picture
from test_http_bounded import holds_nobody
from web import request

from ottla.broker.txn.states import TransactionStatus
from ottla.broker.txn.values import TransactionState
from tests.api.callers import GROUP, LEDGER, Producer, commit

MANY = 10_000
PARTITIONS = 2_000
MOST_ANSWER_BYTES = 4 * 1024 * 1024
START_MS = 1_700_000_000_000


@pytest.fixture(scope="module")
def crowd():
    """Fill a broker with ids, partitions, groups, offsets and events. A real transaction holds a partition back."""
    picture = Picture()
    (shard,) = picture.parts.transactions.shards()
    picture.broker.create_topic("many", PARTITIONS)
    picture.broker.advance(20_000)
    places = {("many", index): None for index in range(PARTITIONS)}
    for number in range(MANY):
        name = f"txn-{number:05}"
        owned = places if number < 20 else {("many", number % PARTITIONS): None}
        shard.states[name] = TransactionState(
            *(10_000 + number, 0, TransactionStatus.ONGOING, 2**31 - 1, owned, START_MS + number, START_MS)
        )
        shard.open[name] = None
    commit(picture.broker, *(("many", index, 0) for index in range(1_000)))
    for number in range(MANY):
        picture.parts.groups._manager.obtain(f"group-{number}")
    for number in range(5_000):
        picture.events.began(f"txn-{number}", 1, 0, [(LEDGER, 0)])
        picture.events.record_refusal(f"Api{number}", "ERROR", "client", "peer", f"txn-{number}", "why")
    Producer(picture.broker, timeout_ms=900_000).begin(0)
    yield picture
    assert picture.broker.bugs == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "target",
    [
        "/v1/overview",
        "/v1/transactions?limit=1000",
        "/v1/transactions?state=all&limit=1000",
        "/v1/transactions?prefix=nothing",
        "/v1/partitions?limit=1000",
        f"/v1/partitions/{LEDGER}/0/why",
        "/v1/groups?limit=1000",
        f"/v1/groups?prefix={GROUP}",
        "/v1/history",
        "/v1/refusals",
        "/v1/events?since=0",
        "/v1/export",
    ],
)
def test_a_reply_of_many_rows_is_bounded_and_made_in_turn_budgets(crowd, target):
    visitor = crowd.web.connect()

    def ask():
        visitor.send(request("GET", target))
        for _ in range(300):
            crowd.broker.advance()

    weight = crowd.web.weigh(ask)
    answer = bytes(visitor.transport.written)
    assert answer.startswith(b"HTTP/1.1 200 OK") and answer.endswith((b"}\n", b"0\r\n\r\n", b"\n\n\r\n"))
    assert len(visitor.transport.written) < MOST_ANSWER_BYTES
    assert holds_nobody(weight), weight
    visitor.hang_up()


def test_rows_that_are_left_out_are_counted_in_the_reply(crowd):
    transactions = crowd.get("/v1/transactions?limit=1000")
    assert (transactions["total"], transactions["left_out"]) == (MANY + 1, MANY - 999)
    first = transactions["transactions"][0]
    assert (len(first["partitions"]), first["partitions_left_out"]) == (100, PARTITIONS - 100)
    (group,) = crowd.get(f"/v1/groups?prefix={GROUP}&limit=1")["groups"]
    assert len(group["offsets"]) + group["offsets_left_out"] == 1_000
    held = crowd.get("/v1/partitions?limit=1")["partitions"][0]
    assert (held["topic"], held["open"][0]["transactional_id"]) == (LEDGER, "txn")
