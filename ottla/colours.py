"""Colours of text on a terminal. free"""

import os
from typing import Final, TextIO

BOLD, DIM, RED, YELLOW, GREEN, CYAN, PLAIN = (f"\033[{code}m" for code in (1, 2, 31, 33, 32, 36, 0))

OF_VERDICT: Final = {
    "committed": GREEN,
    "aborted": RED,
    "open": YELLOW,
    "waiting": YELLOW,
    "overdue": YELLOW,
    "unknown": YELLOW,
    "forgotten": RED,
    "decided": RED,
}
"""The colours of the verdicts on transactions, and of the fates of records. Others have none."""


def is_coloured(stream: TextIO) -> bool:
    """Return whether a stream is a terminal with colours, and the user has not set NO_COLOR (no-color.org)."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


class Style:
    """Colours of the text, or none."""

    def __init__(self, colour: bool) -> None:
        self._colour = colour

    def __call__(self, code: str, text: str) -> str:
        return f"{code}{text}{PLAIN}" if self._colour and code and text else text
