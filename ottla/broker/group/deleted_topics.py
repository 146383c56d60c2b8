"""Remove committed offsets of deleted topics. shell

Committed and pending offsets get tombstones, in shares. A tombstone also removes the later pending offset of an open
transaction, as in Kafka. So an old offset stays while an open transaction has committed the same key for a new topic of
this name: with a tombstone the transaction would commit without its offset. The old offset is removed when that
transaction is aborted.

Source: `OffsetMetadataManager.onPartitionsDeleted` of Kafka 4.3.1.
"""

import logging
from collections.abc import Container, Mapping, Sequence
from typing import Final

from ottla.broker.costs import OFFSET_PLACE_US, ROW_US
from ottla.broker.group.metadata_manager import GroupMetadataManager
from ottla.broker.group.shard import GroupMetadata
from ottla.broker.group.tombstones import NAMES_AT_ONCE, Tombstones, chunks
from ottla.broker.ports.clock import Clock, Timer
from ottla.broker.turns import OneAtATime, Turns
from ottla.protocol.values import TopicPartition

log = logging.getLogger(__name__)

COVERED_MS: Final = 1_000.0
"""The time after which offsets that wait for open transactions are checked again."""


class DeletedTopics:
    """Removes from all groups the offsets committed for deleted topics."""

    def __init__(self, manager: GroupMetadataManager, turns: Turns, clock: Clock) -> None:
        self._manager = manager
        self._tombstones = Tombstones(manager, turns, clock)
        self._turns = turns
        self._clock = clock
        # Deleted topics, each with the end offsets of the `__consumer_offsets` partitions at that time. A commit after
        # them is for a new topic of the same name.
        self._deleted: dict[str, Mapping[int, int]] = {}
        # Offsets that wait for open transactions, by group, with those end offsets by topic.
        self._covered: list[tuple[GroupMetadata, list[TopicPartition], Mapping[str, int]]] = []
        self._walk = OneAtATime(turns, self._broke)
        self._again: Timer | None = None

    def stop(self) -> None:
        """Cancel the walk and its timer."""
        self._walk.discard()
        if self._again is not None:
            self._again.cancel()

    def forget_topic(self, topic: str) -> None:
        """Remove the offsets of a deleted topic from every group, pending ones too, in the background."""
        self._deleted[topic] = self._manager.ends()
        self._walk.start(self._forget_topics)

    async def _forget_topics(self) -> None:
        """Walk over all groups once for the topics deleted so far, and again for topics deleted during the walk."""
        covered, self._covered = self._covered, []
        for metadata, keys, ends in covered:
            await self._forget_keys(metadata, keys, ends)
        while self._deleted:
            deleted, self._deleted = self._deleted, {}
            refused: set[int] = set()
            for metadata in self._manager.groups():
                keys = await self._keys_of_topics(metadata, deleted)
                ends = {topic: of_logs.get(metadata.index, 0) for topic, of_logs in deleted.items()} if keys else {}
                if metadata.index not in refused and not await self._forget_keys(metadata, keys, ends):
                    refused.add(metadata.index)
                await self._turns.yield_if_due()
        if self._covered and self._again is None:
            self._again = self._clock.call_later(COVERED_MS, self._check_again)

    def _check_again(self) -> None:
        self._again = None
        self._walk.start(self._forget_topics)

    async def _keys_of_topics(self, metadata: GroupMetadata, topics: Container[str]) -> list[TopicPartition]:
        self._turns.charge(ROW_US)
        found: list[TopicPartition] = []
        for some in chunks(metadata.offsets.places(), NAMES_AT_ONCE):
            self._turns.charge(OFFSET_PLACE_US * len(some))
            found += [key for key in some if key[0] in topics]
            await self._turns.yield_if_due()
        return found

    async def _forget_keys(
        self, metadata: GroupMetadata, keys: Sequence[TopicPartition], ends: Mapping[str, int]
    ) -> bool:
        """Remove offsets of the keys that were committed before these ends of the log, by topic; False if the log
        refuses."""
        covered: list[TopicPartition] = []
        for some in self._tombstones.portions(metadata.group.group_id, keys):
            if not self._tombstones.is_there(metadata) or metadata.index in self._manager.loading:
                return True
            self._turns.charge(ROW_US * len(some))
            older = {key: metadata.offsets.is_older(key, ends[key[0]]) for key in some}
            covered += [key for key, is_older in older.items() if is_older is None]
            error = self._tombstones.bury(metadata, [key for key, is_older in older.items() if is_older])
            if error:
                log.error(
                    "Offsets of deleted topics were not removed from partition %d: %s", metadata.index, error.name
                )
                return False
            await self._turns.yield_if_due()
        if covered:
            self._covered.append((metadata, covered, ends))
        return True

    def _broke(self, error: Exception) -> None:
        log.error("Removing the offsets of deleted topics failed", exc_info=error)
