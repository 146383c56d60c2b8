"""The aborted transactions of one segment, and a search for those in a range of offsets. pure

While a transaction is open, any number of later ones may be aborted, and until it ends all their entries show that an
older one is open. A reader of its first record would have to examine all these entries. So the smallest first offset of
every block of entries is kept, and a block that begins after the range is skipped.

Source: Kafka's `TransactionIndex`, `TxnIndexSearchResult` (4.3.1).
"""

from bisect import bisect_left
from operator import attrgetter
from typing import Final

from ottla.broker.costs import LOOKUP_US
from ottla.protocol.indexes import TXN_ENTRY, AbortedTxn, iter_aborted_txns
from ottla.protocol.steps import RECORD_US, Steps

BLOCK: Final = 128
STEP_US: Final = 100.0
"""Cost of the blocks that one step examines."""

_LAST_OFFSET: Final = attrgetter("last_offset")
_LAST_STABLE_OFFSET: Final = attrgetter("last_stable_offset")


class TransactionIndex:
    """Aborted transactions in the order of their markers. Callers append to `entries` directly."""

    __slots__ = ("_lowest", "entries")

    def __init__(self, entries: list[AbortedTxn] | None = None) -> None:
        self.entries = entries or []
        self._lowest: list[int] = []

    def collect_aborted_txns(self, offset: int, upper: int) -> Steps[tuple[list[tuple[int, int]], bool]]:
        """Return (producer id, first offset) of transactions with records from `offset` to below `upper`, maybe more.

        Entries that are added between the steps are above the last stable offset, so the range does not contain them.

        The second value is True if the list is complete, because no transaction below `upper` was open when the last
        one ended. Else transactions with markers in later segments may have records in the range too
        (`LocalLog.collectAbortedTransactions`).
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
            block_end = min(end, at - within + BLOCK)
            cost_us += LOOKUP_US
            if block >= len(lowest) or lowest[block] < upper:
                found += [(entry[0], entry[1]) for entry in entries[at:block_end] if entry[1] < upper]
                cost_us += (block_end - at) * LOOKUP_US
            if cost_us >= STEP_US:
                yield cost_us
                cost_us = 0.0
            at = at - within + BLOCK
        return found, complete

    def _remember_lowest(self, end: int) -> Steps[None]:
        """Compute the smallest first offset of each full block that begins before entry `end`."""
        entries, lowest = self.entries, self._lowest
        while (at := len(lowest) * BLOCK) < end and at + BLOCK <= len(entries):
            lowest.append(min(entry[1] for entry in entries[at : at + BLOCK]))
            yield BLOCK * LOOKUP_US


def read_transaction_index(content: bytes) -> Steps[TransactionIndex]:
    """Read the content of a `.txnindex`. Raises ProtocolError as `iter_aborted_txns` does."""
    entries: list[AbortedTxn] = []
    size_bytes = BLOCK * TXN_ENTRY.size
    for start in range(0, len(content), size_bytes):
        part = content[start : start + size_bytes]
        entries += iter_aborted_txns(part, entries[-1].last_offset if entries else -1)
        if len(part) == size_bytes:
            yield BLOCK * RECORD_US
    return TransactionIndex(entries)
