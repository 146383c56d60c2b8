"""Lines of stdin as records: plain values, keys and values with a separator between them, or JSON. pure

The JSON is that of `ottla consume` and `ottla dump`: UTF-8 as text, other bytes as {"base64": ...}, headers as a
list of [name, value].
"""

import json
from base64 import b64decode
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from typing import IO, Any, Final, NamedTuple

from ottla.printable import printable

LONGEST_LINE: Final = 64 * 1024 * 1024

Headers = tuple[tuple[str, bytes], ...]

_NO_TIMESTAMP: Final = -1
"""Timestamp of messages of before Kafka 0.10, as `ottla consume` prints it."""
READ_FIELDS: Final = ("key", "value", "headers", "partition", "timestamp")
_IGNORED: Final = frozenset(
    {"kind", "topic", "offset", "fate", "waiting_for", "transactional_id", "producer_id", "producer_epoch", "sequence"}
)
"""Fields that `ottla consume` and `ottla dump` write, and that the new record has of its own."""


class Line(NamedTuple):
    """A record to send, with the number of its line. `partition`, `timestamp_ms`: None for the producer's choice."""

    number: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    partition: int | None = None
    timestamp_ms: int | None = None

    @property
    def size_bytes(self) -> int:
        """Size of key and value."""
        return len(self.key or b"") + len(self.value or b"")


class BadLine(ValueError):
    """A line that is no record, with its number and the reason."""

    def __init__(self, number: int, reason: str) -> None:
        super().__init__(reason)
        self.number = number


Parse = Callable[[int, bytes], Line]


def read_lines(stream: IO[bytes], parse: Parse) -> Iterator[Line]:
    """Yield the record of each line. Only LF ends a line. Raises BadLine."""
    for number in count(1):
        try:
            content = stream.readline(LONGEST_LINE + 1)
        except OSError as error:
            raise BadLine(number, f"stdin cannot be read: {error.strerror or error}") from None
        if not content:
            return
        if len(content) > LONGEST_LINE:
            raise BadLine(number, f"it has more than {LONGEST_LINE} bytes")
        yield parse(number, content.removesuffix(b"\n"))


def plain_parser(key_separator: bytes | None, headers: Headers) -> Parse:
    """Return the parser of values, or of keys and values with a separator between them."""

    def parse(number: int, content: bytes) -> Line:
        if key_separator is None:
            return Line(number, None, content, headers)
        key, separator, value = content.partition(key_separator)
        if not separator:
            shown = printable(key_separator.decode(errors="backslashreplace"))
            raise BadLine(number, f"it has no {shown!r} between key and value (--key-separator)")
        return Line(number, key, value, headers)

    return parse


def json_parser(headers: Headers) -> Parse:
    """Return the parser of JSON objects. `headers` are added to those of each object."""

    def parse(number: int, content: bytes) -> Line:
        try:
            return _parse_object(number, json.loads(content), headers)
        except RecursionError:
            raise BadLine(number, "it has too many levels of brackets") from None
        except ValueError as error:
            raise BadLine(number, f"not a record in JSON: {error}") from None

    return parse


def _parse_object(number: int, given: Any, more: Headers) -> Line:
    """Return the record of a JSON value. Raises ValueError with the reason."""
    if not isinstance(given, dict):
        raise ValueError(f"an object with {', '.join(READ_FIELDS)} is needed")
    if unknown := sorted(given.keys() - _IGNORED - set(READ_FIELDS)):
        raise ValueError(f"unknown field {unknown[0]!r}; a record has {', '.join(READ_FIELDS)}")
    if "value" not in given:
        raise ValueError("it has no value (null for none)")
    return Line(
        number,
        _parse_content("key", given.get("key")),
        _parse_content("value", given["value"]),
        (*_parse_headers(given.get("headers")), *more),
        _parse_number("partition", given.get("partition"), 2**31),
        None if given.get("timestamp") == _NO_TIMESTAMP else _parse_number("timestamp", given.get("timestamp"), 2**63),
    )


def _parse_content(name: str, given: Any) -> bytes | None:
    """Return the bytes of a text or of {"base64": ...}. Raises ValueError."""
    if given is None:
        return None
    if isinstance(given, str):
        try:
            return given.encode()
        except UnicodeEncodeError:
            raise ValueError(f"{name} has half of a surrogate pair, which is no UTF-8") from None
    if isinstance(given, dict) and given.keys() == {"base64"} and isinstance(given["base64"], str):
        try:
            return b64decode(given["base64"], validate=True)
        except ValueError:
            raise ValueError(f"{name} is not base64") from None
    raise ValueError(f'{name} must be a text, {{"base64": TEXT}} or null')


def _parse_headers(given: Any) -> Iterator[tuple[str, bytes]]:
    if given is None:
        return
    if not isinstance(given, list):
        raise ValueError("headers must be a list of [name, value]")
    for each in given:
        if not isinstance(each, list) or len(each) != 2 or not isinstance(each[0], str):
            raise ValueError("a header must be [name, value]")
        _parse_content("the name of a header", each[0])
        content = _parse_content("the value of a header", each[1])
        if content is None:
            raise ValueError(f"header {each[0]!r} has no value, which kafka-python does not send; kcat does")
        yield each[0], content


def _parse_number(name: str, given: Any, limit: int) -> int | None:
    if given is None:
        return None
    if isinstance(given, bool) or not isinstance(given, int) or not 0 <= given < limit:
        raise ValueError(f"{name} must be a number from 0 to {limit - 1}")
    return given


def parse_headers(given: Sequence[str]) -> Headers:
    """Return the headers of `--header NAME=VALUE`. Raises ValueError."""
    headers = []
    for each in given:
        name, equals, value = each.partition("=")
        if not equals:
            raise ValueError(f"{each!r} is not NAME=VALUE")
        _parse_content("the name", name)
        headers.append((name, value.encode(errors="surrogateescape")))
    return tuple(headers)
