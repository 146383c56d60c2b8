"""A proxied connection between a client and a broker, with faults. shell

Requests are forwarded one after the other, and replies in the order of the requests, as Kafka's brokers answer. So a
fault that holds a request also holds the later requests on the connection.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from typing import Protocol

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ProtocolError
from ottla.protocol.requests.frames import parse_request_header
from ottla.protocol.requests.produce_wire import decode_produce_request
from ottla.testkit.control import KIT_CLIENT_ID
from ottla.testkit.control.journal import Journal, JournalEntry
from ottla.testkit.control.secrets import kept_reply, kept_request
from ottla.testkit.faults.error_reply import error_reply
from ottla.testkit.faults.exchange import Exchange
from ottla.testkit.faults.fault import Fault
from ottla.testkit.faults.names import TopicNames
from ottla.testkit.faults.plan import Plan
from ottla.testkit.faults.sessions import Sessions
from ottla.testkit.proxying.addresses import Address, refused_api_versions, rewritten
from ottla.testkit.proxying.ends import End
from ottla.testkit.proxying.pending import Pending, PendingRequest

log = logging.getLogger(__name__)


class Around(Protocol):
    """Services of the proxy that a connection needs."""

    @property
    def plan(self) -> Plan:
        """The planned faults."""

    @property
    def journal(self) -> Journal:
        """The journal of requests and replies."""

    @property
    def names(self) -> TopicNames:
        """Topic names by topic id."""

    @property
    def sessions(self) -> Sessions:
        """Partitions of fetch sessions."""

    def count(self, exchange: Exchange) -> None:
        """Count a request."""

    def replacement(self, address: Address, reached_at: str) -> Address:
        """Return the proxy's address for this broker, for a client that reached the proxy at this host."""


class Closed(Exception):
    """The connection ends; the message is the reason."""


class Passing:
    """A proxied connection. `run` returns when it has ended."""

    def __init__(self, client: End, upstream: End, around: Around) -> None:
        self._client = client
        self._upstream = upstream
        self._around = around
        self._pending = Pending()
        self._peer = _show_address(client.transport.get_extra_info("peername"))
        self._reached_at = str(client.transport.get_extra_info("sockname")[0])
        self._now: JournalEntry | None = None
        """The current request, until it is in `_pending`."""

    async def run(self) -> None:
        """Forward frames both ways until one side ends, then close both."""
        requests = asyncio.ensure_future(self._requests())
        replies = asyncio.ensure_future(self._replies())
        reason = "the proxy is closed"
        try:
            await asyncio.wait({requests, replies}, return_when=asyncio.FIRST_COMPLETED)
            if not replies.done() and requests.exception() is None:
                await asyncio.wait({replies})  # the client sends no more requests, but may still read replies
            reason = _reason(replies) or _reason(requests) or "the connection was closed"
        finally:
            for task in (requests, replies):
                task.cancel()
            await asyncio.gather(requests, replies, return_exceptions=True)
            self._refuse_rest(reason)
            self._client.close()
            self._upstream.abort()

    def _refuse_rest(self, reason: str) -> None:
        for entry in [pending.entry for pending in self._pending.rest()] + [self._now]:
            if entry is not None and entry.ended_ms is None:
                self._around.journal.record_refusal(entry, reason)

    # ---- up

    async def _requests(self) -> None:
        while (frame := await self._client.frame()) is not None:
            await self._request(frame)
        self._pending.end()
        self._upstream.finish()

    async def _request(self, frame: bytes) -> None:
        around = self._around
        exchange = Exchange(frame, around.names.name_of, session_of=around.sessions.places)
        around.count(exchange)
        self._now = entry = self._entry(exchange)
        if exchange.api_key == ApiKey.SASL_HANDSHAKE and exchange.api_version == 0:
            raise Closed("SaslHandshake v0: what follows it has no headers; a client of Kafka 1.0 or later sends v1")
        if exchange.api_key == ApiKey.API_VERSIONS:
            answer = refused_api_versions(exchange.api_version, exchange.correlation_id)
            if answer is not None:
                await self._enqueue(PendingRequest(exchange, entry, 0, answer))
                return
        copies = 1
        for fault in _striking(around.plan, "request", exchange):
            entry.record_fault(fault)
            if fault.do == "reply":
                await self._answer(exchange, entry, fault)
                return
            if fault.do == "drop":
                raise Closed(exchange.blame(fault))
            copies += fault.do == "duplicate"
            await self._wait(fault)
        if _is_answered(exchange):
            await self._enqueue(PendingRequest(exchange, entry, copies))
        else:
            around.journal.record_reply(entry, ())
        for _ in range(copies):
            await self._sent(self._upstream.send(frame), "the broker")

    def _entry(self, exchange: Exchange) -> JournalEntry:
        if exchange.client_id != KIT_CLIENT_ID:
            return self._around.journal.begin(kept_request(exchange), self._peer)
        unseen = JournalEntry(0, 0, self._peer, b"")
        unseen.kept = False
        return unseen

    async def _enqueue(self, pending: PendingRequest) -> None:
        await self._pending.put(pending)
        self._now = None

    async def _answer(self, exchange: Exchange, entry: JournalEntry, fault: Fault) -> None:
        """Answer with an error, after the earlier requests are answered."""
        if not _is_answered(exchange):
            self._around.journal.record_reply(entry, ())
            return
        key, version = exchange.api_key, exchange.api_version
        try:
            frame = error_reply(key, version, exchange.correlation_id, exchange.decode(), fault.error)
        except ProtocolError as error:
            raise Closed(f"{exchange.blame(fault)}, and the reply cannot be written: {error}") from None
        await self._enqueue(PendingRequest(exchange, entry, 0, frame[4:]))

    # ---- down

    async def _replies(self) -> None:
        while (pending := await self._pending.first()) is not None:
            reply = pending.answer
            for _ in range(pending.copies):
                reply = await self._upstream.frame()
                if reply is None:
                    raise Closed("the broker has closed the connection")
            assert reply is not None
            if pending.answer is None:
                reply = await self._change(pending, reply)
            if reply is not None:
                self._around.journal.record_reply(pending.entry, (kept_reply(pending.exchange, reply),))
                await self._sent(self._client.send(reply), "the client")
            else:
                self._around.journal.record_reply(pending.entry, ())
            self._pending.remove_first()

    async def _change(self, pending: PendingRequest, reply: bytes) -> bytes | None:
        """Apply faults and replace addresses. Return the reply for the client, or None to drop it."""
        exchange, around = pending.exchange, self._around
        if int.from_bytes(reply[:4], "big", signed=True) != exchange.correlation_id:
            raise Closed(f"the broker answered another request than {exchange.title} v{exchange.api_version}")
        lost = False
        for fault in _striking(around.plan, "reply", exchange):
            pending.entry.record_fault(fault)
            if fault.do == "drop":
                raise Closed(exchange.blame(fault))
            lost |= fault.do == "lose"
            await self._wait(fault)
        around.names.learn(exchange.api_key, exchange.api_version, reply)
        around.sessions.learn(exchange, reply)
        if lost:
            return None

        def replace(address: Address) -> Address:
            return around.replacement(address, self._reached_at)

        return rewritten(exchange.api_key, exchange.api_version, reply, replace)

    # ---- waiting

    async def _wait(self, fault: Fault) -> None:
        """Wait for the fault's delay or release. Raises Closed if the client disconnects first."""
        loop = asyncio.get_running_loop()
        go_on: asyncio.Future[None] = loop.create_future()

        def wake() -> None:
            if not go_on.done():
                go_on.set_result(None)

        def wake_from_any_thread() -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed, so nothing waits any more
                loop.call_soon_threadsafe(wake)

        leave: Callable[[], None]
        if fault.do == "delay":
            leave = loop.call_later(fault.ms / 1000, wake).cancel
        elif fault.do == "hold" and not fault.released:
            leave = self._around.plan.hold(fault, wake_from_any_thread)
            if self._is_released(fault):  # by another thread, meanwhile
                wake()
        else:
            return
        try:
            await asyncio.wait({go_on, self._client.disconnected}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            leave()
        if not go_on.done():
            raise Closed(f"the client disconnected while fault {fault.id} held or delayed it")

    @staticmethod
    def _is_released(fault: Fault) -> bool:
        return fault.released

    async def _sent(self, sending: Awaitable[bool], receiver: str) -> None:
        if not await sending:
            raise Closed(f"{receiver} has closed the connection")


def _striking(plan: Plan, point: str, exchange: Exchange) -> list[Fault]:
    if exchange.client_id == KIT_CLIENT_ID or not plan.watches(point, exchange.api_key):
        return []
    return plan.find_firing(point, exchange, exchange.api_key)


def _is_answered(exchange: Exchange) -> bool:
    """Return whether the request gets a reply; Produce with acks=0 does not."""
    if exchange.api_key != ApiKey.PRODUCE:
        return True
    _, body = parse_request_header(memoryview(exchange.frame))
    try:
        return decode_produce_request(exchange.api_version, body).acks != 0
    except ProtocolError:
        return True  # the broker answers with an error, or closes the connection


def _show_address(address: object) -> str:
    return f"{address[0]}:{address[1]}" if isinstance(address, tuple) else str(address)


def _reason(task: "asyncio.Future[None]") -> str:
    """Return why a direction ended, and log it; a bug with its traceback."""
    error = task.exception() if task.done() and not task.cancelled() else None
    if isinstance(error, ProtocolError):
        log.warning("Connection closed: %s", error)
    elif error is not None and not isinstance(error, Closed):
        log.error("Connection closed because of a bug", exc_info=error)
    return str(error) if error is not None else ""
