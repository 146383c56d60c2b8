"""The heartbeats and deadlines of consumer groups: decide, log, apply, set timers. shell

Source: `GroupCoordinatorService`, `GroupMetadataManager` of Kafka 4.3.1.
"""

import logging
from collections.abc import Callable, Sequence
from typing import Final

from ottla.broker.cluster.features import GROUP_FEATURE
from ottla.broker.cluster.metadata import Cluster
from ottla.broker.config import Config
from ottla.broker.costs import STATE_RECORD_US
from ottla.broker.group.consumer.consumer_group import ConsumerGroup
from ottla.broker.group.consumer.decisions import (
    Decision,
    Heartbeat,
    HeartbeatReply,
    Refusal,
    Settings,
    TopicInfo,
    decide_heartbeat,
    decide_leave,
    remove_members,
)
from ottla.broker.group.consumer.members import ConsumerGroupMember, MemberState
from ottla.broker.group.log import Rows
from ottla.broker.group.metadata_manager import GroupMetadataManager
from ottla.broker.group.shard import GroupMetadata
from ottla.broker.ports.clock import Clock
from ottla.broker.turns import Turns
from ottla.protocol.errors import ErrorCode
from ottla.protocol.internal_topics.offsets_records import GroupKey

log = logging.getLogger(__name__)

TARGET_US: Final = STATE_RECORD_US
"""The cost of a member, and of ten partitions, in a target assignment."""


class ConsumerGroups:
    """The groups of the consumer protocol of one broker. `arm` sets the timer of a group to its earliest deadline."""

    def __init__(
        self,
        manager: GroupMetadataManager,
        cluster: Cluster,
        turns: Turns,
        clock: Clock,
        config: Config,
        arm: Callable[[GroupMetadata], None],
    ) -> None:
        self._manager = manager
        self._cluster = cluster
        self._turns = turns
        self._clock = clock
        self._config = config
        self._arm = arm

    @property
    def is_enabled(self) -> bool:
        """Whether the cluster serves the consumer protocol."""
        is_served = "consumer" in self._config.group_coordinator_rebalance_protocols
        return is_served and self._cluster.feature(GROUP_FEATURE) >= 1

    @property
    def default_assignor(self) -> str:
        """The assignor of a group whose members name none."""
        return self._settings.assignors[0]

    async def heartbeat(self, beat: Heartbeat) -> HeartbeatReply | Refusal:
        """Handle ConsumerGroupHeartbeat. The reply must wait until the log is durable."""
        metadata, error = self._manager.find(beat.group_id)
        if not error and metadata is not None and isinstance(metadata.group, ConsumerGroup):
            await self._turns.spend(self._cost_us(metadata.group, beat))
            metadata, error = self._manager.find(beat.group_id)
        if error:
            return Refusal(error, None)
        if beat.member_epoch < 0:
            return self._leave(metadata, beat)
        group = None if metadata is None else metadata.group
        if isinstance(group, ConsumerGroup):
            return self._beat(group, beat, ())
        if beat.member_epoch > 0 or (group is not None and not group.is_empty):
            return _not_found(beat.group_id)
        return self._beat(
            ConsumerGroup(beat.group_id), beat, () if group is None else ((GroupKey(beat.group_id), None),)
        )

    def leave(
        self, metadata: GroupMetadata, group: ConsumerGroup, who: Sequence[tuple[str, str | None]]
    ) -> tuple[ErrorCode, Sequence[ErrorCode]]:
        """Handle LeaveGroup of (member id, instance id) each: remove the members, in one epoch."""
        errors = []
        removed: dict[str, ConsumerGroupMember] = {}
        for member_id, instance_id in who:
            found = member_id if instance_id is None else group.static_members.get(instance_id, "")
            if found not in group.members:
                errors.append(ErrorCode.UNKNOWN_MEMBER_ID)
            elif member_id and member_id != found:
                errors.append(ErrorCode.FENCED_INSTANCE_ID)
            else:
                errors.append(ErrorCode.NONE)
                removed[found] = group.members[found]
        return self._remove(metadata, group, [*removed.values()]), errors

    def remove_late_members(self, metadata: GroupMetadata, group: ConsumerGroup) -> None:
        """Remove the members whose session has ended, or that have not given up their partitions in time."""
        late = group.late_members(self._clock.monotonic_ms())
        for member in late:
            log.info(
                "Group %(group).100s: member %(member).100s is removed, because its session or its time to give up "
                "partitions has ended",
                {"group": group.group_id, "member": member.member_id},
            )
        self._remove(metadata, group, late)
        self._arm(metadata)

    def start_timers(self, metadata: GroupMetadata, group: ConsumerGroup) -> None:
        """Begin the sessions of a loaded group anew, and the time of those that must give up partitions."""
        for member in group.members.values():
            self._start_timers(group, member)
        self._arm(metadata)

    def find_topic(self, name: str) -> TopicInfo | None:
        """Return the topic of this name; None if there is none."""
        topic = self._cluster.topics.get(name)
        return None if topic is None else TopicInfo(topic.topic_id, topic.partition_count)

    @property
    def _settings(self) -> Settings:
        config = self._config
        return Settings(
            config.group_consumer_heartbeat_interval_ms,
            config.group_consumer_assignment_interval_ms,
            config.group_consumer_max_size,
            config.group_consumer_assignors,
        )

    def _cost_us(self, group: ConsumerGroup, beat: Heartbeat) -> float:
        """Return the cost of a heartbeat that may compute the target assignment of all members."""
        if group.epoch <= group.assignment_epoch and beat.member_epoch > 0 and beat.topic_names is None:
            return STATE_RECORD_US
        return TARGET_US * (1 + len(group.members))

    def _beat(self, group: ConsumerGroup, beat: Heartbeat, replaced: Rows) -> HeartbeatReply | Refusal:
        """Decide on a heartbeat of a group, which may be new, after the tombstones of what it replaces."""
        version = self._cluster.metadata_log.end_offset
        is_stale = group.topics_version != version
        decision = decide_heartbeat(group, beat, self._settings, self.find_topic, self._clock.now_ms(), is_stale)
        return self._follow(beat.group_id, decision, replaced, version)

    def _leave(self, metadata: GroupMetadata | None, beat: Heartbeat) -> HeartbeatReply | Refusal:
        if metadata is None or not isinstance(metadata.group, ConsumerGroup):
            return _not_found(beat.group_id)
        return self._follow(beat.group_id, decide_leave(metadata.group, beat, self.find_topic), (), None)

    def _follow(
        self, group_id: str, decision: Decision | Refusal, replaced: Rows, version: int | None
    ) -> HeartbeatReply | Refusal:
        """Log the records of a decision and apply them. Then set the timers of its member."""
        if isinstance(decision, Refusal):
            return decision
        records = (*replaced, *decision.records)
        if records:
            error = self._manager.log_consumer_group(self._manager.partition_for(group_id), records)
            if error:
                return Refusal(error, None)
        metadata, error = self._manager.find(group_id)
        if metadata is None or not isinstance(metadata.group, ConsumerGroup):
            return Refusal(error, None)
        if version is not None:
            metadata.group.topics_version = version
        self._start_timers(metadata.group, decision.member)
        self._arm(metadata)
        return decision.reply

    def _start_timers(self, group: ConsumerGroup, member: ConsumerGroupMember) -> None:
        now_ms = self._clock.monotonic_ms()
        if member.member_id not in group.members:
            group.end_timers(member.member_id)
            return
        group.start_session(member.member_id, now_ms + self._config.group_consumer_session_timeout_ms)
        if member.state is not MemberState.UNREVOKED_PARTITIONS:
            group.rebalances.pop(member.member_id, None)
        elif group.rebalances.get(member.member_id, (0, None))[1] != member.epoch:
            group.start_rebalance(member, now_ms + member.metadata.rebalance_timeout_ms)

    def _remove(
        self, metadata: GroupMetadata, group: ConsumerGroup, members: Sequence[ConsumerGroupMember]
    ) -> ErrorCode:
        if not members:
            return ErrorCode.NONE
        error = self._manager.log_consumer_group(metadata.index, [*remove_members(group, members, self.find_topic)])
        if error:
            log.error(
                "Members of group %(group).100s could not be removed: %(error)s",
                {"group": group.group_id, "error": error.name},
            )
            return error
        for member in members:
            group.end_timers(member.member_id)
        return error


def _not_found(group_id: str) -> Refusal:
    return Refusal(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
