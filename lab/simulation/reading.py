"""What a simulated consumer makes of a Fetch answer: offsets and texts, and where to go on. pure"""

from collections.abc import Iterable
from typing import NamedTuple

from ottla.testkit.reading import readable


class Visible(NamedTuple):
    """The records that the application gets, [(offset, value)], and where to go on."""

    records: list[tuple[int, str]]
    next_offset: int


def visible(content: bytes, aborted: Iterable[tuple[int, int]] | None, from_offset: int) -> Visible:
    """`aborted` is [(producer id, first offset)] for read_committed, None for read_uncommitted."""
    records, following = readable("", 0, content, aborted, from_offset)
    return Visible([(record.offset, (record.value or b"").decode()) for record in records], following)
