"""Records and next offset that a simulated consumer reads from a Fetch answer. pure"""

from collections.abc import Iterable
from typing import NamedTuple

from ottla.testkit.reading import readable


class Visible(NamedTuple):
    """The records that the application gets, [(offset, value)], and the offset of the next Fetch."""

    records: list[tuple[int, str]]
    next_offset: int


def visible(content: bytes, aborted: Iterable[tuple[int, int]] | None, from_offset: int) -> Visible:
    """Return the visible records. `aborted`: [(producer id, first offset)], or None for read_uncommitted."""
    records, following = readable("", 0, content, aborted, from_offset)
    return Visible([(record.offset, (record.value or b"").decode()) for record in records], following)
