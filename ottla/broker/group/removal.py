"""How groups and committed offsets end: on request (DeleteGroups, OffsetDelete), or with time. shell

Each end is a tombstone in `__consumer_offsets`: of every committed offset, and of every one that is pending in a
transaction and nothing else, and at last of the group. A group without members and offsets goes at the next look,
whatever its age; offsets that an open transaction covers stay, and so does their group.

Source: `OffsetMetadataManager.cleanupExpiredOffsets`, `deleteOffsets`, `deleteAllOffsets`, `ClassicGroup` of Kafka
4.3.1; KIP-211, KIP-496.
"""

import logging
from collections.abc import Iterable, Sequence
from typing import Final

from ottla.broker.group.directory import GroupDirectory
from ottla.broker.group.log import Replayed, client_error, offsets_batch
from ottla.broker.group.machine import Group
from ottla.broker.group.offsets import GroupOffsets, Key
from ottla.broker.group.states import GroupState
from ottla.broker.group.store import Entry
from ottla.broker.ports.clock import Clock
from ottla.broker.turns import Turns
from ottla.protocol.errors import ErrorCode
from ottla.protocol.state_records import OffsetKey

log = logging.getLogger("ottla.group")

SLICE_MS: Final = 5.0
TOMBSTONES_PER_BATCH: Final = 1_000
BATCH_BYTES: Final = 500_000
"""About the size of a batch of tombstones, below the least that the topic may be set to in earnest."""

UNKNOWN_MS: Final = -1


class Removal:
    """What removes groups and offsets of one broker. `retention_ms` is that of offsets without a time of their own."""

    def __init__(self, directory: GroupDirectory, turns: Turns, clock: Clock, retention_ms: int) -> None:
        self._directory = directory
        self._turns = turns
        self._clock = clock
        self._retention_ms = retention_ms

    def delete_group(self, group_id: str) -> ErrorCode:
        """DeleteGroups: the group must have no members; NONE when it is gone."""
        entry, error = self._directory.find(group_id)
        if error:
            return error
        if entry is None:
            return ErrorCode.GROUP_ID_NOT_FOUND
        if entry.group.state is not GroupState.EMPTY:
            return ErrorCode.NON_EMPTY_GROUP
        return self.remove_offsets(entry, entry.offsets.places()) or self._directory.remove_group(entry)

    def delete_offsets(
        self, group_id: str, topics: Sequence[tuple[str, Sequence[int]]]
    ) -> tuple[ErrorCode, list[list[ErrorCode]]]:
        """OffsetDelete of [(topic, [partition])]: the error of the request, and those of each topic's partitions.

        Of a group with members only consumers' offsets go, of topics to which none of them has subscribed.
        """
        if not group_id:
            return ErrorCode.INVALID_GROUP_ID, []
        entry, error = self._directory.find(group_id)
        if error:
            return error, []
        if entry is None:
            return ErrorCode.GROUP_ID_NOT_FOUND, []
        group = entry.group
        if group.state is not GroupState.EMPTY and not group.is_of_consumers:
            return ErrorCode.NON_EMPTY_GROUP, []
        asked = [(topic, index) for topic, indexes in topics if not group.is_subscribed(topic) for index in indexes]
        error = self.remove_offsets(entry, [key for key in dict.fromkeys(asked) if key in entry.offsets])
        if error:
            return error, []
        return ErrorCode.NONE, [
            [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if group.is_subscribed(topic) else ErrorCode.NONE] * len(indexes)
            for topic, indexes in topics
        ]

    def remove_offsets(self, entry: Entry, keys: Iterable[Key]) -> ErrorCode:
        """Log tombstones of some offsets of a group, and apply them."""
        group_id = entry.group.group_id
        return self._bury(entry.index, [OffsetKey(group_id, *key) for key in keys])

    def _bury(self, index: int, keys: Sequence[OffsetKey]) -> ErrorCode:
        """Tombstones in one partition, in batches; the first error ends it."""
        partition = self._directory.partition(index)
        # A topic's name has at most 249 bytes, the rest of a record some 30.
        longest = max((len(key.group) for key in keys), default=0)
        per_batch = max(1, min(TOMBSTONES_PER_BATCH, BATCH_BYTES // (4 * longest + 300)))
        for start in range(0, len(keys), per_batch):
            some = keys[start : start + per_batch]
            result = partition.append_own(offsets_batch([(key, None) for key in some], self._clock.now_ms(), None))
            if result.error:
                return client_error(result.error)
            now_ms = self._clock.monotonic_ms()
            for delta, key in enumerate(some):
                self._directory.store.apply(index, Replayed(-1, result.base_offset + delta, key, None), now_ms)
        return ErrorCode.NONE

    def forget_topic(self, topic: str) -> None:
        """A topic was deleted: the end of its offsets in every group, pending ones too."""
        keys: dict[int, list[OffsetKey]] = {}
        for group_id, entry in self._directory.store.entries.items():
            if entry.index not in self._directory.loading:
                of_topic = [key for key in entry.offsets.places() if key[0] == topic]
                keys.setdefault(entry.index, []).extend(OffsetKey(group_id, *key) for key in of_topic)
        for index, removed in keys.items():
            error = self._bury(index, removed)
            if error:
                log.error("Offsets of the deleted topic %s stay in partition %d: %s", topic, index, error.name)

    async def expire(self) -> None:
        """Look at every group once, a few ms of them per turn; it ends early while groups are being loaded."""
        until_ms = self._clock.monotonic_ms() + SLICE_MS
        if self._directory.loading:
            return
        for entry in [*self._directory.store.entries.values()]:
            places = [*entry.offsets.committed]
            for start in range(0, len(places), TOMBSTONES_PER_BATCH):
                self._expire_offsets(entry, places[start : start + TOMBSTONES_PER_BATCH])
                if self._clock.monotonic_ms() > until_ms:
                    await self._turns.pause()
                    until_ms = self._clock.monotonic_ms() + SLICE_MS
            if self._is_there(entry) and entry.group.state is GroupState.EMPTY and entry.offsets.is_empty:
                self._directory.remove_group(entry)
            if self._clock.monotonic_ms() > until_ms:
                await self._turns.pause()
                until_ms = self._clock.monotonic_ms() + SLICE_MS

    def _expire_offsets(self, entry: Entry, places: Iterable[Key]) -> None:
        if not self._is_there(entry) or not _may_expire(entry.group):
            return
        now_ms = self._clock.now_ms()
        offsets = entry.offsets
        expired = [place for place in places if self._is_expired(entry.group, offsets, place, now_ms)]
        if expired:
            self.remove_offsets(entry, expired)

    def _is_expired(self, group: Group, offsets: GroupOffsets, place: Key, now_ms: int) -> bool:
        committed = offsets.committed.get(place)
        if committed is None or offsets.is_unstable(place) or group.is_subscribed(place[0]):
            return False
        value = committed.value
        if value.expire_ms != UNKNOWN_MS:
            return now_ms >= value.expire_ms
        since_ms = value.commit_ms
        if group.protocol_type is not None and group.state is GroupState.EMPTY and group.state_timestamp_ms >= 0:
            since_ms = group.state_timestamp_ms
        return now_ms - since_ms >= self._retention_ms

    def _is_there(self, entry: Entry) -> bool:
        return self._directory.store.entries.get(entry.group.group_id) is entry


def _may_expire(group: Group) -> bool:
    """Nobody's and no member's offsets, or those that consumers of whom we can tell do not read any more."""
    if group.protocol_type is None or group.state is GroupState.EMPTY:
        return True
    return group.state is GroupState.STABLE and group.is_of_consumers and group.subscribed is not None
