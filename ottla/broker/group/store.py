"""The groups of this broker: which there are, their offsets, and what their logs say. pure

`apply` is the only way in for what is durable, live and in replay alike.
"""

from ottla.broker.group.log import Replayed
from ottla.broker.group.machine import Group, JoinReply, SyncReply
from ottla.broker.group.offsets import GroupOffsets
from ottla.broker.turns import Wait
from ottla.protocol.state_records import GroupKey, GroupValue, OffsetKey, OffsetValue


class Entry:
    """One group with its offsets, and the handlers that wait in it."""

    __slots__ = ("group", "index", "joins", "offsets", "syncs", "wake_at_ms")

    def __init__(self, group: Group, index: int) -> None:
        self.group = group
        self.index = index
        self.offsets = GroupOffsets()
        self.joins: dict[str, Wait[JoinReply]] = {}
        self.syncs: dict[str, Wait[SyncReply]] = {}
        self.wake_at_ms: float | None = None


class GroupStore:
    """Every group, by id. `new_group(group_id)` makes an empty one."""

    def __init__(self, initial_delay_ms: int, wall_offset_ms: float) -> None:
        self.entries: dict[str, Entry] = {}
        self._initial_delay_ms = initial_delay_ms
        self._wall_offset_ms = wall_offset_ms
        self._open: dict[tuple[int, int], set[str]] = {}

    def obtain(self, group_id: str, index: int, now_ms: float) -> Entry:
        """The group, created Empty when there is none."""
        entry = self.entries.get(group_id)
        if entry is None:
            entry = Entry(Group(group_id, self._initial_delay_ms, self._wall_offset_ms, now_ms), index)
            self.entries[group_id] = entry
        return entry

    def apply(self, index: int, said: Replayed, now_ms: float) -> None:
        """Apply one record or marker of offsets partition `index`."""
        key, value = said.key, said.value
        if key is None:
            self.end_transaction(index, said.producer_id, said.committed)
        elif isinstance(key, OffsetKey):
            self._apply_offset(index, said, key, value, now_ms)
        elif isinstance(key, GroupKey):
            if value is None:
                self.entries.pop(key.group, None)
            elif isinstance(value, GroupValue):
                self.obtain(key.group, index, now_ms).group.restore(value, now_ms)

    def end_transaction(self, index: int, producer_id: int, commit: bool) -> None:
        """A marker of `producer_id` in offsets partition `index`: its pending offsets count now, or never."""
        for group_id in self._open.pop((index, producer_id), ()):
            entry = self.entries.get(group_id)
            if entry is not None:
                entry.offsets.end_transaction(producer_id, commit)

    def _apply_offset(
        self, index: int, said: Replayed, key: OffsetKey, value: OffsetValue | GroupValue | None, now_ms: float
    ) -> None:
        place = (key.topic, key.partition)
        if value is None:
            entry = self.entries.get(key.group)
            if entry is not None:
                entry.offsets.remove(place)
            return
        assert isinstance(value, OffsetValue)
        offsets = self.obtain(key.group, index, now_ms).offsets
        if said.producer_id < 0:
            offsets.commit(place, value, said.record_offset)
        else:
            offsets.commit_pending(said.producer_id, place, value, said.record_offset)
            self._open.setdefault((index, said.producer_id), set()).add(key.group)
