"""`/v1/trace`: requests and replies of the broker's connections, streamed to a few listeners. free

Nothing is kept without listeners. Each listener has a queue; when it is full, further requests and replies are dropped,
and the listener receives their number. Copies are made while a request is served, and are charged to its turn; all
other work is done in the listener's own coroutine.
"""

import json
import logging
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import Final
from uuid import UUID

from ottla.admin.fields import NUMBER, TEXT, a_list, an_object
from ottla.admin.routes import AdminError, AdminRequest, AdminResponse, Route, Send
from ottla.admin.trace.description import Described, describe_steps, request_steps
from ottla.admin.trace.trace_filter import QUERY, TraceFilter, read_filter
from ottla.admin.trace.traced import TracedReply, TracedRequest
from ottla.broker.api.context import Broker
from ottla.broker.costs import COPY_BYTE_US, FIRST_USE_US
from ottla.broker.memory import ReplyReservation
from ottla.broker.outbox import Part
from ottla.broker.ports.clock import Clock
from ottla.broker.request_observer import Refuse
from ottla.broker.request_observer import Send as SendReply
from ottla.broker.security.session import Session
from ottla.broker.turns import Wait
from ottla.protocol.errors import ProtocolError
from ottla.protocol.requests.frames import parse_request_header
from ottla.protocol.subject import subject_of

log = logging.getLogger(__name__)

MOST_LISTENERS: Final = 4
MOST_WAITING: Final = 2_000
MOST_WAITING_BYTES: Final = 1024 * 1024
LOOKUP_US: Final = 4.0
"""Cost of checking a request against the filters."""
KEEP_US: Final = 15.0
"""Cost of keeping a request or reply, without its bytes."""
DECODED_BYTES: Final = 4_096
"""A larger request is matched by its bytes alone."""
DECODED_BYTE_US: Final = 0.3
MEDIA_TYPE: Final = "application/x-ndjson"

_LINE: Final = an_object(
    {
        "kind": {**TEXT, "enum": ["listening", "request", "reply", "closed", "dropped"]},
        "time_ms": {**NUMBER, "description": "Milliseconds since 1970."},
        "peer": TEXT,
        "broker": {**NUMBER, "description": "The broker that the client asks, if the process has several."},
        "client_id": TEXT,
        "correlation_id": NUMBER,
        "api": TEXT,
        "version": NUMBER,
        "size_bytes": NUMBER,
        "took_ms": {"type": "number", "description": "For a reply: the time since its request arrived."},
        "errors": a_list(TEXT),
        "fields": {
            "type": ["object", "null"],
            "description": "The fields by Kafka's names; null if the message is too large.",
        },
        "rows_left_out": NUMBER,
        "unreadable": {**TEXT, "description": "Why the message was not decoded."},
        "reason": {**TEXT, "description": "Why the broker closes the connection."},
        "count": {**NUMBER, "description": "How many requests and replies were dropped."},
    },
    description="One object in a line for each request and each reply.",
)


class _Listener:
    """A listener, with the requests and replies that it has not received yet."""

    def __init__(self, filter: TraceFilter, verbose: bool) -> None:
        self.filter = filter
        self.verbose = verbose
        self.waiting: deque[TracedRequest | TracedReply] = deque()
        self.waiting_bytes = 0
        self.dropped = 0
        self.wait: Wait[None] | None = None

    def add(self, passed: TracedRequest | TracedReply) -> None:
        """Queue a request or reply, or count it as dropped if the queue is full."""
        if len(self.waiting) >= MOST_WAITING or self.waiting_bytes > MOST_WAITING_BYTES:
            self.dropped += 1
        else:
            self.waiting.append(passed)
            self.waiting_bytes += passed.held_bytes
        wait, self.wait = self.wait, None
        if wait is not None:
            wait.wake(None)

    def next(self) -> TracedRequest | TracedReply:
        """Take the oldest from the queue."""
        passed = self.waiting.popleft()
        self.waiting_bytes -= passed.held_bytes
        return passed


class Trace:
    """The listeners of one broker. `clock` is the machine's."""

    def __init__(self, broker: Broker, clock: Clock) -> None:
        self._broker = broker
        self._clock = clock
        self._listeners: list[_Listener] = []
        # (request or reply, API, version) of messages that have been decoded.
        self._used: set[tuple[bool, int, int]] = set()

    @property
    def routes(self) -> Sequence[Route]:
        """Return the route."""
        summary = "Stream decoded requests and replies: one line of JSON for each"
        return (Route("GET", "/v1/trace", self.open, summary, response_schema=_LINE, query=QUERY),)

    async def open(self, request: AdminRequest) -> AdminResponse:
        """Listen from now on, until the connection ends."""
        listener = _Listener(read_filter(request.query), request.query.get("verbose") == "true")
        if len(self._listeners) >= MOST_LISTENERS:
            raise AdminError(409, f"{MOST_LISTENERS} traces are running, which is the most: end one of them first")

        self._listeners.append(listener)  # before the first await, because many requests may come at once
        self._broker.observer.on_request = self.on_request

        async def stream(send: Send) -> None:
            await send(_line({"kind": "listening", "time_ms": self._clock.now_ms()}))
            while True:
                await self._send_queue(listener, send)

        return AdminResponse(body=stream, content_type=MEDIA_TYPE, ended=lambda: self._leave(listener))

    def on_request(
        self, frame: memoryview, session: Session, send: SendReply, refuse: Refuse
    ) -> tuple[SendReply, Refuse]:
        """Copy a request for the listeners, and return the callbacks for its reply (see
        `request_observer.OnRequest`)."""
        try:
            request, listeners = self._keep(frame, session)
        except Exception as error:  # the client must be served
            log.error("A request of %s could not be traced", session.peer, exc_info=error)
            return send, refuse
        if request is None:
            return send, refuse

        def sent(parts: Sequence[Part], reservation: ReplyReservation | None) -> None:
            self._end(request, listeners, parts, "")
            send(parts, reservation)

        def on_refusal(reason: str) -> None:
            self._end(request, listeners, (), reason)
            refuse(reason)

        return sent, on_refusal

    def _keep(self, frame: memoryview, session: Session) -> tuple[TracedRequest | None, list[_Listener]]:
        turns = self._broker.turns
        turns.charge(LOOKUP_US)
        try:
            header, body = parse_request_header(frame)
        except ProtocolError:
            return None, []  # its connection is closed, with a line in the log
        listeners = [each for each in self._listeners if each.filter.may_fit(header, body)]
        if not listeners:
            return None, []
        now_ms, at_ms = self._clock.now_ms(), self._clock.monotonic_ms()
        request = TracedRequest(header, session.peer, len(frame) + 4, now_ms, at_ms)
        request.broker = session.node_id if self._broker.links is not None else None
        request.keep(body)
        turns.charge(KEEP_US + request.held_bytes * COPY_BYTE_US)
        for each in listeners:
            each.add(request)
        return request, listeners

    def _end(self, request: TracedRequest, listeners: Sequence[_Listener], parts: Sequence[Part], reason: str) -> None:
        try:
            answered = TracedReply(request, self._clock.now_ms(), self._clock.monotonic_ms(), parts, reason)
            self._broker.turns.charge(KEEP_US + answered.held_bytes * COPY_BYTE_US)
            for each in listeners:
                each.add(answered)
        except Exception as error:  # the client must be answered
            log.error("A reply to %s could not be traced", request.peer, exc_info=error)

    def _leave(self, listener: _Listener) -> None:
        self._listeners.remove(listener)
        if not self._listeners:
            self._broker.observer.on_request = None

    async def _send_queue(self, listener: _Listener, send: Send) -> None:
        """Send the queued requests and replies; wait if there are none."""
        if not listener.waiting and not listener.dropped:
            listener.wait = wait = Wait[None](self._broker.turns)
            await wait
        while listener.waiting:
            await self._broker.turns.yield_if_due()
            described = await self._describe(listener.next(), listener)
            if described is not None:
                await send(_line(described))
        dropped, listener.dropped = listener.dropped, 0
        if dropped:
            await send(_line({"kind": "dropped", "time_ms": self._clock.now_ms(), "count": dropped}))

    async def _describe(self, passed: TracedRequest | TracedReply, listener: _Listener) -> Described | None:
        """Return a request or reply as an object; None if its decoded body does not match."""
        request = passed if isinstance(passed, TracedRequest) else passed.request
        if listener.filter.needs_subject and not await self._is_about(request, listener.filter):
            return None
        use = isinstance(passed, TracedRequest), *request.header[:2]
        if use not in self._used:
            self._used.add(use)
            self._broker.turns.charge(FIRST_USE_US)
        return await self._broker.long_work.drive(describe_steps(passed, listener.verbose, self._name_of))

    async def _is_about(self, request: TracedRequest, filter: TraceFilter) -> bool:
        """Return whether a request matches the filter. A request that is large or cannot be decoded counts as a
        match."""
        if filter not in request.verdicts:
            message = None
            if request.held_bytes <= DECODED_BYTES:
                with suppress(ProtocolError):
                    message = await self._broker.long_work.drive(request_steps(request))
            self._broker.turns.charge(request.held_bytes * DECODED_BYTE_US)
            request.verdicts[filter] = message is None or filter.is_about(
                subject_of(request.header.api_key, message, self._name_of)
            )
        return request.verdicts[filter]

    def _name_of(self, topic_id: UUID) -> str | None:
        topic = self._broker.cluster.topics_by_id.get(topic_id.bytes)
        return None if topic is None else topic.name


def _line(described: Described) -> bytes:
    return (json.dumps(described, ensure_ascii=False) + "\n").encode()
