"""Produce requests in and Produce responses out, versions 3-13, by hand and without copying records. pure

The decoded request refers to the frame: its records are slices of the receive buffer, so the frame must not be released
before they are written. Reading is as strict as in `walker`: a field beyond the body, an illegal null, and more than
`MAX_TAGS` tagged fields in one struct raise ProtocolError.
"""

from collections.abc import Sequence
from itertools import groupby
from struct import Struct
from struct import error as StructError
from typing import Final, NamedTuple

from ottla.protocol.errors import ProtocolError
from ottla.protocol.fields import MAX_STRING_BYTES
from ottla.protocol.primitives import NodeEndpoint, write_count, write_endpoint_tags, write_string, write_tagged_leader
from ottla.protocol.requests.frames import MAX_ENTRIES, skip_tags
from ottla.protocol.steps import Steps
from ottla.protocol.values import NO_TIMESTAMP, ZERO_UUID
from ottla.protocol.varints import Buffer, read_unsigned_varint

LOWEST_VERSION: Final = 3
HIGHEST_VERSION: Final = 13
_FLEXIBLE: Final = 9
_TOPIC_IDS: Final = 13

_INT16: Final = Struct(">h").unpack_from
_INT32: Final = Struct(">i").unpack_from
_ACKS_AND_TIMEOUT: Final = Struct(">hi").unpack_from
_ACKS_TIMEOUT_COUNT: Final = Struct(">hii").unpack_from
_INDEX_AND_VARINT: Final = Struct(">iBB").unpack_from
_INDEX_AND_SIZE: Final = Struct(">ii").unpack_from
_PACK_INT32: Final = Struct(">i").pack
_ROW_V3: Final = Struct(">ihqq").pack
_ROW_V5: Final = Struct(">ihqqq").pack
# The usual row has no record errors, message and leader: a count, a length and tags of one byte each.
_PLAIN_ROW_V9: Final = Struct(">ihqqqBBB").pack
# The bytes around the topic name in a response with one such row, from version 9 on: size, correlation id, tags,
# one topic, its length; one row, as above, tags of the topic, throttle time, tags of the response.
_BEFORE_TOPIC_V9: Final = Struct(">iiBBB").pack
_AFTER_TOPIC_V9: Final = Struct(">BihqqqBBBBiB").pack
_AROUND_TOPIC: Final = 47
_FRAME: Final = Struct(">ii").pack_into
_DAMAGE: Final = (IndexError, StructError, UnicodeDecodeError)
_STEP_ENTRIES: Final = 256
_STEP_US: Final = 1.0 * _STEP_ENTRIES

Partitions = list[tuple[int, memoryview | None]]


class ProduceBody(NamedTuple):
    """A Produce request. `topics` is [(name, [(partition, records or None)])]; from version 13 names are empty and
    `topic_ids` has the 16 bytes of each topic's id instead."""

    transactional_id: str | None
    acks: int
    timeout_ms: int
    topics: list[tuple[str, Partitions]]
    topic_ids: list[bytes]
    trailing_bytes: int


class PartitionResponse(NamedTuple):
    """Partition row of a Produce response; rows of one topic are consecutive. `record_errors` are (batch index,
    message) from version 8; `current_leader` is (node id, leader epoch) from version 10."""

    topic: str
    partition: int
    error: int
    base_offset: int = -1
    log_append_time_ms: int = NO_TIMESTAMP
    log_start_offset: int = -1
    record_errors: Sequence[tuple[int, str | None]] = ()
    message: str | None = None
    topic_id: bytes = ZERO_UUID
    current_leader: tuple[int, int] | None = None


def decode_produce_request(version: int, body: memoryview) -> ProduceBody:
    """Return the request in `body` (without its header). Raises ProtocolError for other bytes."""
    found: list[ProduceBody] = []
    try:
        for _ in _decode(version, body, found):
            pass
    except _DAMAGE as damage:
        raise _decode_error(version, body, damage) from None
    return found[0]


def produce_request_steps(version: int, body: memoryview, found: list[ProduceBody]) -> Steps[None]:
    """Decode a request into `found` in steps. Yield the cost in microseconds after every few topics and partitions, of
    which there may be 16,384."""
    try:
        yield from _decode(version, body, found)
    except _DAMAGE as damage:
        raise _decode_error(version, body, damage) from None


def _decode(version: int, body: memoryview, found: list[ProduceBody]) -> Steps[None]:
    """Fill `found`. A list is cheaper than the return value of a generator for callers that take all steps at once."""
    if not LOWEST_VERSION <= version <= HIGHEST_VERSION:
        raise ProtocolError(f"Produce v{version} is not in {LOWEST_VERSION}..{HIGHEST_VERSION}")
    return _decode_flexible(body, version >= _TOPIC_IDS, found) if version >= _FLEXIBLE else _decode_plain(body, found)


def _decode_error(version: int, body: memoryview, damage: Exception) -> ProtocolError:
    if isinstance(damage, UnicodeDecodeError):
        return ProtocolError(f"Produce v{version}: a string is not UTF-8")
    return ProtocolError(f"Produce v{version}: cut short, {len(body)} bytes")


def _decode_plain(body: memoryview, found: list[ProduceBody]) -> Steps[None]:
    transactional_id, position = _plain_string(body, 0)
    acks, timeout_ms, topic_count = _ACKS_TIMEOUT_COUNT(body, position)
    position += 10
    end = len(body)
    _check_count(topic_count, end - position, 6, "topics")
    topics = []
    left = MAX_ENTRIES
    passed = 0
    for _ in range(topic_count):
        name, position = _plain_string(body, position)
        if name is None:
            raise ProtocolError("a topic name is null")
        (count,) = _INT32(body, position)
        position += 4
        _check_count(count, end - position, 8, "partitions")
        left -= count
        if left < 0:
            raise ProtocolError(f"more than {MAX_ENTRIES} partitions")
        partitions: Partitions = []
        for _ in range(count):
            index, size = _INDEX_AND_SIZE(body, position)
            position += 8
            if size >= 0:
                if size > end - position:
                    raise ProtocolError(f"{size} bytes of records exceed the request")
                partitions.append((index, body[position : position + size]))
                position += size
            elif size == -1:
                partitions.append((index, None))
            else:
                raise ProtocolError(f"records have size {size}")
            passed += 1
            if not passed % _STEP_ENTRIES:
                yield _STEP_US
        topics.append((name, partitions))
        passed += 1
        if not passed % _STEP_ENTRIES:
            yield _STEP_US
    found.append(ProduceBody(transactional_id, acks, timeout_ms, topics, [], end - position))


def _decode_flexible(body: memoryview, by_id: bool, found: list[ProduceBody]) -> Steps[None]:
    transactional_id, position = _compact_string(body, 0)
    acks, timeout_ms = _ACKS_AND_TIMEOUT(body, position)
    topic_count = body[position + 6]  # varints are mostly one byte, read here; two for the size of records
    position += 7
    if topic_count > 127:
        topic_count, position = read_unsigned_varint(body, position - 1)
    end = len(body)
    _check_count(topic_count - 1, end - position, 18 if by_id else 3, "topics")
    topics: list[tuple[str, Partitions]] = []
    topic_ids: list[bytes] = []
    left = MAX_ENTRIES
    passed = 0
    for _ in range(topic_count - 1):
        name: str | None = ""
        if by_id:
            topic_ids.append(bytes(body[position : position + 16]))
            position += 16
        else:
            name, position = _compact_string(body, position)
        if name is None:
            raise ProtocolError("a topic name is null")
        count = body[position]
        position += 1
        if count > 127:
            count, position = read_unsigned_varint(body, position - 1)
        _check_count(count - 1, end - position, 6, "partitions")
        left -= count - 1
        if left < 0:
            raise ProtocolError(f"more than {MAX_ENTRIES} partitions")
        partitions: Partitions = []
        for _ in range(count - 1):
            index, size, high = _INDEX_AND_VARINT(body, position)
            position += 5
            if size > 127:
                if high < 128:
                    size += (high << 7) - 128
                    position += 1
                else:
                    size, position = read_unsigned_varint(body, position - 1)
            if size == 0:
                partitions.append((index, None))
            else:
                stop = position + size - 1
                if stop > end:
                    raise ProtocolError(f"{size - 1} bytes of records exceed the request")
                partitions.append((index, body[position:stop]))
                position = stop
            position = position + 1 if body[position] == 0 else skip_tags(body, position)
            passed += 1
            if not passed % _STEP_ENTRIES:
                yield _STEP_US
        topics.append((name, partitions))
        position = position + 1 if body[position] == 0 else skip_tags(body, position)
        passed += 1
        if not passed % _STEP_ENTRIES:
            yield _STEP_US
    position = position + 1 if body[position] == 0 else skip_tags(body, position)
    found.append(ProduceBody(transactional_id, acks, timeout_ms, topics, topic_ids, end - position))


def _plain_string(body: memoryview, position: int) -> tuple[str | None, int]:
    (length,) = _INT16(body, position)
    position += 2
    if length < 0:
        if length != -1:
            raise ProtocolError(f"a string has length {length}")
        return None, position
    return _text(body, position, position + length)


def _compact_string(body: memoryview, position: int) -> tuple[str | None, int]:
    length = body[position]
    position += 1
    if length > 127:
        length, position = read_unsigned_varint(body, position - 1)
    if length == 0:
        return None, position
    return _text(body, position, position + length - 1)


def _text(body: memoryview, start: int, stop: int) -> tuple[str, int]:
    if stop - start > MAX_STRING_BYTES or stop > len(body):
        raise ProtocolError(f"a string of {stop - start} bytes is too long for the request, or for a string")
    return str(body[start:stop], "utf-8"), stop


def _check_count(count: int, remaining: int, smallest: int, what: str) -> None:
    """Check the count of an array, which may not be null. `smallest` is the size in bytes of the smallest entry."""
    if count > MAX_ENTRIES:
        raise ProtocolError(f"more than {MAX_ENTRIES} {what}")
    if not 0 <= count <= remaining // smallest:
        raise ProtocolError(f"{count} {what} do not fit {remaining} bytes")


def encode_produce_response(
    rows: Sequence[PartitionResponse],
    version: int,
    correlation_id: int,
    throttle_time_ms: int = 0,
    node_endpoints: Sequence[NodeEndpoint] = (),
) -> Buffer:
    """Return the framed response with one row per partition, in the order of `rows`."""
    if len(rows) == 1 and _FLEXIBLE <= version < _TOPIC_IDS and not node_endpoints:
        plain = _encode_plain(rows[0], correlation_id, throttle_time_ms)
        if plain is not None:
            return plain
    flexible = version >= _FLEXIBLE
    groups = [list(group) for _, group in groupby(rows, _topic_of)] if len(rows) > 1 else [rows] if rows else []
    body = bytearray(9 if flexible else 8)  # size, correlation id, and tags of the header
    write_count(body, len(groups), flexible)
    for group in groups:
        if version >= _TOPIC_IDS:
            body += group[0].topic_id
        else:
            write_string(body, group[0].topic, flexible)
        write_count(body, len(group), flexible)
        for row in group:
            _write_row(body, row, version, flexible)
        if flexible:
            body.append(0)
    body += _PACK_INT32(throttle_time_ms)
    if flexible:
        write_endpoint_tags(body, node_endpoints if version >= 10 else ())
    _FRAME(body, 0, len(body) - 4, correlation_id)
    return body


def _encode_plain(row: PartitionResponse, correlation_id: int, throttle_time_ms: int) -> bytes | None:
    """Return a response of one partition, versions 9 to 12; None if the row has errors, a message or a leader."""
    topic, partition, error, base_offset, append_time_ms, start_offset, record_errors, message, _, leader = row
    name = topic.encode()
    size = len(name)
    if record_errors or message is not None or leader is not None or size > 126:
        return None
    return b"%b%b%b" % (
        _BEFORE_TOPIC_V9(_AROUND_TOPIC + size, correlation_id, 0, 2, size + 1),
        name,
        _AFTER_TOPIC_V9(
            2, partition, error, base_offset, append_time_ms, start_offset, 1, 0, 0, 0, throttle_time_ms, 0
        ),
    )


def _topic_of(row: PartitionResponse) -> tuple[str, bytes]:
    return row.topic, row.topic_id


def _write_row(body: bytearray, row: PartitionResponse, version: int, flexible: bool) -> None:
    if flexible and not row.record_errors and row.message is None and row.current_leader is None:
        body += _PLAIN_ROW_V9(
            row.partition, row.error, row.base_offset, row.log_append_time_ms, row.log_start_offset, 1, 0, 0
        )
        return
    if version < 5:
        body += _ROW_V3(row.partition, row.error, row.base_offset, row.log_append_time_ms)
        return
    body += _ROW_V5(row.partition, row.error, row.base_offset, row.log_append_time_ms, row.log_start_offset)
    if version >= 8:
        write_count(body, len(row.record_errors), flexible)
        for batch_index, message in row.record_errors:
            body += _PACK_INT32(batch_index)
            write_string(body, message, flexible)
            if flexible:
                body.append(0)
        write_string(body, row.message, flexible)
    if flexible:
        if version >= 10 and row.current_leader is not None:
            body.append(1)
            write_tagged_leader(body, 0, row.current_leader)
        else:
            body.append(0)
