"""Java's properties files: `server.properties`, `client.properties`, `meta.properties`. pure

Source: `java.util.Properties.load`. A file is Latin-1 with `\\uXXXX` escapes by its specification; UTF-8 is read too,
because people write it. A repeated key has the value of its last line.
"""

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from ottla.protocol.errors import ProtocolError

_LINE_END: Final = re.compile("\r\n|\r|\n")
_BLANKS: Final = " \t\f"
_ESCAPES: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_ESCAPE: Final = re.compile(r"\\(u[0-9A-Fa-f]{4}|.)", re.DOTALL)
_BAD_ESCAPE: Final = re.compile(r"(?<!\\)(?:\\\\)*\\u(?![0-9A-Fa-f]{4})")
_KEY_AND_VALUE: Final = re.compile(r"((?:\\.|[^\\=: \t\f])*)[ \t\f]*[=:]?[ \t\f]*(.*)", re.DOTALL)


class Property(NamedTuple):
    """Entry of a file. `line` is the number of its first line, from 1."""

    line: int
    key: str
    value: str


def decode_text(content: bytes) -> str:
    """Return the text of a properties file: decoded as UTF-8 if it is valid UTF-8, else as Latin-1."""
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        return content.decode("latin-1")


def parse_properties(text: str) -> Iterator[Property]:
    """Yield the entries in the order of the file. ProtocolError names the line of an escape that Java refuses."""
    for number, line in _logical_lines(text):
        if _BAD_ESCAPE.search(line):
            raise ProtocolError(f"line {number}: \\u must be followed by four hexadecimal digits")
        found = _KEY_AND_VALUE.fullmatch(line)
        if found is not None:
            yield Property(number, _unescape(found[1]), _unescape(found[2]))


def read_properties(content: bytes) -> dict[str, str]:
    """Return the values of a file by key. Raises ProtocolError."""
    return {entry.key: entry.value for entry in parse_properties(decode_text(content))}


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield (number of the first line, line with its continuations), without comments and blank lines."""
    pending, start = "", 0
    for number, raw in enumerate(_LINE_END.split(text), 1):
        line = raw.lstrip(_BLANKS)
        if not pending:
            start = number
            if not line or line[0] in "#!":
                continue
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2:
            pending += line[:-1]
        else:
            yield start, pending + line
            pending = ""
    if pending:
        yield start, pending


def _unescape(text: str) -> str:
    def replace(match: re.Match[str]) -> str:
        escape = match[1]
        return chr(int(escape[1:], 16)) if len(escape) == 5 else _ESCAPES.get(escape, escape)

    unescaped = _ESCAPE.sub(replace, text)
    # Java writes a character outside the Basic Multilingual Plane as two escapes.
    return unescaped.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
