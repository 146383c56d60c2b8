"""Tombstones of committed offsets, written in batches of limited size. shell"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Final

from ottla.broker.costs import BATCH_US, OFFSET_PLACE_US, ROW_US, STATE_BYTE_US, STATE_RECORD_US
from ottla.broker.group.classic_group import ClassicGroup
from ottla.broker.group.log import offsets_batch
from ottla.broker.group.metadata_manager import GroupMetadataManager
from ottla.broker.group.shard import GroupMetadata
from ottla.broker.ports.clock import Clock
from ottla.broker.turns import Turns
from ottla.protocol.errors import ErrorCode
from ottla.protocol.internal_topics.offsets_records import OffsetKey
from ottla.protocol.values import NO_PRODUCER_ID, TopicPartition

KEYS_AT_ONCE: Final = 100
BATCH_BYTES: Final = 500_000
"""Approximate limit of a batch of tombstones, smaller than any max.message.bytes that the topic is likely to have."""
NAMES_AT_ONCE: Final = 500


class Tombstones:
    """Writes tombstones of committed offsets."""

    def __init__(self, manager: GroupMetadataManager, turns: Turns, clock: Clock) -> None:
        self._manager = manager
        self._turns = turns
        self._clock = clock

    def portions(self, group_id: str, keys: Iterable[TopicPartition]) -> Iterator[Sequence[TopicPartition]]:
        """Yield the keys in portions that fit into one batch."""
        return chunks(keys, keys_at_once(group_id))

    def bury(self, metadata: GroupMetadata, keys: Iterable[TopicPartition]) -> ErrorCode:
        """Log tombstones of some offsets of a group in one batch, and apply them."""
        rows = [(OffsetKey(metadata.group.group_id, *key), None) for key in keys]
        if not rows:
            self._turns.charge(ROW_US)
            return ErrorCode.NONE
        batch = offsets_batch(rows, self._clock.now_ms(), None)
        self._turns.charge(BATCH_US + len(rows) * STATE_RECORD_US + len(batch) * STATE_BYTE_US)
        return self._manager.write(metadata.shard, batch, (NO_PRODUCER_ID, rows))

    async def read_subscriptions(self, metadata: GroupMetadata) -> None:
        """Read the subscriptions of a group's members to the end."""
        group = metadata.group
        while isinstance(group, ClassicGroup) and not group.knows_subscriptions:
            group.read_subscriptions(NAMES_AT_ONCE)
            await self._turns.spend(NAMES_AT_ONCE * OFFSET_PLACE_US)

    def is_there(self, metadata: GroupMetadata) -> bool:
        """Return whether the group still exists, and its partition is available."""
        return self._manager.find(metadata.group.group_id) == (metadata, ErrorCode.NONE)


def keys_at_once(group_id: str) -> int:
    """Return the number of tombstones of a group that fit into one batch."""
    # A topic's name has at most 249 bytes, the rest of a record some 30.
    return max(1, min(KEYS_AT_ONCE, BATCH_BYTES // (4 * len(group_id) + 300)))


def chunks(keys: Iterable[TopicPartition], most: int) -> Iterator[Sequence[TopicPartition]]:
    """Yield the keys in chunks of at most `most`, each key once in a chunk."""
    rest = iter(keys)
    while some := [*islice(rest, most)]:
        yield [*dict.fromkeys(some)]
