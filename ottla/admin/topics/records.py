"""`GET /v1/topics/{topic}/{partition}/records`: some records of a partition, each with its fate. free"""

from base64 import b64encode
from typing import Any, Final

from ottla.admin.fields import NUMBER, NUMBER_OR_NULL, TEXT, TEXT_OR_NULL, a_list, an_object
from ottla.admin.listing import MOST_MS, JsonRows, whole_number
from ottla.admin.partitions import HOLDER, Owners, find_holder, holder_row, owner_name, owners_of
from ottla.admin.routes import AdminError, AdminRequest, AdminResponse, Route
from ottla.admin.topics.pieces import PIECE_BYTES
from ottla.admin.topics.reading import FatedRecord, Found, read_backward, read_forward
from ottla.admin.topics.walk import HEADER_BYTES, MOST_HEADERS, SHOWN_BYTES, Content
from ottla.broker.api.context import Broker
from ottla.broker.events import shorten
from ottla.broker.log.partition import Partition
from ottla.broker.log.results import FetchIsolation
from ottla.broker.log.timestamps import offset_for_timestamp
from ottla.fates import Fate
from ottla.protocol.errors import ProtocolError
from ottla.protocol.steps import Steps
from ottla.protocol.values import UNKNOWN_OFFSET

DEFAULT_RECORDS: Final = 50
MOST_RECORDS: Final = 100
MOST_DIGITS: Final = 9
MOST_KEY_BYTES: Final = 1024
_ENCODED_BYTES: Final = 200
"""Bytes of a record that cost as much as one entry of a list."""

_CONTENT: Final = {
    **an_object({"size": NUMBER, "text": TEXT, "base64": TEXT}),
    "type": ["object", "null"],
    "description": f"Its first {SHOWN_BYTES} bytes as text, or as base64 if they are not UTF-8, and its whole size.",
}
_RECORD: Final = an_object(
    {
        "offset": NUMBER,
        "timestamp_ms": NUMBER,
        "fate": {"enum": [each.value for each in Fate], "description": "That of its transaction; none without one."},
        "waiting_for": {
            **NUMBER_OR_NULL,
            "description": "The first offset of the open transaction that keeps it from read_committed consumers.",
        },
        "producer_id": NUMBER,
        "producer_epoch": NUMBER,
        "transactional_id": TEXT_OR_NULL,
        "key": _CONTENT,
        "value": _CONTENT,
        "headers": a_list({"type": "array"}, description=f"Items of the form [name, value], at most {MOST_HEADERS}."),
        "headers_left_out": NUMBER,
        "cut": {"type": "boolean", "description": "Whether the value is cut and the headers after it were not read."},
    }
)
SCHEMA: Final = an_object(
    {
        "records": a_list(_RECORD, description="In the order of their offsets."),
        "first": {**NUMBER, "description": "The first offset that was read: `before` of the records before these."},
        "next": {
            **NUMBER,
            "description": "The offset after the last one that was read: `offset` of the next ones.",
        },
        "left_out": a_list(an_object({"first_offset": NUMBER, "last_offset": NUMBER, "reason": TEXT})),
        "note": {**TEXT_OR_NULL, "description": "Where reading began, if not at the requested place."},
        "withheld": {**TEXT_OR_NULL, "description": "Why keys, values and headers are not shown."},
        "held_by": HOLDER,
        "log_start_offset": NUMBER,
        "last_stable_offset": NUMBER,
        "high_watermark": NUMBER,
    }
)


def records_route(broker: Broker, withheld: str | None) -> Route:
    """Return the route. `withheld` is the reason why keys, values and headers are not shown; None if they are."""

    async def show(request: AdminRequest) -> AdminResponse:
        name = f"{request.parameters['topic']}-{request.parameters['partition']}"
        key = _key(request, withheld)
        partition = await find_partition(broker, request)
        found, note = await _read(broker, partition, request, key, name)
        holder = find_holder(partition)
        producers = {each.header.producer_id for each in found.records if each.header.is_transactional}
        owners = await owners_of(broker, producers | ({holder[1]} if holder else set()))
        stable, rows = partition.last_stable_offset, JsonRows("records", broker.turns)
        for each in found.records:
            row = _row(each, stable, owners, is_shown=withheld is None)
            await rows.add(row, _shown_bytes(each) // _ENCODED_BYTES)
        return rows.finish(
            first=found.first,
            next=found.end,
            left_out=[each._asdict() for each in found.left_out],
            note=note,
            withheld=withheld,
            held_by=holder_row(holder, owners),
            log_start_offset=partition.log_start_offset,
            last_stable_offset=stable,
            high_watermark=partition.high_watermark,
        )

    query = {
        "offset": "Records from this offset on.",
        "before": "The last records before this offset; by default those before the end.",
        "time": "Records from the first one on with this timestamp or a later one, in ms since 1970.",
        "key": "Only records whose key contains this text.",
        "limit": f"The most records: {DEFAULT_RECORDS} by default, {MOST_RECORDS} at most.",
    }
    summary = f"Show records with their fates, from at most {PIECE_BYTES >> 10} KiB of batches or one larger batch"
    return Route("GET", "/v1/topics/{topic}/{partition}/records", show, summary, query=query, response_schema=SCHEMA)


async def find_partition(broker: Broker, request: AdminRequest) -> Partition:
    """Return the partition of a request, opened. AdminError 404, or 503 if it is offline."""
    topic, index = request.parameters["topic"], request.parameters["partition"]
    if topic not in broker.cluster.topics:
        raise AdminError(404, "There is no such topic, or it was deleted: GET /v1/topics lists the topics")
    partition = None
    if index.isascii() and index.isdigit() and len(index) <= MOST_DIGITS:
        partition = await broker.cluster.get_or_open(topic, int(index))
    if partition is None:
        raise AdminError(404, "The topic has no such partition, or it has no leader: GET /v1/topics/{topic} lists them")
    if partition.offline is not None:
        raise AdminError(503, f"{partition.name} is offline: {partition.offline}")
    return partition


def _key(request: AdminRequest, withheld: str | None) -> bytes | None:
    text = request.query.get("key")
    if not text:
        return None
    if withheld is not None:
        raise AdminError(403, f"Keys cannot be searched: {withheld}")
    key = text.encode()
    if len(key) > MOST_KEY_BYTES:
        raise AdminError(400, f"key must have at most {MOST_KEY_BYTES} bytes")
    return key


async def _read(
    broker: Broker, partition: Partition, request: AdminRequest, key: bytes | None, name: str
) -> tuple[Found, str | None]:
    given = [each for each in ("offset", "before", "time") if each in request.query]
    if len(given) > 1:
        raise AdminError(400, f"The query has both {given[0]} and {given[1]}: give one of them")
    most = whole_number(request, "limit", DEFAULT_RECORDS, 1, MOST_RECORDS)
    try:
        if given == ["offset"]:
            at, note = _begin(partition, whole_number(request, "offset", 0, 0, MOST_MS))
            return await broker.long_work.drive(_read_from(partition, at, most, key, note))
        if given == ["time"]:
            return await _read_at_time(broker, partition, whole_number(request, "time", 0), most, key)
        end = partition.high_watermark
        before = max(partition.log_start_offset, min(end, whole_number(request, "before", end, 0, MOST_MS)))
        return await broker.long_work.drive(read_backward(partition, before, most, key)), None
    except (ProtocolError, OSError) as error:
        if request.parameters["topic"] not in broker.cluster.topics:
            raise AdminError(404, f"{name} was deleted while it was read") from None
        raise AdminError(503, f"{name} cannot be read: {partition.offline or error}") from None


def _begin(partition: Partition, offset: int) -> tuple[int, str | None]:
    """Return the first offset that can be read, and a note if it is another one."""
    start, end = partition.log_start_offset, partition.high_watermark
    if offset < start:
        return start, f"The records before offset {start} were deleted"
    if offset > end:
        return end, f"The partition ends at offset {end}"
    return offset, None


def _read_from(
    partition: Partition, offset: int, most: int, key: bytes | None, note: str | None
) -> Steps[tuple[Found, str | None]]:
    """Read from an offset on, and note a gap there."""
    found = yield from read_forward(partition, offset, most, key)
    if note is None and key is None and not found.left_out and found.records:
        first = found.records[0].record.offset
        if first > offset:
            note = f"No record has offset {offset}: it was compacted away, or is a marker. The next one is {first}"
    return found, note


async def _read_at_time(
    broker: Broker, partition: Partition, time_ms: int, most: int, key: bytes | None
) -> tuple[Found, str | None]:
    at = await broker.long_work.drive(offset_for_timestamp(partition, time_ms, FetchIsolation.HIGH_WATERMARK))
    if at is None:
        raise ProtocolError("its times cannot be searched")
    if at.offset != UNKNOWN_OFFSET:
        return await broker.long_work.drive(read_forward(partition, at.offset, most, key)), None
    found = await broker.long_work.drive(read_backward(partition, partition.high_watermark, most, key))
    return found, "No record has this time or a later one: these are the last ones"


def _row(found: FatedRecord, stable: int, owners: Owners, *, is_shown: bool) -> dict[str, Any]:
    record, header, fate = found
    is_waiting = record.offset >= stable and fate is not Fate.OPEN
    row: dict[str, Any] = {
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
        "fate": fate.value,
        "waiting_for": stable if is_waiting else None,
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "transactional_id": owner_name(header.producer_id, owners) if header.is_transactional else None,
    }
    if is_shown:
        row |= {
            "key": _content(record.key),
            "value": _content(record.value),
            "headers": [[shorten(name), _content(value)] for name, value in record.headers or ()],
            "headers_left_out": record.headers_left_out,
            "cut": record.headers is None,
        }
    return row


def _content(content: Content | None) -> dict[str, Any] | None:
    """Return the bytes as text, without a character that is cut, or as base64 if they are not UTF-8."""
    if content is None:
        return None
    data, size = content
    try:
        return {"size": size, "text": data.decode()}
    except UnicodeDecodeError as error:
        if len(data) < size and error.end == len(data) and error.reason == "unexpected end of data":
            return {"size": size, "text": data[: error.start].decode()}
    return {"size": size, "base64": b64encode(data).decode()}


def _shown_bytes(found: FatedRecord) -> int:
    record = found.record
    contents = (record.key, record.value, *(value for _, value in record.headers or ()))
    return HEADER_BYTES + sum(len(each.data) for each in contents if each is not None)
