"""Text that is safe for a terminal: text from a client or a file moves no cursor and begins no line. pure

Every command prints names, error texts and contents with `printable`, and command lines to paste into a shell with
`shell_line`. JSON has its own escapes.
"""

import shlex
from base64 import b64encode
from collections.abc import Iterable, Sequence
from html import escape
from typing import Final


def escape_character(character: str) -> str:
    """Return the escape of a character that is unsafe on a terminal; return any other character unchanged."""
    return character if character.isprintable() else character.encode("unicode_escape").decode()


class _Escapes(dict[int, str]):
    """The escape of each code point, computed at its first use."""

    def __missing__(self, code: int) -> str:
        shown = self[code] = escape_character(chr(code))
        return shown


_ESCAPES: Final = _Escapes()


def printable(text: str) -> str:
    """Return a text with its control, format and line characters as escapes: the result is one line."""
    return text if text.isprintable() else text.translate(_ESCAPES)


def first_names(names: Sequence[str], most: int) -> str:
    """Return the first `most` names, and the number of the others: `a, b and 4 more`."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(map(printable, names[:most])) + more


def html_text(text: str) -> str:
    """Return a text for HTML, in content and attributes, with the same escapes as on a terminal."""
    return escape(printable(text))


def shell_word(text: str) -> str:
    """Return a word for a shell command: quoted, with `$'...'` for a text that could not be pasted otherwise.

    No shell passes on a NUL. For a text with a NUL, the result is a word that is no name.
    """
    if text.isprintable():
        return shlex.quote(text)
    if "\0" in text:
        return shlex.quote(f"(a name with a NUL, which no shell takes: {printable(text)})")
    return "$'" + "".join(map(_quote, text)) + "'"


def shell_line(words: Iterable[str]) -> str:
    """Return a command line of these words, to be pasted into bash, zsh or ksh."""
    return " ".join(map(shell_word, words))


def _quote(character: str) -> str:
    if character in "\\'":
        return "\\" + character
    if character.isprintable():
        return character
    errors = "surrogateescape" if "\udc80" <= character <= "\udcff" else "surrogatepass"
    return "".join(f"\\{byte:03o}" for byte in character.encode("utf-8", errors))


def text_or_base64(content: bytes | None) -> str | dict[str, str] | None:
    """Return UTF-8 content as text, other bytes as {"base64": ...}: a value for JSON."""
    if content is None:
        return None
    try:
        return content.decode()
    except UnicodeDecodeError:
        return {"base64": b64encode(content).decode()}


def host_and_port(host: str, port: int) -> str:
    """Return HOST:PORT, with an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
