"""From a frame to a reply: header, table, body, handler, encoding. free

A frame that cannot be decoded closes the connection with one log line that names the peer, the API and the reason, as
in Kafka. Only ApiVersions gets a typed reply to a version that is not served (KIP-511).
"""

import logging
from collections.abc import Callable, Mapping
from struct import Struct
from typing import TYPE_CHECKING, Any, Final, cast

from ottla.broker.api.context import Api, Broker
from ottla.broker.api.fencing_log import FENCED, log_fenced
from ottla.broker.api.refusals import record_refusal
from ottla.broker.api.request import Close, Encoded, NoReply, Reply, Request
from ottla.broker.costs import COPY_BYTE_US, FIRST_USE_US, FREED_ENTRY_US, REQUEST_BYTE_US, REQUEST_US
from ottla.broker.memory import ENTRY_BYTES, Memory, Reservation, TooLarge, decoded_bytes
from ottla.broker.non_kafka import describe_non_kafka
from ottla.broker.ports.clock import Clock
from ottla.broker.quotas.quotas import Measured, RequestQuota
from ottla.broker.request_observer import Refuse, Send
from ottla.broker.security.session import Session
from ottla.broker.turns import Activity, Gate, Handler
from ottla.protocol.api_keys import ApiKey, api_title
from ottla.protocol.errors import ErrorCode, ProtocolError, Unwritable
from ottla.protocol.requests import codec
from ottla.protocol.requests.frames import parse_request_header
from ottla.protocol.requests.produce_wire import ProduceBody, decode_produce_request, produce_request_steps
from ottla.protocol.requests.throttle_times import with_throttle_time

if TYPE_CHECKING:
    from ottla.broker.security.sasl import Authenticator

log = logging.getLogger(__name__)

# Plain numbers, as in the header of each request.
PRODUCE: Final = ApiKey.PRODUCE.value
API_VERSIONS: Final = ApiKey.API_VERSIONS.value
DECODED_AT_ONCE_BYTES: Final = 32_768
"""A larger body may have more entries than a turn budget allows for, and is decoded in steps."""
SMALL_BODY_BYTES: Final = 4_096
"""A smaller body takes no more than 128 KiB decoded, which is not counted."""
CLOSED: Final = "connection closed"
"""Recorded in place of an error code when the connection is closed without one."""
_KEY_AND_VERSION: Final = Struct(">hh")

Start = Callable[[memoryview, Session, Send, Refuse, Reservation | None], "Activity[Any] | None"]


class Dispatcher:
    """Starts the handler of each request of a broker."""

    def __init__(self, broker: Broker, table: Mapping[int, Api], first_use: bool = False) -> None:
        """Set `first_use` to generate readers and writers when a version is first requested, and to charge for that."""
        self._broker = broker
        self.observer = broker.observer
        self.steered_by: Start | None = None
        """A function that connections call in the place of `start`; it may call `start` later, twice or not at all."""
        self._table = table
        self._metrics = broker.metrics
        self._quotas = broker.quotas
        # One large body at a time: it takes ten times its size in objects.
        self._decoding = Gate()
        # (API, version), in one number, of which no request has arrived yet.
        self._unused: set[int] = set()
        for api in table.values() if first_use else ():
            self._unused.update(api.key << 16 | version for version in range(api.min_version, api.max_version + 1))

    @property
    def memory(self) -> Memory:
        """The memory budget of the broker."""
        return self._broker.memory

    @property
    def clock(self) -> Clock:
        """The clock of the broker."""
        return self._broker.clock

    def detect_non_kafka(self, peer: str, first: bytes) -> bool:
        """Return whether the bytes begin another protocol than Kafka's. If so, log it, at most once a minute and
        address."""
        reason = describe_non_kafka(first)
        broker = self._broker
        if reason is not None and broker.non_kafka.count(
            (peer.rpartition(":")[0], reason), broker.clock.monotonic_ms()
        ):
            log.warning("Closing the connection of %(peer)s: %(reason)s", {"peer": peer, "reason": reason})
        return reason is not None

    def record_close(self, peer: str, reason: str) -> None:
        """Record that a connection is closed because of its request. `reason` is the text of the log; it begins with
        the API."""
        if self._broker.events is not None:
            self._broker.events.record_refusal(reason.partition(" ")[0], CLOSED, "", peer, None, reason)

    def start(
        self,
        frame: memoryview,
        session: Session,
        send: Send,
        refuse: Refuse,
        reservation: Reservation | None = None,
    ) -> "Activity[Reply] | None":
        """Serve one frame.

        `send` gets the reply's buffers (none for acks=0) and their memory reservation, now or in a later turn. `refuse`
        gets the reason why the connection must be closed. The `reservation` of a large request is
        released with the request. Returns the activity if the handler waits, else None.
        """
        authenticator = session.authenticator
        if authenticator is not None and authenticator.takes_tokens:
            return self._start_token(frame, session, authenticator, send, refuse, reservation)
        try:
            header, body = parse_request_header(frame)
        except ProtocolError as error:
            refuse(f"{_api_name(frame)}: bad request header: {error}")
            return None
        key, version, correlation_id, client_id = header
        if authenticator is not None and (objection := authenticator.objection(key)):
            refuse(f"{api_title(key)} v{version}: {objection}")
            return None
        api = self._table.get(key)
        if api is None:
            refuse(f"{api_title(key)} v{version} is not served")
            return None
        if not api.min_version <= version <= api.max_version:
            _answer_unserved_version(api, version, correlation_id, send, refuse)
            return None
        if key << 16 | version in self._unused:
            self._unused.remove(key << 16 | version)
            self._broker.turns.charge(FIRST_USE_US)
        request = Request(key, version, correlation_id, client_id, session, None, reservation)
        self._metrics.apis[key].versions[version] += 1
        if self._quotas.enabled and not (session.is_peer or (authenticator and authenticator.is_login(key))):
            request.quota = self._quotas.begin(key, session.principal, client_id, len(frame))

        def bug(error: Exception) -> None:
            _close_after_bug(api, request, error, refuse)

        def finish(reply: Reply) -> None:
            if request.reservation is not None:
                request.release()
            try:
                if isinstance(reply, Encoded) and not (
                    reply.error_code or reply.row_errors or reply.closes or request.quota
                ):
                    send(reply.buffers, reply.reservation)
                else:
                    self._finish(reply, request, send, refuse)
            except Exception as error:
                # A call of `bug` from here would be a reference cycle in compiled code.
                _close_after_bug(api, request, error, refuse)

        done = self._metrics.time_reply(key, finish) if self._metrics.measured else finish
        try:
            coroutine = self._handler(api, request, body)
        except ProtocolError as error:
            refuse(f"{api.title} v{version}: {error}")
            return None
        except Exception as error:  # a bug of the broker; the client must not wait for ever
            bug(error)
            return None
        if request.quota is not None:
            coroutine = cast("Handler[Any]", Measured(coroutine, request.quota))
        return self._broker.turns.start(coroutine, done, bug)

    def _start_token(
        self,
        frame: memoryview,
        session: Session,
        authenticator: "Authenticator",
        send: Send,
        refuse: Refuse,
        reservation: Reservation | None,
    ) -> "Activity[Reply] | None":
        """Serve a frame that is no request: a token of a login that was begun with SaslHandshake 0."""
        from ottla.broker.api.sasl_authenticate import handle_token

        token = bytes(frame)
        if reservation is not None:
            reservation.release()
        turns = self._broker.turns
        turns.charge(REQUEST_US + len(token) * COPY_BYTE_US)

        def done(reply: Reply) -> None:
            if isinstance(reply, Encoded):
                send(reply.buffers, None)
            elif isinstance(reply, Close):
                refuse(reply.reason)

        def bug(error: Exception) -> None:
            log.error("The login of %(peer)s failed", {"peer": session.peer}, exc_info=error)
            refuse(f"SaslAuthenticate failed: {error!r}")

        return turns.start(handle_token(self._broker, session, authenticator, token), done, bug)

    def _finish(self, reply: Reply, request: Request, send: Send, refuse: Refuse) -> None:
        if request.quota is not None:
            reply = _throttle(reply, request, request.quota)
        if isinstance(reply, NoReply):
            send((), None)
            return
        if reply.row_errors:
            self._table[request.api_key].report_rows(self._broker, request, reply.row_errors)
        if isinstance(reply, Close):
            refuse(reply.reason)
            return
        if reply.error_code:
            _report_error(self._broker, request, reply.error_code)
        send(reply.buffers, reply.reservation)
        if reply.closes:
            refuse(f"{api_title(request.api_key)} v{request.api_version}: {reply.closes}")

    def _handler(self, api: Api, request: Request, body: memoryview) -> Handler[Any]:
        """Return the coroutine that serves the request. Decodes the body, unless it is large. Raises ProtocolError."""
        turns, size_bytes = self._broker.turns, len(body)
        if request.api_key == PRODUCE:
            turns.charged_us += REQUEST_US + size_bytes * COPY_BYTE_US
            if size_bytes > DECODED_AT_ONCE_BYTES:
                return self._handle_large_produce(api, request, body)
            request.body = decode_produce_request(request.api_version, body)
            trailing_bytes = request.body.trailing_bytes
        elif size_bytes <= SMALL_BODY_BYTES or (
            size_bytes <= DECODED_AT_ONCE_BYTES and self._can_decode(request, body)
        ):
            turns.charged_us += REQUEST_US + size_bytes * REQUEST_BYTE_US
            request.body, trailing_bytes = codec.read_request(request.api_key, request.api_version, body)
        else:
            turns.charged_us += REQUEST_US + size_bytes * COPY_BYTE_US
            return self._handle_large(api, request, bytes(body))
        if trailing_bytes:
            _log_trailing_bytes(request, trailing_bytes)
        return api.handle(self._broker, request)

    def _can_decode(self, request: Request, body: memoryview) -> bool:
        """Reserve the memory of a decoded body of middle size. Returns False if it is not available at once."""
        if request.reservation is None:
            reservation = self._broker.memory.decoded.reserve(decoded_bytes(len(body)), _ignore_grant)
            if not reservation.granted:
                reservation.release()
                return False
            request.reservation = reservation
        return True

    async def _handle_large(self, api: Api, request: Request, body: bytes) -> Reply:
        if request.reservation is None:
            request.reservation = await self._broker.memory.decoded.enter(decoded_bytes(len(body)))
        try:
            request.body, trailing_bytes, entries = await self._broker.long_work.drive(
                codec.read_request_in_steps(request.api_key, request.api_version, body), gate=self._decoding
            )
        except ProtocolError as error:
            return Close(f"{api.title} v{request.api_version}: {error}")
        request.reservation.shrink(len(body) + entries * ENTRY_BYTES)
        self._broker.turns.charge(entries * FREED_ENTRY_US)
        body = b""  # the message owns its data
        if trailing_bytes:
            _log_trailing_bytes(request, trailing_bytes)
        return await api.handle(self._broker, request)

    async def _handle_large_produce(self, api: Api, request: Request, body: memoryview) -> Reply:
        """Handle a large Produce. Its records are not copied; only its rows are decoded, in steps."""
        found: list[ProduceBody] = []
        try:
            await self._broker.long_work.drive(produce_request_steps(request.api_version, body, found))
        except ProtocolError as error:
            return Close(f"{api.title} v{request.api_version}: {error}")
        request.body = found.pop()
        if request.body.trailing_bytes:
            _log_trailing_bytes(request, request.body.trailing_bytes)
        return await api.handle(self._broker, request)


def _close_after_bug(api: Api, request: Request, error: Exception, refuse: Refuse) -> None:
    """Close the connection after an exception of the handler: a bug, failed IO, or a reply that cannot be written."""
    request.release()
    if isinstance(error, (TooLarge, Unwritable)):
        refuse(f"{api.title} v{request.api_version}: {error}")
        return
    if not isinstance(error, OSError):  # failed IO has been reported by the log directory
        log.error("%(api)s v%(version)d from %(peer)s failed", request.about, exc_info=error)
    refuse(f"{api.title} v{request.api_version} failed: {error!r}")


def memory_of(api_key: int, size_bytes: int) -> int:
    """Return the bytes that a request of this size holds while it is received, decoded and handled."""
    return size_bytes if api_key == PRODUCE else size_bytes + decoded_bytes(size_bytes)


def _throttle(reply: Reply, request: Request, quota: RequestQuota) -> Reply:
    """Return the reply with its throttle time set. The connection delays the client (KIP-219)."""
    if isinstance(reply, Close):
        return reply
    throttle_ms = quota.finish_measuring(answered=isinstance(reply, Encoded))
    if not throttle_ms:
        return reply
    request.session.throttle_ms = throttle_ms
    if not isinstance(reply, Encoded):
        return reply
    return reply._replace(buffers=with_throttle_time(reply.buffers, request.api_key, request.api_version, throttle_ms))


def _answer_unserved_version(api: Api, version: int, correlation_id: int, send: Send, refuse: Refuse) -> None:
    """Answer a request whose version is not served."""
    if api.key == API_VERSIONS:
        send([codec.encode_unsupported_api_versions(correlation_id, api.min_version, api.max_version)], None)
    else:
        refuse(f"{api.title} v{version} is not served, only {api.min_version}-{api.max_version}")


def _ignore_grant() -> None:
    """Ignore the grant of memory."""


def _log_trailing_bytes(request: Request, trailing_bytes: int) -> None:
    """Log bytes after the body of a request. Kafka ignores them too."""
    log.debug(
        "%(api)s v%(version)d of %(peer)s: %(bytes)d bytes after its body",
        request.about | {"bytes": trailing_bytes},
    )


def _report_error(broker: Broker, request: Request, error_code: int) -> None:
    """Count and record the error of a whole request. Log it if the client was fenced or sent what no correct client
    sends; other errors depend on the current state."""
    broker.metrics.apis[request.api_key].count_error(error_code)
    record_refusal(broker, request, error_code)
    if error_code in FENCED:
        log_fenced(broker, request, error_code)
    elif error_code == ErrorCode.INVALID_REQUEST:
        error = ErrorCode(error_code).name
        log.warning("Refused %(api)s v%(version)d of %(peer)s: %(error)s", request.about | {"error": error})


def _api_name(frame: memoryview) -> str:
    """Return the API and version that a frame with a broken header names."""
    if len(frame) < _KEY_AND_VERSION.size:
        return "No API"
    key, version = _KEY_AND_VERSION.unpack_from(frame)
    return f"{api_title(key)} v{version}"
