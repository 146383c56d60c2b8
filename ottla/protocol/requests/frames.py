"""Frames and headers: split received bytes into frames, read and write headers. pure

A frame is an int32 size (which excludes itself) and a payload. `ReceiveBuffer` is the receive memory of an
`asyncio.BufferedProtocol` or a blocking socket: receive into `get_buffer`, call `commit`, then `next_frame` until it
returns None, and `release` once per frame.

Memory: a frame and its slices stay valid until `release()`, however many bytes arrive meanwhile. Bytes are moved only
while all frames are released; otherwise the receive buffer continues in new memory. Memory is never resized in place
(the event loop still exports the old memory when it calls `buffer_updated`). A frame's size is not trusted: the buffer
grows by `GROWTH` when it is full, so four bytes cannot allocate 100 MiB, nor a thousand peers a GiB. Memory above
`RETAINED_BYTES` is freed with the frame that needed it, memory above `INITIAL_BYTES` after `SHRINK_AFTER_FRAMES` small
frames in a row or by `trim()`.

The connections of one loop share the memory that receives small frames (`SharedMemory`), because only one of them
receives at a time. `return_shared_memory()`, once per receive, copies an incomplete frame to the connection's own
memory. So a connection that only waits for the next request has no memory.

Header rules: KIP-482 and `org.apache.kafka.common.requests.RequestHeader`. Version 1 of the request header ends with a
client id of int16 length; version 2 (for flexible requests) appends tagged fields, and its client id keeps the int16
length. Responses of flexible versions have one byte of (empty) tagged fields after the correlation id, but those of
ApiVersions never do (KIP-511).
"""

from collections.abc import Mapping
from struct import Struct
from typing import Final, NamedTuple

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ProtocolError
from ottla.protocol.fields import MAX_TAGS
from ottla.protocol.varints import read_unsigned_varint

MAX_FRAME_BYTES: Final = 104_857_600
"""Kafka's default of `socket.request.max.bytes`."""
MAX_SMALL_REQUEST_BYTES: Final = 1_048_576
"""Limit for every request except Produce, the only one whose body has records."""
MAX_ENTRIES: Final = 16_384
"""Most entries that the arrays of one request may have together; a mebibyte could hold half a million."""

INITIAL_BYTES: Final = 65_536
LITTLE_BYTES: Final = 4_096
SMALLEST_BYTES: Final = 128
SHARED_BYTES: Final = 262_144
GROWTH: Final = 4
RETAINED_BYTES: Final = 2_097_152
SHRINK_AFTER_FRAMES: Final = 32

_KEYS_BY_FIRST_FLEXIBLE: Final = (
    (0, (45, 46, 50, 51, 52, 55, 57, 58, 59, 60, 61, 62, 63, 64, 65, 66, 67, 68, 69, 70, 71, 72, 73, 74, 75)),
    (0, (80, 81, 82, 83, 84, 85, 86, 87, 88, 89, 90, 91, 92, 93, 94)),
    (1, (27, 44, 48, 49, 53, 54, 76, 77, 78, 79)),
    (2, (21, 22, 29, 30, 31, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43, 56)),
    (3, (10, 16, 18, 24, 25, 26, 28)),
    (4, (12, 13, 14, 20, 23, 32)),
    (5, (15, 19)),
    (6, (2, 9, 11)),
    (8, (8,)),
    (9, (0, 3)),
    (12, (1,)),
)
FIRST_FLEXIBLE_VERSION: Final[Mapping[int, int]] = {
    api_key: version for version, api_keys in _KEYS_BY_FIRST_FLEXIBLE for api_key in api_keys
}
"""First version with compact types and tagged fields by API key (Kafka 4.4.0); 17 and 47 have no such version."""

_SIZE: Final = Struct(">i")
_SIZE_AND_KEY: Final = Struct(">ih")
_HEADER: Final = Struct(">hhih")
_RESPONSE: Final = Struct(">ii")
_NEVER: Final = 32_768
_new: Final = tuple.__new__  # takes half the time of the class itself
_API_VERSIONS: Final = ApiKey.API_VERSIONS
_NOTHING: Final = memoryview(bytearray())


class RequestHeader(NamedTuple):
    """Header of a request. A null client id is read as the empty string, as Kafka does."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str


def is_flexible(api_key: int, api_version: int) -> bool:
    """Return whether this version has compact types and tagged fields; False for keys that Kafka does not have."""
    return api_version >= FIRST_FLEXIBLE_VERSION.get(api_key, _NEVER)


def parse_request_header(frame: memoryview) -> tuple[RequestHeader, memoryview]:
    """Return the header of a frame and the body after it (a slice, not a copy).

    Keys and versions are not checked. The header of an unknown key or version is read too, so that the caller can log
    it when it closes the connection. Raises ProtocolError if the header is cut short, has a client id that is not
    UTF-8, or too many tags.
    """
    size = len(frame)
    if size < 10:
        raise ProtocolError(f"request header cut short: {size} bytes")
    api_key, api_version, correlation_id, length = _HEADER.unpack_from(frame)
    position = 10
    client_id = ""
    if length > 0:
        position += length
        if position > size:
            raise ProtocolError(f"client id of {length} bytes exceeds the request (API {api_key} v{api_version})")
        try:
            client_id = str(frame[10:position], "utf-8")
        except UnicodeDecodeError:
            raise ProtocolError(f"client id is not UTF-8 (API {api_key} v{api_version})") from None
    elif length < -1:
        raise ProtocolError(f"client id has length {length} (API {api_key} v{api_version})")
    if api_version >= FIRST_FLEXIBLE_VERSION.get(api_key, _NEVER):
        if position < size and frame[position] == 0:
            position += 1
        else:
            position = skip_tags(frame, position)
    return _new(RequestHeader, (api_key, api_version, correlation_id, client_id)), frame[position:]


def skip_tags(buffer: memoryview, position: int) -> int:
    """Return the position after the tagged fields at `position`. Raises ProtocolError past the buffer or `MAX_TAGS`."""
    count, position = read_unsigned_varint(buffer, position)
    if count > MAX_TAGS:
        raise ProtocolError(f"{count} tagged fields at position {position}, at most {MAX_TAGS} are allowed")
    for _ in range(count):
        _, position = read_unsigned_varint(buffer, position)
        length, position = read_unsigned_varint(buffer, position)
        if length > len(buffer) - position:
            raise ProtocolError(f"tagged field of {length} bytes at position {position} exceeds the message")
        position += length
    return position


def encode_request_header(header: RequestHeader) -> bytes:
    """Return a request header, with an empty tag section in a flexible version; for clients."""
    client_id = header.client_id.encode()
    fixed = _HEADER.pack(header.api_key, header.api_version, header.correlation_id, len(client_id))
    return fixed + client_id + (b"\0" if is_flexible(header.api_key, header.api_version) else b"")


def response_header_size(api_key: int, api_version: int) -> int:
    """Return 4 (correlation id), or 5 with the tag section of flexible versions; 4 for ApiVersions (KIP-511)."""
    return 5 if api_key != _API_VERSIONS and is_flexible(api_key, api_version) else 4


def response_prefix(api_key: int, api_version: int, correlation_id: int, body_size_bytes: int) -> bytes:
    """Return frame size and response header for a body of `body_size_bytes`, which is sent after them."""
    if response_header_size(api_key, api_version) == 5:
        return _RESPONSE.pack(body_size_bytes + 5, correlation_id) + b"\0"
    return _RESPONSE.pack(body_size_bytes + 4, correlation_id)


class ReceiveBuffer:
    """The receive side of one connection (see the module docstring). Not thread-safe.

    `small_limit_bytes` bounds requests other than Produce as soon as their key has arrived. With None only
    `limit_bytes` applies (for clients, whose frames start with a correlation id). With `shared`, the receiver calls
    `return_shared_memory()` after `next_frame()` has returned None.
    """

    __slots__ = (
        "_any_limit",
        "_borrows",
        "_end",
        "_leased",
        "_limit",
        "_needed",
        "_own",
        "_shared",
        "_small_limit",
        "_small_streak",
        "_start",
        "_view",
        "may_grow",
    )

    def __init__(
        self,
        limit_bytes: int = MAX_FRAME_BYTES,
        small_limit_bytes: int | None = None,
        shared: "SharedMemory | None" = None,
    ) -> None:
        self.limit(limit_bytes, small_limit_bytes)
        self._shared = shared
        self.may_grow = True
        """Whether the buffer may allocate memory for bytes that have not arrived."""
        self._borrows = False  # what get_buffer returned last, and from commit to settle _view, is shared
        self._own = self._view = _NOTHING if shared is not None else memoryview(bytearray(INITIAL_BYTES))
        self._start = 0  # first byte not handed out
        self._end = 0  # first byte not received
        self._needed = 0  # bytes of the next frame, which begins at _start; 0 while unknown
        self._leased = 0  # frames handed out and not released
        self._small_streak = 0  # frames in a row that an initial buffer would have held

    def limit(self, limit_bytes: int, small_limit_bytes: int | None) -> None:
        """Set the limits for the next frames."""
        self._limit = limit_bytes
        self._small_limit = small_limit_bytes
        self._any_limit = limit_bytes if small_limit_bytes is None else min(limit_bytes, small_limit_bytes)

    @property
    def buffered_bytes(self) -> int:
        """Bytes received that are not part of a frame handed out."""
        return self._end - self._start

    @property
    def needed_bytes(self) -> int:
        """Size of the frame that is being received, with its length field; 0 while it is unknown."""
        return self._needed

    @property
    def needed_api_key(self) -> int:
        """API key of the request that is being received. Valid only while `needed_bytes` is known."""
        return int.from_bytes(self._view[self._start + 4 : self._start + 6], "big", signed=True)

    @property
    def most_ahead_bytes(self) -> int:
        """Most bytes to receive of requests that are not parsed yet."""
        return INITIAL_BYTES if self._shared is None else self._shared.most_bytes

    @property
    def is_full(self) -> bool:
        """Whether the next receive doubles the memory, because a large frame is not released and the memory after it is
        full."""
        return self._leased > 0 and self._end == len(self._own) > INITIAL_BYTES

    @property
    def capacity_bytes(self) -> int:
        """Memory held for receiving, without shared memory."""
        return len(self._own)

    def get_buffer(self, sizehint: int = -1) -> memoryview:
        """Return writable memory for the next receive, never empty. `sizehint` is asyncio's and is ignored."""
        if self._borrows:
            self.return_shared_memory()
        capacity = len(self._own)
        if not capacity and self._shared is not None:
            borrowed = self._shared.borrow()
            if borrowed is not None:
                self._borrows = True
                return borrowed
            self._move(SMALLEST_BYTES)
        elif self._start == self._end and not self._leased:
            self._start = self._end = 0
        elif self._end == capacity or self._start + self._needed > capacity:
            self._make_space()
        return self._view[self._end :]

    def commit(self, nbytes: int) -> None:
        """Add `nbytes` that were received at the start of the memory that `get_buffer` returned last."""
        if self._borrows and self._shared is not None:
            shared = self._shared
            shared.filled = True
            self._view = shared.view
            self._start = shared.start
            self._end = self._start + nbytes
        else:
            self._end += nbytes

    def return_shared_memory(self) -> None:
        """Return the shared memory, except that of unreleased frames. Copy an incomplete frame to own memory."""
        if not self._borrows:
            if self._own:
                self._drop()
            return
        self._borrows = False
        shared = self._shared
        if self._view is self._own or shared is None:
            return  # nothing was received
        shared.filled = False
        if self._leased:
            shared.start = self._end
        if self._start < self._end:
            self._grow()
        else:
            self._view = self._own
            self._start = self._end = 0

    def next_frame(self) -> memoryview | None:
        """Return the payload of the next complete frame, without its size, or None if more bytes are needed.

        Raises ProtocolError if the size is not in 1..limit, before memory is allocated for the frame. The connection
        must then be closed, because the next frame cannot be found.
        """
        available = self._end - self._start
        if available < 4:
            return None
        needed = self._needed
        if not needed:
            size = _SIZE.unpack_from(self._view, self._start)[0]
            needed = size + 4
            if available < needed or not 0 < size <= self._any_limit:
                needed = self._read_size(available)
        if available < needed:
            return None
        stop = self._start + needed
        frame = self._view[self._start + 4 : stop]
        self._start = stop
        self._needed = 0
        self._leased += 1
        self._small_streak = self._small_streak + 1 if needed <= INITIAL_BYTES else 0
        return frame

    def release(self) -> None:
        """Release a frame whose bytes are no longer needed. Call it once per frame, in any order."""
        if self._leased == 0:
            raise RuntimeError("release() without a frame")
        self._leased -= 1
        capacity = len(self._own)
        if capacity > INITIAL_BYTES:
            if capacity > RETAINED_BYTES or self._small_streak >= SHRINK_AFTER_FRAMES:
                self.trim()
        elif capacity:
            self._drop()

    def trim(self) -> None:
        """Return to the initial memory, or to none, if no frame needs more; for idle connections."""
        if self._leased or self._borrows:
            return
        if self._shared is not None and self._start == self._end:
            self._own = self._view = _NOTHING
            self._start = self._end = 0
        elif len(self._own) > INITIAL_BYTES >= max(self._needed, self._end - self._start):
            self._move(INITIAL_BYTES)

    def shrink(self) -> None:
        """Free memory for bytes that have not arrived, while this connection, and perhaps others, must wait."""
        if self._shared is not None:
            self._shared.most_bytes = LITTLE_BYTES
        if not self._leased and not self._borrows and len(self._own) > INITIAL_BYTES:
            self._move(max(SMALLEST_BYTES, self._end - self._start + 1))

    def _drop(self) -> None:
        """Return to the shared memory if the own memory is small and all its bytes are handed out."""
        if self._start == self._end and len(self._own) <= INITIAL_BYTES:
            self.trim()

    @property
    def first_bytes(self) -> bytes:
        """The first 8 bytes, or fewer, of the incomplete frame, to detect a client of another protocol."""
        return bytes(self._view[self._start : min(self._start + 8, self._end)])

    def _read_size(self, available: int) -> int:
        """Return the size of the next frame with its length field. Raises ProtocolError if it is not in 1..limit."""
        if available >= 6:
            size, api_key = _SIZE_AND_KEY.unpack_from(self._view, self._start)
            if self._small_limit is not None and size > self._small_limit and api_key != ApiKey.PRODUCE:
                raise ProtocolError(f"request of {size} bytes for API {api_key} exceeds {self._small_limit}")
        else:
            (size,) = _SIZE.unpack_from(self._view, self._start)
        if not 0 < size <= self._limit:
            raise ProtocolError(f"frame size {size} is not in 1..{self._limit}")
        if available >= 6:
            self._needed = size + 4
        return int(size) + 4

    def _make_space(self) -> None:
        """Make room for at least one more byte, and for the whole next frame if enough of it has arrived."""
        if not self._leased:
            self._compact()
        if self._end == len(self._own):
            self._grow()

    def _grow(self) -> None:
        """Continue in larger memory: for the whole next frame, or less if few of its bytes have arrived."""
        pending = self._end - self._start
        least = INITIAL_BYTES if self._shared is None else SMALLEST_BYTES
        size_bytes = max(least, min(self._needed, GROWTH * pending) if self.may_grow else 0, pending + 1)
        if (
            size_bytes > INITIAL_BYTES and self.may_grow
        ):  # some slack, so that a slightly larger next frame fits as well
            size_bytes = (size_bytes // INITIAL_BYTES + 2) * INITIAL_BYTES
        elif self._shared is not None:
            size_bytes = -(-size_bytes // SMALLEST_BYTES) * SMALLEST_BYTES
        self._move(size_bytes)

    def _compact(self) -> None:
        """Move the bytes not handed out to the front. memoryview assignment of overlapping ranges is a memmove."""
        pending = self._end - self._start
        if self._start:
            self._view[:pending] = self._view[self._start : self._end]
            self._start, self._end = 0, pending

    def _move(self, capacity: int) -> None:
        """Continue in new memory. Unreleased frames keep the old memory alive."""
        pending = self._end - self._start
        view = memoryview(bytearray(capacity))
        view[:pending] = self._view[self._start : self._end]
        self._own = self._view = view
        self._start, self._end = 0, pending


class SharedMemory:
    """Buffer into which the connections of one event loop receive, one at a time. Not thread-safe.

    Frames in use after a receive keep their part of the buffer; the next receive starts after it. The connection that
    set `filled` changes the fields, which every receive reads.
    """

    def __init__(self) -> None:
        self.view = memoryview(b"")
        self.most_bytes = INITIAL_BYTES
        """Most bytes of one receive. `LITTLE_BYTES` while large requests wait: each holds its received bytes, and the
        rest stays in the kernel."""
        self.start = SHARED_BYTES
        """Position at which the next receive begins, after the unreleased frames. At the end, new memory is needed."""
        self.filled = False
        """Whether a connection has received bytes and not yet called `return_shared_memory()`."""

    def borrow(self) -> memoryview | None:
        """Return memory to receive into; None while `filled`, because another connection's receive led to this one."""
        if self.filled:
            return None
        start = self.start
        if start > SHARED_BYTES - INITIAL_BYTES:
            self.view = memoryview(bytearray(SHARED_BYTES))
            self.start = start = 0
        return self.view[start : start + self.most_bytes]
