"""Durations as text: `7d`, `1h30m`, `250ms`. pure"""

import re
from typing import Final

_UNITS_MS: Final = {"ms": 1.0, "s": 1_000.0, "m": 60_000.0, "h": 3_600_000.0, "d": 86_400_000.0, "w": 604_800_000.0}
_PART: Final = re.compile(r"(\d{1,15}(?:\.\d{1,6})?)(ms|s|m|h|d|w)")


def parse_duration(text: str) -> float:
    """Parse a duration and return milliseconds. Raises ValueError for any other text."""
    parts = _PART.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise ValueError("must be a number and a unit of ms, s, m, h, d or w, such as 7d or 1h30m")
    return sum(float(number) * _UNITS_MS[unit] for number, unit in parts)
