"""Small copies of a request and its reply, kept until they are sent to listeners; of records only headers. pure

A frame is valid only while the request is served, and a reply until it is sent. So the needed bytes are copied at
once, and decoded later, when no client waits for it.
"""

from collections.abc import Sequence
from struct import Struct
from typing import Any, Final, NamedTuple
from uuid import UUID

from ottla.broker.outbox import Part
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.batch_header import HEADER_SIZE
from ottla.protocol.errors import ProtocolError
from ottla.protocol.requests.frames import RequestHeader
from ottla.protocol.requests.produce_wire import ProduceBody, produce_request_steps
from ottla.protocol.values import ZERO_UUID
from ottla.protocol.varints import read_unsigned_varint

MOST_BYTES: Final = 32_768
"""A larger body is left out: decoding it would take many steps."""
MOST_ROWS: Final = 100
_BUFFERS: Final = (bytes, bytearray, memoryview)
_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")
_ROW: Final = Struct(">ihqqq")
_FIRST_WITH_IDS: Final = 13
_FIRST_FLEXIBLE: Final = 12
_FIRST_WITH_SESSION: Final = 7
_FIRST_WITH_LOG_START: Final = 5
_FIRST_WITH_REPLICA: Final = 11


class Records(NamedTuple):
    """The records of one partition: their size, and the header of the first batch as far as it is in memory."""

    size_bytes: int
    head: bytes


class Row(NamedTuple):
    """A partition of a Produce request or a Fetch reply: Kafka's names of its fields, without the records."""

    topic: str | UUID
    fields: dict[str, Any]
    records: Records | None


class Rows(NamedTuple):
    """A Produce request or a Fetch reply, without its records. `left_out` is the number of further rows."""

    fields: dict[str, Any]
    rows: list[Row]
    left_out: int


class TracedRequest:
    """A request. `body` is None if it is too large, or for a Produce, which has `produced` instead."""

    __slots__ = ("at_ms", "body", "broker", "header", "peer", "produced", "size_bytes", "time_ms", "verdicts")

    def __init__(self, header: RequestHeader, peer: str, size_bytes: int, time_ms: int, at_ms: float) -> None:
        self.header = header
        self.peer = peer
        self.size_bytes = size_bytes
        self.time_ms = time_ms
        """Milliseconds since 1970."""
        self.at_ms = at_ms
        """Milliseconds on the monotonic clock."""
        self.broker: int | None = None
        """The broker that the client asks, if the process has several."""
        self.body: bytes | None = None
        self.produced: Rows | None = None
        self.verdicts: dict[Any, bool] = {}
        """Whether it matches a filter, where the decoded body decides."""

    @property
    def held_bytes(self) -> int:
        """About the memory that it takes until it is sent to listeners."""
        return len(self.body or b"") + (0 if self.produced is None else 200 * len(self.produced.rows))

    def keep(self, body: memoryview) -> None:
        """Copy the part of the body that listeners receive."""
        if self.header.api_key == ApiKey.PRODUCE:
            self.produced = _read_produce(self.header.api_version, body)
        elif len(body) <= MOST_BYTES:
            self.body = bytes(body)


class TracedReply:
    """The result of a request: a reply, none (acks=0: size 0), or the reason why its connection is closed."""

    __slots__ = ("at_ms", "data", "fetched", "reason", "request", "size_bytes", "time_ms")

    def __init__(
        self, request: TracedRequest, time_ms: int, at_ms: float, parts: Sequence[Part], reason: str = ""
    ) -> None:
        self.request = request
        self.time_ms = time_ms
        self.at_ms = at_ms
        self.reason = reason
        self.size_bytes = sum(map(len, parts))
        self.data: bytes | None = None
        """The frame without its size."""
        self.fetched: Rows | None = None
        if request.header.api_key == ApiKey.FETCH and parts:
            self.fetched = _read_fetch(request.header.api_version, parts)
        elif self.size_bytes <= MOST_BYTES:
            self.data = b"".join(part for part in parts if isinstance(part, _BUFFERS))[4:]

    @property
    def held_bytes(self) -> int:
        """About the memory that it takes until it is sent to listeners."""
        own_bytes = len(self.data or b"") + (0 if self.fetched is None else 200 * len(self.fetched.rows))
        return own_bytes + self.request.held_bytes


def _read_produce(version: int, body: memoryview) -> Rows | None:
    """Return the rows of a Produce; None if it is malformed, or has more than a few hundred partitions."""
    found: list[ProduceBody] = []
    try:
        for _ in produce_request_steps(version, body, found):
            return None
    except ProtocolError:
        return None
    (message,) = found
    topics: list[str | UUID] = [name for name, _ in message.topics]
    if message.topic_ids:
        topics = [UUID(bytes=topic_id) for topic_id in message.topic_ids]
    rows = [
        Row(topic, {"index": index}, _records(records))
        for topic, (_, partitions) in zip(topics, message.topics, strict=True)
        for index, records in partitions
    ]
    fields = {"transactional_id": message.transactional_id, "acks": message.acks, "timeout_ms": message.timeout_ms}
    return Rows(fields, rows[:MOST_ROWS], max(0, len(rows) - MOST_ROWS))


def _records(records: memoryview | None) -> Records | None:
    return None if records is None else Records(len(records), bytes(records[:HEADER_SIZE]))


class _Cursor:
    """A position in a reply of several parts, some of which are in files. IndexError after its end, or in a file."""

    def __init__(self, parts: Sequence[Part]) -> None:
        self._parts = [*parts]
        self._position = 0

    def take(self, size_bytes: int) -> bytes:
        taken = b""
        while len(taken) < size_bytes:
            part = self._parts[0]
            if not isinstance(part, _BUFFERS):
                raise IndexError
            piece = bytes(part[self._position : self._position + size_bytes - len(taken)])
            self.skip(len(piece))
            taken += piece
        return taken

    def skip(self, size_bytes: int) -> None:
        self._position += size_bytes
        while self._parts and self._position >= len(self._parts[0]):
            self._position -= len(self._parts.pop(0))

    def seen(self, size_bytes: int) -> bytes:
        """Return up to this many of the next bytes without taking them, if they are in memory."""
        part = self._parts[0] if self._parts else b""
        return bytes(part[self._position : self._position + size_bytes]) if isinstance(part, _BUFFERS) else b""

    def number(self, form: Struct) -> int:
        return int(form.unpack(self.take(form.size))[0])

    def count(self, flexible: bool) -> int:
        """Read the length of an array, a string or bytes; -1 for null."""
        if not flexible:
            return self.number(_INT32)
        taken = self.take(1)
        while taken[-1] > 127:
            taken += self.take(1)
        return read_unsigned_varint(taken, 0)[0] - 1

    def skip_tags(self, flexible: bool) -> None:
        for _ in range(self.count(flexible) + 1 if flexible else 0):
            self.count(flexible)
            self.skip(self.count(flexible) + 1)


def _read_fetch(version: int, parts: Sequence[Part]) -> Rows | None:
    """Return the rows of a Fetch reply as our encoder writes it (`fetch_wire.py`), after its size and header."""
    cursor, flexible = _Cursor(parts), version >= _FIRST_FLEXIBLE
    try:
        cursor.skip(9 if flexible else 8)
        fields = {"throttle_time_ms": cursor.number(_INT32)}
        if version >= _FIRST_WITH_SESSION:
            fields |= {"error_code": cursor.number(_INT16), "session_id": cursor.number(_INT32)}
        rows: list[Row] = []
        for _ in range(cursor.count(flexible)):
            topic = _topic(cursor, version, flexible)
            partitions = cursor.count(flexible)
            for at in range(partitions):
                if len(rows) == MOST_ROWS:
                    return Rows(fields, rows, partitions - at)
                rows.append(_row(cursor, version, flexible, topic))
            cursor.skip_tags(flexible)
    except (IndexError, ProtocolError):
        return None
    return Rows(fields, rows, 0)


def _topic(cursor: _Cursor, version: int, flexible: bool) -> str | UUID:
    if version >= _FIRST_WITH_IDS:
        return UUID(bytes=cursor.take(len(ZERO_UUID)))
    return cursor.take(cursor.count(flexible) if flexible else cursor.number(_INT16)).decode()


def _row(cursor: _Cursor, version: int, flexible: bool, topic: str | UUID) -> Row:
    values = _ROW.unpack(cursor.take(_ROW.size)) if version >= _FIRST_WITH_LOG_START else _old_row(cursor)
    names = ("partition_index", "error_code", "high_watermark", "last_stable_offset", "log_start_offset")
    fields = dict(zip(names, values, strict=False))
    aborted = cursor.count(flexible)
    cursor.skip(max(aborted, 0) * (17 if flexible else 16))
    fields["aborted_transactions"] = aborted if aborted >= 0 else None
    if version >= _FIRST_WITH_REPLICA:
        fields["preferred_read_replica"] = cursor.number(_INT32)
    size_bytes = cursor.count(flexible)
    records = Records(size_bytes, cursor.seen(min(HEADER_SIZE, size_bytes))) if size_bytes >= 0 else None
    cursor.skip(max(size_bytes, 0))
    cursor.skip_tags(flexible)
    return Row(topic, fields, records)


def _old_row(cursor: _Cursor) -> tuple[int, ...]:
    form = Struct(">ihqq")
    return form.unpack(cursor.take(form.size))
