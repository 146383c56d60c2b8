"""The heartbeats and deadlines of consumer groups: decide, log, apply, set timers. shell

Source: `GroupCoordinatorService`, `GroupMetadataManager` of Kafka 4.3.1.
"""

import logging
from collections.abc import Callable, Mapping, Sequence

from ottla.broker.cluster.features import GROUP_FEATURE
from ottla.broker.cluster.metadata import Cluster
from ottla.broker.config import Config, ConsumerGroupTimeouts, out_of_bounds, timeouts_of
from ottla.broker.group.classic_group import ClassicGroup
from ottla.broker.group.consumer.classic_members import (
    ClassicMember,
    find_classic,
    find_consumer_holder,
    must_join,
    read_join,
    refuse_join,
    refuse_sync,
)
from ottla.broker.group.consumer.consumer_group import ConsumerGroup, count_epochs
from ottla.broker.group.consumer.decisions import (
    Decision,
    Heartbeat,
    HeartbeatReply,
    Refusal,
    Settings,
    decide_heartbeat,
    decide_removal,
    decide_static_leave,
    find_leaving,
)
from ottla.broker.group.consumer.members import LEAVE_EPOCH, ConsumerGroupMember, MemberState
from ottla.broker.group.consumer.migration import (
    Downgrade,
    MigrationPolicy,
    can_downgrade,
    decide_downgrade,
    decide_group,
    encode_assignment,
)
from ottla.broker.group.consumer.topic_regex_resolver import MayDescribe, TopicRegexResolver
from ottla.broker.group.consumer.topics import TopicInfo
from ottla.broker.group.log import EncodedRows, Rows, encode_rows
from ottla.broker.group.members import Caller, JoinAsk, Moment, Protocols
from ottla.broker.group.metadata_manager import GroupMetadataManager
from ottla.broker.group.replies import JoinReply, Outcome, SyncReply
from ottla.broker.group.shard import GroupMetadata, GroupShard
from ottla.broker.log.long_work import LongWork
from ottla.broker.pattern import AVAILABLE
from ottla.broker.ports.clock import Clock
from ottla.broker.ports.workers import DeferredWorkers, Workers
from ottla.broker.turns import Turns
from ottla.protocol.errors import ErrorCode, ProtocolError
from ottla.protocol.internal_topics.consumer_protocol import TYPE
from ottla.protocol.steps import Steps

log = logging.getLogger(__name__)


class ConsumerGroups:
    """The groups of the consumer protocol of one broker.

    `arm` sets the timer of a group to its earliest deadline. `follow` carries out the outcome of a classic group.
    """

    def __init__(
        self,
        manager: GroupMetadataManager,
        cluster: Cluster,
        turns: Turns,
        clock: Clock,
        config: Config,
        arm: Callable[[GroupMetadata], None],
        follow: Callable[[GroupMetadata, Outcome], None],
        workers: Workers | None = None,
    ) -> None:
        self._manager = manager
        self._cluster = cluster
        self._turns = turns
        self._clock = clock
        self._arm = arm
        self._follow_classic = follow
        self._rebalances = 0
        # What a heartbeat reads, made when the broker's configuration changes; for groups with configs, at first use.
        self.assignors: tuple[str, ...] = ()
        self._is_served = True
        self._policy = MigrationPolicy.BIDIRECTIONAL
        self._timeouts: ConsumerGroupTimeouts
        self._own_timeouts: dict[str, tuple[Mapping[str, str], ConsumerGroupTimeouts]] = {}
        self.configure(config)
        deferred = DeferredWorkers(turns.next_turn)
        # These steps need neither memory nor other threads.
        self._work = LongWork(turns, deferred, 0)
        self._resolver = TopicRegexResolver(manager, cluster, turns, clock, workers or deferred, self.find_topic)

    def configure(self, config: Config) -> None:
        """Use this configuration of the broker from now on."""
        self.config = config
        self.assignors = tuple(config.group_consumer_assignors.split(","))
        self._is_served = "consumer" in config.group_coordinator_rebalance_protocols.split(",")
        self._policy = MigrationPolicy(config.group_consumer_migration_policy)
        self._timeouts = timeouts_of(config, {})
        self._own_timeouts.clear()

    @property
    def is_enabled(self) -> bool:
        """Whether the cluster serves the consumer protocol."""
        return self._is_served and self._cluster.feature(GROUP_FEATURE) >= 1

    @property
    def rebalances(self) -> int:
        """The number of group epochs that heartbeats and their expressions have begun since the start, as in Kafka."""
        return self._rebalances + self._resolver.rebalances

    @property
    def default_assignor(self) -> str:
        """The assignor of a group whose members name none."""
        return self.assignors[0]

    def stop(self) -> None:
        """Discard the work in progress."""
        self._resolver.stop()

    async def heartbeat(self, beat: Heartbeat, may_describe: MayDescribe) -> HeartbeatReply | Refusal:
        """Handle ConsumerGroupHeartbeat. The reply must wait until the log is durable."""
        metadata, _ = self._manager.find(beat.group_id)
        gate = metadata.group.gate if metadata is not None and isinstance(metadata.group, ConsumerGroup) else None
        answer = await self._work.drive(self._beat(beat, may_describe), gate=gate)
        if isinstance(answer, Refusal) and answer.error == ErrorCode.INVALID_REGULAR_EXPRESSION and not AVAILABLE:
            self._resolver.log_missing_package(beat)
        return answer

    async def join(self, group: ConsumerGroup, ask: JoinAsk, drawn_id: str, protocols: Protocols) -> JoinReply | None:
        """Handle JoinGroup of a member of the classic protocol, whose id is `drawn_id` if it has none.

        Return None if the group has no members of the consumer protocol any more.
        """
        return await self._work.drive(self._join(ask, ask.member_id or drawn_id, protocols), gate=group.gate)

    async def sync(
        self, metadata: GroupMetadata, group: ConsumerGroup, caller: Caller, protocol: tuple[str | None, str | None]
    ) -> SyncReply:
        """Handle SyncGroup of a member of the classic protocol: return what it has."""
        found = find_classic(group, caller)
        if isinstance(found, ErrorCode):
            return SyncReply(found)
        error = refuse_sync(group, found, *protocol)
        if error == ErrorCode.REBALANCE_IN_PROGRESS:
            group.start_join(found.member, self._clock.monotonic_ms())
        elif not error:
            group.syncs.pop(caller.member_id, None)
            self._touch(group, found)
        self._arm(metadata)
        if error:
            return SyncReply(error)
        assigned = {topic_id: tuple(epochs) for topic_id, epochs in found.member.current.assigned.items()}
        assignment = await self._work.drive(encode_assignment(assigned, self._find_name, found.subscription))
        return SyncReply(ErrorCode.NONE, *protocol, assignment)

    async def heartbeat_classic(self, metadata: GroupMetadata, group: ConsumerGroup, caller: Caller) -> ErrorCode:
        """Handle Heartbeat of a member of the classic protocol. REBALANCE_IN_PROGRESS makes it join again."""
        found = find_classic(group, caller)
        if isinstance(found, ErrorCode):
            return found
        self._touch(group, found)
        must = await self._work.drive(must_join(group, found.member))
        if must and caller.member_id in group.members:
            group.start_join(found.member, self._clock.monotonic_ms())
        self._arm(metadata)
        return ErrorCode.REBALANCE_IN_PROGRESS if must else ErrorCode.NONE

    def _await_sync(self, metadata: GroupMetadata, group: ConsumerGroup, member: ConsumerGroupMember) -> None:
        """Let a member that has joined send SyncGroup in time."""
        group.joins.pop(member.member_id, None)
        end_ms = self._clock.monotonic_ms() + member.metadata.rebalance_timeout_ms
        group.start_sync(member.member_id, end_ms)
        self._arm(metadata)

    def _touch(self, group: ConsumerGroup, caller: ClassicMember) -> None:
        end_ms = self._clock.monotonic_ms() + caller.classic.session_timeout_ms
        group.start_session(caller.member.member_id, end_ms)

    async def remove_members(
        self, group: ConsumerGroup, who: Sequence[tuple[str, str | None]]
    ) -> tuple[ErrorCode, Sequence[ErrorCode]] | None:
        """Handle LeaveGroup of (member id, instance id) each: remove the members, in one epoch.

        Return None if the group is no longer of the consumer protocol.
        """
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
        error = await self._work.drive(self._remove(group.group_id, [*removed]), gate=group.gate)
        return None if error is None else (error, errors)

    def remove_late_members(self, metadata: GroupMetadata, group: ConsumerGroup) -> None:
        """Remove the members whose session has ended, or that have not given up their partitions in time."""
        late = [member.member_id for member in group.late_members(self._clock.monotonic_ms())]
        for member_id in late:
            log.info(
                "Group %(group).100s: member %(member).100s is removed, because its session, or its time to give up "
                "partitions or to join or synchronize, has ended",
                {"group": group.group_id, "member": member_id},
            )
        self._arm(metadata)
        if late:
            # A failure is logged there.
            self._turns.run_alone(self._work.drive(self._remove(group.group_id, late), gate=group.gate))

    def start_timers(self, metadata: GroupMetadata, group: ConsumerGroup) -> None:
        """Begin the sessions of a loaded group again, and the time of members that must give up partitions."""
        for member in group.members.values():
            self._start_timers(group, member, is_loaded=True)
        self._arm(metadata)

    def find_topic(self, name: str) -> TopicInfo | None:
        """Return the topic of this name; None if there is none."""
        topic = self._cluster.topics.get(name)
        return None if topic is None else TopicInfo(topic.topic_id, topic.partition_count)

    def _find_name(self, topic_id: bytes) -> str | None:
        topic = self._cluster.topics_by_id.get(topic_id)
        return None if topic is None else topic.name

    def _can_downgrade(
        self, group: ConsumerGroup, removed: Sequence[ConsumerGroupMember], *, replaces: bool = False
    ) -> bool:
        return can_downgrade(group, removed, replaces, self._policy, self.config.group_max_size)

    def _settings(self, group_id: str) -> Settings:
        timeouts = self._timeouts_of(group_id)
        return Settings(
            timeouts.heartbeat_interval_ms,
            timeouts.assignment_interval_ms,
            self.config.group_consumer_max_size,
            self.assignors,
            self.config.group_consumer_regex_refresh_interval_ms,
            self.config.group_member_max_metadata_bytes,
        )

    def _timeouts_of(self, group_id: str) -> ConsumerGroupTimeouts:
        """Return the values in force for a group: its own within the broker's bounds, else the broker's."""
        configs = self._cluster.image.group_configs
        own = configs.get(group_id)
        if own is None:
            return self._timeouts
        known = self._own_timeouts.get(group_id)
        if known is not None and known[0] == own:
            return known[1]
        for name, value, used in out_of_bounds(self.config, own):
            log.warning(
                "Group %(group).100s: %(config)s=%(value)d is out of the broker's bounds: %(used)d is used",
                {"group": group_id, "config": name, "value": value, "used": used},
            )
        if len(self._own_timeouts) > len(configs):
            self._own_timeouts.clear()  # of groups whose configs were deleted
        timeouts = timeouts_of(self.config, own)
        self._own_timeouts[group_id] = dict(own), timeouts
        return timeouts

    def _beat(self, beat: Heartbeat, may_describe: MayDescribe) -> Steps[HeartbeatReply | Refusal]:
        """Decide on a heartbeat, log and apply the decision. Decide again if the group has changed meanwhile."""
        while True:
            metadata, error = self._manager.find(beat.group_id)
            if error:
                return Refusal(error, None)
            found = None if metadata is None else metadata.group
            if beat.member_epoch == LEAVE_EPOCH and isinstance(found, ConsumerGroup):
                left = yield from self._leave(found, beat)
                if left is None:
                    continue
                return left
            begun = yield from decide_group(
                beat, found, self._policy, self.config.group_consumer_max_size, self.find_topic
            )
            if isinstance(begun, Refusal):
                return begun
            topics_version = self._cluster.metadata_log.end_offset
            decision: Decision | Refusal | None
            if beat.member_epoch < 0:
                decision = decide_static_leave(begun.group, beat)
            else:
                is_stale = begun.group.topics_version != topics_version
                settings, now_ms = self._settings(beat.group_id), self._clock.now_ms()
                decision = yield from decide_heartbeat(
                    begun.group, beat, settings, self.find_topic, now_ms, is_stale, self._resolver.newest_topics
                )
            if isinstance(decision, Refusal):
                return decision
            if decision is None:
                continue
            version, records = begun.group.version, (*begun.records, *decision.records)
            encoded = yield from encode_rows(records)
            is_current = begun.group.version == version and begun.is_current(found)
            if is_current and self._is_current(beat.group_id, found):
                error = self._follow(begun.group, decision, records, encoded, topics_version, may_describe)
                if error:
                    return Refusal(error, None)
                if metadata is not None and isinstance(found, ClassicGroup):
                    self._end_classic(metadata, found)
                return decision.reply

    def _end_classic(self, metadata: GroupMetadata, classic: ClassicGroup) -> None:
        """Let the members of a group that was classic join again, and begin their sessions."""
        joined = {member_id: JoinReply(ErrorCode.REBALANCE_IN_PROGRESS, member_id) for member_id in metadata.joins}
        synced = {member_id: SyncReply(ErrorCode.REBALANCE_IN_PROGRESS) for member_id in metadata.syncs}
        self._follow_classic(metadata, Outcome(joined, synced))
        log.info("Group %(group).100s: it is of the consumer protocol now", {"group": classic.group_id})
        upgraded, _ = self._manager.find(classic.group_id)
        if upgraded is not None and isinstance(upgraded.group, ConsumerGroup):
            for member in upgraded.group.members.values():
                self._start_timers(upgraded.group, member)
            self._arm(upgraded)

    def _leave(self, group: ConsumerGroup, beat: Heartbeat) -> Steps[HeartbeatReply | Refusal | None]:
        """Remove the member that leaves. Return None if the group is no longer of the consumer protocol."""
        found = find_leaving(group, beat)
        if isinstance(found, Refusal):
            return found
        error = yield from self._remove(beat.group_id, [found.member_id])
        if error:
            return Refusal(error, None)
        return None if error is None else HeartbeatReply(beat.member_id, beat.member_epoch)

    def _join(self, ask: JoinAsk, member_id: str, protocols: Protocols) -> Steps[JoinReply | None]:
        """Decide on a JoinGroup as on a heartbeat. Return None if the group has no members of the consumer protocol."""
        while True:
            metadata, error = self._manager.find(ask.group_id)
            if metadata is None or not isinstance(metadata.group, ConsumerGroup) or metadata.group.is_empty:
                return JoinReply(error) if error else None
            group = metadata.group
            error = refuse_join(group, ask, protocols, self._policy, self.config.group_consumer_max_size)
            if error:
                return JoinReply(error)
            if ask.needs_id:
                return JoinReply(ErrorCode.MEMBER_ID_REQUIRED, member_id)
            try:
                beat = yield from read_join(ask, member_id, protocols, self.find_topic)
            except ProtocolError:
                return JoinReply(ErrorCode.UNKNOWN_SERVER_ERROR)
            replaced = find_consumer_holder(group, ask.group_instance_id)
            downgrades = replaced is not None and self._can_downgrade(group, [replaced], replaces=True)
            topics_version = self._cluster.metadata_log.end_offset
            decision = yield from decide_heartbeat(
                group,
                beat,
                self._settings(ask.group_id),
                self.find_topic,
                self._clock.now_ms(),
                group.topics_version != topics_version,
                keeps_target=downgrades,
            )
            if isinstance(decision, Refusal):
                return JoinReply(decision.error)
            if decision is None or not self._is_current(ask.group_id, group):
                continue
            if replaced is None or not downgrades:
                error = self._follow(group, decision, decision.records, None, topics_version, None)
                if not error:
                    self._await_sync(metadata, group, decision.member)
            else:
                downgrade = yield from decide_downgrade(
                    group, [replaced], decision, self._find_name, self._clock.now_ms()
                )
                if downgrade is None or not self._is_current(ask.group_id, group):
                    continue
                error = self._downgrade(metadata.shard, ask.group_id, downgrade)
            if error:
                return JoinReply(error)
            return JoinReply(ErrorCode.NONE, member_id, decision.reply.member_epoch, TYPE, protocols[0][0])

    def _is_current(self, group_id: str, group: ClassicGroup | ConsumerGroup | None) -> bool:
        """Return whether a group is still the one of this id; for None, whether there is still none."""
        metadata, error = self._manager.find(group_id)
        return not error and (None if metadata is None else metadata.group) is group

    def _follow(
        self,
        group: ConsumerGroup,
        decision: Decision,
        records: Rows,
        encoded: EncodedRows | None,
        topics_version: int,
        may_describe: MayDescribe | None,
    ) -> ErrorCode:
        """Log the records of a decision and apply them. Then set the timers of its member, unless it leaves.

        `group` is as the decision saw it. `encoded` are the same records, if they were encoded in steps before. The
        session of a static member that leaves for a while goes on from its last heartbeat.
        """
        previous = group.members.get(decision.member.member_id)
        if records:
            shard = self._manager.shards[self._manager.partition_for(group.group_id)]
            error = self._manager.log_consumer_group(shard, records, encoded)
            if error:
                return error
        metadata, error = self._manager.find(group.group_id)
        if metadata is None or not isinstance(metadata.group, ConsumerGroup):
            return error
        if decision.reply.member_epoch >= 0:  # a leave does not compare the topics
            self._rebalances += count_epochs(decision.records)
            metadata.group.topics_version = topics_version
            self._start_timers(metadata.group, decision.member, previous)
        self._arm(metadata)
        if decision.regexes and may_describe is not None and AVAILABLE:
            most_bytes = self.config.group_member_max_metadata_bytes
            self._resolver.start(metadata.group, decision.regexes, may_describe, most_bytes)
        return error

    def _downgrade(self, shard: GroupShard, group_id: str, downgrade: Downgrade) -> ErrorCode:
        """Log the records of a downgrade and apply them. Then begin a rebalance if the targets are not current."""
        error = self._manager.log_consumer_group(shard, downgrade.records)
        metadata, _ = self._manager.find(group_id)
        if error or metadata is None or not isinstance(metadata.group, ClassicGroup):
            return error
        classic = metadata.group
        for member in classic.members.values():
            classic.roster.update(member, downgrade.protocols[member.member_id], member.timeouts)
        now = Moment(self._clock.monotonic_ms(), self._clock.now_ms())
        classic.start_sessions(now.monotonic_ms)
        log.info("Group %(group).100s: it is a classic group now", {"group": group_id})
        outcome = Outcome() if downgrade.reason is None else classic.begin_again(now, downgrade.reason)
        self._follow_classic(metadata, outcome)
        return error

    def _remove(self, group_id: str, member_ids: Sequence[str]) -> Steps[ErrorCode | None]:
        """Remove the members of these ids that are still there. Return None if the group is a classic one meanwhile."""
        while True:
            metadata, error = self._manager.find(group_id)
            if error or metadata is None or not isinstance(metadata.group, ConsumerGroup):
                return error or None
            group = metadata.group
            members = [group.members[member_id] for member_id in member_ids if member_id in group.members]
            if not members:
                return ErrorCode.NONE
            if self._can_downgrade(group, members):
                downgrade = yield from decide_downgrade(group, members, None, self._find_name, self._clock.now_ms())
                if downgrade is not None and self._is_current(group_id, group):
                    return self._downgrade(metadata.shard, group_id, downgrade)
                continue
            records = yield from decide_removal(group, members, self.find_topic)
            if records is not None and self._is_current(group_id, group):
                break
        error = self._manager.log_consumer_group(metadata.shard, records)
        if error:
            log.error(
                "Members of group %(group).100s could not be removed: %(error)s",
                {"group": group_id, "error": error.name},
            )
        return error

    def _start_timers(
        self,
        group: ConsumerGroup,
        member: ConsumerGroupMember,
        previous: ConsumerGroupMember | None = None,
        *,
        is_loaded: bool = False,
    ) -> None:
        """Begin the session of a member, and the time for what it must give up, if `previous` had something else.

        A loaded member of the classic protocol has both, too, as in Kafka.
        """
        now_ms = self._clock.monotonic_ms()
        classic = None if is_loaded else member.metadata.classic
        if classic is None:
            session_ms = self._timeouts_of(group.group_id).session_timeout_ms
            group.joins.pop(member.member_id, None)
            group.syncs.pop(member.member_id, None)
        else:
            session_ms = classic.session_timeout_ms
        group.start_session(member.member_id, now_ms + session_ms)
        if classic is not None or member.state is not MemberState.UNREVOKED_PARTITIONS:
            group.rebalances.pop(member.member_id, None)
        elif previous is None or previous.current != member.current:
            group.start_rebalance(member, now_ms + member.metadata.rebalance_timeout_ms)
