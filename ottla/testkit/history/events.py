"""Each request and its reply as one JSON object. pure

Records are summarized; those of small batches are listed with key and value. Bytes that are not UTF-8 are
`{"base64": ...}`, as in the output of `ottla dump`.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Final
from uuid import UUID

from ottla.printable import text_or_base64
from ottla.protocol.batch_header import BatchHeader, iter_batches
from ottla.protocol.errors import ProtocolError
from ottla.protocol.records import iter_records
from ottla.testkit.control.journal import JournalEntry
from ottla.testkit.history.calls import Call, read_calls

MOST_RECORDS: Final = 20
"""A field with more records shows only their number."""
MOST_BYTES: Final = 2_000
"""Keys and values are cut to this number of bytes."""


def events(entries: Iterable[JournalEntry]) -> Iterator[dict[str, Any]]:
    """Yield one object for each request, in the order of the requests."""
    return map(event, read_calls(entries))


def event(call: Call) -> dict[str, Any]:
    """Return a request and its reply as a JSON object."""
    entry = call.entry
    return {
        "t": entry.began_ms,
        "ended": entry.ended_ms,
        "peer": entry.peer,
        "client_id": call.client_id,
        "api": call.title,
        "version": call.api_version,
        "request": _struct(call.message, call.api_version),
        "reply": _struct(call.reply, call.api_version),
        "closed": entry.reason or None,
        "faults": list(entry.faults),
    } | ({} if entry.broker is None else {"broker": entry.broker})


def _struct(message: Any, version: int) -> dict[str, Any] | None:
    if message is None:
        return None
    fields = type(message).fields
    return {
        name: _value(getattr(message, name), field, version)
        for name, field in fields.items()
        if field.for_version_q(version)
    }


def _value(value: Any, field: Any, version: int) -> Any:
    if value is None:
        return None
    if field.is_array():
        entry = field.array_of
        return [_struct(row, version) if entry.is_struct() else _plain(row, entry) for row in value]
    return _struct(value, version) if field.is_struct() else _plain(value, field)


def _plain(value: Any, field: Any) -> Any:
    if field.type_str == "records":
        return _records(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return _bytes(bytes(value))
    if isinstance(value, UUID):
        return str(value)
    return sorted(value) if isinstance(value, set) else value


def _bytes(value: bytes | None) -> Any:
    return text_or_base64(value and value[:MOST_BYTES])


def _records(content: Any) -> dict[str, Any] | None:
    """Summarize a field with batches; unreadable batches are given only by their size in bytes."""
    if content is None:
        return None
    shown: dict[str, Any] = {"bytes": len(content), "count": 0, "batches": []}
    headers = []
    try:
        for position, header in iter_batches(content):
            headers.append((position, header))
            shown["batches"].append(_batch(header))
            shown["count"] += header.record_count
        if shown["count"] <= MOST_RECORDS:
            shown["records"] = [
                {"offset": record.offset, "key": _bytes(record.key), "value": _bytes(record.value)}
                for position, header in headers
                if not header.is_control
                for record in iter_records(content, header, position)
            ]
    except ProtocolError as error:
        shown["unreadable"] = str(error)
    return shown


def _batch(header: BatchHeader) -> dict[str, Any]:
    return {
        "base_offset": header.base_offset,
        "count": header.record_count,
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "base_sequence": header.base_sequence,
        "transactional": header.is_transactional,
        "control": header.is_control,
    }
