"""DeleteGroups and OffsetDelete: how groups and committed offsets end on request. shell

Each end is a tombstone in `__consumer_offsets`: of every committed offset, and of every one that is pending in a
transaction and nothing else, and at last of the group.

The work is spread over turns, and what was found before a pause is checked again after it. Until the tombstone of a
group is logged, requests for the group get an error that makes clients look for the coordinator again.

Source: `OffsetMetadataManager.deleteOffsets`, `deleteAllOffsets`, `ClassicGroup` of Kafka 4.3.1; KIP-496.
"""

import logging
from collections.abc import Sequence

from ottla.broker.costs import LOOKUP_US
from ottla.broker.group.metadata_manager import GroupMetadataManager
from ottla.broker.group.shard import GroupMetadata
from ottla.broker.group.states import ClassicGroupState
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
        """End what is under way on its own account."""
        for activity in self._deletions:
            activity.discard()
        self._deletions.clear()

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
        if offsets.at_most <= keys_at_once(group_id):
            error = self._tombstones.bury(metadata, {key: None for key in offsets.places() if key in offsets})
            return error or self._manager.log_group(metadata.index, group_id, None)
        return await self._delete_apart(metadata)

    async def _delete_apart(self, metadata: GroupMetadata) -> ErrorCode:
        """Delete a group in work of its own, which goes on when the request is discarded. The group is not found
        meanwhile.

        If the deletion fails the group is found again. It is not when a stop discards the work: some offsets are
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
            await self._manager.complete_all(self._manager.shards[metadata.index])
            if not metadata.offsets.at_most:
                return self._manager.log_group(metadata.index, group_id, None)
            for some in self._tombstones.portions(group_id, metadata.offsets.places()):
                error = self._tombstones.bury(metadata, [key for key in some if key in metadata.offsets])
                if error:
                    return error
                await self._turns.yield_if_due()

    async def delete_offsets(
        self, group_id: str, topics: Sequence[tuple[str, Sequence[int]]]
    ) -> tuple[ErrorCode, list[list[ErrorCode]]]:
        """OffsetDelete of [(topic, [partition])]: the error of the request, and those of each topic's partitions.

        Of a group with members only consumers' offsets go, of topics to which none of them has subscribed.
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
            if group.state is not ClassicGroupState.EMPTY and not group.is_of_consumers:
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
        """The group, with what its members read; read on if it changes in between."""
        metadata, error = self._manager.find(group_id)
        while metadata is not None and not error and not metadata.group.knows_subscriptions:
            await self._tombstones.read_subscriptions(metadata)
            metadata, error = self._manager.find(group_id)
        return metadata, error
