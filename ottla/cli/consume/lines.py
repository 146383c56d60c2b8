"""A record with its fate as a line of text or of JSON. pure"""

import json
from typing import Final

from ottla.cli.consume.reader import ConsumedRecord
from ottla.fates import Fate
from ottla.printable import printable, text_or_base64
from ottla.protocol.times import at_time

LONGEST_SHOWN: Final = 200
"""Characters of a key or a value that the text shows without `--whole`."""


def json_line(topic: str, shown: ConsumedRecord) -> str:
    """Return a line with the fields of `ottla dump` that a record has, and those that `ottla produce` reads."""
    record, header = shown.record, shown.header
    return json.dumps(
        {
            "topic": topic,
            "partition": shown.partition,
            "offset": record.offset,
            "timestamp": record.timestamp,
            "key": text_or_base64(record.key),
            "value": text_or_base64(record.value),
            "headers": [[name, text_or_base64(content)] for name, content in record.headers],
            "fate": shown.fate,
            "waiting_for": shown.waiting_for,
            "transactional_id": shown.transactional_id,
            "producer_id": header.producer_id,
            "producer_epoch": header.producer_epoch,
            "sequence": record.sequence,
        }
    )


def text_line(shown: ConsumedRecord, *, whole: bool) -> str:
    """Return PARTITION:OFFSET, time, fate, key and value, with two spaces between them."""
    record = shown.record
    columns = (
        f"{shown.partition}:{record.offset}",
        at_time(record.timestamp).removeprefix("at ").removesuffix(" UTC"),
        _fate_text(shown),
        _content_text(record.key, whole),
        _content_text(record.value, whole),
    )
    return "  ".join(columns)


def _fate_text(shown: ConsumedRecord) -> str:
    text = str(shown.fate)
    if shown.fate is not Fate.NONE:
        header = shown.header
        producer = f"producer {header.producer_id} epoch {header.producer_epoch}"
        text += f" ({producer if shown.transactional_id is None else printable(shown.transactional_id)})"
    return text if shown.waiting_for is None else f"{text} waiting for {shown.waiting_for}"


def _content_text(content: bytes | None, whole: bool) -> str:
    """Return the text of a key or a value: escapes for what a terminal must not receive, and for invalid UTF-8."""
    if content is None:
        return "null"
    if not content:
        return '""'
    # A character has at most four bytes, so the cut part is as long as what is shown, or longer.
    is_cut = not whole and len(content) > LONGEST_SHOWN * 4
    text = (content[: LONGEST_SHOWN * 4] if is_cut else content).decode(errors="backslashreplace")
    if whole or (not is_cut and len(text) <= LONGEST_SHOWN):
        return printable(text)
    return f"{printable(text[:LONGEST_SHOWN])}... ({len(content)} bytes)"
