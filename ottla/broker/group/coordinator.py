"""The group coordinator: finds the group, calls it, logs its steps, wakes waiting handlers. shell

Membership is here, committed offsets are in `commits.py`; both share the manager.

Source: `org.apache.kafka.coordinator.group.GroupCoordinatorService`, `GroupMetadataManager` of Kafka 4.3.1.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Final, TypeVar
from uuid import UUID, uuid4

from ottla.broker.cluster.metadata import Cluster
from ottla.broker.config import Config
from ottla.broker.coordinator.periodic import Periodic
from ottla.broker.costs import ROW_US
from ottla.broker.deadline import Deadline
from ottla.broker.group.classic_group import ClassicGroup
from ottla.broker.group.commits import OffsetCommits
from ottla.broker.group.consumer.consumer_group import ConsumerGroup
from ottla.broker.group.deleted_topics import DeletedTopics
from ottla.broker.group.deletion import GroupDeletion
from ottla.broker.group.members import NEVER_MS, Caller, JoinAsk, Member, Moment, Protocols
from ottla.broker.group.metadata_manager import GroupMetadataManager
from ottla.broker.group.offset_expiration import OffsetExpiration
from ottla.broker.group.replies import JoinReply, Outcome, SyncReply
from ottla.broker.group.shard import GroupMetadata
from ottla.broker.group.states import ClassicGroupState
from ottla.broker.ports.clock import Clock
from ottla.broker.ports.workers import Workers
from ottla.broker.turns import OneAtATime, Turns, Wait
from ottla.protocol.checkpoints import encode_id
from ottla.protocol.errors import ErrorCode
from ottla.protocol.fields import fits_a_string

if TYPE_CHECKING:
    from ottla.broker.group.consumer.coordinator import ConsumerGroups

log = logging.getLogger(__name__)

MINUTE_MS: Final = 60_000
REPLY_US: Final = 20.0
"""The cost of waking one waiting request and sending its reply."""

W = TypeVar("W")


class GroupCoordinator:
    """The groups that one broker coordinates.

    `become` and `resign` are called with the number of a partition of `__consumer_offsets` when its leader changes.
    """

    def __init__(
        self,
        cluster: Cluster,
        turns: Turns,
        clock: Clock,
        config: Config,
        new_member_uuid: Callable[[], UUID] = uuid4,
        workers: Workers | None = None,
    ) -> None:
        """Create the coordinator without groups. Without `workers` all work runs in turns."""
        self._turns = turns
        self._clock = clock
        self._config = config
        self._new_member_uuid = new_member_uuid
        self._manager = GroupMetadataManager(
            cluster, turns, clock, config.group_initial_rebalance_delay_ms, self._start_group, self._resign_group
        )
        self.become, self.resign = self._manager.become, self._manager.resign
        self.offsets = OffsetCommits(self._manager, clock, config.offset_metadata_max_bytes)
        retention_ms = config.offsets_retention_minutes * MINUTE_MS
        expiration = OffsetExpiration(self._manager, turns, clock, retention_ms)
        self.deletion = GroupDeletion(self._manager, turns, clock)
        self._cluster, self._workers = cluster, workers
        self.completed_rebalances = 0
        """The number of assignments that classic groups have got from their leaders since the start."""
        self._deleted_topics = DeletedTopics(self._manager, turns, clock)
        interval_ms = config.offsets_retention_check_interval_ms
        self._cleaning = Periodic("expired offsets", interval_ms, expiration.expire, turns, clock)
        self._is_frozen = False
        self._thawing = OneAtATime(turns, self._log_failed_thaw)
        self.complete_transaction = self._manager.complete_transaction
        cluster.on_topic_deleted.append(lambda topic: self._deleted_topics.forget_topic(topic.name))

    @cached_property
    def consumer_groups(self) -> "ConsumerGroups":
        """The groups of the consumer protocol. Their rules are imported on the first use: many brokers have none."""
        from ottla.broker.group.consumer.coordinator import ConsumerGroups

        return ConsumerGroups(
            *(self._manager, self._cluster, self._turns, self._clock, self._config, self._arm, self._follow),
            self._workers,
        )

    def open(self, *, frozen: bool = False) -> None:
        """Load the groups in the background, over as many turns as it takes.

        With `frozen`, no loaded member and no committed offset expires until `unfreeze`.
        """
        self._is_frozen = frozen
        self._manager.start()
        if not frozen:
            self._cleaning.start()

    def unfreeze(self) -> None:
        """Start the sessions of loaded members and the expiration of offsets, after a start with `frozen`."""
        self._is_frozen = False
        self._cleaning.start()
        self._thawing.start(self._start_groups)

    def stop(self) -> None:
        """Cancel every timer and the work in progress. Nothing is read or written after this."""
        self.deletion.stop()
        self._deleted_topics.stop()
        self._thawing.discard()
        if "consumer_groups" in self.__dict__:
            self.consumer_groups.stop()
        self._manager.stop()
        self._cleaning.stop()
        for metadata in self._manager.groups():
            metadata.cancel_timer()

    @property
    def remaining_to_load(self) -> int:
        """The number of partitions whose groups are still being loaded."""
        return len(self._manager.loading)

    def list_groups(self) -> tuple[ErrorCode, list[GroupMetadata]]:
        """Return every group, for ListGroups; COORDINATOR_LOAD_IN_PROGRESS until all partitions are loaded."""
        if self._manager.loading:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, []
        return ErrorCode.NONE, self._manager.groups()

    def describe(self, group_id: str) -> tuple[GroupMetadata | None, ErrorCode]:
        """Return one group, for DescribeGroups; neither metadata nor an error if the group does not exist."""
        return self._manager.find(group_id)

    # -- membership -----------------------------------------------------------------------------------------------

    async def join(self, request: JoinAsk) -> JoinReply:
        """Handle JoinGroup: wait for the group's next generation, or return the current one if that is enough."""
        if not request.group_id:
            return JoinReply(ErrorCode.INVALID_GROUP_ID, request.member_id)
        if self._is_bad_session(request):
            return JoinReply(ErrorCode.INVALID_SESSION_TIMEOUT, request.member_id)
        protocols = await self._read_protocols(request)
        if protocols is None:
            return JoinReply(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, request.member_id)
        metadata, error = self._manager.find(request.group_id)
        if metadata is not None and isinstance(metadata.group, ConsumerGroup) and not metadata.group.is_empty:
            drawn_id = encode_id(self._new_member_uuid().bytes)
            joined = await self.consumer_groups.join(metadata.group, request, drawn_id, protocols)
            if joined is not None:
                return joined
            metadata, error = self._manager.find(request.group_id)
        if error:
            return JoinReply(error)
        if metadata is None:
            if request.member_id:
                return JoinReply(ErrorCode.UNKNOWN_MEMBER_ID, request.member_id)
            metadata, error = self._begin_group(request.group_id)
            if metadata is None:
                return JoinReply(error)
        group = metadata.group
        if isinstance(group, ConsumerGroup):
            if request.member_id:
                return JoinReply(ErrorCode.UNKNOWN_MEMBER_ID, request.member_id)
            metadata, error = self._replace_by_classic(metadata)
            if metadata is None or isinstance(metadata.group, ConsumerGroup):
                return JoinReply(error)
            group = metadata.group
        refused = self._refuse_join(group, request, protocols)
        if refused is not None:
            return refused
        member_id = request.member_id or self._draw_member_id(request)
        if not fits_a_string(member_id):
            return JoinReply(ErrorCode.UNKNOWN_SERVER_ERROR)  # Kafka fails to encode the id, with this error
        if request.needs_id:
            group.reserve(member_id, request.timeouts.session_ms, self._clock.monotonic_ms())
            self._arm(metadata)
            return JoinReply(ErrorCode.MEMBER_ID_REQUIRED, member_id)
        outcome = _join_member(group, request, protocols, member_id, self._now())
        wait = self._wait(metadata.joins, member_id, JoinReply(ErrorCode.REBALANCE_IN_PROGRESS, member_id))
        self._follow(metadata, outcome)
        return await wait

    def _begin_group(self, group_id: str) -> tuple[GroupMetadata | None, ErrorCode]:
        """Create an empty group. It is logged whether or not its first member is accepted."""
        index = self._manager.partition_for(group_id)
        error = self._manager.log_group(index, group_id, ClassicGroup(group_id, 0, self._clock.now_ms()).value())
        if error:
            log.error("Group %(group).100s could not be logged: %(error)s", {"group": group_id, "error": error.name})
            return None, error
        return self._manager.find(group_id)

    def _replace_by_classic(self, metadata: GroupMetadata) -> tuple[GroupMetadata | None, ErrorCode]:
        """Replace a group of the consumer protocol that has no members by an empty classic group."""
        group_id = metadata.group.group_id
        error = self._manager.log_removal(metadata)
        return (None, error) if error else self._begin_group(group_id)

    def _is_bad_session(self, request: JoinAsk) -> bool:
        low, high = self._config.group_min_session_timeout_ms, self._config.group_max_session_timeout_ms
        return not low <= request.timeouts.session_ms <= high

    async def _read_protocols(self, request: JoinAsk) -> Protocols | None:
        """Return the member's protocols, each name once. As in Kafka the first metadata of a name counts.

        None if there are more protocols or bytes than group.member.max.protocols and group.member.max.metadata.bytes
        allow: they take memory, and each rebalance reads them.
        """
        most, most_bytes = self._config.group_member_max_protocols, self._config.group_member_max_metadata_bytes
        named: dict[str, bytes] = {}
        size_bytes = 0
        for name, metadata in request.protocols:
            if name not in named:
                named[name] = metadata
                size_bytes += len(metadata)
                if len(named) > most or size_bytes > most_bytes:
                    break
            await self._turns.spend(ROW_US)
        else:
            return tuple(named.items())
        log.warning(
            "Refused a member of group %(group).100s from %(peer)s: it names more than %(most)d protocols, or gives "
            "more than %(most_bytes)d bytes of metadata (group.member.max.protocols, group.member.max.metadata.bytes)",
            {"group": request.group_id, "peer": request.client_host, "most": most, "most_bytes": most_bytes},
        )
        return None

    def _draw_member_id(self, request: JoinAsk) -> str:
        name = request.client_id if request.group_instance_id is None else request.group_instance_id
        return f"{name}-{self._new_member_uuid()}"

    def _refuse_join(self, group: ClassicGroup, request: JoinAsk, protocols: Protocols) -> JoinReply | None:
        member_id = request.member_id
        if not group.can_add(member_id, self._config.group_max_size):
            group.roster.remove(member_id)
            return JoinReply(ErrorCode.GROUP_MAX_SIZE_REACHED)
        if not group.accepts(request.protocol_type, protocols):
            return JoinReply(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, member_id)
        if member_id in group.roster.pending:
            # Only dynamic members get an id before they join; Kafka throws an exception here.
            return None if request.group_instance_id is None else JoinReply(ErrorCode.UNKNOWN_SERVER_ERROR)
        error = group.roster.error(member_id, request.group_instance_id) if member_id else ErrorCode.NONE
        return JoinReply(error, member_id) if error else None

    async def sync(
        self,
        caller: Caller,
        protocol: tuple[str | None, str | None],
        assignments: Sequence[tuple[str, bytes]],
    ) -> SyncReply:
        """Handle SyncGroup: wait for the leader's assignment. `protocol` is (type, name), None where the version has
        none."""
        metadata, error = self._find_group(caller)
        if metadata is None:
            return SyncReply(error)
        group = metadata.group
        if isinstance(group, ConsumerGroup):
            return await self.consumer_groups.sync(metadata, group, caller, protocol)
        error = _member_error(group, caller)
        if error:
            return SyncReply(error)
        if _differs(protocol[0], group.protocol_type) or _differs(protocol[1], group.protocol):
            return SyncReply(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if group.state is ClassicGroupState.PREPARING_REBALANCE:
            return SyncReply(ErrorCode.REBALANCE_IN_PROGRESS)
        is_rebalancing = group.state is ClassicGroupState.COMPLETING_REBALANCE
        outcome = group.sync(group.members[caller.member_id], assignments)
        del assignments  # free the memory: a follower may wait long, and may have sent some
        wait = self._wait(metadata.syncs, caller.member_id, SyncReply(ErrorCode.REBALANCE_IN_PROGRESS))
        self._follow(metadata, outcome)
        self.completed_rebalances += is_rebalancing and group.state is ClassicGroupState.STABLE
        return await wait

    async def heartbeat(self, caller: Caller) -> ErrorCode:
        """Handle Heartbeat: extend the member's session. REBALANCE_IN_PROGRESS makes the member join again."""
        metadata, error = self._find_group(caller)
        if metadata is None:
            # Members are not known before the partition is loaded: the heartbeat succeeds, as in Kafka.
            return ErrorCode.NONE if error == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS else error
        group = metadata.group
        if isinstance(group, ConsumerGroup):
            return await self.consumer_groups.heartbeat_classic(metadata, group, caller)
        error = _member_error(group, caller)
        if error:
            return error
        group.members[caller.member_id].touch(self._clock.monotonic_ms())
        if group.state is ClassicGroupState.PREPARING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    async def leave(
        self, group_id: str, who: Sequence[tuple[str, str | None]], client_reason: str | None = None
    ) -> tuple[ErrorCode, Sequence[ErrorCode]]:
        """Handle LeaveGroup of (member id, instance id) each: return the error of the request, and one per member.

        A static member may leave by its instance id alone.
        """
        if not group_id:
            return ErrorCode.INVALID_GROUP_ID, []
        metadata, error = self._manager.find(group_id)
        self._turns.charge(ROW_US * len(who))
        if metadata is not None and isinstance(metadata.group, ConsumerGroup):
            removed = await self.consumer_groups.remove_members(metadata.group, who)
            if removed is not None:
                return removed
            metadata, error = self._manager.find(group_id)
        if error:
            return error, []
        if metadata is None or isinstance(metadata.group, ConsumerGroup):
            return ErrorCode.NONE, [ErrorCode.UNKNOWN_MEMBER_ID] * len(who)
        errors, outcome = metadata.group.leave(who, self._now(), client_reason)
        self._follow(metadata, outcome)
        return ErrorCode.NONE, errors

    def _find_group(self, caller: Caller) -> tuple[GroupMetadata | None, ErrorCode]:
        """Return the group of a caller, or an error."""
        if not caller.group_id:
            return None, ErrorCode.INVALID_GROUP_ID
        metadata, error = self._manager.find(caller.group_id)
        return metadata, error or (ErrorCode.UNKNOWN_MEMBER_ID if metadata is None else ErrorCode.NONE)

    # -- outcomes and timers --------------------------------------------------------------------------------------

    def _follow(self, metadata: GroupMetadata, outcome: Outcome) -> None:
        """Log the step of an outcome, if it has one, and apply it. Then wake waiting handlers and set the timer."""
        if outcome.step is not None and isinstance(metadata.group, ClassicGroup):
            outcome.add(self._manager.log_step(metadata, metadata.group, outcome.step, self._now()))
        for text, values in outcome.lines:
            log.info(text, values)
        joins, syncs = metadata.joins, metadata.syncs
        self._wake_waiting(iter([(joins.pop(each), reply) for each, reply in outcome.joined.items() if each in joins]))
        self._wake_waiting(iter([(syncs.pop(each), reply) for each, reply in outcome.synced.items() if each in syncs]))
        self._arm(metadata)

    def _wake_waiting(self, due: Iterator[tuple[Wait[W], W]]) -> None:
        """Wake waiting handlers, in shares: a generation or an assignment is sent to all members."""
        for wait, reply in due:
            wait.wake(reply)
            self._turns.charge(REPLY_US)
            if self._turns.is_spent:
                self._turns.run_later(lambda: self._wake_waiting(due))
                return

    def _now(self) -> Moment:
        return Moment(self._clock.monotonic_ms(), self._clock.now_ms())

    def _wait(self, waits: dict[str, Wait[W]], member_id: str, overtaken: W) -> Wait[W]:
        """Register a handler that waits for the member's reply. An earlier request of the member is answered with
        `overtaken`.

        If the client disconnects the handler is removed; its member stays until its session ends.
        """
        old = waits.pop(member_id, None)
        if old is not None:
            old.wake(overtaken)
        wait: Wait[W] = Wait(self._turns)
        wait.on_discard = lambda: _drop(waits, member_id, wait)
        waits[member_id] = wait
        return wait

    def _arm(self, metadata: GroupMetadata) -> None:
        """Set the group's timer to its earliest deadline. It may fire early, because heartbeats only extend the
        deadlines."""
        due_ms = metadata.group.due_ms
        if due_ms == NEVER_MS:
            metadata.cancel_timer()
        elif metadata.timer is None or due_ms < metadata.wake_at_ms:
            metadata.cancel_timer()
            metadata.wake_at_ms = due_ms
            delay_ms = max(0.0, due_ms - self._clock.monotonic_ms())
            metadata.timer = Deadline(self._clock, self._turns, delay_ms, lambda: self._tick(metadata))

    def _tick(self, metadata: GroupMetadata) -> None:
        metadata.timer = None
        if isinstance(metadata.group, ConsumerGroup):
            self.consumer_groups.remove_late_members(metadata, metadata.group)
        else:
            self._follow(metadata, metadata.group.tick(self._now()))

    # -- loaded groups --------------------------------------------------------------------------------------------

    async def _start_groups(self) -> None:
        for metadata in self._manager.groups():
            self._turns.charge(ROW_US * (1 + len(metadata.group.members)))
            if self._manager.find(metadata.group.group_id)[0] is metadata:
                self._start_group(metadata)
            await self._turns.yield_if_due()

    def _log_failed_thaw(self, error: Exception) -> None:
        log.error("Starting the sessions of loaded groups failed: restart the broker", exc_info=error)

    def _start_group(self, metadata: GroupMetadata) -> None:
        """Start the sessions of a loaded group, unless the broker is frozen."""
        if self._is_frozen:
            return
        group = metadata.group
        if isinstance(group, ConsumerGroup):
            self.consumer_groups.start_timers(metadata, group)
            return
        group.start_sessions(self._clock.monotonic_ms())
        too_large = len(group.members) > self._config.group_max_size
        why = "it was loaded with more members than group.max.size"
        self._follow(metadata, group.begin_again(self._now(), why) if too_large else Outcome())

    def _resign_group(self, metadata: GroupMetadata) -> None:
        """End the timer of a group that another broker coordinates now, and answer the requests that wait in it."""
        metadata.cancel_timer()
        joins, metadata.joins = metadata.joins, {}
        syncs, metadata.syncs = metadata.syncs, {}
        moved = ErrorCode.NOT_COORDINATOR
        self._wake_waiting(iter([(wait, JoinReply(moved, member_id)) for member_id, wait in joins.items()]))
        self._wake_waiting(iter([(wait, SyncReply(moved)) for wait in syncs.values()]))


def _join_member(group: ClassicGroup, request: JoinAsk, protocols: Protocols, member_id: str, now: Moment) -> Outcome:
    instance_id = request.group_instance_id
    known = group.members.get(member_id)
    if known is not None:
        return group.rejoin(known, protocols, request.timeouts, now, request.reason)
    old_id = None if instance_id is None else group.roster.static.get(instance_id)
    if old_id is not None:
        old = group.members[old_id]
        return group.replace_static(old, member_id, protocols, request.timeouts, request.can_skip_assignment, now)
    member = Member(member_id, instance_id, request.client_id, request.client_host, request.timeouts, protocols)
    return group.add(member, request.protocol_type, now, request.reason)


def _member_error(group: ClassicGroup, caller: Caller) -> ErrorCode:
    """Return the error of a caller that is no member of the group in its generation, else NONE."""
    error = group.roster.error(caller.member_id, caller.group_instance_id)
    return ErrorCode.ILLEGAL_GENERATION if not error and caller.generation != group.generation else error


def _differs(given: str | None, own: str | None) -> bool:
    return given is not None and own is not None and given != own


def _drop(waits: dict[str, Wait[W]], member_id: str, wait: Wait[W]) -> None:
    if waits.get(member_id) is wait:
        del waits[member_id]
