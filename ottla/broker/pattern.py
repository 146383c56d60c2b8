"""Regular expressions of clients: RE2's syntax as RE2/J reads it, matched in time that is linear in the text. pure

Python's `re` backtracks: a pattern such as `(a+)+b` would block the broker. RE2 does not backtrack. The length of an
expression and the memory of its program limit its cost.

    pattern = compile_pattern("orders-[0-9]+")    PatternError has the fault
    pattern.matches("orders-12")                  the whole text must match, as in `Matcher.matches` of RE2/J
    pattern.cost_us("orders-12")                  the maximum cost of this match

RE2 has no wheel for every platform. Where it is not installed, `AVAILABLE` is False and the broker does not serve the
requests that need it. Source: RE2/J, with the flags that Kafka's `ListTransactions` uses (KIP-1152).
"""

import re
from importlib.util import find_spec
from typing import Any, Final

from ottla.broker.costs import PATTERN_STEP_US, ROW_US

AVAILABLE: Final = find_spec("re2") is not None

MAX_BYTES: Final = 1024
MAX_UNICODE_CLASSES: Final = 64
MAX_MEMORY_BYTES: Final = 256 * 1024
MAX_MATCH_US: Final = 10_000.0

# Syntax that RE2 reads differently than RE2/J. It is outside of quotes and, except for escapes, of classes.
_READ_OTHERWISE: Final = re.compile(
    r"""(?P<quoted>\\Q.*?(?:\\E|\Z)) | (?P<escape>\\.) | \(\?P?<(?![=!])(?P<name>[^>]*)>
    | (?P<brace>\{(?!\d+(?:,\d*)?\})(?=[*+?]|\{\d+(?:,\d*)?\}))
    | (?P<class>\[\^?\]?(?:\[:\^?\w+:\]|\\.|[^\]\\])*+\])""",
    re.DOTALL | re.VERBOSE,
)
_ESCAPE: Final = re.compile(r"\\(.)", re.DOTALL)
_NAME: Final = re.compile(r"[A-Za-z0-9_]+")


class PatternError(ValueError):
    """The text is no regular expression, or one that costs too much. The message has the reason."""


class Pattern:
    """A compiled expression."""

    __slots__ = ("_program", "_step_us")

    def __init__(self, program: Any) -> None:
        self._program = program
        self._step_us: float = PATTERN_STEP_US * program.programsize

    def cost_us(self, text: str) -> float:
        """Return the maximum cost of `matches`, in microseconds of CPU."""
        return ROW_US + self._step_us * len(text)

    def matches(self, text: str) -> bool:
        """Return whether all of `text` matches. Raises PatternError if the text is too long for an expression of
        this size."""
        encoded = text.encode()
        if self._step_us * len(encoded) > MAX_MATCH_US:
            raise PatternError("the expression is too large to be matched against the existing ids")
        return self._program.fullmatch(encoded) is not None


def compile_pattern(text: str) -> Pattern:
    """Compile the expression `text`. Raises PatternError if it is invalid."""
    import re2  # a start does not need it

    if len(text.encode()) > MAX_BYTES or text.count(r"\p") + text.count(r"\P") > MAX_UNICODE_CLASSES:
        raise PatternError(f"it has more than {MAX_BYTES} bytes or {MAX_UNICODE_CLASSES} Unicode classes")
    readable = _as_re2(text).encode()
    options = re2.Options()
    options.log_errors = False
    options.max_mem = MAX_MEMORY_BYTES
    # Finding the groups after a match would be slower.
    options.never_capture = True
    try:
        return Pattern(re2.compile(readable, options))
    except re2.error as error:
        raise PatternError(str(error)) from None
    finally:
        re2.purge()  # otherwise the library keeps the last 128


def _as_re2(text: str) -> str:
    """Translate RE2/J's syntax to RE2's.

    Any letter except ASCII's can be escaped. No byte matches alone, no two groups have the same name, and a brace that
    is not a repeat count cannot be repeated.
    """
    names = set()

    def rewrite(found: re.Match[str]) -> str:
        piece, name = found[0], found["name"]
        if name is not None:
            if not _NAME.fullmatch(name) or name in names:
                raise PatternError(f"bad group name {name!r}")
            names.add(name)
            return "("
        if found["quoted"]:
            return piece
        if found["brace"] or piece == r"\C":
            raise PatternError(f"{piece} is not allowed here")
        return _ESCAPE.sub(lambda escape: escape[0] if escape[1].isascii() else escape[1], piece)

    return _READ_OTHERWISE.sub(rewrite, text)
