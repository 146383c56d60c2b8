"""The heartbeats and deadlines of consumer groups: decide, log, apply, set timers. shell

Source: `GroupCoordinatorService`, `GroupMetadataManager` of Kafka 4.3.1.
"""

import logging
from collections.abc import Callable, Sequence

from ottla.broker.cluster.features import GROUP_FEATURE
from ottla.broker.cluster.metadata import Cluster
from ottla.broker.config import Config
from ottla.broker.group.classic_group import ClassicGroup
from ottla.broker.group.consumer.consumer_group import ConsumerGroup
from ottla.broker.group.consumer.decisions import (
    Decision,
    Heartbeat,
    HeartbeatReply,
    Refusal,
    Settings,
    decide_heartbeat,
    decide_leave,
    decide_removal,
)
from ottla.broker.group.consumer.members import ConsumerGroupMember, MemberState
from ottla.broker.group.consumer.topic_regex_resolver import MayDescribe, TopicRegexResolver
from ottla.broker.group.consumer.topics import TopicInfo
from ottla.broker.group.log import EncodedRows, Rows, encode_rows
from ottla.broker.group.metadata_manager import GroupMetadataManager
from ottla.broker.group.shard import GroupMetadata
from ottla.broker.log.long_work import LongWork
from ottla.broker.log_limiter import LogLimiter, describe_repeats
from ottla.broker.pattern import AVAILABLE
from ottla.broker.ports.clock import Clock
from ottla.broker.ports.workers import DeferredWorkers, Workers
from ottla.broker.turns import Turns
from ottla.protocol.errors import ErrorCode
from ottla.protocol.internal_topics.offsets_records import GroupKey
from ottla.protocol.steps import Steps

log = logging.getLogger(__name__)


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
        workers: Workers | None = None,
    ) -> None:
        self._manager = manager
        self._cluster = cluster
        self._turns = turns
        self._clock = clock
        self.config = config
        """The broker's configuration, which may change while it runs."""
        self._arm = arm
        deferred = DeferredWorkers(turns.next_turn)
        # These steps need neither memory nor other threads.
        self._work = LongWork(turns, deferred, 0)
        self._resolver = TopicRegexResolver(manager, cluster, turns, clock, workers or deferred, self.find_topic)
        self._logs_missing_package = LogLimiter()

    @property
    def is_enabled(self) -> bool:
        """Whether the cluster serves the consumer protocol."""
        is_served = "consumer" in self.config.group_coordinator_rebalance_protocols.split(",")
        return is_served and self._cluster.feature(GROUP_FEATURE) >= 1

    @property
    def default_assignor(self) -> str:
        """The assignor of a group whose members name none."""
        return self.config.group_consumer_assignors.split(",")[0]

    def stop(self) -> None:
        """Discard the work in progress."""
        self._resolver.stop()

    async def heartbeat(self, beat: Heartbeat, may_describe: MayDescribe) -> HeartbeatReply | Refusal:
        """Handle ConsumerGroupHeartbeat. The reply must wait until the log is durable."""
        metadata, _ = self._manager.find(beat.group_id)
        gate = metadata.group.gate if metadata is not None and isinstance(metadata.group, ConsumerGroup) else None
        answer = await self._work.drive(self._beat(beat, may_describe), gate=gate)
        if isinstance(answer, Refusal) and answer.error is ErrorCode.INVALID_REGULAR_EXPRESSION and not AVAILABLE:
            self._log_missing_package(beat)
        return answer

    async def remove_members(
        self, group: ConsumerGroup, who: Sequence[tuple[str, str | None]]
    ) -> tuple[ErrorCode, Sequence[ErrorCode]]:
        """Handle LeaveGroup of (member id, instance id) each: remove the members, in one epoch."""
        errors = []
        removed: dict[str, None] = {}
        for member_id, instance_id in who:
            found = member_id if instance_id is None else group.static_members.get(instance_id, "")
            if found not in group.members:
                errors.append(ErrorCode.UNKNOWN_MEMBER_ID)
            elif member_id and member_id != found:
                errors.append(ErrorCode.FENCED_INSTANCE_ID)
            else:
                errors.append(ErrorCode.NONE)
                removed[found] = None
        return await self._work.drive(self._remove(group.group_id, [*removed]), gate=group.gate), errors

    def remove_late_members(self, metadata: GroupMetadata, group: ConsumerGroup) -> None:
        """Remove the members whose session has ended, or that have not given up their partitions in time."""
        late = [member.member_id for member in group.late_members(self._clock.monotonic_ms())]
        for member_id in late:
            log.info(
                "Group %(group).100s: member %(member).100s is removed, because its session or its time to give up "
                "partitions has ended",
                {"group": group.group_id, "member": member_id},
            )
        self._arm(metadata)
        if late:
            work = self._work.drive(self._remove(group.group_id, late), gate=group.gate)
            self._turns.start(work, _ignore_result, _raise)

    def start_timers(self, metadata: GroupMetadata, group: ConsumerGroup) -> None:
        """Begin the sessions of a loaded group again, and the time of members that must give up partitions."""
        for member in group.members.values():
            self._start_timers(group, member)
        self._arm(metadata)

    def find_topic(self, name: str) -> TopicInfo | None:
        """Return the topic of this name; None if there is none."""
        topic = self._cluster.topics.get(name)
        return None if topic is None else TopicInfo(topic.topic_id, topic.partition_count)

    def _log_missing_package(self, beat: Heartbeat) -> None:
        if count := self._logs_missing_package.count("", self._clock.monotonic_ms()):
            log.warning(
                "Group %(group).100s: member %(member).100s from %(host)s is refused, because regular expressions of "
                "consumer groups need the Python package google-re2, which is not installed%(repeats)s",
                {
                    "group": beat.group_id,
                    "member": beat.member_id,
                    "host": beat.client_host,
                    "repeats": describe_repeats(count),
                },
            )

    def _settings(self, group_id: str) -> Settings:
        config = self.config
        return Settings(
            self._own(group_id, "consumer.heartbeat.interval.ms", config.group_consumer_heartbeat_interval_ms),
            self._own(group_id, "consumer.assignment.interval.ms", config.group_consumer_assignment_interval_ms),
            config.group_consumer_max_size,
            tuple(config.group_consumer_assignors.split(",")),
            config.group_consumer_regex_refresh_interval_ms,
            config.group_member_max_metadata_bytes,
        )

    def _own(self, group_id: str, key: str, default: int) -> int:
        """Return the number that a group's own config has, else the broker's."""
        return int(self._cluster.image.group_configs.get(group_id, {}).get(key, default))

    def _beat(self, beat: Heartbeat, may_describe: MayDescribe) -> Steps[HeartbeatReply | Refusal]:
        """Decide on a heartbeat, log and apply the decision. Decide again if the group has changed meanwhile."""
        while True:
            metadata, error = self._manager.find(beat.group_id)
            if error:
                return Refusal(error, None)
            group = None if metadata is None else metadata.group
            replaced: Rows = ()
            if not isinstance(group, ConsumerGroup):
                if beat.member_epoch != 0 or (group is not None and not group.is_empty):
                    return _not_found(beat, group)
                replaced = () if group is None else ((GroupKey(beat.group_id), None),)
            known = group if isinstance(group, ConsumerGroup) else ConsumerGroup(beat.group_id)
            topics_version = self._cluster.metadata_log.end_offset
            if beat.member_epoch < 0:
                decision = yield from decide_leave(known, beat, self.find_topic)
            else:
                is_stale = known.topics_version != topics_version
                settings, now_ms = self._settings(beat.group_id), self._clock.now_ms()
                decision = yield from decide_heartbeat(
                    known, beat, settings, self.find_topic, now_ms, is_stale, self._resolver.newest_topics
                )
            if isinstance(decision, Refusal):
                return decision
            if decision is None:
                continue
            version, records = known.version, (*replaced, *decision.records)
            encoded = yield from encode_rows(records)
            if known.version == version and self._is_current(beat.group_id, group):
                return self._follow(beat.group_id, decision, records, encoded, topics_version, may_describe)

    def _is_current(self, group_id: str, group: ClassicGroup | ConsumerGroup | None) -> bool:
        """Return whether a group is still the one of this id; for None, whether there is still none."""
        metadata, error = self._manager.find(group_id)
        return not error and (None if metadata is None else metadata.group) is group

    def _follow(
        self,
        group_id: str,
        decision: Decision,
        records: Rows,
        encoded: EncodedRows,
        topics_version: int,
        may_describe: MayDescribe,
    ) -> HeartbeatReply | Refusal:
        """Log the records of a decision and apply them. Then set the timers of its member."""
        if records:
            error = self._manager.log_consumer_group(self._manager.partition_for(group_id), records, encoded)
            if error:
                return Refusal(error, None)
        metadata, error = self._manager.find(group_id)
        if metadata is None or not isinstance(metadata.group, ConsumerGroup):
            return Refusal(error, None)
        metadata.group.topics_version = topics_version
        self._start_timers(metadata.group, decision.member)
        self._arm(metadata)
        if decision.regexes and AVAILABLE:
            most_bytes = self.config.group_member_max_metadata_bytes
            self._resolver.start(metadata.group, decision.regexes, may_describe, most_bytes)
        return decision.reply

    def _remove(self, group_id: str, member_ids: Sequence[str]) -> Steps[ErrorCode]:
        """Remove the members of these ids that are still there."""
        while True:
            metadata, error = self._manager.find(group_id)
            if error or metadata is None or not isinstance(metadata.group, ConsumerGroup):
                return error
            group = metadata.group
            members = [group.members[member_id] for member_id in member_ids if member_id in group.members]
            if not members:
                return ErrorCode.NONE
            records = yield from decide_removal(group, members, self.find_topic)
            if records is not None and self._is_current(group_id, group):
                break
        error = self._manager.log_consumer_group(metadata.index, records)
        if error:
            log.error(
                "Members of group %(group).100s could not be removed: %(error)s",
                {"group": group_id, "error": error.name},
            )
            return error
        for member in members:
            group.end_timers(member.member_id)
        return error

    def _start_timers(self, group: ConsumerGroup, member: ConsumerGroupMember) -> None:
        now_ms = self._clock.monotonic_ms()
        if member.member_id not in group.members:
            group.end_timers(member.member_id)
            return
        session_ms = self._own(
            group.group_id, "consumer.session.timeout.ms", self.config.group_consumer_session_timeout_ms
        )
        group.start_session(member.member_id, now_ms + session_ms)
        if member.state is not MemberState.UNREVOKED_PARTITIONS:
            group.rebalances.pop(member.member_id, None)
        elif group.rebalances.get(member.member_id, (0, None))[1] != member.epoch:
            group.start_rebalance(member, now_ms + member.metadata.rebalance_timeout_ms)


def _ignore_result(_error: ErrorCode) -> None:
    """Ignore the result of a removal, whose failure was logged."""


def _raise(error: Exception) -> None:
    raise error


def _not_found(beat: Heartbeat, group: ClassicGroup | None) -> Refusal:
    """Return the refusal of a heartbeat to no group, or to a classic one; the texts are Kafka's."""
    name = beat.group_id
    if group is None:
        text = f"Consumer group {name} not found." if beat.member_epoch > 0 else f"Group {name} not found."
    elif beat.member_epoch == 0:
        text = f"Cannot upgrade classic group {name} to consumer group because online upgrade is disabled."
    else:
        text = f"Group {name} is not a consumer group."
    return Refusal(ErrorCode.GROUP_ID_NOT_FOUND, text)
