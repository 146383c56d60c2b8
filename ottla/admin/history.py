"""`GET /v1/history` and `GET /v1/refusals`: recent events and refused requests. free"""

from json.encoder import encode_basestring
from typing import Any, Final

from ottla.admin.fields import NUMBER, TEXT, TEXT_OR_NULL, a_list, an_object
from ottla.admin.listing import JsonRows, encode_json, whole_number
from ottla.admin.overview import BUCKET_SCHEMA, bucket
from ottla.admin.routes import JSON, AdminError, AdminRequest, AdminResponse, Route, Send
from ottla.broker.api.context import Broker
from ottla.broker.costs import LOOKUP_US
from ottla.broker.events import KINDS, MOST_SECONDS, SECOND_MS, Events, Refusal

EVENT_US: Final = 4.0
"""Cost of writing an event as JSON."""
PIECE_EVENTS: Final = 300
WINDOW_MS: Final = MOST_SECONDS * SECOND_MS

EVENT_SCHEMA: Final = an_object(
    {
        "seq": NUMBER,
        "at_ms": NUMBER,
        "kind": {**TEXT, "enum": list(KINDS)},
        "transactional_id": TEXT,
        "producer_id": NUMBER,
        "producer_epoch": NUMBER,
        "topic": TEXT,
        "partition": NUMBER,
        "commit": {"type": "boolean"},
        "records": NUMBER,
        "bytes": NUMBER,
        "error": TEXT,
    },
    description="An event of a transactional id. Fields that its kind does not have are left out.",
)
_LEFT_OUT: Final = "Events that were not recorded because of sampling, or are not kept any more."
HISTORY_SCHEMA: Final = an_object(
    {
        "from_ms": NUMBER,
        "to_ms": NUMBER,
        "events": a_list(EVENT_SCHEMA),
        "left_out": {**NUMBER, "description": _LEFT_OUT},
        "buckets": a_list(BUCKET_SCHEMA),
    }
)
_REFUSAL: Final = an_object(
    {
        "at_ms": NUMBER,
        "api": TEXT,
        "error": {**TEXT, "description": "Kafka's name of the error."},
        "client_id": TEXT,
        "peer": TEXT,
        "transactional_id": TEXT_OR_NULL,
        "reason": TEXT,
        "count": {**NUMBER, "description": "How often such a request was refused; at_ms is the last time."},
    }
)
REFUSALS_SCHEMA: Final = an_object({"refusals": a_list(_REFUSAL)})
WINDOW_QUERY: Final = {
    "from_ms": "The start of the window in milliseconds since 1970; by default ten minutes ago.",
    "to_ms": "The end of the window in milliseconds since 1970; by default now.",
}


def history_routes(broker: Broker, events: Events) -> list[Route]:
    """Return the two routes."""

    async def history(request: AdminRequest) -> AdminResponse:
        from_ms, to_ms = window(broker, request)

        async def stream(send: Send) -> None:
            await write_history(broker, events, from_ms, to_ms, send)

        return AdminResponse(body=stream, content_type=JSON)

    async def refusals(request: AdminRequest) -> AdminResponse:
        return await list_refusals(broker, events)

    return [
        Route(
            *("GET", "/v1/history", history, "Show the recent events of transactions"),
            query=WINDOW_QUERY,
            response_schema=HISTORY_SCHEMA,
        ),
        Route(
            *("GET", "/v1/refusals", refusals, "Show the last refused requests, the latest first"),
            response_schema=REFUSALS_SCHEMA,
        ),
    ]


def window(broker: Broker, request: AdminRequest) -> tuple[int, int]:
    """Return the time window of a request, in ms since 1970. AdminError 400."""
    to_ms = whole_number(request, "to_ms", broker.clock.now_ms())
    from_ms = whole_number(request, "from_ms", max(0, to_ms - WINDOW_MS))
    if from_ms > to_ms:
        raise AdminError(400, "from_ms must not be above to_ms")
    return from_ms, to_ms


async def write_history(broker: Broker, events: Events, from_ms: int, to_ms: int, send: Send) -> None:
    """Send the events and seconds of this time window, as far as they are still kept when they are sent."""
    seq, end = events.at_or_after(from_ms), events.at_or_after(to_ms + 1)
    await send(b'{"from_ms":%d,"to_ms":%d,"events":[' % (from_ms, to_ms))
    forgotten, separator = 0, b""
    while seq < end:
        if seq < events.first_seq:
            forgotten += min(events.first_seq, end) - seq
            seq = events.first_seq
            continue
        some = [event_json(each) for each in events.some(seq, min(seq + PIECE_EVENTS, end))]
        seq += len(some)
        broker.turns.charge(len(some) * EVENT_US)
        await send(separator + b",".join(some))
        separator = b","
    seconds = [each for each in events.seconds() if from_ms - SECOND_MS < each.at_ms <= to_ms]
    broker.turns.charge(len(seconds) * LOOKUP_US * 10)
    left_out = forgotten + sum(each.left_out for each in seconds)
    more = {"left_out": left_out, "buckets": [bucket(each) for each in seconds]}
    await send(b"]," + encode_json(more)[1:] + b"\n")


def event_json(event: tuple[Any, ...]) -> bytes:
    """Return an `Event`, or the tuple of one, as JSON, without the fields that its kind does not have.

    Written by hand, because there are thousands a second.
    """
    seq, at_ms, kind, name, producer_id, epoch, topic, partition, commit, records, size_bytes, error = event
    text = (
        f'{{"seq":{seq},"at_ms":{at_ms},"kind":"{kind}","transactional_id":{encode_basestring(name)}'
        f',"producer_id":{producer_id},"producer_epoch":{epoch}'
    )
    if topic is not None:
        text += f',"topic":{encode_basestring(topic)},"partition":{partition}'
    if commit is not None:
        text += ',"commit":true' if commit else ',"commit":false'
    if records is not None:
        text += f',"records":{records},"bytes":{size_bytes}'
    if error is not None:
        text += f',"error":{encode_basestring(error)}'
    return (text + "}").encode()


async def list_refusals(broker: Broker, events: Events) -> AdminResponse:
    """Return the last refusals, the latest first."""
    rows = JsonRows("refusals", broker.turns)
    for each in list(events.refusals()):
        await rows.add(_refusal(each))
    return rows.finish()


def _refusal(each: Refusal) -> dict[str, Any]:
    row = each._asdict()
    row["count"] = row.pop("times")
    return row
