"""JSON read and written a piece at a time, so that it does not block the broker for long. pure

The standard library takes 20 ms to read a mebibyte of small values in one step. Here a step takes some microseconds,
and an error names its place. This is stricter than the library: a name twice in an object, NaN, a lone surrogate and
an integer of thousands of digits are refused.
"""

import json
import re
from collections.abc import Generator, Iterator
from typing import Any, Final

STEP_ITEMS: Final = 64
"""Values, names and pieces of strings between two yields."""
ITEM_US: Final = 3.0
"""Cost of one of them."""
MOST_DEPTH: Final = 64
MOST_DIGITS: Final = 400

_PLAIN = re.compile(r'[^"\\\x00-\x1f]*')
_SPACE = re.compile(r"[ \t\n\r]*")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_HEX = re.compile(r"[0-9A-Fa-f]{4}")
_ESCAPES: Final = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_WORDS: Final = {"t": ("true", True), "f": ("false", False), "n": ("null", None)}
_ITEM_CHARS: Final = 1024
"""Plain text of this length counts as an item."""

Steps = Generator[float, None, Any]


class BadJson(ValueError):
    """Text that is not JSON: the message has the error and its place."""


def read_json(text: str) -> Steps:
    """Return the value of a text. Yields the cost of each step in microseconds. Raises BadJson."""
    reader = _Reader(text)
    value = yield from reader.value(0)
    reader.end()
    return value


def write_json(value: Any) -> Iterator[str]:
    """Yield the text of a value in small pieces. ValueError or TypeError for a value that JSON does not have."""
    return json.JSONEncoder(ensure_ascii=False, allow_nan=False).iterencode(value)


class _Reader:
    """A text, and the position up to which it has been read."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._items = 0

    def value(self, depth: int) -> Steps:
        """Return the value that begins here."""
        self._skip_space()
        self._items += 1
        if self._items >= STEP_ITEMS:
            yield self._items * ITEM_US
            self._items = 0
        first = self._peek()
        if first == '"':
            return (yield from self._string())
        if first in ("{", "["):
            if depth == MOST_DEPTH:
                raise self._bad(f"more than {MOST_DEPTH} nested values")
            self._at += 1
            return (yield from (self._object(depth + 1) if first == "{" else self._array(depth + 1)))
        if first in _WORDS:
            word, meaning = _WORDS[first]
            if self._text.startswith(word, self._at):
                self._at += len(word)
                return meaning
        return self._number()

    def end(self) -> None:
        """Raise BadJson if text follows the value."""
        self._skip_space()
        if self._at < len(self._text):
            raise self._bad("text after the value")

    def _object(self, depth: int) -> Steps:
        found: dict[str, Any] = {}
        if self._takes("}"):
            return found
        while True:
            self._skip_space()
            if self._peek() != '"':
                raise self._bad("a name in double quotes is missing")
            place = self._at
            name = yield from self._string()
            if name in found:
                self._at = place
                raise self._bad(f"the name {json.dumps(name[:100])} occurs twice")
            if not self._takes(":"):
                raise self._bad("a colon is missing")
            found[name] = yield from self.value(depth)
            if self._takes("}"):
                return found
            if not self._takes(","):
                raise self._bad("a comma or } is missing")

    def _array(self, depth: int) -> Steps:
        found: list[Any] = []
        if self._takes("]"):
            return found
        while True:
            found.append((yield from self.value(depth)))
            if self._takes("]"):
                return found
            if not self._takes(","):
                raise self._bad("a comma or ] is missing")

    def _string(self) -> Steps:
        self._at += 1
        pieces = []
        while True:
            plain = _PLAIN.match(self._text, self._at)
            assert plain is not None  # it may be empty
            self._at = plain.end()
            pieces.append(plain[0])
            self._items += 1 + len(plain[0]) // _ITEM_CHARS
            if self._items >= STEP_ITEMS:
                yield self._items * ITEM_US
                self._items = 0
            match self._peek():
                case '"':
                    self._at += 1
                    return "".join(pieces)
                case "\\":
                    pieces.append(self._read_escape())
                case "":
                    raise self._bad("a string is not closed")
                case _:
                    raise self._bad("a string contains a control character that is not escaped")

    def _read_escape(self) -> str:
        """Return the character of an escape, or of two escapes that form a surrogate pair."""
        place = self._at
        kind = self._text[place + 1 : place + 2]
        if kind in _ESCAPES:
            self._at += 2
            return _ESCAPES[kind]
        unit = self._unit()
        if 0xD800 <= unit < 0xDC00 and self._text.startswith("\\u", self._at):
            low = self._unit()
            if 0xDC00 <= low < 0xE000:
                return chr(0x10000 + ((unit - 0xD800) << 10) + (low - 0xDC00))
        if 0xD800 <= unit < 0xE000:
            self._at = place
            raise self._bad("half of a surrogate pair")
        return chr(unit)

    def _unit(self) -> int:
        r"""Return the number of an escape such as \u00e9."""
        digits = _HEX.match(self._text, self._at + 2) if self._text.startswith("\\u", self._at) else None
        if digits is None:
            raise self._bad("an unknown escape")
        self._at += 6
        return int(digits[0], 16)

    def _number(self) -> int | float:
        found = _NUMBER.match(self._text, self._at)
        if found is None:
            raise self._bad("a value is missing" if self._peek() in ("", ",", "}", "]") else "not a JSON value")
        text = found[0]
        self._items += len(text) // _ITEM_CHARS
        if len(text) > MOST_DIGITS:
            raise self._bad(f"a number of more than {MOST_DIGITS} characters")
        number = int(text) if found[1] is None and found[2] is None else float(text)
        if number in (float("inf"), float("-inf")):
            raise self._bad("a number that is too large")
        self._at = found.end()
        return number

    def _peek(self) -> str:
        """Return the next character, or an empty string at the end."""
        return self._text[self._at : self._at + 1]

    def _takes(self, character: str) -> bool:
        """Skip spaces, and return whether this character is the next one; if so, read it."""
        self._skip_space()
        if self._peek() != character:
            return False
        self._at += 1
        return True

    def _skip_space(self) -> None:
        spaces = _SPACE.match(self._text, self._at)
        assert spaces is not None  # there may be none
        self._items += (spaces.end() - self._at) // _ITEM_CHARS
        self._at = spaces.end()

    def _bad(self, what: str) -> BadJson:
        read = self._text[: self._at]
        line = read.count("\n") + 1
        column = len(read) - (read.rfind("\n") + 1) + 1
        return BadJson(f"{what} (line {line}, column {column})")
