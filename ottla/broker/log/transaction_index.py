"""The aborted transactions of one segment, and which of them touch a range of offsets. pure

While one transaction stays open, any number of others may be aborted behind it, and until it ends none of their entries
says that nothing older is open. A reader of its first record would have to look at all of them; so the smallest first
offset of every block of entries is remembered, and a block that begins behind what is read is passed at once.

Source: Kafka's `TransactionIndex`, `TxnIndexSearchResult` (4.3.1).
"""

from bisect import bisect_left
from operator import attrgetter
from typing import Final

from ottla.broker.costs import LOOK_US
from ottla.protocol.indexes import TXN_ENTRY, AbortedTxn, iter_aborted_txns
from ottla.protocol.steps import RECORD_US, Steps

BLOCK: Final = 128
STEP_US: Final = 100.0
"""Blocks are passed in one step until they come to this."""

_LAST_OFFSET = attrgetter("last_offset")
_LAST_STABLE_OFFSET = attrgetter("last_stable_offset")


class TransactionIndex:
    """`entries` stand in the order of their markers; whoever adds one appends it there."""

    __slots__ = ("_lowest", "entries")

    def __init__(self, entries: list[AbortedTxn] | None = None) -> None:
        self.entries = entries or []
        self._lowest: list[int] = []

    def collect_aborted_txns(self, offset: int, upper: int) -> Steps[tuple[list[tuple[int, int]], bool]]:
        """(producer id, first offset) of those with records from `offset` to below `upper`, maybe of some more.

        Whatever is added between two steps lies behind what can be read below the last stable offset.

        The second value says whether that is all, because nothing below `upper` was open when the last of them ended;
        else those whose markers are in later segments may touch the range too (`LocalLog.collectAbortedTransactions`).
        """
        entries = self.entries
        if not entries or entries[-1].last_offset < offset:
            return [], False
        at = bisect_left(entries, offset, key=_LAST_OFFSET)
        end = bisect_left(entries, upper, lo=at, key=_LAST_STABLE_OFFSET) + 1
        complete = end <= len(entries)
        yield from self._remember_lowest(end)
        lowest = self._lowest
        found: list[tuple[int, int]] = []
        cost_us = 0.0
        while at < end:
            block, within = divmod(at, BLOCK)
            behind = min(end, at - within + BLOCK)
            cost_us += LOOK_US
            if block >= len(lowest) or lowest[block] < upper:
                found += [(entry[0], entry[1]) for entry in entries[at:behind] if entry[1] < upper]
                cost_us += (behind - at) * LOOK_US
            if cost_us >= STEP_US:
                yield cost_us
                cost_us = 0.0
            at = at - within + BLOCK
        return found, complete

    def _remember_lowest(self, end: int) -> Steps[None]:
        """The smallest first offset of each full block that begins before entry `end`."""
        entries, lowest = self.entries, self._lowest
        while (at := len(lowest) * BLOCK) < end and at + BLOCK <= len(entries):
            lowest.append(min(entry[1] for entry in entries[at : at + BLOCK]))
            yield BLOCK * LOOK_US


def read_transaction_index(content: bytes) -> Steps[TransactionIndex]:
    """Those of a `.txnindex`. Raises ProtocolError as `iter_aborted_txns` does."""
    entries: list[AbortedTxn] = []
    size_bytes = BLOCK * TXN_ENTRY.size
    for start in range(0, len(content), size_bytes):
        part = content[start : start + size_bytes]
        entries += iter_aborted_txns(part, entries[-1].last_offset if entries else -1)
        if len(part) == size_bytes:
            yield BLOCK * RECORD_US
    return TransactionIndex(entries)
