"""The start offsets of leader epochs. pure

Source: Kafka's `LeaderEpochFileCache`.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from operator import itemgetter
from typing import Final

from ottla.protocol.values import UNDEFINED_EPOCH, UNDEFINED_EPOCH_OFFSET

_EPOCH: Final = itemgetter(0)
_START: Final = itemgetter(1)


class LeaderEpochCache:
    """The leader epochs of one log with their start offsets; both ascend strictly.

    `changed`: the entries differ from those that were loaded or saved last.
    """

    __slots__ = ("_entries", "_saved", "changed", "latest_epoch")

    def __init__(self, entries: Iterable[tuple[int, int]] = ()) -> None:
        self._entries: list[tuple[int, int]] = []
        self._saved: list[tuple[int, int]] = []
        self.latest_epoch = UNDEFINED_EPOCH
        for epoch, start in entries:
            self.assign(epoch, start)
        self.mark_clean()

    @property
    def entries(self) -> list[tuple[int, int]]:
        """(epoch, start offset) of each epoch, oldest first."""
        return list(self._entries)

    def mark_clean(self) -> None:
        """Record that the file has the current entries."""
        self._saved = self.entries
        self.changed = False

    def assign(self, epoch: int, start_offset: int) -> None:
        """Add an epoch whose first batch is at `start_offset`; remove entries with a higher epoch or start offset."""
        if epoch < 0:
            return
        entries = self._entries
        if entries and (entries[-1][0] == epoch and entries[-1][1] <= start_offset):
            return
        while entries and (entries[-1][0] >= epoch or entries[-1][1] >= start_offset):
            entries.pop()
        entries.append((epoch, start_offset))
        self._mark()

    def truncate_from_end(self, end_offset: int) -> None:
        """Remove epochs that start at or after `end_offset`, the new end of the log."""
        keep = bisect_left(self._entries, end_offset, key=_START)
        if keep < len(self._entries):
            del self._entries[keep:]
            self._mark()

    def truncate_from_start(self, start_offset: int) -> None:
        """Remove epochs that end below `start_offset`; the epoch of this offset starts there now."""
        count = bisect_right(self._entries, start_offset, key=_START)
        if count and self._entries[count - 1][1] != start_offset:
            self._entries[:count] = [(self._entries[count - 1][0], start_offset)]
            self._mark()
        elif count > 1:
            del self._entries[: count - 1]
            self._mark()

    def epoch_for_offset(self, offset: int) -> int:
        """Return the epoch of the batch at `offset`, -1 if unknown."""
        at = bisect_right(self._entries, offset, key=_START)
        return self._entries[at - 1][0] if at else UNDEFINED_EPOCH

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """Return (largest known epoch <= `epoch`, its end offset); (-1, -1) where Kafka answers "undefined"."""
        entries = self._entries
        if epoch == UNDEFINED_EPOCH or not entries or epoch > entries[-1][0]:
            return UNDEFINED_EPOCH, UNDEFINED_EPOCH_OFFSET
        if epoch == entries[-1][0]:
            return epoch, log_end_offset
        above = bisect_right(entries, epoch, key=_EPOCH)
        return (entries[above - 1][0] if above else epoch), entries[above][1]

    def _mark(self) -> None:
        self.latest_epoch = self._entries[-1][0] if self._entries else UNDEFINED_EPOCH
        # The epoch of an empty log is removed and added again at every start; the file need not be written for that.
        self.changed = self._entries != self._saved
