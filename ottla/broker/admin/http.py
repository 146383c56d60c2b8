"""A connection of the admin port: HTTP/1.1 by h11, limits, and the handlers of its requests. shell

A connection is one coroutine that `Turns` drives: each arrival of bytes and each step of a handler is an event of the
broker. h11 receives the bytes in small pieces, because it processes a piece in one step.
"""

import logging
import re
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any, Final

import h11

from ottla.broker.admin.access import Access, single
from ottla.broker.admin.fields import check_body
from ottla.broker.admin.json_text import BODY_BYTES, READ_BYTE_US, BadJson, read_json, write_json
from ottla.broker.admin.routes import (
    ENTRY,
    JSON,
    AdminError,
    AdminRequest,
    AdminResponse,
    Headers,
    Route,
    Router,
    Stream,
    nothing,
)
from ottla.broker.costs import COPY_BYTE_US
from ottla.broker.deadline import Deadline
from ottla.broker.ports.clock import Clock
from ottla.broker.ports.listener import StreamProtocol, Transport
from ottla.broker.turns import Activity, Turns, Wait

log = logging.getLogger(__name__)

HEAD_BYTES: Final = 16 * 1024
HEAD_LINES: Final = 100
REQUEST_MS: Final = 10_000.0
"""A request must be complete this long after its first byte. A client must read some of a reply within this time."""
IDLE_MS: Final = 60_000.0
LINGER_MS: Final = 2_000.0
"""A client that is still sending when it is refused may read the reply for this long."""
AHEAD_BYTES: Final = 64 * 1024
"""Bytes that are read after a request in progress; the rest stays in the socket."""

REQUEST_US: Final = 400.0
"""Cost of a request and its reply without their bodies: h11 is plain Python."""
HEAD_BYTE_US: Final = 0.1
BAD_US: Final = 1_000.0
"""Cost of bytes that h11 refuses: it takes longer than for valid ones."""
EVENT_US: Final = 30.0
"""Cost of a piece of a body that h11 returns."""
PIECE_BYTES: Final = 64 * 1024
CHUNK_BYTES: Final = 512
"""Size of a piece of a chunked body. h11 parses the lines in it in one step, in quadratic time if they are bad."""

TOKENS: Final = 256
TOKEN_US: Final = 1.0
"""Cost of writing a piece of JSON."""

BUSY: Final = "All places for requests are in use, or all places for one address: try again, or end another request"

_BODILESS: Final = frozenset((204, 304))
_UNREAD: Final = (h11.IDLE, h11.SEND_BODY, h11.ERROR)
"""States of a client whose request was not read to its end."""
_REFUSALS: Final = frozenset((400, 413, 431, 501, 505))
# h11 refuses these too, but takes 0.8 s if 16 KiB of blanks come before them.
_CONTROL: Final = re.compile(rb"[\x00\x0b\x0c]|\r(?!\n)")
_HEAD_END: Final = re.compile(rb"\n\r?\n")
_ALWAYS: Final = (
    ("Server", "ottla"),
    ("Cache-Control", "no-store"),
    ("X-Content-Type-Options", "nosniff"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
)


class HttpConnection(StreamProtocol):
    """The protocol object of one accepted socket."""

    def __init__(
        self,
        router: Router,
        access: Access,
        turns: Turns,
        clock: Clock,
        on_lost: Callable[["HttpConnection"], None],
        on_refused: Callable[[str, str], None],
        take_place: Callable[["HttpConnection"], bool],
    ) -> None:
        """Create the protocol object. `clock` is the real one, whatever clock the broker has: the clients here wait in
        real time.

        `on_refused` is called with the address of a client without access, and the reason. `take_place` is called
        before a request is served, except for health checks.
        """
        self._router = router
        self._access = access
        self._turns = turns
        self._clock = clock
        self._on_lost = on_lost
        self._on_refused = on_refused
        self._take_place = take_place
        self._transport: Transport | None = None
        self._activity: Activity[None] | None = None
        self._deadline: Deadline | None = None
        self._received = bytearray()
        self._http = _new_http()
        # Set while the coroutine waits for bytes to arrive, or for the socket to take bytes.
        self._arrival: Wait[None] | None = None
        self._departure: Wait[None] | None = None
        self._is_late = self._ended = self._closed = self._answering = False
        self._reading_paused = self._writing_paused = False
        self._stream_ended = nothing
        self._between = False
        self._unread_since_ms = 0.0
        self.peer = "?"
        self.came_ms = self.arrived_ms = clock.monotonic_ms()
        """Times of its opening and of its last received bytes."""

    @property
    def may_be_closed(self) -> bool:
        """Whether the connection may be closed to free its place, because no complete request has arrived or the
        last one is answered."""
        return self._arrival is not None or self._between

    @property
    def unread_ms(self) -> float:
        """Return the time since its client last read of the reply; 0 if nothing is left unread."""
        return self._clock.monotonic_ms() - self._unread_since_ms if self._departure is not None else 0.0

    @property
    def has_unread(self) -> bool:
        """Whether the client has not taken all bytes of the reply."""
        return self._departure is not None

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        transport.set_write_buffer_limits(0)  # so that the socket has taken everything after `_all_sent`
        name = transport.get_extra_info("peername")
        self.peer = f"{name[0]}:{name[1]}" if name else "?"
        self._turns.event(self._begin)

    def data_received(self, data: bytes) -> None:
        self._received += data
        self.arrived_ms = self._clock.monotonic_ms()
        if len(self._received) > AHEAD_BYTES and not self._reading_paused and self._transport is not None:
            self._reading_paused = True
            self._transport.pause_reading()
        self._turns.event(self._wake_reader)

    def eof_received(self) -> bool:
        self._ended = True
        if self._answering:  # the client has given up
            return False
        self._turns.event(self._wake_reader)
        return not self._closed

    def pause_writing(self) -> None:
        self._writing_paused = True

    def resume_writing(self) -> None:
        self._writing_paused = False
        self._turns.event(self._wake_writer)

    def connection_lost(self, exc: Exception | None) -> None:
        self._discard()
        self._on_lost(self)

    def close(self) -> None:
        """Close now and discard the request in progress."""
        self._discard()
        if self._transport is not None:
            self._transport.abort()

    def _discard(self) -> None:
        self._closed = True
        self._limit(None)
        activity, self._activity = self._activity, None
        if activity is not None:
            activity.discard()
        self._end_stream()

    def _end_stream(self) -> None:
        ended, self._stream_ended = self._stream_ended, nothing
        ended()

    def _begin(self) -> None:
        if self._closed:
            self.close()
        else:
            self._activity = self._turns.start(self._serve(), self._leave, self._broke)

    def _leave(self, result: None) -> None:
        self._activity = None
        self._limit(None)
        self._closed = True
        if self._transport is not None:
            self._transport.close()

    def _broke(self, error: Exception) -> None:
        log.error("The connection of %s to the admin port failed", self.peer, exc_info=error)
        self._activity = None
        self.close()

    def _wake_reader(self) -> None:
        wait, self._arrival = self._arrival, None
        if wait is not None:
            wait.wake(None)

    def _wake_writer(self) -> None:
        wait, self._departure = self._departure, None
        if wait is not None:
            wait.wake(None)

    def _limit(self, delay_ms: float | None, work: Callable[[], None] | None = None) -> None:
        """Call `work` (by default `_late`) after this time if no other limit is set before; None for no limit."""
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = None
        if delay_ms is not None:
            self._deadline = Deadline(self._clock, self._turns, delay_ms, work or self._late)

    def _late(self) -> None:
        self._is_late = True
        self._wake_reader()

    async def _serve(self) -> None:
        """Serve one request after the other until the connection ends."""
        while await self._comes():
            method = ""
            try:
                head = await self._head()
                method = head.method.decode("latin-1")
                request, route = await self._request(head, method)
            except AdminError as refused:
                response = refused.response()
            else:
                response = await self._answer(request, route)
            self._limit(None)
            may_go_on = self._http.their_state not in _UNREAD
            await self._respond(method, response, may_go_on)
            self._end_stream()
            if not may_go_on:
                await self._linger()
                return
            if self._http.our_state is not h11.DONE or self._http.their_state is not h11.DONE:
                return
            rest, _ = self._http.trailing_data
            self._received[:0] = rest
            self._http = _new_http()
            self._between = True
            await self._turns.yield_if_due()
            self._between = False

    async def _comes(self) -> bool:
        """Wait for the first byte of a request, and return whether it arrived."""
        self._limit(IDLE_MS)
        while True:
            self._received = self._received.lstrip(b"\r\n")  # old clients send them after a body
            if self._received or self._ended or self._is_late:
                self._limit(REQUEST_MS)
                return bool(self._received)
            await self._arrive()

    async def _arrive(self) -> None:
        """Wait for bytes, the end, or the limit."""
        if self._reading_paused and self._transport is not None:
            self._reading_paused = False
            self._transport.resume_reading()
        self._arrival = wait = Wait[None](self._turns)
        await wait

    async def _more(self) -> None:
        """Wait for more bytes of an incomplete request. AdminError 408 or 400 if they do not arrive."""
        size_bytes = len(self._received)
        if not self._ended and not self._is_late:
            await self._arrive()
        if len(self._received) == size_bytes:
            if self._is_late:
                raise AdminError(408, f"The request was not complete after {REQUEST_MS / 1000:.0f} s")
            raise AdminError(400, "The request ended before it was complete")

    async def _head(self) -> h11.Request:
        self._turns.charge(REQUEST_US)
        searched = 0
        while (end := _HEAD_END.search(self._received, searched, HEAD_BYTES)) is None:
            if len(self._received) >= HEAD_BYTES:
                raise AdminError(431, f"The head of a request must have at most {HEAD_BYTES} bytes")
            if not 0x20 < self._received[0] < 0x7F:
                raise AdminError(400, "This is not HTTP: the admin port serves HTTP/1.1 only")
            searched = max(0, len(self._received) - 2)
            await self._more()
        if self._received.count(b"\n", 0, end.end()) > HEAD_LINES:
            raise AdminError(431, f"The head of a request must have at most {HEAD_LINES} lines")
        if _CONTROL.search(self._received, 0, end.end()) is not None:
            raise AdminError(400, "This is not HTTP/1.1: the head contains a control character")
        self._turns.charge(end.end() * HEAD_BYTE_US)
        self._feed(end.end())
        head = self._next_event()
        assert isinstance(head, h11.Request)
        if head.http_version not in (b"1.0", b"1.1"):
            raise AdminError(505, "This port serves HTTP/1.1 only")
        return head

    async def _request(self, head: h11.Request, method: str) -> tuple[AdminRequest, Route]:
        headers = single(head.headers)
        has_body = b"transfer-encoding" in headers or int(headers.get(b"content-length", 0)) > 0
        if not has_body:
            self._next_event()  # so that the connection can be used again after any answer
        target = head.target.decode("latin-1")
        is_public = self._router.is_public(method, target)
        is_entry = is_public and target.partition("?")[0] == ENTRY
        try:
            self._access.check(headers, is_public=is_public, is_entry=is_entry)
        except AdminError as refused:
            self._on_refused(self.peer, refused.message)
            raise
        found = self._router.match(method, target)
        if found.route.needs_place and not self._take_place(self):
            raise AdminError(503, BUSY, (("Retry-After", "1"),))
        body = None
        if has_body:
            if not _is_json(headers.get(b"content-type", b"")):
                raise AdminError(415, f"A body must be JSON: Content-Type: {JSON}")
            body = await self._read(headers)
        schema = found.route.request_schema
        if schema is not None:
            body = check_body(body, schema)
        elif body is not None:
            raise AdminError(400, f"{method} {found.path} takes no body")
        return AdminRequest(method, found.path, found.parameters, found.query, body), found.route

    async def _read(self, headers: Mapping[bytes, bytes]) -> Any:
        """Return the body as a value. AdminError 400 or 413."""
        if int(headers.get(b"content-length", 0)) > BODY_BYTES:
            raise AdminError(413, f"A body must have at most {BODY_BYTES} bytes")
        most_bytes = CHUNK_BYTES if b"transfer-encoding" in headers else PIECE_BYTES
        data = bytearray()
        while True:
            await self._turns.spend(EVENT_US)
            event = self._next_event()
            if event is h11.NEED_DATA:
                if self._http.they_are_waiting_for_100_continue:
                    self._write(h11.InformationalResponse(status_code=100, headers=[]))
                if not self._received:
                    await self._more()
                self._feed(most_bytes)
            elif isinstance(event, h11.Data):
                data += event.data
                if len(data) > BODY_BYTES:
                    raise AdminError(413, f"A body must have at most {BODY_BYTES} bytes")
            else:
                break
        self._turns.charge(len(data) * READ_BYTE_US)
        try:
            body = read_json(data.decode())
        except UnicodeDecodeError:
            raise AdminError(400, "The body is not UTF-8") from None
        except BadJson as error:
            raise AdminError(400, f"The body is not JSON: {error}") from None
        await self._turns.yield_if_due()
        return body

    async def _answer(self, request: AdminRequest, route: Route) -> AdminResponse:
        self._limit(None)
        self._answering = True
        try:
            response = await route.handler(request)
        except AdminError as refused:
            response = refused.response()
        except Exception as error:
            log.error("%s %s on the admin port failed", route.method, route.pattern, exc_info=error)
            response = AdminResponse(500, {"error": f"The request failed, see the log of the broker: {error!r}"})
        self._answering = False
        self._stream_ended = response.ended
        return response

    async def _respond(self, method: str, response: AdminResponse, may_go_on: bool) -> None:
        if callable(response.body):
            await self._stream(method, response, may_go_on)
            return
        try:
            pieces = await self._pieces(response)
        except (TypeError, ValueError) as error:
            log.error("A reply of the admin port cannot be written as JSON: %.1000r", response.body, exc_info=error)
            response = AdminResponse(
                500, {"error": f"The reply cannot be written as JSON, see the log of the broker: {error!r}"}
            )
            pieces = await self._pieces(response)
        headers: Headers = ()
        if pieces is not None:
            headers = (("Content-Type", response.content_type), ("Content-Length", str(sum(map(len, pieces)))))
        self._write_head(response, headers, may_go_on)
        for piece in pieces or () if method != "HEAD" else ():
            await self._send(piece)
        self._write(h11.EndOfMessage())
        await self._all_sent()

    async def _stream(self, method: str, response: AdminResponse, may_go_on: bool) -> None:
        """Send a body of unknown length: in chunks, or until the connection closes for HTTP/1.0."""
        self._write_head(response, (("Content-Type", response.content_type),), may_go_on)
        if method != "HEAD":
            stream: Stream = response.body
            self._answering = True  # a client that closes its side wants no more
            await self._all_sent()
            await stream(self._send)
            self._answering = False
        self._write(h11.EndOfMessage())
        await self._all_sent()

    def _write_head(self, response: AdminResponse, more: Headers, may_go_on: bool) -> None:
        headers = [*_ALWAYS, *response.headers, *more]
        if not may_go_on:
            headers.append(("Connection", "close"))
        reason = HTTPStatus(response.status).phrase.encode()
        self._write(h11.Response(status_code=response.status, headers=headers, reason=reason))

    async def _send(self, piece: bytes) -> None:
        for start in range(0, len(piece), PIECE_BYTES):
            self._write(h11.Data(data=piece[start : start + PIECE_BYTES]))
            await self._all_sent()

    async def _pieces(self, response: AdminResponse) -> list[bytes] | None:
        """Return the body of a response; None if it has none. TypeError or ValueError if it is not JSON."""
        if response.body is None and response.status in _BODILESS:
            return None
        if isinstance(response.body, bytes):
            return [response.body]
        pieces: list[bytes] = []
        tokens: list[str] = []
        for token in write_json(response.body):
            tokens.append(token)
            if len(tokens) == TOKENS:
                pieces.append("".join(tokens).encode())
                tokens.clear()
                await self._turns.spend(TOKENS * TOKEN_US)
        tokens.append("\n")
        pieces.append("".join(tokens).encode())
        return pieces

    async def _all_sent(self) -> None:
        """Wait until the socket has taken all written bytes. Close the connection if its client reads too late."""
        while self._writing_paused:
            self._limit(REQUEST_MS, self.close)
            self._departure = wait = Wait[None](self._turns)
            self._unread_since_ms = self._clock.monotonic_ms()
            await wait
            self._limit(None)
        await self._turns.yield_if_due()

    async def _linger(self) -> None:
        """Read and ignore bytes for a while: if it closed at once, the client could lose the reply."""
        if self._transport is None or self._closed:
            return
        self._transport.write_eof()
        self._is_late = False
        self._limit(LINGER_MS)
        while not self._ended and not self._is_late:
            self._received.clear()
            await self._arrive()

    def _feed(self, most_bytes: int) -> None:
        """Pass the first received bytes to h11."""
        self._http.receive_data(bytes(self._received[:most_bytes]))
        del self._received[:most_bytes]

    def _next_event(self) -> Any:
        try:
            return self._http.next_event()
        except h11.RemoteProtocolError as error:
            self._turns.charge(BAD_US)
            status = error.error_status_hint
            raise AdminError(status if status in _REFUSALS else 400, f"This is not HTTP/1.1: {error}") from None

    def _write(self, event: h11.Event) -> None:
        data = self._http.send(event)
        if data and self._transport is not None and not self._closed:
            self._turns.charge(EVENT_US + len(data) * COPY_BYTE_US)
            self._transport.write(data)


def _new_http() -> h11.Connection:
    return h11.Connection(h11.SERVER, max_incomplete_event_size=CHUNK_BYTES)


def _is_json(content_type: bytes) -> bool:
    kind, _, more = content_type.decode("latin-1").lower().partition(";")
    return kind.strip() == JSON and more.strip().replace('"', "") in ("", "charset=utf-8")
