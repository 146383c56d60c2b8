"""Requests and replies as lines, like those of a packet dump. pure

    12:00:01.123 127.0.0.1:50744 order-1 > EndTxn v3 #12 87 B: transactional_id=tx-1 producer_id=0 committed=true
    12:00:01.125 127.0.0.1:50744 order-1 < EndTxn v3 #12 16 B 1.30 ms: PRODUCER_FENCED

With several brokers, `[2]` before the API is the broker that the client asks. A topic is written before its partitions
(`ledger-0(...)`).
"""

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, Final

from ottla.printable import printable

_TOPIC_NAMES: Final = ("name", "topic", "topic_id")
_PARTITION_NUMBERS: Final = ("index", "partition_index", "partition")
_ARROWS: Final = {"request": ">", "reply": "<", "closed": "!"}

TracedEvent = Mapping[str, Any]


def line_of(event: TracedEvent) -> str:
    """Return the line of one object of `/v1/trace`."""
    at = datetime.fromtimestamp(event["time_ms"] / 1000).strftime("%H:%M:%S.%f")[:-3]
    if event["kind"] == "dropped":
        return f"{at} {event['count']} requests and replies are missing: they came faster than they were read"
    client = f"{event['peer']} {event['client_id'] or '-'} {_ARROWS[event['kind']]}"
    broker = f"[{event['broker']}] " if "broker" in event else ""
    line = f"{at} {client} {broker}{event['api']} v{event['version']} #{event['correlation_id']}"
    if "size_bytes" in event:
        line += f" {event['size_bytes']} B"
    if "took_ms" in event:
        line += f" {event['took_ms']:.2f} ms"
    return printable(f"{line}: {' '.join(_facts(event))}".removesuffix(": "))


def _facts(event: TracedEvent) -> Iterator[str]:
    if event["kind"] == "closed":
        yield f"closed, {event['reason']}"
        return
    if event["kind"] == "reply":
        yield from event["errors"] or ["ok" if event["size_bytes"] else "no reply"]
    if event["fields"] is not None:
        # The line has the error of the whole reply already.
        yield from (_fact(name, value) for name, value in event["fields"].items() if name != "error_code")
    elif event["size_bytes"]:
        yield f"({event.get('unreadable', 'too large to be shown')})"
    if "rows_left_out" in event:
        yield f"({event['rows_left_out']} more rows)"


def _fact(name: str, value: Any) -> str:
    return f"{name}={_text(value)}"


def _text(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return f"[{', '.join(part for item in value for part in _items(item))}]"
    if isinstance(value, dict):
        return f"({' '.join(_fact(name, each) for name, each in value.items())})"
    return str(value)


def _items(item: Any) -> Iterator[str]:
    """Yield the text of an item of an array. For a topic, yield that of each of its partitions."""
    topic, partitions = _partitions_of(item)
    if topic is None:
        yield _text(item)
        return
    for partition in partitions:
        if isinstance(partition, dict):
            number = next(name for name in _PARTITION_NUMBERS if name in partition)
            rest = _text({name: value for name, value in partition.items() if name != number})
            yield f"{topic}-{partition[number]}{rest if rest != '()' else ''}"
        else:
            yield f"{topic}-{partition}"


def _partitions_of(item: Any) -> tuple[str | None, list[Any]]:
    """Return the name and the partitions of a topic without other fields; None for any other item."""
    if isinstance(item, dict) and len(item) == 2:
        (name, topic), (_, rows) = item.items()
        if name in _TOPIC_NAMES and isinstance(rows, list) and rows and all(map(_is_partition, rows)):
            return topic, rows
    return None, []


def _is_partition(row: Any) -> bool:
    return isinstance(row, int) or (isinstance(row, dict) and any(name in row for name in _PARTITION_NUMBERS))
