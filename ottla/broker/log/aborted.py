"""The aborted transactions of one segment, and which of them touch a range of offsets. pure

While one transaction stays open, any number of others may be aborted behind it, and until it ends none of their entries
says that nothing older is open. A reader of its first record would have to look at all of them; so the smallest first
offset of every block of entries is remembered, and a block that begins behind what is read is passed at once.
"""

from bisect import bisect_left
from operator import attrgetter
from typing import Final

from ottla.protocol.indexes import AbortedTxn

BLOCK: Final = 128

_LAST_OFFSET = attrgetter("last_offset")
_LAST_STABLE_OFFSET = attrgetter("last_stable_offset")


class AbortedTransactions:
    """`entries` stand in the order of their markers; whoever adds one appends it there."""

    __slots__ = ("_lowest", "entries")

    def __init__(self, entries: list[AbortedTxn] | None = None) -> None:
        self.entries = entries or []
        self._lowest: list[int] = []

    def touching(self, offset: int, upper: int) -> tuple[list[tuple[int, int]], bool]:
        """(producer id, first offset) of those with records from `offset` to below `upper`, maybe of some more.

        The second value says whether that is all, because nothing below `upper` was open when the last of them ended;
        else those whose markers are in later segments may touch the range too (`LocalLog.collectAbortedTransactions`).
        """
        entries = self.entries
        if not entries or entries[-1].last_offset < offset:
            return [], False
        at = bisect_left(entries, offset, key=_LAST_OFFSET)
        end = bisect_left(entries, upper, lo=at, key=_LAST_STABLE_OFFSET) + 1
        complete = end <= len(entries)
        lowest = self._lowest_of_blocks()
        found: list[tuple[int, int]] = []
        while at < end:
            block, within = divmod(at, BLOCK)
            behind = min(end, at - within + BLOCK)
            if block >= len(lowest) or lowest[block] < upper:
                found += [(entry[0], entry[1]) for entry in entries[at:behind] if entry[1] < upper]
            at = at - within + BLOCK
        return found, complete

    def _lowest_of_blocks(self) -> list[int]:
        """The smallest first offset of each block that is full."""
        entries, lowest = self.entries, self._lowest
        for at in range(len(lowest) * BLOCK, len(entries) - BLOCK + 1, BLOCK):
            lowest.append(min(entry[1] for entry in entries[at : at + BLOCK]))
        return lowest
