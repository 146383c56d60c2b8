"""The group coordinator: finds the group, asks it, logs, wakes who waits. shell

One broker coordinates every group. Membership is here, committed offsets are in `commits.py`; both share the directory.
"""

import logging
from collections.abc import Sequence
from typing import NamedTuple, TypeVar
from uuid import uuid4

from ottla.broker.cluster.metadata import Cluster
from ottla.broker.cluster.sinks import TransactionMarker
from ottla.broker.config import Config
from ottla.broker.group.commits import OffsetCommits
from ottla.broker.group.directory import GroupDirectory
from ottla.broker.group.log import client_error, group_batch
from ottla.broker.group.machine import JoinReply, Outcome, SyncReply
from ottla.broker.group.members import Caller, Member, Protocols
from ottla.broker.group.states import GroupState
from ottla.broker.group.store import Entry
from ottla.broker.ports.clock import Clock
from ottla.broker.turns import Turns, Wait
from ottla.protocol.errors import ErrorCode

log = logging.getLogger("ottla.group")

W = TypeVar("W")


class JoinAsk(NamedTuple):
    """What JoinGroup asks. `known_id_needed`: v4+ (KIP-394); `can_skip_assignment`: v9+ (KIP-814)."""

    group_id: str
    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    known_id_needed: bool
    can_skip_assignment: bool


class GroupCoordinator:
    """Every consumer group of one broker."""

    def __init__(self, cluster: Cluster, turns: Turns, clock: Clock, config: Config) -> None:
        self._turns = turns
        self._clock = clock
        self._config = config
        self._directory = GroupDirectory(cluster, turns, clock, config.group_initial_rebalance_delay_ms)
        self.offsets = OffsetCommits(self._directory, clock, config.offset_metadata_max_bytes)
        cluster.on_topic_deleted.append(lambda topic: self.offsets.forget_topic(topic.name))

    def open(self) -> None:
        """Load the groups, over as many turns as it takes."""
        self._turns.start(self._directory.load(), lambda _none: self._loaded(), _load_failed)

    def _loaded(self) -> None:
        for entry in list(self._directory.store.entries.values()):
            self._arm(entry)

    def write_marker(self, topic: str, index: int, marker: TransactionMarker) -> ErrorCode:
        """A transaction that committed offsets here has ended (`MarkerSink`)."""
        return self.offsets.write_marker(index, marker)

    def entries(self) -> list[Entry]:
        """Every group, for ListGroups."""
        return list(self._directory.store.entries.values())

    def describe(self, group_id: str) -> tuple[ErrorCode, Entry | None]:
        """One group, for DescribeGroups; no entry means that there is no such group."""
        error = self._directory.unavailable(group_id)
        return error, None if error else self._directory.find(group_id)

    # -- membership -----------------------------------------------------------------------------------------------

    async def join(self, ask: JoinAsk) -> JoinReply:
        """JoinGroup: waits until the group's next generation, unless the current one will do."""
        error = self._directory.unavailable(ask.group_id) or self._bad_session(ask)
        if error:
            return JoinReply(error, ask.member_id)
        entry = self._directory.find(ask.group_id)
        if entry is None:
            if ask.member_id:
                return JoinReply(ErrorCode.UNKNOWN_MEMBER_ID, ask.member_id)
            entry = self._directory.obtain(ask.group_id)
        group, now_ms = entry.group, self._clock.monotonic_ms()
        error = self._join_error(entry, ask)
        if error:
            return JoinReply(error, ask.member_id)
        member_id = ask.member_id or f"{ask.group_instance_id or ask.client_id}-{uuid4()}"
        if not ask.member_id and ask.group_instance_id is None and ask.known_id_needed:
            group.reserve(member_id, ask.session_timeout_ms, now_ms)
            self._arm(entry)
            return JoinReply(ErrorCode.MEMBER_ID_REQUIRED, member_id)
        wait = self._wait(entry.joins, member_id, JoinReply(ErrorCode.REBALANCE_IN_PROGRESS, member_id))
        self._follow(entry, self._joined(entry, ask, member_id, now_ms))
        return await wait

    def _joined(self, entry: Entry, ask: JoinAsk, member_id: str, now_ms: float) -> Outcome:
        group = entry.group
        known = group.members.get(member_id)
        if known is not None:
            return group.rejoin(known, ask.protocols, (ask.rebalance_timeout_ms, ask.session_timeout_ms), now_ms)
        member = Member(
            member_id,
            ask.group_instance_id,
            ask.client_id,
            ask.client_host,
            ask.rebalance_timeout_ms,
            ask.session_timeout_ms,
            ask.protocol_type,
            ask.protocols,
        )
        old_id = group.static_members.get(ask.group_instance_id) if ask.group_instance_id is not None else None
        if old_id is not None:
            return group.replace_static(old_id, member, ask.can_skip_assignment, now_ms)
        return group.add(member, now_ms)

    def _bad_session(self, ask: JoinAsk) -> ErrorCode:
        low, high = self._config.group_min_session_timeout_ms, self._config.group_max_session_timeout_ms
        return ErrorCode.NONE if low <= ask.session_timeout_ms <= high else ErrorCode.INVALID_SESSION_TIMEOUT

    def _join_error(self, entry: Entry, ask: JoinAsk) -> ErrorCode:
        group = entry.group
        is_new = not ask.member_id or ask.member_id in group.pending_members
        if not is_new:
            error = group.member_error(ask.member_id, ask.group_instance_id)
            if error:
                return error
        elif len(group.members) >= self._config.group_max_size and not group.static_members.get(
            ask.group_instance_id or ""
        ):
            return ErrorCode.GROUP_MAX_SIZE_REACHED
        if not group.accepts(ask.protocol_type, ask.protocols):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        return ErrorCode.NONE

    async def sync(
        self,
        caller: Caller,
        protocol: tuple[str | None, str | None],
        assignments: Sequence[tuple[str, bytes]],
    ) -> SyncReply:
        """SyncGroup: waits for the leader's assignment. `protocol` is (type, name), None where the version has none."""
        entry, error = self._member(caller)
        if error or entry is None:
            return SyncReply(error)
        group = entry.group
        protocol_type, name = protocol
        if (protocol_type is not None and protocol_type != group.protocol_type) or (
            name is not None and name != group.protocol
        ):
            return SyncReply(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if group.state is GroupState.PREPARING_REBALANCE:
            return SyncReply(ErrorCode.REBALANCE_IN_PROGRESS)
        wait = self._wait(entry.syncs, caller.member_id, SyncReply(ErrorCode.REBALANCE_IN_PROGRESS))
        self._follow(entry, group.sync(caller.member_id, assignments, self._clock.monotonic_ms()))
        return await wait

    def heartbeat(self, caller: Caller) -> ErrorCode:
        """Heartbeat: the member lives; REBALANCE_IN_PROGRESS tells it to join again."""
        entry, error = self._member(caller)
        if error or entry is None:
            return error
        entry.group.members[caller.member_id].touch(self._clock.monotonic_ms())
        if entry.group.state is GroupState.PREPARING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    def leave(self, group_id: str, member_id: str, group_instance_id: str | None) -> tuple[ErrorCode, str]:
        """LeaveGroup for one member; a static member may leave by its instance id alone. Returns its member id too."""
        error = self._directory.unavailable(group_id)
        entry = self._directory.find(group_id)
        if error or entry is None:
            return error or ErrorCode.UNKNOWN_MEMBER_ID, member_id
        group = entry.group
        if group_instance_id is not None and not member_id:
            member_id = group.static_members.get(group_instance_id, "")
        if member_id not in group.pending_members:
            error = group.member_error(member_id, group_instance_id)
            if error:
                return error, member_id
        self._follow(entry, group.remove(member_id, self._clock.monotonic_ms()))
        return ErrorCode.NONE, member_id

    def _member(self, caller: Caller) -> tuple[Entry | None, ErrorCode]:
        """The group of a member that must be in its current generation."""
        error = self._directory.unavailable(caller.group_id)
        if error:
            return None, error
        entry = self._directory.find(caller.group_id)
        if entry is None:
            return None, ErrorCode.UNKNOWN_MEMBER_ID
        error = entry.group.member_error(caller.member_id, caller.group_instance_id)
        if not error and caller.generation != entry.group.generation:
            error = ErrorCode.ILLEGAL_GENERATION
        return entry, error

    # -- what follows ---------------------------------------------------------------------------------------------

    def _follow(self, entry: Entry, outcome: Outcome) -> None:
        """Log what must be logged, wake who waits, set the timer."""
        if outcome.save:
            self._save(entry, outcome)
        for member_id, joined in outcome.joined.items():
            join = entry.joins.pop(member_id, None)
            if join is not None:
                join.wake(joined)
        for member_id, synced in outcome.synced.items():
            sync = entry.syncs.pop(member_id, None)
            if sync is not None:
                sync.wake(synced)
        self._arm(entry)

    def _save(self, entry: Entry, outcome: Outcome) -> None:
        group = entry.group
        batch = group_batch(group.group_id, group.value(), self._clock.now_ms())
        result = self._directory.partition(entry.index).append_own(batch)
        if group.state is not GroupState.COMPLETING_REBALANCE:
            if result.error:
                log.error("Group %s could not be logged: %s", group.group_id, result.error.name)
            return
        if result.error:
            more = group.not_assigned(client_error(result.error))
        else:
            more = group.assigned(self._clock.monotonic_ms())
        outcome.synced |= more.synced

    def _wait(self, waits: dict[str, Wait[W]], member_id: str, overtaken: W) -> Wait[W]:
        old = waits.pop(member_id, None)
        if old is not None:
            old.wake(overtaken)
        wait: Wait[W] = Wait(self._turns)
        wait.on_discard = lambda: _drop(waits, member_id, wait)
        waits[member_id] = wait
        return wait

    def _arm(self, entry: Entry) -> None:
        """One timer per group, for the earliest deadline; heartbeats only move deadlines back, so it may come early."""
        deadline = entry.group.next_deadline_ms()
        if deadline is None or (entry.wake_at_ms is not None and entry.wake_at_ms <= deadline):
            return
        entry.wake_at_ms = deadline
        delay_ms = max(0.0, deadline - self._clock.monotonic_ms())
        self._clock.call_later(delay_ms, lambda: self._tick(entry, deadline))

    def _tick(self, entry: Entry, armed_for_ms: float) -> None:
        if entry.wake_at_ms != armed_for_ms or self._directory.find(entry.group.group_id) is not entry:
            return
        entry.wake_at_ms = None
        self._follow(entry, entry.group.tick(self._clock.monotonic_ms()))


def _drop(waits: dict[str, Wait[W]], member_id: str, wait: Wait[W]) -> None:
    if waits.get(member_id) is wait:
        del waits[member_id]


def _load_failed(error: Exception) -> None:
    log.error("Loading the groups failed: they stay unavailable", exc_info=error)
