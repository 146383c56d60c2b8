"""Records without a decoder as lines of kafka-dump-log, a batch at a time: most of the output of `--records`. pure

A `Record` and a string for each record would cost three times as much. Invalid batches are left to the slower reader,
which reads record by record and reports the error.
"""

import re
from collections.abc import Iterator
from functools import cache
from typing import Final

from ottla.printable import escape_character
from ottla.protocol.batch_header import MAX_SEQUENCE, BatchHeader
from ottla.protocol.compression import TooLarge
from ottla.protocol.errors import ProtocolError
from ottla.protocol.record_frames import raw_records
from ottla.protocol.values import NO_SEQUENCE
from ottla.protocol.varints import MAX_VARINT_SIZE, MAX_VARLONG_SIZE, read_unsigned_varint

_NULL: Final = 1  # zig-zag of -1
_LINES_AT_ONCE: Final = 512
_LINE_END: Final = b"\n", b"\\n"
# Control characters that are replaced in the finished lines. Line ends in keys and values are replaced earlier.
_CONTROLS: Final = [
    (bytes([code]), chr(code).encode("unicode_escape")) for code in (*range(0x20), 0x7F) if code != ord("\n")
]


def plain_text(header: BatchHeader, batch: memoryview) -> Iterator[bytes] | None:
    """Return the lines of all records of a data batch, in UTF-8, some hundred at a time. None if a record is invalid.

    Raises TooLarge.
    """
    if header.record_count <= 0:
        return None
    try:
        raw = raw_records(batch, header)
        lines = _lines(header, raw)
    except TooLarge:
        raise
    except (ProtocolError, IndexError):
        return None
    return (_printable(b"".join(lines[at : at + _LINES_AT_ONCE])) for at in range(0, len(lines), _LINES_AT_ONCE))


def _lines(header: BatchHeader, raw: bytes) -> list[bytes]:
    """Return the lines, with only line ends escaped. Raises ProtocolError or IndexError."""
    lines = []
    base_offset, base_sequence = header.base_offset, header.base_sequence
    append_time = header.max_timestamp if header.is_log_append_time else None
    kind = "CreateTime" if append_time is None else "LogAppendTime"
    at = 0
    for _ in range(header.record_count):
        # One byte is enough for most of these numbers, and a call costs more than all other steps here.
        x = raw[at]
        at += 1
        if x > 127:
            x, at = _longer(raw, at)
        if x & 1:
            raise ProtocolError("a negative length")
        stop = at + (x >> 1)
        x = raw[at + 1]  # after the attributes
        at += 2
        if x > 127:
            x, at = _longer(raw, at, MAX_VARLONG_SIZE)
        time = header.base_timestamp + ((x >> 1) ^ -(x & 1)) if append_time is None else append_time
        x = raw[at]
        at += 1
        if x > 127:
            x, at = _longer(raw, at)
        delta = (x >> 1) ^ -(x & 1)
        key, at = _content(raw, at)
        value, at = _content(raw, at)
        names = b""
        if raw[at]:
            names, at = _names(raw, at)
        else:
            at += 1
        if at != stop:
            raise ProtocolError("a record is not as long as its fields")
        sequence = NO_SEQUENCE if base_sequence == NO_SEQUENCE else (base_sequence + delta) & MAX_SEQUENCE
        head = (
            f"| offset: {base_offset + delta} {kind}: {time} keySize: {-1 if key is None else len(key)} "
            f"valueSize: {-1 if value is None else len(value)} sequence: {sequence} headerKeys: ["
        )
        line = head.encode() + names + b"]"
        if key is not None:
            line += b" key: " + key.replace(*_LINE_END)
        if value is not None:
            line += b" payload: " + value.replace(*_LINE_END)
        lines.append(line + b"\n")
    if at != len(raw):
        raise ProtocolError("bytes after the last record")
    return lines


def _longer(raw: bytes, at: int, max_size: int = MAX_VARINT_SIZE) -> tuple[int, int]:
    """Return (value, position after it) of the unsigned varint whose first byte is before `at`."""
    byte = raw[at]
    if byte < 128:
        return (raw[at - 1] & 127) | byte << 7, at + 1
    return read_unsigned_varint(raw, at - 1, max_size)


def _content(raw: bytes, at: int) -> tuple[bytes | None, int]:
    x = raw[at]
    at += 1
    if x > 127:
        x, at = _longer(raw, at)
    if x & 1:
        if x != _NULL:
            raise ProtocolError("a negative length")
        return None, at
    return raw[at : at + (x >> 1)], at + (x >> 1)


def _names(raw: bytes, at: int) -> tuple[bytes, int]:
    """Return (names of the headers, position after the headers)."""
    x = raw[at]
    at += 1
    if x > 127:
        x, at = _longer(raw, at)
    if x & 1:
        raise ProtocolError("a negative number of headers")
    names = []
    for _ in range(x >> 1):
        name, at = _content(raw, at)
        _, at = _content(raw, at)
        if name is None:
            raise ProtocolError("a header without a key")
        names.append(name.replace(*_LINE_END))
    return b",".join(names), at


def _printable(lines: bytes) -> bytes:
    """Escape the characters that a terminal must not receive, in whole lines whose inner line ends are escaped.

    Takes many lines at once, because each search has a cost. Searches bytes for control characters, text for the rest.
    """
    for control, shown in _CONTROLS:
        lines = lines.replace(control, shown)
    if lines.isascii():
        return lines
    return _unprintable().sub(_escape, lines.decode(errors="replace")).encode()


def _escape(found: "re.Match[str]") -> str:
    return escape_character(found[0])


@cache
def _unprintable() -> "re.Pattern[str]":
    """Match characters that may need escaping beyond ASCII. A set is fast only for the first 65,536 characters."""
    codes = [code for code in range(0x80, 0x10000) if not chr(code).isprintable()]
    starts = [code for code, before in zip(codes, [-1, *codes], strict=False) if code != before + 1]
    ends = [code for code, following in zip(codes, [*codes[1:], -1], strict=True) if code + 1 != following]
    ranges = "".join(f"\\u{start:04x}-\\u{end:04x}" for start, end in zip(starts, ends, strict=True))
    return re.compile(f"[{ranges}\U00010000-\U0010ffff]")
