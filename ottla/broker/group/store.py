"""The groups of this broker: which there are, their offsets, and what their logs say. pure

`apply` is the only way in for what is durable, live and in replay alike. A group exists from the first record that
names it, a commit in a transaction that was aborted included, to its tombstone.
"""

from collections import deque
from typing import Final

from ottla.broker.group.log import Replayed
from ottla.broker.group.machine import Group
from ottla.broker.group.offsets import GroupOffsets, OffsetTransaction
from ottla.broker.group.replies import JoinReply, SyncReply
from ottla.broker.ports.clock import Timer
from ottla.broker.turns import Wait
from ottla.protocol.state_records import GroupKey, GroupValue, OffsetKey, OffsetValue

SETTLED_AT_ONCE: Final = 200
"""Offsets of an ended transaction that are settled in one step."""


class Entry:
    """One group with its offsets, the handlers that wait in it, and the timer for its next deadline.

    `ending`: it is being deleted, and nobody may use it until its tombstone is logged.
    """

    __slots__ = ("ending", "group", "index", "joins", "offsets", "syncs", "timer", "wake_at_ms")

    def __init__(self, group: Group, index: int) -> None:
        self.group = group
        self.index = index
        self.offsets = GroupOffsets()
        self.ending = False
        self.joins: dict[str, Wait[JoinReply]] = {}
        self.syncs: dict[str, Wait[SyncReply]] = {}
        self.timer: Timer | None = None
        self.wake_at_ms = 0.0

    def cancel_timer(self) -> None:
        """No deadline is watched any more."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None


class GroupStore:
    """Every group, by id."""

    def __init__(self, initial_delay_ms: int) -> None:
        self.entries: dict[str, Entry] = {}
        self._initial_delay_ms = initial_delay_ms
        self._open: dict[tuple[int, int], OffsetTransaction] = {}
        self._ended: deque[OffsetTransaction] = deque()

    def obtain(self, group_id: str, index: int, wall_ms: int) -> Entry:
        """The group, created Empty when there is none."""
        entry = self.entries.get(group_id)
        if entry is None:
            entry = self.entries[group_id] = Entry(self._new_group(group_id, wall_ms), index)
        return entry

    def apply(self, index: int, said: Replayed, wall_ms: int) -> None:
        """Apply one record or marker of offsets partition `index`."""
        key, value = said.key, said.value
        if key is None:
            self.end_transaction(index, said.producer_id, said.committed)
        elif isinstance(key, GroupKey):
            if isinstance(value, GroupValue):
                self.obtain(key.group, index, wall_ms).group.restore(value)
            else:
                self._remove_group(key.group, wall_ms)
        elif isinstance(value, OffsetValue):
            self._apply_offset(index, said, key, value, wall_ms)
        else:
            self._remove_offset(key)

    def end_transaction(self, index: int, producer_id: int, commit: bool) -> int:
        """A marker of `producer_id` in offsets partition `index`: its pending offsets count now, or never.

        How many were settled; those of a large transaction are left to `settle`.
        """
        transaction = self._open.pop((index, producer_id), None)
        if transaction is None:
            return 0
        transaction.committed = commit
        places = transaction.places
        if len(places) > SETTLED_AT_ONCE:
            self._ended.append(transaction)
            return 0
        for offsets, key in places:
            offsets.settle(key, transaction)
        return len(places)

    @property
    def is_settled(self) -> bool:
        """Whether `settle` has nothing to do."""
        return not self._ended

    def settle(self) -> int:
        """Settle some offsets of a large transaction that has ended; how many there were."""
        if not self._ended:
            return 0
        transaction = self._ended[0]
        count = transaction.settle(SETTLED_AT_ONCE)
        if not transaction.places:
            self._ended.popleft()
        return count

    def _apply_offset(self, index: int, said: Replayed, key: OffsetKey, value: OffsetValue, wall_ms: int) -> None:
        offsets = self.obtain(key.group, index, wall_ms).offsets
        place = (key.topic, key.partition)
        if said.producer_id < 0:
            offsets.commit(place, value, said.record_offset)
            return
        transaction = self._open.get((index, said.producer_id))
        if transaction is None:
            transaction = self._open[index, said.producer_id] = OffsetTransaction(said.producer_id)
        offsets.commit_pending(transaction, place, value, said.record_offset)

    def _remove_offset(self, key: OffsetKey) -> None:
        entry = self.entries.get(key.group)
        if entry is not None:
            entry.offsets.remove((key.topic, key.partition))

    def _remove_group(self, group_id: str, wall_ms: int) -> None:
        """A group's tombstone: what it leaves behind are offsets that nobody removed."""
        entry = self.entries.get(group_id)
        if entry is not None:
            entry.group = self._new_group(group_id, wall_ms)
            if entry.offsets.is_empty:
                self._forget(entry)

    def _forget(self, entry: Entry) -> None:
        """Drop a group that no log knows any more."""
        entry.cancel_timer()
        self.entries.pop(entry.group.group_id, None)

    def _new_group(self, group_id: str, wall_ms: int) -> Group:
        return Group(group_id, self._initial_delay_ms, wall_ms)
