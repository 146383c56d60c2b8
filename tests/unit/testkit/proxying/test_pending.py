"""Requests that are not answered yet: in order, and limited in number."""

import asyncio

import pytest

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.requests import codec
from ottla.testkit.control.journal import JournalEntry
from ottla.testkit.faults.exchange import Exchange
from ottla.testkit.faults.fault import FaultError, parse_fault
from ottla.testkit.proxying.pending import MOST_BYTES, MOST_REQUESTS, Pending, PendingRequest
from ottla.testkit.proxying.proxy import ProxyPlan


def make_request(answer=None):
    request = codec.request_class(ApiKey.HEARTBEAT)(group_id="g", generation_id=1, member_id="m")
    frame = codec.encode_request(request, 4, 1, "c")[4:]
    return PendingRequest(Exchange(frame, lambda _: None), JournalEntry(1, 0, "peer", frame), answer=answer)


def settle(task):
    """Run every callback that can run."""

    async def turns():
        for _ in range(10):
            await asyncio.sleep(0)
        return task.done()

    return turns()


def test_a_request_above_the_limit_of_requests_waits_for_a_reply():
    async def play():
        pending = Pending()
        for _ in range(MOST_REQUESTS):
            await pending.put(make_request())
        waiting = asyncio.ensure_future(pending.put(make_request()))
        assert not await settle(waiting)
        pending.remove_first()
        assert await settle(waiting)

    asyncio.run(play())


def test_an_oversized_request_is_accepted_alone_and_the_next_waits():
    async def play():
        pending = Pending()
        await pending.put(make_request(answer=bytes(MOST_BYTES + 1)))
        waiting = asyncio.ensure_future(pending.put(make_request()))
        assert not await settle(waiting)
        pending.remove_first()
        assert await settle(waiting)

    asyncio.run(play())


def test_the_end_is_returned_after_the_last_request():
    async def play():
        pending = Pending()
        last = make_request()
        await pending.put(last)
        pending.end()
        assert await pending.first() is last
        assert pending.rest() == [last]
        pending.remove_first()
        assert await pending.first() is None

    asyncio.run(play())


@pytest.mark.parametrize(
    "fault",
    [
        {"at": "marker", "do": "lose"},
        {"at": "marker_reply", "do": "lose"},
        {"at": "append", "do": "fail", "error": "EIO"},
        {"at": "sync", "do": "delay", "ms": 1},
        {"at": "request", "do": "crash"},
        {"at": "reply", "do": "crash"},
    ],
)
def test_the_proxy_refuses_faults_that_need_an_ottla_broker(fault):
    with pytest.raises(FaultError, match="needs an Ottla broker"):
        ProxyPlan().add(parse_fault(fault))
