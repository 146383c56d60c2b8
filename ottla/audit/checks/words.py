"""How findings word times, counts and producers. pure"""

from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def at_time(timestamp_ms: int) -> str:
    """`at 2026-11-21 09:39:02.123 UTC`; for a time that no calendar has, the number."""
    try:
        moment = _EPOCH + timedelta(milliseconds=timestamp_ms)
    except OverflowError:
        return f"at {timestamp_ms} ms"
    return f"at {moment:%Y-%m-%d %H:%M:%S}.{timestamp_ms % 1000:03d} UTC"


def who(transactional_id: str | None, producer_id: int, epoch: int) -> str:
    """`order-1 (producer 13, epoch 2)`, or without the id that is not known."""
    known = f"producer {producer_id}, epoch {epoch}"
    return known if transactional_id is None else f"{transactional_id} ({known})"


def count(many: int, word: str, plural: str | None = None) -> str:
    """`1 batch`, `1,200 batches`."""
    return f"{many:,} {word if many == 1 else plural or word + 's'}"


def span(word: str, first: int, last: int) -> str:
    """`offset 5`, `offsets 5 to 1,200`."""
    return f"{word} {first:,}" if first == last else f"{word}s {first:,} to {last:,}"


def duration(milliseconds: int | None) -> str:
    """Two units at most: `59 s`, `3 min 12 s`, `2 h 5 min`, `3 d 4 h`."""
    if milliseconds is None:
        return "unknown"
    if milliseconds < 0:
        return "in the future"
    seconds = milliseconds // 1000
    for large, small, size, step in (("d", "h", 86_400, 3_600), ("h", "min", 3_600, 60), ("min", "s", 60, 1)):
        if seconds >= size:
            rest = seconds % size // step
            return f"{seconds // size} {large}" + (f" {rest} {small}" if rest else "")
    return f"{seconds} s"
