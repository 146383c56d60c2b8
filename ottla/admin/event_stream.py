"""`GET /v1/events`: events of transactions, as they happen, sent as server-sent events. free

Each reader has a position in the ring of events, and is sent the new events a few times a second: the code that writes
an event does not know the readers. A slow reader is sent the number of events that it missed. The connection of a
client that does not read is closed, as for any reply of this port.

Source: the HTML standard, "Server-sent events".
"""

from typing import Final
from weakref import WeakSet

from ottla.admin.history import EVENT_US, PIECE_EVENTS, event_json
from ottla.admin.listing import MOST_MS, ROW_JSON_US, encode_json, whole_number
from ottla.admin.overview import Overview
from ottla.admin.routes import AdminError, AdminRequest, AdminResponse, Route, Send
from ottla.broker.api.context import Broker
from ottla.broker.deadline import sleep
from ottla.broker.events import Events
from ottla.broker.ports.clock import Clock

MOST_STREAMS: Final = 16
TICK_MS: Final = 200.0
OVERVIEW_TICKS: Final = 5
COMMENT_TICKS: Final = 50
EVENT_STREAM: Final = "text/event-stream"


class EventStreams:
    """The readers of one broker's events. `clock` is the real one, because they wait in real time."""

    def __init__(self, broker: Broker, events: Events, clock: Clock, overview: Overview) -> None:
        self._broker = broker
        self._events = events
        self._clock = clock
        self._overview = overview
        # A reader that has disconnected is discarded with its coroutine, which removes it from this set.
        self._streams: WeakSet[_EventStream] = WeakSet()

    def route(self) -> Route:
        """Return the route."""
        query = {"since": "Events after this seq that are still kept; by default new events only."}
        summary = "Stream the events of transactions as server-sent events: txn, overview, gap"
        return Route("GET", "/v1/events", self._open_stream, summary, query=query)

    async def _open_stream(self, request: AdminRequest) -> AdminResponse:
        if len(self._streams) >= MOST_STREAMS:
            message = (
                f"{MOST_STREAMS} clients read the events, which is the most: close one of them, or use GET /v1/history"
            )
            raise AdminError(503, message, (("Retry-After", "10"),))
        events = self._events
        since = whole_number(request, "since", events.next_seq - 1, 0, MOST_MS)
        # A seq that does not exist yet is from an earlier run of the broker.
        first = since + 1 if since < events.next_seq else events.first_seq
        stream = _EventStream(self._broker, events, self._clock, self._overview, first)
        self._streams.add(stream)
        return AdminResponse(body=stream.run, content_type=EVENT_STREAM)


class _EventStream:
    """A reader, which has been sent the events before `seq`."""

    def __init__(self, broker: Broker, events: Events, clock: Clock, overview: Overview, seq: int) -> None:
        self._broker = broker
        self._events = events
        self._clock = clock
        self._overview = overview
        self._seq = seq
        self._left_out = events.left_out

    async def run(self, send: Send) -> None:
        """Send new events until the client disconnects."""
        ticks = 0
        while True:
            await self._send_new(send)
            if not ticks % OVERVIEW_TICKS:
                await send(await self._encode_overview())
            ticks += 1
            if not ticks % COMMENT_TICKS:
                await send(b": still here\n\n")
            await sleep(self._broker.turns, self._clock, TICK_MS)

    async def _send_new(self, send: Send) -> None:
        events, end = self._events, self._events.next_seq
        missed = events.left_out - self._left_out
        self._left_out = events.left_out
        while self._seq < end:
            if self._seq < events.first_seq:
                missed += events.first_seq - self._seq
                self._seq = events.first_seq
            some = events.some(self._seq, min(self._seq + PIECE_EVENTS, end))
            piece = b"".join([b"id: %d\nevent: txn\ndata: %b\n\n" % (each[0], event_json(each)) for each in some])
            self._seq += len(some)
            self._broker.turns.charge(len(some) * EVENT_US)
            await send(piece)
        if missed:
            await send(b'event: gap\ndata: {"left_out":%d}\n\n' % missed)

    async def _encode_overview(self) -> bytes:
        self._broker.turns.charge(ROW_JSON_US)
        return b"event: overview\ndata: %b\n\n" % encode_json(await self._overview.build())
