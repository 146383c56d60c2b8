"""DeleteGroups and OffsetDelete: the removal of groups and committed offsets on request. shell

A removal is logged as tombstones in `__consumer_offsets`: one for each committed offset, one for each offset that is
only pending in a transaction, and at last one for the group.

The work is spread over turns, and state that was read before a pause is checked again after it. Until the tombstone of
a group is logged, requests for the group get an error that makes clients find the coordinator again.

Source: `OffsetMetadataManager.deleteOffsets`, `deleteAllOffsets`, `ClassicGroup` of Kafka 4.3.1; KIP-496.
"""

import logging
from collections.abc import Sequence

from ottla.broker.costs import LOOKUP_US
from ottla.broker.group.classic_group import ClassicGroup
from ottla.broker.group.consumer.consumer_group import ConsumerGroup
from ottla.broker.group.metadata_manager import GroupMetadataManager
from ottla.broker.group.shard import GroupMetadata
from ottla.broker.group.tombstones import Tombstones, keys_at_once
from ottla.broker.ports.clock import Clock
from ottla.broker.turns import Activity, Turns, Wait
from ottla.protocol.errors import ErrorCode

log = logging.getLogger(__name__)


class GroupDeletion:
    """Deletes groups and offsets of one broker."""

    def __init__(self, manager: GroupMetadataManager, turns: Turns, clock: Clock) -> None:
        self._manager = manager
        self._tombstones = Tombstones(manager, turns, clock)
        self._turns = turns
        self._deletions: set[Activity[ErrorCode]] = set()

    def stop(self) -> None:
        """Discard the deletions that run independently of their requests."""
        for activity in self._deletions:
            activity.discard()
        self._deletions.clear()

    async def delete_group(self, group_id: str) -> ErrorCode:
        """Handle DeleteGroups: delete a group without members; return NONE when it is deleted.

        The deletion continues if the request is discarded: a group with half of its offsets would mislead consumers.
        """
        metadata, error = self._manager.find(group_id)
        if error:
            return error
        if metadata is None:
            return ErrorCode.GROUP_ID_NOT_FOUND
        if not metadata.group.is_empty:
            return ErrorCode.NON_EMPTY_GROUP
        offsets = metadata.offsets
        if offsets.at_most <= keys_at_once(group_id):
            error = self._tombstones.bury(metadata, {key: None for key in offsets.places() if key in offsets})
            return error or self._manager.log_removal(metadata)
        return await self._delete_apart(metadata)

    async def _delete_apart(self, metadata: GroupMetadata) -> ErrorCode:
        """Delete a group in an activity of its own, which continues if the request is discarded. Until it ends,
        look-ups do not find the group.

        If the deletion fails, look-ups find the group again. If a stop discards it, they do not: some offsets are
        deleted.
        """
        wait: Wait[tuple[ErrorCode, Exception | None]] = Wait(self._turns)
        activity: Activity[ErrorCode] | None = None

        def on_end(error: ErrorCode, bug: Exception | None = None) -> None:
            metadata.ending = False
            if activity is not None:
                self._deletions.discard(activity)
            if bug is not None and wait.done:
                about = {"group": metadata.group.group_id}
                log.error("Group %(group).100s: deleting it failed", about, exc_info=bug)
            wait.wake((error, bug))

        metadata.ending = True
        work = self._delete_in_portions(metadata)
        activity = self._turns.start(work, on_end, lambda bug: on_end(ErrorCode.UNKNOWN_SERVER_ERROR, bug))
        if activity is not None:
            self._deletions.add(activity)
        error, bug = await wait
        if bug is not None:
            raise bug
        return error

    async def _delete_in_portions(self, metadata: GroupMetadata) -> ErrorCode:
        group_id = metadata.group.group_id
        while True:
            await self._manager.complete_all(metadata.shard)
            if not metadata.offsets.at_most:
                return self._manager.log_removal(metadata)
            for some in self._tombstones.portions(group_id, metadata.offsets.places()):
                error = self._tombstones.bury(metadata, [key for key in some if key in metadata.offsets])
                if error:
                    return error
                await self._turns.yield_if_due()

    async def delete_offsets(
        self, group_id: str, topics: Sequence[tuple[str, Sequence[int]]]
    ) -> tuple[ErrorCode, list[list[ErrorCode]]]:
        """Handle OffsetDelete of [(topic, [partition])]: return the error of the request, and those of each topic's
        partitions.

        In a group with members, offsets are deleted only if the members are consumers and none has subscribed to the
        topic.
        """
        if not group_id:
            return ErrorCode.INVALID_GROUP_ID, []
        requested = [*dict.fromkeys((topic, index) for topic, indexes in topics for index in indexes)]
        self._turns.charge((len(topics) + sum([len(indexes) for _, indexes in topics])) * LOOKUP_US)
        subscribed: set[str] = set()
        for some in [*self._tombstones.portions(group_id, requested)] or [()]:
            metadata, error = await self._ready_group(group_id)
            if metadata is None or error:
                return error or ErrorCode.GROUP_ID_NOT_FOUND, []
            group = metadata.group
            if not group.is_empty and not group.is_of_consumers:
                return ErrorCode.NON_EMPTY_GROUP, []
            subscribed.update(topic for topic, _index in some if group.is_subscribed(topic))
            error = self._tombstones.bury(
                metadata, [key for key in some if key[0] not in subscribed and key in metadata.offsets]
            )
            if error:
                return error, []
            await self._turns.yield_if_due()
        return ErrorCode.NONE, [
            [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if topic in subscribed else ErrorCode.NONE] * len(indexes)
            for topic, indexes in topics
        ]

    async def _ready_group(self, group_id: str) -> tuple[GroupMetadata | None, ErrorCode]:
        """Return the group after its members' subscriptions were read; continue reading if they change meanwhile."""
        metadata, error = self._manager.find(group_id)
        while metadata is not None and not error and not _knows_subscriptions(metadata.group):
            await self._tombstones.read_subscriptions(metadata)
            metadata, error = self._manager.find(group_id)
        return metadata, error


def _knows_subscriptions(group: ClassicGroup | ConsumerGroup) -> bool:
    return isinstance(group, ConsumerGroup) or group.knows_subscriptions
