"""A raw protocol connection over a core without IO. shell

    with BlockingConnection("localhost", 9092) as connection:
        response = connection.send(codec.request_class(ApiKey.END_TXN)(transactional_id="t", ...))

Requests and responses are kafka-python's message objects (`ottla.protocol.requests.codec`). Without `version=` a
request is sent in the highest version that the schemas and the broker share. ApiVersions is sent once per connection.
Responses are read as strictly as a broker reads requests. Errors inside a response are values of the response. Raises
`ProtocolError` (bytes that break the protocol, or a version that the broker does not have), `ConnectionError` (closed
by the peer) and `TimeoutError`. A connection whose response cannot be read is closed.
"""

import math
import socket
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Final, Self

from ottla import __version__
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode, ProtocolError
from ottla.protocol.requests import codec
from ottla.protocol.requests.frames import ReceiveBuffer
from ottla.wire.login import PLAINTEXT, SecurityOptions, log_in, wrap_in_tls

DEFAULT_TIMEOUT_S: Final = 30.0
DEFAULT_CLIENT_ID: Final = "ottla"
HELLO_VERSION: Final = 4
"""The version of ApiVersions that a connection begins with. A broker older than 3.9 is asked twice; with 5 all those
older than 4.4 would be."""
_CORRELATION_BYTES: Final = 4
_REAUTHENTICATE_AFTER: Final = 0.85
"""Part of a session's lifetime after which a client logs in again. Java's clients take 0.85 to 0.95."""
_LEAST_SESSION_S: Final = 1.0
"""Brokers refuse another login before this time (`MIN_REAUTH_INTERVAL_ONE_SECOND_NANOS`)."""

Versions = dict[int, tuple[int, int]]
"""API key to the lowest and highest version that the broker serves."""


class Exchange:
    """The core: requests to bytes, bytes to responses, in the order of the requests. No IO.

    A Produce request with acks=0 has no response, so it is not stored here.
    """

    def __init__(self, client_id: str = DEFAULT_CLIENT_ID) -> None:
        self.client_id = client_id
        self.versions: Versions | None = None
        self.inbox = ReceiveBuffer()
        self._pending: deque[tuple[int, int, int]] = deque()
        self._next_correlation_id = 0
        self._hello: int | None = None

    @property
    def pending(self) -> int:
        """Number of responses that have not arrived."""
        return len(self._pending)

    def version_of(self, api_key: int) -> int:
        """Return the highest version that the schemas and the broker share."""
        lowest, highest = codec.schema_versions(api_key)
        served = (self.versions or {}).get(api_key)
        if served is None:
            raise ProtocolError(f"the broker does not serve {ApiKey(api_key).title}")
        best = min(highest, served[1])
        if best < max(lowest, served[0]):
            raise ProtocolError(
                f"the broker serves {ApiKey(api_key).title} {served[0]}-{served[1]}, this client {lowest}-{highest}"
            )
        return best

    def request(self, message: Any, version: int | None = None) -> tuple[bytes, bool]:
        """Return (bytes to send, whether the request has a response)."""
        api_key = message.API_KEY
        chosen = self.version_of(api_key) if version is None else version
        correlation_id = self._next_correlation_id
        frame = codec.encode_request(message, chosen, correlation_id, self.client_id)
        self._next_correlation_id = (correlation_id + 1) & 0x7FFFFFFF
        expects = bool(message.expect_response())
        if expects:
            self._pending.append((correlation_id, api_key, chosen))
        return frame, expects

    def next_response(self) -> Any | None:
        """Return the next response that has arrived completely, or None."""
        frame = self.inbox.next_frame()
        if frame is None:
            return None
        try:
            if not self._pending:
                raise ProtocolError("a response without a request")
            expected, api_key, version = self._pending.popleft()
            correlation_id, response = codec.decode_response(api_key, version, frame)
        finally:
            self.inbox.release()
        if correlation_id != expected:
            raise ProtocolError(f"response {correlation_id} instead of {expected}")
        return response

    def expect(self, frame: memoryview) -> int:
        """Return the version of the oldest request without a response, to which this frame is one."""
        if not self._pending:
            raise ProtocolError("a response without a request")
        expected, _, version = self._pending.popleft()
        correlation_id = int.from_bytes(frame[:_CORRELATION_BYTES], "big", signed=True)
        if correlation_id != expected:
            raise ProtocolError(f"response {correlation_id} instead of {expected}")
        return version

    def hello(self) -> tuple[Any, int]:
        """Return the ApiVersions request and its version: `HELLO_VERSION`, or the one that the broker requested."""
        request_class = codec.request_class(ApiKey.API_VERSIONS)
        request = request_class(client_software_name="ottla", client_software_version=__version__)
        return request, HELLO_VERSION if self._hello is None else self._hello

    def learn(self, response: Any) -> None:
        """Store the versions of an ApiVersions response, or the version in which to repeat the request (KIP-511)."""
        served = {row.api_key: (row.min_version, row.max_version) for row in response.api_keys}
        if response.error_code == ErrorCode.UNSUPPORTED_VERSION and self._hello is None:
            self._hello = int(served.get(ApiKey.API_VERSIONS, (0, 0))[1])
        elif response.error_code:
            raise ProtocolError(f"ApiVersions answered with error {response.error_code}")
        else:
            self.versions = served


class BlockingConnection:
    """A connection for one thread. Opens in the constructor. `timeout_s` applies to connecting and to each read.

    `security` has the options of TLS and login (`ottla.wire.login`). Raises LoginRefused if the login fails. If the
    broker limits the session, the connection logs in again before a request that comes near its end (KIP-368).
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        client_id: str = DEFAULT_CLIENT_ID,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        security: SecurityOptions = PLAINTEXT,
    ) -> None:
        self._exchange = Exchange(client_id)
        self._socket = socket.create_connection((host, port), timeout=timeout_s)
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._socket = wrap_in_tls(self._socket, host, security)
            self._security = security
            self._log_in()
        except (OSError, ProtocolError):
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    def _log_in(self) -> None:
        self._log_in_again_at_s = math.inf
        lifetime_ms = log_in(self.send, self._security)
        if lifetime_ms:
            session_s = max(lifetime_ms / 1000 * _REAUTHENTICATE_AFTER, _LEAST_SESSION_S)
            self._log_in_again_at_s = time.monotonic() + session_s

    def fileno(self) -> int:
        """Return the socket's descriptor, so that `selectors` can wait for the next answer of many connections."""
        return self._socket.fileno()

    @property
    def versions(self) -> Versions:
        """Return the versions that the broker serves. The first call sends ApiVersions."""
        while self._exchange.versions is None:
            message, version = self._exchange.hello()
            self._exchange.learn(self.send(message, version))
        return self._exchange.versions

    def send(self, message: Any, version: int | None = None) -> Any:
        """Send a request and wait for its response; None at once for a request that has no response."""
        if self._exchange.pending:
            raise RuntimeError("send() while responses to post() have not been received")
        return self.receive() if self.post(message, version) else None

    def post(self, message: Any, version: int | None = None) -> bool:
        """Send a request without waiting. Return whether it has a response. Call `receive` once per response.

        Raises LoginRefused if the session ends, and the broker refuses another login.
        """
        if time.monotonic() >= self._log_in_again_at_s and not self._exchange.pending:
            self._log_in_again()
        if version is None:
            _ = self.versions
        frame, expects = self._exchange.request(message, version)
        self.write(frame)
        return expects

    def _log_in_again(self) -> None:
        try:
            self._log_in()
        except (OSError, ProtocolError):
            self.close()
            raise

    def receive(self) -> Any:
        """Wait for the response to the oldest request without one, and return it."""
        try:
            while (response := self._exchange.next_response()) is None:
                self._fill()
        except (OSError, ProtocolError):
            self.close()
            raise
        return response

    def receive_frame(self, room: Callable[[int], memoryview]) -> tuple[memoryview, int]:
        """Wait for the oldest response. Return its frame, without the size, in memory of the caller, and its version.

        `room` gets the frame's size, and returns memory of that size. Raises ProtocolError, also by `room`.
        """
        try:
            size = int.from_bytes(self._fill_all(memoryview(bytearray(4))), "big", signed=True)
            if size < _CORRELATION_BYTES:
                raise ProtocolError(f"a response of {size} bytes")
            frame = self._fill_all(room(size))
            return frame, self._exchange.expect(frame)
        except (OSError, ProtocolError):
            self.close()
            raise

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send raw bytes, for tests that break the protocol."""
        self._socket.sendall(data)

    def read_frame(self) -> bytes:
        """Return the raw payload of the next frame, for tests. Raises ConnectionError if the peer has closed."""
        inbox = self._exchange.inbox
        while (frame := inbox.next_frame()) is None:
            self._fill()
        payload = bytes(frame)
        inbox.release()
        return payload

    def _fill_all(self, memory: memoryview) -> memoryview:
        """Fill the memory with the next bytes. Nothing else may have been received."""
        filled = 0
        while filled < len(memory):
            received = self._socket.recv_into(memory[filled:])
            if received == 0:
                raise ConnectionError("the broker closed the connection")
            filled += received
        return memory

    def _fill(self) -> None:
        inbox = self._exchange.inbox
        received = self._socket.recv_into(inbox.get_buffer())
        if received == 0:
            raise ConnectionError("the broker closed the connection")
        inbox.commit(received)
