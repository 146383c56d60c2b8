"""A client connection: framing, order, backpressure, limits. shell

A connection serves one request at a time, as Kafka does. It reads the next frame when the reply to the previous one is
queued, so replies leave in request order, and a parked Fetch delays the requests pipelined after it. All replies of a
turn leave in one write.

A connection that pipelines many requests, or small requests with large replies, is served over several turns, so that
others are served in between. A connection with unsent replies is not read: it never holds more than the replies of one
turn. New connections wait until the existing ones are served.

A producer that asks for no acks may hang up at once: its requests are still served (KAFKA-3703). Any other client that
hangs up has given up its requests. Connections that hang up are closed as the turn budget allows, because thousands may
do so at once.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any

from ottla.broker.config import Config
from ottla.broker.connection_memory import ConnectionMemory
from ottla.broker.costs import HANG_UP_US, RECEIVED_BYTE_US
from ottla.broker.deadline import Deadline
from ottla.broker.dispatch import PRODUCE, Dispatcher, memory_of
from ottla.broker.memory import FREE_BYTES, ReplyReservation
from ottla.broker.outbox import Outbox, Part
from ottla.broker.ports.clock import Timer
from ottla.broker.ports.hangups import has_hung_up
from ottla.broker.ports.listener import LOST
from ottla.broker.ports.slices import CutShort
from ottla.broker.request_observer import Refuse, Send
from ottla.broker.security.sasl import LOGIN_MS, Authenticator
from ottla.broker.security.session import DEFAULT_LISTENER, Session
from ottla.broker.turns import Activity, Turns
from ottla.protocol.errors import ProtocolError
from ottla.protocol.requests.frames import ReceiveBuffer, SharedMemory

log = logging.getLogger(__name__)

LARGE_BYTES = 64 * 1024
"""A request of this size is put off when the turn budget is spent. If at least this much is received at once, the bytes
are charged; the cost of fewer bytes is part of `REQUEST_US`."""


LINGER_MS = 1_000.0
"""The time in which a refused client may hang up by itself: kafka-python does not read a reply that arrives together
with the end of the connection."""


class Connection(asyncio.BufferedProtocol):
    """The protocol object of one accepted socket."""

    __slots__ = (
        "_activity",
        "_broken",
        "_busy",
        "_connections",
        "_dispatcher",
        "_ended",
        "_ends_when_sent",
        "_holds_frame",
        "_inbox",
        "_is_new",
        "_login",
        "_memory",
        "_muted",
        "_on_lost",
        "_outbox",
        "_paused_reading",
        "_produces",
        "_put_off",
        "_sending",
        "_transport",
        "_turns",
        "draining",
        "idle_sweeps",
        "principal_of",
        "session",
    )

    def __init__(
        self,
        dispatcher: Dispatcher,
        turns: Turns,
        connections: "set[Connection]",
        config: Config,
        shared: SharedMemory | None = None,
        on_lost: Callable[[], None] | None = None,
        listener_name: str = DEFAULT_LISTENER,
    ) -> None:
        self._dispatcher = dispatcher
        self._turns = turns
        self._connections = connections
        self._inbox = ReceiveBuffer(config.socket_request_max_bytes, config.max_request_body_bytes, shared)
        self._outbox = Outbox(turns)
        self._memory: ConnectionMemory | None = None
        self._on_lost = on_lost
        self.session = Session(listener_name)
        self._transport: asyncio.Transport
        self._activity: Activity[Any] | None = None
        self._busy = False
        self._holds_frame = False
        self._broken = False
        # No request has been served yet. Thousands of connections may come at once; the turn budget limits them.
        self._is_new = True
        # The peer has closed its side (`_ended`); the waiting request is a Produce (`_produces`).
        self._ended = False
        self._produces = False
        self._paused_reading = False
        self._put_off = False
        # Nothing is served until this timer fires, because a quota was violated.
        self._muted: Timer | None = None
        # A part of the queue has been sent; nothing is served until the rest is sent.
        self._sending = False
        self._ends_when_sent = False
        # The time limit of a login, or the time in which a refused client may read the reason.
        self._login: Deadline | None = None
        self.principal_of: Callable[[bytes | None], str] | None = None
        """On a listener with TLS, return the principal of a client certificate, or raise ValueError to refuse the
        client."""
        self.draining = False
        self.idle_sweeps = 0

    def ask_for_login(self, authenticator: Authenticator, config: Config, most_bytes: int) -> None:
        """Serve only the login until it is complete. Until then a request has at most `most_bytes`, and the time is
        limited."""

        def logged_in() -> None:
            self._inbox.limit(config.socket_request_max_bytes, config.max_request_body_bytes)
            self._forget_login()

        self._inbox.limit(most_bytes, most_bytes)
        authenticator.on_login = logged_in
        self.session.authenticator = authenticator

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport) or hasattr(transport, "write")
        self._transport = transport  # type: ignore[assignment]
        self._outbox.connect(self._transport)
        name = transport.get_extra_info("peername")
        self.session.peer = f"{name[0]}:{name[1]}" if name else "?"
        self._connections.add(self)
        if self.session.authenticator is not None:
            self._await_login(LOGIN_MS, self._login_is_late)
        if self.principal_of is not None:
            encrypted = transport.get_extra_info("ssl_object")
            try:
                self.session.principal = self.principal_of(encrypted.getpeercert(binary_form=True))
            except ValueError as error:
                self._refuse(str(error))

    def connection_lost(self, exc: Exception | None) -> None:
        self._broken = True
        self._connections.discard(self)
        self._outbox.disconnect()
        self._transport = LOST
        self._discard()
        if self._muted is not None:
            self._muted.cancel()
        self._forget_login()
        if self.session.authenticator is not None:
            self.session.authenticator.on_login = None  # it refers to this connection
        if self._memory is not None:
            self._memory.release()
        on_lost, self._on_lost = self._on_lost, None
        if on_lost is not None:
            on_lost()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._inbox.get_buffer(sizehint)

    def buffer_updated(self, nbytes: int) -> None:
        self._inbox.commit(nbytes)
        self.idle_sweeps = 0
        if nbytes >= LARGE_BYTES:
            self._turns.charged_us += nbytes * RECEIVED_BYTE_US
        if not self._busy and not self._put_off:
            if self._is_new and nbytes < LARGE_BYTES and self._turns.is_spent:
                # Putting it off needs no turn. `Turns.run_after_input` must still see this input.
                self._turns.events += 1
                self._serve_later()
            else:
                self._turns.event(self._serve)
        if self._busy or self._put_off:
            self._limit_pipelining()
        self._inbox.return_shared_memory()

    def eof_received(self) -> bool:
        if self._broken or self._outbox.is_encrypted:  # a TLS connection cannot be half closed
            return False
        waits = self._put_off or (self._muted is not None and self._inbox.buffered_bytes > 0)
        if self._outbox.parts or (self._produces if self._busy else waits):
            self._ended = True
            return True
        turns = self._turns
        if turns.is_spent:  # thousands of clients may disconnect at the same time
            self._ends_when_sent = True
            turns.rest_last(self._leave)
            return True
        turns.charged_us += HANG_UP_US
        return False

    def pause_writing(self) -> None:
        self._outbox.paused = True
        self._pause_reading()

    def resume_writing(self) -> None:
        self._outbox.paused = False
        self.idle_sweeps = 0
        if not self._broken:
            self._turns.event(self._resume)

    def drain(self) -> None:
        """Finish the request in progress, then close. Read nothing new."""
        self.draining = True
        if not self._busy:
            self._end()

    def sweep(self, most_sweeps: int) -> None:
        """Close the connection if nothing moved during `most_sweeps` calls (connections.max.idle.ms). Called at
        intervals."""
        self.idle_sweeps += 1
        if self._muted is not None or (self._memory is not None and self._memory.waits):
            self.idle_sweeps = 0  # the broker delays it
        self._inbox.trim()
        if self.idle_sweeps > most_sweeps and not self._busy:
            self.abort()  # `close` would wait for a peer that has stopped reading, and keep its replies

    def close_on_stall(self) -> None:
        """Close the connection if its client holds memory and makes no progress, or has hung up while it was not read.
        Called at intervals while other requests wait for memory."""
        holding, inbox = self._memory, self._inbox
        if holding is None or self._busy or self._put_off:
            return
        if holding.waits:
            if has_hung_up(self._outbox.descriptor, inbox.needed_bytes - inbox.buffered_bytes):
                self.abort()
        elif holding.is_stalled(self._outbox.unsent_bytes + self._transport.get_write_buffer_size()):
            log.warning(
                "Closing the connection of %(peer)s: other requests wait for the memory of its request or reply, "
                "and it makes no progress (queued.max.request.bytes)",
                {"peer": self.session.peer},
            )
            self.abort()

    def close(self) -> None:
        """Close when the bytes that the transport holds are written."""
        if not self._broken:
            self._broken = True
            self._outbox.clear()
            self._transport.close()

    def abort(self) -> None:
        """Close now: discard queued replies and the waiting request."""
        self._broken = True
        self._outbox.clear()
        self._discard()
        self._transport.abort()

    def _await_login(self, delay_ms: float, late: Callable[[], None]) -> None:
        """Start the login timer in place of the previous one. `late` runs when it fires."""
        self._forget_login()
        self._login = Deadline(self._dispatcher.clock, self._turns, delay_ms, late)

    def _forget_login(self) -> None:
        login, self._login = self._login, None
        if login is not None:
            login.cancel()

    def _login_is_late(self) -> None:
        log.warning(
            "Closing the connection of %(peer)s: it has not logged in within %(seconds)d s",
            {"peer": self.session.peer, "seconds": LOGIN_MS / 1000},
        )
        self._turns.rest_last(self.abort)

    def _end(self) -> None:
        """Serve no more requests, and close when all queued replies are sent."""
        self._ends_when_sent = True
        if not self._outbox.parts:
            self.close()

    def _leave(self) -> None:
        """Close a connection whose peer has hung up."""
        if not self._broken:
            self._turns.charged_us += HANG_UP_US
            self.close()

    def _discard(self) -> None:
        activity, self._activity = self._activity, None
        if activity is not None:
            activity.discard()

    def _resume(self) -> None:
        if self._sending:
            self._send_out()
        elif self._memory is not None and not self._outbox.parts and not self._outbox.paused:
            self._memory.on_sent()
        self._resume_reading()
        self._serve()
        if self._busy:
            self._limit_pipelining()

    def _serve(self) -> None:
        """Start requests until one waits, the input ends, too much is unsent, or the turn budget is spent."""
        others_first = self._is_new
        inbox, outbox = self._inbox, self._outbox
        while not (
            self._busy
            or self._broken
            or outbox.paused
            or self._sending
            or self._ends_when_sent
            or self._muted is not None
        ):
            if self.draining:
                self._turns.at_end(self._end)
                return
            waiting_bytes = inbox.buffered_bytes
            if not waiting_bytes:
                if self._ended:
                    self._turns.at_end(self._end)
                return
            if (
                outbox.slices
                or outbox.unsent_bytes > FREE_BYTES
                or (self._turns.is_spent and (others_first or waiting_bytes >= LARGE_BYTES))
            ):
                if waiting_bytes >= LARGE_BYTES:
                    self._pause_reading()
                self._serve_later()
                return
            others_first = True
            try:
                frame = inbox.next_frame()
            except ProtocolError as error:
                if self._dispatcher.detect_non_kafka(self.session.peer, inbox.first_bytes):
                    self._end_after_refusal()
                else:
                    self._refuse(str(error))
                return
            if frame is None:
                if self._ended:
                    self._turns.at_end(self._end)
                elif inbox.needed_bytes > FREE_BYTES:
                    self._receive_large()
                    if self._turns.is_spent:
                        self._pause_reading()
                        self._serve_later()
                return
            self._is_new = False
            self._busy = self._holds_frame = True
            reservation = None if self._memory is None else self._memory.hand_over()
            dispatcher = self._dispatcher
            send: Send = self._send
            refuse: Refuse = self._refuse
            if dispatcher.observer.on_request is not None and not self.session.sends_tokens:
                send, refuse = dispatcher.observer.on_request(frame, self.session.peer, send, refuse)
            self._activity = dispatcher.start(frame, self.session, send, refuse, reservation)
            del reservation  # the request has the reservation
            if self._activity is not None:
                self._produces = int.from_bytes(frame[:2], "big") == PRODUCE
                if not self._produces:  # the message owns its data
                    self._release_frame()
                if self._ended and not self._produces:
                    self._turns.at_end(self._end)
        if self._muted is not None and inbox.buffered_bytes > inbox.most_ahead_bytes:
            self._pause_reading()

    def _release_frame(self) -> None:
        if self._holds_frame:
            self._holds_frame = False
            self._inbox.release()
            if self._memory is not None:
                self._memory.on_frame_end()

    def _receive_large(self) -> None:
        """Continue to read a large request if there is memory for it, or as soon as there is."""
        holding = self._get_memory()
        holding.receive(memory_of(self._inbox.needed_api_key, self._inbox.needed_bytes), self._resume)
        if holding.waits:
            self._pause_reading()

    def _get_memory(self) -> ConnectionMemory:
        if self._memory is None:
            self._memory = ConnectionMemory(self._dispatcher.memory, self._inbox)
        return self._memory

    def _serve_later(self) -> None:
        """Serve again in a later turn, when the replies of this turn are written and others were served."""
        if not self._put_off:
            self._put_off = True
            self._turns.run_later(self._take_up)

    def _take_up(self) -> None:
        self._put_off = self._is_new = False
        if self._paused_reading:  # the bytes received next are part of this budget
            self._turns.charged_us += LARGE_BYTES * RECEIVED_BYTE_US
        self._resume()

    def _send(self, parts: Sequence[Part], reservation: ReplyReservation | None) -> None:
        """Queue the reply to the current request. Runs inside `_serve` or in a later turn."""
        resumed = self._activity is not None
        self._activity = None
        self._busy = False
        self._release_frame()
        if self._broken:
            if reservation is not None:
                reservation.built(0)
            return
        if self.session.throttle_ms:
            self._mute()
        if reservation is not None:
            self._get_memory().hold_reply(reservation)
        if parts:
            outbox = self._outbox
            if not outbox.parts:
                self._turns.at_end(self._send_out)
            outbox.add(parts)
        if resumed:
            self._turns.later(self._resume)

    def _mute(self) -> None:
        """Serve nothing for the throttle time that the reply reports to the client (`ThrottledChannel` of Kafka)."""
        throttle_ms, self.session.throttle_ms = self.session.throttle_ms, 0
        self._muted = self._dispatcher.clock.call_later(throttle_ms, self._unmute)

    def _unmute(self) -> None:
        self._muted = None
        self._resume()

    def _send_out(self) -> None:
        """Send as much as the socket takes. The rest follows when the socket takes more, or in a later turn if there
        is much."""
        outbox = self._outbox
        try:
            outbox.send()
        except (CutShort, OSError) as error:
            if not isinstance(error, ConnectionError):
                log.error(
                    "Closing the connection of %(peer)s: its reply cannot be read from the log: %(error)s",
                    {"peer": self.session.peer, "error": str(error)},
                )
            self.abort()
            return
        self._sending = bool(outbox.parts)
        if outbox.paused:
            if outbox.written_bytes > FREE_BYTES:
                self._get_memory().on_unsent(outbox.written_bytes)
        elif self._memory is not None and not self._sending:
            self._memory.on_sent()
        if not self._sending:
            if self._ends_when_sent:
                self.close()
        elif not outbox.paused:
            self.idle_sweeps = 0
            self._serve_later()

    def _refuse(self, reason: str) -> None:
        """Close because of the bytes that the peer sent. Replies already queued are still sent."""
        self._activity = None
        if self._broken:
            return
        log.warning("Closing the connection of %(peer)s: %(reason)s", {"peer": self.session.peer, "reason": reason})
        self._dispatcher.record_close(self.session.peer, reason)
        self._end_after_refusal()

    def _end_after_refusal(self) -> None:
        tells_why = bool(self._outbox.parts)
        if tells_why and not self._sending:
            self._send_out()
        if tells_why and self.session.authenticator is not None and not self._broken:
            self._busy = True  # nothing more is served
            self._await_login(LINGER_MS, self._end)
        else:
            self._end()

    def _limit_pipelining(self) -> None:
        """Pause reading when the requests pipelined after the waiting one fill the receive buffer."""
        inbox = self._inbox
        if inbox.is_full or inbox.buffered_bytes > inbox.most_ahead_bytes:
            self._pause_reading()

    def _pause_reading(self) -> None:
        if not self._paused_reading and not self._broken and not self._ended:
            self._paused_reading = True
            self._transport.pause_reading()

    def _resume_reading(self) -> None:
        if self._memory is not None and self._memory.waits:
            return
        if self._paused_reading and not self._outbox.paused and not self._broken:
            self._paused_reading = False
            self._transport.resume_reading()
