"""Replies that are written row by row, in slices, into pieces that are not joined. free

    reply = ReplyBuilder(broker, request)
    topics = reply.rows("topics")
    for topic in requested:
        partitions = reply.rows("topics", "partitions")
        for index in topic.partitions:
            await partitions.add(index, error)       # continues in a later turn when the turn budget is spent
        await topics.add(topic.name, partitions)
    return reply.finish(topics=topics)

Values are the schema's fields, in its order or by name (see `ottla/protocol/requests/writer.py`). A reply with few rows
is encoded at once with `encode_reply`, which costs less; `with_tables` chooses one of the two.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Final

from ottla.broker.api.context import Broker
from ottla.broker.api.request import Encoded, Request
from ottla.broker.costs import COPY_BYTE_US, REPLY_ROW_US, ROW_US
from ottla.broker.memory import FREE_BYTES, ReplyReservation
from ottla.protocol.requests import codec
from ottla.protocol.requests.writer import Rows, Writer

PIECE_BYTES: Final = 65_536
"""The approximate size of a piece. Its memory is freed when it is sent."""
FEW_ROWS: Final = 100
"""The most rows that are encoded at once."""
UNCOUNTED_BYTES: Final = 1_024
"""Rows are charged when they have this size together: charging each one would cost more than writing it."""


class ReplyBuilder:
    """A reply that is being written, and its memory reservation."""

    __slots__ = ("_broker", "_request", "_reservation", "_size_bytes", "errors", "turns")

    def __init__(self, broker: Broker, request: Request) -> None:
        self.turns = broker.turns
        self._broker = broker
        self._request = request
        self._reservation: ReplyReservation | None = None
        self._size_bytes = 0
        self.errors: dict[int, int] = {}
        """The number of rows by error code."""

    def rows(self, *path: str) -> "ReplyRows":
        """Return an empty array of the response. `path` names the enclosing arrays and the array itself."""
        api_key = self._request.api_key
        write = codec.row_writer(api_key, self._request.api_version, *path)
        return ReplyRows(self, write, codec.error_place(api_key, *path))

    def wrote(self, rows: int, structs: int, size_bytes: int) -> None:
        """Charge for rows and add their bytes to the size of the reply. At most `UNCOUNTED_BYTES` are not added yet."""
        self.turns.charge(rows * ROW_US + structs * REPLY_ROW_US + size_bytes * COPY_BYTE_US)
        self._size_bytes += size_bytes

    async def rest(self) -> None:
        """Wait for memory if the reply has become large, and yield if the turn budget is spent."""
        if self._size_bytes > FREE_BYTES:
            if self._reservation is None:
                self._reservation = self._broker.memory.replies.reserve()
            await self._reservation.grow(self._size_bytes)
        await self.turns.yield_if_due()

    def finish(self, **fields: Any) -> Encoded:
        """Return the whole reply."""
        for value in fields.values():
            if isinstance(value, ReplyRows):
                value.charge_rest()
        reply = encode_reply(self._request, **fields)
        if self._reservation is not None:
            self._reservation.built(self._size_bytes)
        return reply._replace(reservation=self._reservation, row_errors=self.errors)


class ReplyRows(Rows):
    """An array of a reply."""

    __slots__ = ("_counted", "_counted_bytes", "_due_bytes", "_error_at", "_reply", "_structs", "_write")

    def __init__(self, reply: ReplyBuilder, write: Writer, error_at: int | None) -> None:
        super().__init__()
        self._reply = reply
        self._error_at = error_at
        self._write = write
        self._structs = 0
        self._counted = 0
        self._counted_bytes = 0
        self._due_bytes = UNCOUNTED_BYTES

    async def add(self, *values: Any, **named: Any) -> None:
        """Write one row. It may suspend when the turn budget is spent, so state that was read before may have
        changed."""
        at = self._error_at
        if at is not None and (error := values[at] if len(values) > at else named.get("error_code", 0)):
            errors = self._reply.errors
            errors[error] = errors.get(error, 0) + 1
        self._structs += self._write(self, *values, **named)
        self.count += 1
        if len(self.out) > self._due_bytes:
            self.charge_rest()
            await self._reply.rest()

    async def extend(self, rows: Iterable[Sequence[Any]]) -> "ReplyRows":
        """Write many rows, each a sequence of values. Returns this array."""
        for row in rows:
            await self.add(*row)
        return self

    def charge_rest(self) -> None:
        """Charge for the rows that were not charged yet."""
        size_bytes = self.sealed_bytes + len(self.out)
        self._reply.wrote(self.count - self._counted, self._structs, size_bytes - self._counted_bytes)
        self._counted, self._structs, self._counted_bytes = self.count, 0, size_bytes
        self._due_bytes = len(self.out) + UNCOUNTED_BYTES
        if self._due_bytes > PIECE_BYTES:
            self.seal()

    def seal(self) -> None:
        super().seal()
        self._due_bytes = UNCOUNTED_BYTES

    def splice(self, rows: Rows) -> bytearray:
        if isinstance(rows, ReplyRows):  # their bytes are counted where they were written
            rows.charge_rest()
            self._counted_bytes += rows.size_bytes
        return super().splice(rows)


def encode_reply(request: Request, *values: Any, **named: Any) -> Encoded:
    """Return the reply with these fields, encoded at once."""
    encode = codec.response_encoder(request.api_key, request.api_version)
    return Encoded(encode(request.correlation_id, *values, **named), None, named.get("error_code", 0))


def encode_tables(request: Request, outer: str, tables: Sequence[Sequence[Any]], **fields: Any) -> Encoded:
    """Return the reply of `with_tables`, encoded at once."""
    encode = codec.response_encoder(request.api_key, request.api_version)
    failed = [row[1] for table in tables for row in table[-1] if row[1]]
    encoded = encode(request.correlation_id, **{outer: tables}, **fields)
    return Encoded(encoded, error_code=fields.get("error_code", 0), row_errors=Counter(failed) if failed else ())


async def with_rows(broker: Broker, request: Request, array: str, rows: Iterable[Sequence[Any]]) -> Encoded:
    """Return the reply whose only field is an array of these rows."""
    reply = ReplyBuilder(broker, request)
    return reply.finish(**{array: await reply.rows(array).extend(rows)})


async def with_tables(
    broker: Broker, request: Request, outer: str, inner: str, tables: Sequence[Sequence[Any]], **fields: Any
) -> Encoded:
    """Return the reply with an array `outer` of structs whose last field is an array `inner`: [(..., [row])].

    The second value of a row is its error. `fields` are the other fields of the reply.
    """
    if len(tables) <= FEW_ROWS and sum([len(table[-1]) for table in tables]) <= FEW_ROWS:
        return encode_tables(request, outer, tables, **fields)
    reply = ReplyBuilder(broker, request)
    written = reply.rows(outer)
    for *values, rows in tables:
        await written.add(*values, await reply.rows(outer, inner).extend(rows))
    return reply.finish(**{outer: written}, **fields)
