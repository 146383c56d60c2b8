"""Text as a terminal may be sent it: what came over the wire or out of a file must not move anybody's cursor. pure"""

from typing import Final


def escaped(character: str) -> str:
    """What stands for a character that a terminal may not be sent; itself for any other."""
    return character if character.isprintable() else character.encode("unicode_escape").decode()


class _Escapes(dict[int, str]):
    """What stands for a code point, worked out when it is first met."""

    def __missing__(self, code: int) -> str:
        shown = self[code] = escaped(chr(code))
        return shown


_ESCAPES: Final = _Escapes()


def printable(text: str) -> str:
    """Control characters, line ends among them, as escapes; all else as it is."""
    return text if text.isprintable() else text.translate(_ESCAPES)
