"""Expire groups and committed offsets. shell

Each expired offset gets a tombstone in `__consumer_offsets`, and at last so does the group. The next check removes a
group without members and offsets, whatever its age. Offsets that an open transaction covers stay, and so does their
group. The work is done in shares; state that was read before a pause is checked again after it.

Source: `OffsetMetadataManager.cleanupExpiredOffsets`, `ClassicGroup` of Kafka 4.3.1; KIP-211.
"""

import logging
from typing import Final

from ottla.broker.costs import BATCH_US, ROW_US, STATE_RECORD_US
from ottla.broker.group.classic_group import ClassicGroup
from ottla.broker.group.consumer.consumer_group import ConsumerGroup
from ottla.broker.group.metadata_manager import GroupMetadataManager
from ottla.broker.group.offsets import GroupOffsets
from ottla.broker.group.shard import GroupMetadata
from ottla.broker.group.states import ClassicGroupState
from ottla.broker.group.tombstones import Tombstones
from ottla.broker.ports.clock import Clock
from ottla.broker.turns import Turns
from ottla.protocol.values import TopicPartition

log = logging.getLogger(__name__)

UNKNOWN_MS: Final = -1


class OffsetExpiration:
    """Removes expired offsets. `retention_ms` is for offsets without an expiration time of their own."""

    def __init__(self, manager: GroupMetadataManager, turns: Turns, clock: Clock, retention_ms: int) -> None:
        self._manager = manager
        self._tombstones = Tombstones(manager, turns, clock)
        self._turns = turns
        self._clock = clock
        self._retention_ms = retention_ms

    async def expire(self) -> None:
        """Check every group once. If a partition fails, its groups wait for the next check; the other partitions
        continue."""
        broken: set[int] = set()
        for metadata in self._manager.groups():
            if metadata.index in broken:
                continue
            try:
                await self._expire_group(metadata)
            except Exception:
                log.exception(
                    "The scan for expired offsets in partition %d failed; the next scan tries again", metadata.index
                )
                broken.add(metadata.index)
            await self._turns.yield_if_due()

    async def _expire_group(self, metadata: GroupMetadata) -> None:
        self._turns.charge(ROW_US)
        for some in self._tombstones.portions(metadata.group.group_id, metadata.offsets.places()):
            if not await self._may_expire(metadata):
                return
            now_ms = self._clock.now_ms()
            offsets, group = metadata.offsets, metadata.group
            expired = [place for place in some if self._is_expired(group, offsets, place, now_ms)]
            if self._tombstones.bury(metadata, expired):
                return
            await self._turns.yield_if_due()
        await self._manager.complete_all(metadata.shard)
        group, offsets = metadata.group, metadata.offsets
        if self._tombstones.is_there(metadata) and group.is_empty and offsets.is_empty:
            self._turns.charge(BATCH_US + STATE_RECORD_US)
            self._manager.log_removal(metadata)

    async def _may_expire(self, metadata: GroupMetadata) -> bool:
        """Return whether offsets of the group may expire: it has no members, or its consumers' subscriptions are known.
        Those of a group of the consumer protocol are, in every state."""
        await self._tombstones.read_subscriptions(metadata)
        group = metadata.group
        if not self._tombstones.is_there(metadata):
            return False
        if isinstance(group, ConsumerGroup) or group.protocol_type is None or group.is_empty:
            return True
        return group.state is ClassicGroupState.STABLE and group.is_of_consumers and group.subscribed is not None

    def _is_expired(
        self, group: ClassicGroup | ConsumerGroup, offsets: GroupOffsets, place: TopicPartition, now_ms: int
    ) -> bool:
        committed = offsets.get(place)
        if committed is None or offsets.is_unstable(place) or group.is_subscribed(place[0]):
            return False
        value = committed.value
        if value.expire_ms != UNKNOWN_MS:
            return now_ms >= value.expire_ms
        since_ms = value.commit_ms
        if isinstance(group, ClassicGroup) and group.protocol_type and group.is_empty and group.state_timestamp_ms >= 0:
            since_ms = group.state_timestamp_ms
        return now_ms - since_ms >= self._retention_ms
