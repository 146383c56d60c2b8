"""A client connection: framing, order, backpressure, limits. shell

A connection serves one request at a time, as Kafka does. It reads the next frame when the reply to the previous one is
queued, so replies leave in request order, and a waiting Fetch delays the requests pipelined after it. All replies of a
turn leave in one write.

Its state is a phase of the table in `phases.py`, what is unsent in the outbox, and the reason why the socket is not
read, which `_set_reading` alone decides.

A connection that pipelines many requests, or small requests with large replies, is served over several turns, so that
others are served in between. A connection with unsent replies is not read: it never holds more than the replies of one
turn. New connections wait until the existing ones are served.

A producer that asks for no acks may hang up at once: its requests are still served (KAFKA-3703). Any other client that
hangs up has given up its requests.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from ottla.broker.config import Config
from ottla.broker.connection_memory import ConnectionMemory
from ottla.broker.costs import HANG_UP_US, RECEIVED_BYTE_US
from ottla.broker.deadline import Deadline
from ottla.broker.dispatch import PRODUCE, Dispatcher, memory_of
from ottla.broker.memory import FREE_BYTES, ReplyReservation
from ottla.broker.outbox import Outbox, Part
from ottla.broker.phases import (
    AHEAD,
    CLOSED,
    CLOSING,
    IDLE,
    MEMORY,
    MUTED,
    NEW,
    NOT_PAUSED,
    PRODUCING,
    REFUSED,
    SERVING,
    TAKES_ALL,
    TAKES_NONE,
    TAKES_RECEIVED,
    UNSENT,
    WAITING,
)
from ottla.broker.ports.clock import Timer
from ottla.broker.ports.hangups import has_hung_up
from ottla.broker.ports.listener import LOST
from ottla.broker.ports.slices import CutShort
from ottla.broker.request_observer import Refuse, Send
from ottla.broker.security.session import DEFAULT_LISTENER, LOGIN_MS, Session
from ottla.broker.turns import Activity, Turns
from ottla.protocol.errors import ProtocolError
from ottla.protocol.requests.frames import ReceiveBuffer, SharedMemory

if TYPE_CHECKING:
    from ottla.broker.security.sasl import Authenticator

log = logging.getLogger(__name__)

LARGE_BYTES: Final = 64 * 1024
"""A request of this size is put off when the turn budget is spent. If at least this much is received at once, the bytes
are charged; the cost of fewer bytes is part of `REQUEST_US`."""

LINGER_MS: Final = 1_000.0
"""The time in which a refused client may hang up by itself: kafka-python does not read a reply that arrives together
with the end of the connection."""


class Connection:
    """The protocol object of one accepted socket: uvloop asks for the methods of `BufferedProtocol`, not its class."""

    __slots__ = (
        "_activity",
        "_connections",
        "_dispatcher",
        "_inbox",
        "_intake",
        "_memory",
        "_on_lost",
        "_outbox",
        "_phase",
        "_put_off",
        "_timer",
        "_transport",
        "_turns",
        "idle_sweeps",
        "pause_reason",
        "principal_of",
        "session",
    )

    def __init__(
        self,
        dispatcher: Dispatcher,
        turns: Turns,
        connections: "dict[Connection, None]",
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
        self._phase = NEW
        self._intake = TAKES_ALL
        # A later turn is booked that continues to send, and begins the next request.
        self._put_off = False
        # The time limit of a login, or the end of the phase MUTED or REFUSED.
        self._timer: Timer | None = None
        self.principal_of: Callable[[bytes | None], str] | None = None
        """On a listener with TLS, return the principal of a client certificate, or raise ValueError to refuse the
        client."""
        self.idle_sweeps = 0
        self.pause_reason = NOT_PAUSED
        """Why the socket is not read, or NOT_PAUSED."""

    def ask_for_login(self, authenticator: "Authenticator", config: Config, most_bytes: int) -> None:
        """Until the login is complete, serve only it, within `LOGIN_MS`, in requests of at most `most_bytes`."""

        def logged_in() -> None:
            self._inbox.limit(config.socket_request_max_bytes, config.max_request_body_bytes)
            self._set_timer(None)

        self._inbox.limit(most_bytes, most_bytes)
        authenticator.on_login = logged_in
        self.session.authenticator = authenticator

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]
        self._outbox.connect(self._transport)
        name = transport.get_extra_info("peername")
        self.session.peer = f"{name[0]}:{name[1]}" if name else "?"
        self._connections[self] = None
        if self.session.authenticator is not None:
            self._set_timer(Deadline(self._dispatcher.clock, self._turns, LOGIN_MS, self._login_is_late))
        if self.principal_of is not None:
            encrypted = transport.get_extra_info("ssl_object")
            try:
                self.session.principal = self.principal_of(encrypted.getpeercert(binary_form=True))
            except ValueError as error:
                self._close_with_reason(str(error))

    def connection_lost(self, exc: Exception | None) -> None:
        self._phase = CLOSED
        self._connections.pop(self, None)
        self._outbox.disconnect()
        self._transport = LOST
        self._discard()
        self._set_timer(None)
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
        if self._phase > IDLE or self._put_off:
            self._set_reading()
        elif self._phase == NEW and nbytes < LARGE_BYTES and self._turns.is_spent:
            # Putting it off needs no turn. `Turns.run_after_input` must still see this input.
            self._turns.events += 1
            self._serve_later()
        else:
            self._turns.event(self._serve)
        self._inbox.return_shared_memory()

    def eof_received(self) -> bool:
        if self._phase == CLOSED or self._outbox.is_encrypted:  # a TLS connection cannot be half closed
            return False
        has_more = self._put_off or (self._phase == MUTED and self._inbox.buffered_bytes > 0)
        if self._outbox.parts or has_more or self._phase == PRODUCING:
            if self._intake == TAKES_ALL:
                self._intake = TAKES_RECEIVED
            return True
        turns = self._turns
        if turns.is_spent:  # thousands of clients may disconnect at the same time
            self._phase = CLOSING
            turns.rest_last(self._leave)
            return True
        turns.charged_us += HANG_UP_US
        return False

    def pause_writing(self) -> None:
        self._outbox.paused = True
        self._set_reading()

    def resume_writing(self) -> None:
        self._outbox.paused = False
        self.idle_sweeps = 0
        if self._phase != CLOSED:
            self._turns.event(self._resume)

    def drain(self) -> None:
        """Finish the request in progress, then close. Read nothing new."""
        self._intake = TAKES_NONE
        if not self._is_busy:
            self._end()

    def sweep(self, most_sweeps: int) -> None:
        """Close the connection if nothing moved during `most_sweeps` periodic calls (connections.max.idle.ms)."""
        self.idle_sweeps += 1
        if self._phase == MUTED or self.pause_reason == MEMORY:
            self.idle_sweeps = 0  # the broker delays it
        self._inbox.trim()
        if self.idle_sweeps > most_sweeps and not self._is_busy:
            self.abort()  # `close` would wait for a peer that has stopped reading, and keep its replies

    def close_on_stall(self) -> None:
        """Close the connection if its client holds memory and makes no progress, or has hung up while it was not read.
        Called at intervals while other requests wait for memory."""
        holding, inbox = self._memory, self._inbox
        if holding is None or self._is_busy or self._put_off:
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
        if self._phase != CLOSED:
            self._phase = CLOSED
            self._outbox.clear()
            self._transport.close()

    def abort(self) -> None:
        """Close now: discard queued replies and the waiting request."""
        self._phase = CLOSED
        self._outbox.clear()
        self._discard()
        self._transport.abort()

    @property
    def _is_busy(self) -> bool:
        """Whether a request is in progress, or its refusal."""
        return SERVING <= self._phase <= REFUSED

    def _serve(self) -> None:
        """Begin requests until one waits, the input ends, too much is unsent, or the turn budget is spent."""
        others_first = self._phase == NEW
        inbox, outbox = self._inbox, self._outbox
        while self._phase <= IDLE and not (outbox.paused or outbox.sending):
            if self._intake == TAKES_NONE:
                self._turns.at_end(self._end)
                break
            waiting_bytes = inbox.buffered_bytes
            has_much = outbox.slices or outbox.unsent_bytes > FREE_BYTES
            if waiting_bytes and (
                has_much or (self._turns.is_spent and (others_first or waiting_bytes >= LARGE_BYTES))
            ):
                self._serve_later()
                break
            others_first = True
            try:
                frame = inbox.next_frame() if waiting_bytes else None
            except ProtocolError as error:
                is_logged = self._dispatcher.detect_non_kafka(self.session.peer, inbox.first_bytes)
                self._close_with_reason("" if is_logged else str(error))
                break
            if frame is None:
                if self._intake == TAKES_RECEIVED:
                    self._turns.at_end(self._end)
                elif waiting_bytes and inbox.needed_bytes > FREE_BYTES:
                    self._receive_large()
                break
            self._begin(frame)
        if self._phase > IDLE or self._put_off or self.pause_reason != NOT_PAUSED:
            self._set_reading()

    def _begin(self, frame: memoryview) -> None:
        """Start the handler of a request."""
        self._phase = SERVING
        reservation = None if self._memory is None else self._memory.hand_over()
        dispatcher = self._dispatcher
        send: Send = self._send
        refuse: Refuse = self._close_with_reason
        if dispatcher.observer.on_request is not None and not self.session.sends_tokens:
            send, refuse = dispatcher.observer.on_request(frame, self.session, send, refuse)
        start = dispatcher.start if dispatcher.steered_by is None else dispatcher.steered_by
        self._activity = start(frame, self.session, send, refuse, reservation)
        if self._activity is None:
            return
        if int.from_bytes(frame[:2], "big") == PRODUCE:
            self._phase = PRODUCING
            return
        self._phase = WAITING  # its message owns its data
        self._inbox.release()
        if self._memory is not None:
            self._memory.on_frame_end()
        if self._intake == TAKES_RECEIVED:  # the client has given it up
            self._turns.at_end(self._end)

    def _receive_large(self) -> None:
        """Continue to read a large request if there is memory for it and the turn budget lasts, or as soon as so."""
        inbox = self._inbox
        self._get_memory().receive(memory_of(inbox.needed_api_key, inbox.needed_bytes), self._resume)
        if self._turns.is_spent:
            self._serve_later()
        self._set_reading()

    def _send(self, parts: Sequence[Part], reservation: ReplyReservation | None) -> None:
        """Queue the reply to the current request. Runs inside `_serve` or in a later turn."""
        resumed = self._activity is not None
        self._activity = None
        phase = self._phase
        if phase == CLOSED:
            if reservation is not None:
                reservation.built(0)
            return
        if SERVING <= phase <= PRODUCING:
            self._inbox.release()
            if self._memory is not None:
                self._memory.on_frame_end()
        if phase != CLOSING:
            self._phase = IDLE
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

    def _get_memory(self) -> ConnectionMemory:
        if self._memory is None:
            self._memory = ConnectionMemory(self._dispatcher.memory, self._inbox)
        return self._memory

    def _mute(self) -> None:
        """Serve nothing for the throttle time that the reply reports to the client (`ThrottledChannel` of Kafka)."""
        throttle_ms, self.session.throttle_ms = self.session.throttle_ms, 0
        self._phase = MUTED
        self._set_timer(self._dispatcher.clock.call_later(throttle_ms, self._unmute))

    def _unmute(self) -> None:
        self._timer = None
        if self._phase == MUTED:
            self._phase = IDLE
        self._resume()

    def _serve_later(self) -> None:
        """Serve again in a later turn, when the replies of this turn are written and others were served."""
        if not self._put_off:
            self._put_off = True
            self._turns.run_later(self._take_up)

    def _take_up(self) -> None:
        self._put_off = False
        if self._phase == NEW:
            self._phase = IDLE
        if self.pause_reason != NOT_PAUSED:  # the bytes received next are part of this budget
            self._turns.charged_us += LARGE_BYTES * RECEIVED_BYTE_US
        self._resume()

    def _resume(self) -> None:
        outbox = self._outbox
        if outbox.sending:
            self._send_out()
        elif self._memory is not None and not outbox.parts and not outbox.paused:
            self._memory.on_sent()
        self._serve()

    def _send_out(self) -> None:
        """Send as much as the socket takes. The rest follows when it takes more, or in a later turn if it is much."""
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
        if outbox.paused:
            if outbox.written_bytes > FREE_BYTES:
                self._get_memory().on_unsent(outbox.written_bytes)
        elif self._memory is not None and not outbox.sending:
            self._memory.on_sent()
        if not outbox.sending:
            if self._phase == CLOSING:
                self.close()
        elif not outbox.paused:
            self.idle_sweeps = 0
            self._serve_later()

    def _set_reading(self) -> None:
        """Read unless there is a reason against it. Called whenever one may begin or end."""
        if self._phase == CLOSED or self._intake == TAKES_RECEIVED:
            return
        before, self.pause_reason = self.pause_reason, self._find_pause_reason()
        if (before == NOT_PAUSED) is (self.pause_reason == NOT_PAUSED):
            return
        if before == NOT_PAUSED:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    def _find_pause_reason(self) -> int:
        inbox = self._inbox
        if self._outbox.paused:
            return UNSENT
        if self._memory is not None and self._memory.waits:
            return MEMORY
        if self._put_off and inbox.needed_bytes > FREE_BYTES:
            return AHEAD
        if (self._phase > IDLE or self._put_off) and (inbox.is_full or inbox.buffered_bytes >= inbox.most_ahead_bytes):
            return AHEAD
        return NOT_PAUSED

    def _login_is_late(self) -> None:
        log.warning(
            "Closing the connection of %(peer)s: it has not logged in within %(seconds)d s",
            {"peer": self.session.peer, "seconds": LOGIN_MS / 1000},
        )
        self._turns.rest_last(self.abort)

    def _set_timer(self, timer: Timer | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = timer

    def _discard(self) -> None:
        activity, self._activity = self._activity, None
        if activity is not None:
            activity.discard()

    def _close_with_reason(self, reason: str) -> None:
        """Close because of the bytes that the peer sent. Log `reason`, unless it is empty. Send the queued replies."""
        self._activity = None
        if self._phase == CLOSED:
            return
        if reason:
            log.warning("Closing the connection of %(peer)s: %(reason)s", {"peer": self.session.peer, "reason": reason})
            self._dispatcher.record_close(self.session.peer, reason)
        has_reply = bool(self._outbox.parts)
        if has_reply and not self._outbox.sending:
            self._send_out()
        if has_reply and self.session.authenticator is not None and self._phase < CLOSING:
            self._phase = REFUSED
            self._set_timer(Deadline(self._dispatcher.clock, self._turns, LINGER_MS, self._end))
        else:
            self._end()

    def _end(self) -> None:
        """Begin no more requests, and close when all queued replies are sent."""
        if self._phase != CLOSED:
            self._phase = CLOSING
            if not self._outbox.parts:
                self.close()

    def _leave(self) -> None:
        """Close a connection whose peer has hung up."""
        if self._phase != CLOSED:
            self._turns.charged_us += HANG_UP_US
            self.close()
