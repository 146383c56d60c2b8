"""Durations and times in UTC as text. pure"""

from datetime import UTC, datetime, timedelta
from typing import Final

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def at_time(timestamp_ms: int) -> str:
    """Return a text like `at 2026-11-21 09:39:02.123 UTC`; the number for a time outside the calendar."""
    moment = _moment(timestamp_ms)
    if moment is None:
        return f"at {timestamp_ms} ms"
    return f"at {moment:%Y-%m-%d %H:%M:%S}.{timestamp_ms % 1000:03d} UTC"


def utc(timestamp_ms: float) -> str:
    """Return a text like `2026-11-21 09:39:02 UTC`; the number for a time outside the calendar."""
    moment = _moment(timestamp_ms)
    return f"{timestamp_ms} ms" if moment is None else f"{moment:%Y-%m-%d %H:%M:%S} UTC"


def _moment(timestamp_ms: float) -> datetime | None:
    try:
        return _EPOCH + timedelta(milliseconds=timestamp_ms)
    except OverflowError:
        return None


def duration(milliseconds: float | None) -> str:
    """Return a text of at most two units: `250 ms`, `1.5 s`, `59 s`, `3 min 12 s`, `2 h 5 min`, `3 d 4 h`."""
    if milliseconds is None:
        return "unknown"
    if milliseconds < 0:
        return "in the future"
    if milliseconds < 1_000:
        return f"{milliseconds:.3g} ms"
    if milliseconds < 10_000:
        return f"{milliseconds / 1000:.3g} s"
    seconds = int(milliseconds // 1000)
    for large, small, size, step in (("d", "h", 86_400, 3_600), ("h", "min", 3_600, 60), ("min", "s", 60, 1)):
        if seconds >= size:
            rest = seconds % size // step
            return f"{seconds // size} {large}" + (f" {rest} {small}" if rest else "")
    return f"{seconds} s"


def difference(milliseconds: float) -> str:
    """Return a duration with its sign: `-3 min 12 s` for a time that has passed."""
    return f"-{duration(-milliseconds)}" if milliseconds < 0 else duration(milliseconds)
