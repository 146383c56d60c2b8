"""How groups and committed offsets end: on request (DeleteGroups, OffsetDelete), or with time. shell

Each end is a tombstone in `__consumer_offsets`: of every committed offset, and of every one that is pending in a
transaction and nothing else, and at last of the group. A group without members and offsets goes at the next look,
whatever its age; offsets that an open transaction covers stay, and so does their group.

All of it goes in shares. What was found before a pause is looked at again behind it; a group that is being deleted is
nobody's until its tombstone is logged: whoever asks for it is told to look for the coordinator again. An offset of a
deleted topic that a transaction of its successor covers goes when that is aborted: a tombstone would take the pending
one along, as in Kafka, and the transaction would commit without it.

Source: `OffsetMetadataManager.cleanupExpiredOffsets`, `deleteOffsets`, `deleteAllOffsets`, `ClassicGroup` of Kafka
4.3.1; KIP-211, KIP-496.
"""

import logging
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final

from ottla.broker.costs import BATCH_US, ROW_US, STATE_BYTE_US, STATE_RECORD_US
from ottla.broker.group.classic_group import ClassicGroup
from ottla.broker.group.log import offsets_batch
from ottla.broker.group.metadata_manager import GroupMetadataManager
from ottla.broker.group.offsets import GroupOffsets
from ottla.broker.group.states import ClassicGroupState
from ottla.broker.group.store import GroupMetadata
from ottla.broker.ports.clock import Clock, Timer
from ottla.broker.turns import Activity, Handler, Turns, Wait
from ottla.protocol.errors import ErrorCode
from ottla.protocol.offsets_records import OffsetKey
from ottla.protocol.values import TopicPartition

log = logging.getLogger("ottla.group")

KEYS_AT_ONCE: Final = 100
BATCH_BYTES: Final = 500_000
"""About the most of a batch of tombstones, below the least that the topic may be set to in earnest."""
NAMES_AT_ONCE: Final = 500
PLACE_US: Final = 0.3
COVERED_MS: Final = 1_000.0
"""How long what waits for open transactions is left before it is looked at again."""

UNKNOWN_MS: Final = -1


class OffsetExpiration:
    """What removes groups and offsets of one broker. `retention_ms` is that of offsets without a time of their own."""

    def __init__(self, manager: GroupMetadataManager, turns: Turns, clock: Clock, retention_ms: int) -> None:
        self._manager = manager
        self._turns = turns
        self._clock = clock
        self._retention_ms = retention_ms
        self._deletions: set[Activity[ErrorCode]] = set()
        # Topics that are gone, each with the ends of the offsets partitions at that time; who commits behind them
        # means a new topic of the same name.
        self._gone: dict[str, Mapping[int, int]] = {}
        # Their offsets that wait for open transactions: of each group, with those ends by topic.
        self._covered: list[tuple[GroupMetadata, list[TopicPartition], Mapping[str, int]]] = []
        self._forgetting = False
        self._walk: Activity[None] | None = None
        self._again: Timer | None = None

    def stop(self) -> None:
        """End what is under way on its own account."""
        for activity in (self._walk, *self._deletions):
            if activity is not None:
                activity.discard()
        self._deletions.clear()
        if self._again is not None:
            self._again.cancel()

    async def delete_group(self, group_id: str) -> ErrorCode:
        """DeleteGroups: the group must have no members; NONE when it is gone.

        It goes on when the request is discarded: with half of its offsets a group would be read wrong.
        """
        metadata, error = self._manager.find(group_id)
        if error:
            return error
        if metadata is None:
            return ErrorCode.GROUP_ID_NOT_FOUND
        if metadata.group.state is not ClassicGroupState.EMPTY:
            return ErrorCode.NON_EMPTY_GROUP
        offsets = metadata.offsets
        if offsets.at_most <= _keys_at_once(group_id):
            error = self._bury(metadata, {key: None for key in offsets.places() if key in offsets})
            return error or self._manager.log_group(metadata.index, group_id, None)
        return await self._apart(group_id, self._delete_in_portions(metadata))

    async def _delete_in_portions(self, metadata: GroupMetadata) -> ErrorCode:
        group_id = metadata.group.group_id
        metadata.ending = True
        try:
            while True:
                await self._manager.settle()
                if not metadata.offsets.at_most:
                    break
                for some in self._portions(group_id, metadata.offsets.places()):
                    error = self._bury(metadata, [key for key in some if key in metadata.offsets])
                    if error:
                        return error
                    await self._turns.share()
            return self._manager.log_group(metadata.index, group_id, None)
        finally:  # it is gone, or it is not deleted after all
            metadata.ending = False

    async def _apart(self, group_id: str, work: Handler[ErrorCode]) -> ErrorCode:
        """Wait for work that does not end with whoever waits for it."""
        wait: Wait[tuple[ErrorCode, Exception | None]] = Wait(self._turns)
        activity: Activity[ErrorCode] | None = None

        def ended(error: ErrorCode, bug: Exception | None = None) -> None:
            if activity is not None:
                self._deletions.discard(activity)
            if bug is not None and wait.done:
                log.error("Group %.100s was not deleted to its end", group_id, exc_info=bug)
            wait.wake((error, bug))

        activity = self._turns.start(work, ended, lambda bug: ended(ErrorCode.UNKNOWN_SERVER_ERROR, bug))
        if activity is not None:
            self._deletions.add(activity)
        error, bug = await wait
        if bug is not None:
            raise bug
        return error

    async def delete_offsets(
        self, group_id: str, topics: Sequence[tuple[str, Sequence[int]]]
    ) -> tuple[ErrorCode, list[list[ErrorCode]]]:
        """OffsetDelete of [(topic, [partition])]: the error of the request, and those of each topic's partitions.

        Of a group with members only consumers' offsets go, of topics to which none of them has subscribed.
        """
        if not group_id:
            return ErrorCode.INVALID_GROUP_ID, []
        asked = [*dict.fromkeys((topic, index) for topic, indexes in topics for index in indexes)]
        subscribed: set[str] = set()
        for some in [*self._portions(group_id, asked)] or [()]:
            metadata, error = await self._ready_group(group_id)
            if metadata is None or error:
                return error or ErrorCode.GROUP_ID_NOT_FOUND, []
            group = metadata.group
            if group.state is not ClassicGroupState.EMPTY and not group.is_of_consumers:
                return ErrorCode.NON_EMPTY_GROUP, []
            subscribed.update(topic for topic, _index in some if group.is_subscribed(topic))
            error = self._bury(metadata, [key for key in some if key[0] not in subscribed and key in metadata.offsets])
            if error:
                return error, []
            await self._turns.share()
        return ErrorCode.NONE, [
            [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if topic in subscribed else ErrorCode.NONE] * len(indexes)
            for topic, indexes in topics
        ]

    def forget_topic(self, topic: str) -> None:
        """A topic was deleted: the end of its offsets in every group, pending ones too, by and by."""
        self._gone[topic] = self._manager.ends()
        self._forget()

    async def expire(self) -> None:
        """Look at every group once. A partition that breaks is left for the next look, the others go on."""
        broken: set[int] = set()
        for metadata in [*self._manager.store.groups.values()]:
            if metadata.index in broken:
                continue
            try:
                await self._expire_group(metadata)
            except Exception:
                log.exception("The look for expired offsets in partition %d failed; it is tried again", metadata.index)
                broken.add(metadata.index)
            await self._turns.share()

    # -- expiry ---------------------------------------------------------------------------------------------------

    async def _expire_group(self, metadata: GroupMetadata) -> None:
        self._turns.charge(ROW_US)
        for some in self._portions(metadata.group.group_id, metadata.offsets.places()):
            if not await self._may_expire(metadata):
                return
            now_ms = self._clock.now_ms()
            offsets, group = metadata.offsets, metadata.group
            if self._bury(metadata, [place for place in some if self._is_expired(group, offsets, place, now_ms)]):
                return
            await self._turns.share()
        await self._manager.settle()
        if self._is_there(metadata) and metadata.group.state is ClassicGroupState.EMPTY and metadata.offsets.is_empty:
            self._turns.charge(BATCH_US + STATE_RECORD_US)
            self._manager.log_group(metadata.index, metadata.group.group_id, None)

    async def _may_expire(self, metadata: GroupMetadata) -> bool:
        """Nobody's and no member's offsets, or those that consumers of whom we can tell do not read any more."""
        await self._read_subscriptions(metadata)
        group = metadata.group
        if not self._is_there(metadata):
            return False
        if group.protocol_type is None or group.state is ClassicGroupState.EMPTY:
            return True
        return group.state is ClassicGroupState.STABLE and group.is_of_consumers and group.subscribed is not None

    def _is_expired(self, group: ClassicGroup, offsets: GroupOffsets, place: TopicPartition, now_ms: int) -> bool:
        committed = offsets.get(place)
        if committed is None or offsets.is_unstable(place) or group.is_subscribed(place[0]):
            return False
        value = committed.value
        if value.expire_ms != UNKNOWN_MS:
            return now_ms >= value.expire_ms
        since_ms = value.commit_ms
        if group.protocol_type is not None and group.state is ClassicGroupState.EMPTY and group.state_timestamp_ms >= 0:
            since_ms = group.state_timestamp_ms
        return now_ms - since_ms >= self._retention_ms

    # -- topics that are gone -------------------------------------------------------------------------------------

    def _forget(self) -> None:
        if not self._forgetting:
            self._forgetting = True
            self._walk = self._turns.start(self._forget_topics(), self._forgot, self._forget_failed)

    async def _forget_topics(self) -> None:
        """One walk over the groups for all topics that are gone by now; those that go meanwhile get another."""
        covered, self._covered = self._covered, []
        for metadata, keys, ends in covered:
            await self._forget_keys(metadata, keys, ends)
        while self._gone:
            gone, self._gone = self._gone, {}
            refused: set[int] = set()
            for metadata in [*self._manager.store.groups.values()]:
                keys = await self._keys_of_topics(metadata, gone)
                ends = {topic: of_logs.get(metadata.index, 0) for topic, of_logs in gone.items()} if keys else {}
                if metadata.index not in refused and not await self._forget_keys(metadata, keys, ends):
                    refused.add(metadata.index)
                await self._turns.share()

    async def _keys_of_topics(self, metadata: GroupMetadata, topics: Container[str]) -> list[TopicPartition]:
        self._turns.charge(ROW_US)
        found: list[TopicPartition] = []
        for some in _chunks(metadata.offsets.places(), NAMES_AT_ONCE):
            self._turns.charge(PLACE_US * len(some))
            found += [key for key in some if key[0] in topics]
            await self._turns.share()
        return found

    async def _forget_keys(
        self, metadata: GroupMetadata, keys: Sequence[TopicPartition], ends: Mapping[str, int]
    ) -> bool:
        """Remove what was committed for the keys before these ends of the log, by topic; False when the log refuses."""
        covered: list[TopicPartition] = []
        for some in self._portions(metadata.group.group_id, keys):
            if not self._is_there(metadata) or metadata.index in self._manager.loading:
                return True
            self._turns.charge(ROW_US * len(some))
            older = {key: metadata.offsets.is_older(key, ends[key[0]]) for key in some}
            covered += [key for key, is_older in older.items() if is_older is None]
            error = self._bury(metadata, [key for key, is_older in older.items() if is_older])
            if error:
                log.error("Offsets of deleted topics stay in partition %d: %s", metadata.index, error.name)
                return False
            await self._turns.share()
        if covered:
            self._covered.append((metadata, covered, ends))
        return True

    def _forgot(self, _result: None) -> None:
        self._forgetting = False
        if self._covered and self._again is None:
            self._again = self._clock.call_later(COVERED_MS, self._look_again)

    def _look_again(self) -> None:
        self._again = None
        self._forget()

    def _forget_failed(self, error: Exception) -> None:
        self._forgetting = False
        log.error("Offsets of deleted topics stay", exc_info=error)

    # -- parts ----------------------------------------------------------------------------------------------------

    def _portions(self, group_id: str, keys: Iterable[TopicPartition]) -> Iterator[Sequence[TopicPartition]]:
        """The keys, as many at a time as go into one batch."""
        return _chunks(keys, _keys_at_once(group_id))

    def _bury(self, metadata: GroupMetadata, keys: Iterable[TopicPartition]) -> ErrorCode:
        """Log tombstones of some offsets of a group in one batch, and apply them."""
        rows = [(OffsetKey(metadata.group.group_id, *key), None) for key in keys]
        if not rows:
            self._turns.charge(ROW_US)
            return ErrorCode.NONE
        batch = offsets_batch(rows, self._clock.now_ms(), None)
        self._turns.charge(BATCH_US + len(rows) * STATE_RECORD_US + len(batch) * STATE_BYTE_US)
        return self._manager.write(self._manager.shards[metadata.index], batch, (-1, rows))

    async def _ready_group(self, group_id: str) -> tuple[GroupMetadata | None, ErrorCode]:
        """The group, with what its members read; read on if it changes in between."""
        metadata, error = self._manager.find(group_id)
        while metadata is not None and not error and not metadata.group.knows_subscriptions:
            await self._read_subscriptions(metadata)
            metadata, error = self._manager.find(group_id)
        return metadata, error

    async def _read_subscriptions(self, metadata: GroupMetadata) -> None:
        while not metadata.group.knows_subscriptions:
            metadata.group.read_subscriptions(NAMES_AT_ONCE)
            self._turns.charge(NAMES_AT_ONCE * PLACE_US)
            await self._turns.share()

    def _is_there(self, metadata: GroupMetadata) -> bool:
        """Whether the group was not removed meanwhile, and its partition can be asked."""
        return self._manager.find(metadata.group.group_id) == (metadata, ErrorCode.NONE)


def _keys_at_once(group_id: str) -> int:
    """How many tombstones of a group go into one batch."""
    # A topic's name has at most 249 bytes, the rest of a record some 30.
    return max(1, min(KEYS_AT_ONCE, BATCH_BYTES // (4 * len(group_id) + 300)))


def _chunks(keys: Iterable[TopicPartition], most: int) -> Iterator[Sequence[TopicPartition]]:
    """So many keys at a time, each of them once in a chunk."""
    rest = iter(keys)
    while some := [*islice(rest, most)]:
        yield [*dict.fromkeys(some)]
