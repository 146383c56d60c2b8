"""A classic consumer group: who is in it, and how a rebalance goes. pure

Every method takes the monotonic time as an argument and returns what must happen: replies to members that wait, and a
record to log. `next_deadline_ms` and `tick` are its timers. Membership between two generations lives in memory only;
what is durable is the group's last record (`value`).

Source: `org.apache.kafka.coordinator.group.classic.ClassicGroup`, `GroupMetadataManager` of Kafka 4.3.1.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from ottla.broker.group.members import Member, Protocols, choose_protocol, common_protocols
from ottla.broker.group.states import GroupState, check_transition
from ottla.protocol.errors import ErrorCode
from ottla.protocol.state_records import GroupValue


class JoinReply(NamedTuple):
    """What JoinGroup answers; `members` is filled for the leader alone: (member id, instance id, subscription)."""

    error: ErrorCode
    member_id: str = ""
    generation: int = -1
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = ""
    members: tuple[tuple[str, str | None, bytes], ...] = ()
    skip_assignment: bool = False


class SyncReply(NamedTuple):
    """What SyncGroup answers."""

    error: ErrorCode
    protocol_type: str | None = None
    protocol: str | None = None
    assignment: bytes = b""


@dataclass(slots=True)
class Outcome:
    """What follows from an event: replies by member id, and whether `group.value()` must be logged."""

    joined: dict[str, JoinReply] = field(default_factory=dict)
    synced: dict[str, SyncReply] = field(default_factory=dict)
    save: bool = False


class Group:
    """One classic group.

    `initial_delay_ms` holds the first rebalance open for members that start together; `wall_offset_ms` is what wall
    time is ahead of monotonic time (only the state's timestamp is wall time).
    """

    def __init__(self, group_id: str, initial_delay_ms: int, wall_offset_ms: float, now_ms: float) -> None:
        self.group_id = group_id
        self.state = GroupState.EMPTY
        self.state_timestamp_ms = int(now_ms + wall_offset_ms)
        self._wall_offset_ms = wall_offset_ms
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        self.leader: str | None = None
        self.members: dict[str, Member] = {}
        self.static_members: dict[str, str] = {}
        self.pending_members: dict[str, float] = {}
        self._initial_delay_ms = initial_delay_ms
        self._join_deadline_ms: float | None = None
        self._join_limit_ms = 0.0
        self._sync_deadline_ms: float | None = None
        self._grew = False

    # -- what is durable ------------------------------------------------------------------------------------------

    def value(self) -> GroupValue:
        """The group's record as it stands."""
        empty = not self.members
        return GroupValue(
            protocol_type=self.protocol_type or "",
            generation=self.generation,
            protocol=None if empty else self.protocol,
            leader=None if empty else self.leader,
            state_timestamp_ms=self.state_timestamp_ms,
            members=tuple(member.saved(self.protocol) for member in self.members.values()),
        )

    def restore(self, value: GroupValue, now_ms: float) -> None:
        """Take over a record that was loaded; every member gets a fresh session."""
        self.protocol_type = value.protocol_type or None
        self.generation = value.generation
        self.protocol = value.protocol
        self.leader = value.leader
        self.state = GroupState.STABLE if value.members else GroupState.EMPTY
        self.state_timestamp_ms = value.state_timestamp_ms
        self.members = {}
        self.static_members = {}
        for saved in value.members:
            member = Member(
                saved.member_id,
                saved.group_instance_id,
                saved.client_id,
                saved.client_host,
                saved.rebalance_timeout_ms,
                saved.session_timeout_ms,
                value.protocol_type,
                ((value.protocol or "", saved.subscription),),
                saved.assignment,
                synced=True,
            )
            member.touch(now_ms)
            self._index(member)

    # -- membership -----------------------------------------------------------------------------------------------

    def accepts(self, protocol_type: str, protocols: Protocols) -> bool:
        """Whether a member with these protocols can be in the group."""
        if not protocol_type or not protocols:
            return False
        if not self.members:
            return True
        shared = common_protocols(self.members.values())
        return protocol_type == self.protocol_type and any(name in shared for name, _metadata in protocols)

    def member_error(self, member_id: str, group_instance_id: str | None) -> ErrorCode:
        """UNKNOWN_MEMBER_ID or FENCED_INSTANCE_ID (KIP-345) when this is not a member."""
        if group_instance_id is not None:
            owner = self.static_members.get(group_instance_id)
            if owner is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if owner != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return ErrorCode.NONE if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    def reserve(self, member_id: str, session_timeout_ms: int, now_ms: float) -> None:
        """KIP-394: a new member is told its id first and must come back with it before its session ends."""
        self.pending_members[member_id] = now_ms + session_timeout_ms

    def add(self, member: Member, now_ms: float) -> Outcome:
        """A new member joins: rebalance."""
        self.pending_members.pop(member.member_id, None)
        if not self.members:
            self.protocol_type = member.protocol_type
        self._grew = True
        self._index(member)
        return self._joining(member, now_ms)

    def rejoin(self, member: Member, protocols: Protocols, timeouts: tuple[int, int], now_ms: float) -> Outcome:
        """A member joins again; `timeouts` are its rebalance and session timeouts.

        A follower whose protocols did not change gets the current generation again, since it may have missed the reply;
        everything else starts a rebalance.
        """
        changed = protocols != member.protocols
        follower = member.member_id != self.leader
        if self.state is GroupState.COMPLETING_REBALANCE and not changed:
            return Outcome(joined={member.member_id: self._join_reply(member)})
        if self.state is GroupState.STABLE and follower and not changed:
            return Outcome(joined={member.member_id: self._join_reply(member)})
        member.protocols = protocols
        member.rebalance_timeout_ms, member.session_timeout_ms = timeouts
        return self._joining(member, now_ms)

    def replace_static(self, old_id: str, member: Member, can_skip_assignment: bool, now_ms: float) -> Outcome:
        """A static member restarted: it takes its predecessor's place, whoever still uses the old id is fenced.

        The assignment stands when nothing changed. A leader that cannot be told to skip the assignment (JoinGroup below
        v9, KIP-814) is given the old id as the leader's, so that it acts as a follower.
        """
        old = self.members.pop(old_id)
        outcome = Outcome()
        self._fence_waiting(old, outcome)
        if self.leader == old_id:
            self.leader = member.member_id
        member.assignment = old.assignment
        unchanged = old.protocols == member.protocols
        self._index(member)
        if self.state is GroupState.STABLE and unchanged:
            member.synced = True
            member.touch(now_ms)
            reply = self._join_reply(member)
            if self.leader == member.member_id:
                reply = (
                    reply._replace(skip_assignment=True)
                    if can_skip_assignment
                    else reply._replace(leader=old_id, members=())
                )
            outcome.joined[member.member_id] = reply
            outcome.save = True
            return outcome
        return _merge(outcome, self._joining(member, now_ms))

    def remove(self, member_id: str, now_ms: float) -> Outcome:
        """A member leaves or its session ended."""
        outcome = Outcome()
        if self.pending_members.pop(member_id, None) is not None:
            return _merge(outcome, self._maybe_complete_join(now_ms))
        member = self.members.pop(member_id)
        if member.group_instance_id is not None:
            self.static_members.pop(member.group_instance_id, None)
        self._fence_waiting(member, outcome)
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)
        if self.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
            _merge(outcome, self._prepare_rebalance(now_ms))
        return _merge(outcome, self._maybe_complete_join(now_ms))

    # -- sync -----------------------------------------------------------------------------------------------------

    def sync(self, member_id: str, assignments: Iterable[tuple[str, bytes]], now_ms: float) -> Outcome:
        """A checked member asks for its assignment; the leader brings everybody's."""
        member = self.members[member_id]
        member.touch(now_ms)
        member.synced = True
        if self.state is GroupState.STABLE:
            return Outcome(synced={member_id: self._sync_reply(member)})
        member.awaiting_sync = True
        if member_id != self.leader:
            return Outcome()
        given = dict(assignments)
        for other in self.members.values():
            other.assignment = given.get(other.member_id, b"")
        return Outcome(save=True)

    def assigned(self, now_ms: float) -> Outcome:
        """The leader's assignment is logged: the group is stable, everybody who waits is told."""
        self._enter(GroupState.STABLE, now_ms)
        outcome = Outcome()
        for member in self.members.values():
            if member.awaiting_sync:
                member.awaiting_sync = False
                outcome.synced[member.member_id] = self._sync_reply(member)
        return outcome

    def not_assigned(self, error: ErrorCode) -> Outcome:
        """The assignment could not be logged: who waits for it gets the error and will join again."""
        outcome = Outcome()
        for member in self.members.values():
            member.assignment = b""
            if member.awaiting_sync:
                member.awaiting_sync = False
                outcome.synced[member.member_id] = SyncReply(error)
        return outcome

    # -- time -----------------------------------------------------------------------------------------------------

    def next_deadline_ms(self) -> float | None:
        """When `tick` must be called next; None when nothing is due."""
        deadlines = [member.session_deadline_ms for member in self.members.values() if not member.awaiting_join]
        deadlines += self.pending_members.values()
        deadlines += [at for at in (self._join_deadline_ms, self._sync_deadline_ms) if at is not None]
        return min(deadlines, default=None)

    def tick(self, now_ms: float) -> Outcome:
        """End sessions and rebalances whose time is over."""
        outcome = Outcome()
        for member_id in [name for name, at in self.pending_members.items() if at <= now_ms]:
            _merge(outcome, self.remove(member_id, now_ms))
        silent = [m for m in self.members.values() if not m.awaiting_join and m.session_deadline_ms <= now_ms]
        for member in silent:
            if member.awaiting_sync:
                member.touch(now_ms)
            else:
                _merge(outcome, self.remove(member.member_id, now_ms))
        if self._sync_deadline_ms is not None and self._sync_deadline_ms <= now_ms:
            self._sync_deadline_ms = None
            for member in [m for m in self.members.values() if not m.synced]:
                _merge(outcome, self.remove(member.member_id, now_ms))
        if self._join_deadline_ms is not None and self._join_deadline_ms <= now_ms:
            _merge(outcome, self._join_time_over(now_ms))
        return outcome

    # -- the rebalance --------------------------------------------------------------------------------------------

    def _joining(self, member: Member, now_ms: float) -> Outcome:
        member.awaiting_join = True
        outcome = Outcome()
        if self.state is not GroupState.PREPARING_REBALANCE:
            outcome = self._prepare_rebalance(now_ms)
        return _merge(outcome, self._maybe_complete_join(now_ms))

    @property
    def _initial(self) -> bool:
        return self._join_limit_ms > 0

    def _prepare_rebalance(self, now_ms: float) -> Outcome:
        """Everybody must join again; who waits for an assignment of the old generation is told so."""
        outcome = Outcome()
        for member in self.members.values():
            if member.awaiting_sync:
                member.awaiting_sync = False
                member.touch(now_ms)
                outcome.synced[member.member_id] = SyncReply(ErrorCode.REBALANCE_IN_PROGRESS)
        timeout_ms = max((member.rebalance_timeout_ms for member in self.members.values()), default=0)
        if self.state is GroupState.EMPTY:
            self._join_limit_ms = now_ms + max(timeout_ms, self._initial_delay_ms)
            self._join_deadline_ms = now_ms + self._initial_delay_ms
            self._grew = False
        else:
            self._join_limit_ms = 0.0
            self._join_deadline_ms = now_ms + timeout_ms
        self._sync_deadline_ms = None
        self._enter(GroupState.PREPARING_REBALANCE, now_ms)
        return outcome

    def _maybe_complete_join(self, now_ms: float) -> Outcome:
        """Go on as soon as everybody is there; the first rebalance keeps its delay."""
        if self.state is not GroupState.PREPARING_REBALANCE:
            return Outcome()
        waiting = self._initial and self._initial_delay_ms > 0 and bool(self.members)
        if waiting or self.pending_members or any(not member.awaiting_join for member in self.members.values()):
            return Outcome()
        return self._complete_join(now_ms)

    def _join_time_over(self, now_ms: float) -> Outcome:
        """The first rebalance is prolonged while members keep coming, up to their rebalance timeout."""
        if self._initial and self._grew and now_ms < self._join_limit_ms:
            self._grew = False
            self._join_deadline_ms = min(now_ms + self._initial_delay_ms, self._join_limit_ms)
            return Outcome()
        return self._complete_join(now_ms)

    def _complete_join(self, now_ms: float) -> Outcome:
        """A new generation of those who joined."""
        outcome = Outcome()
        for member in [m for m in self.members.values() if not m.awaiting_join and m.group_instance_id is None]:
            del self.members[member.member_id]
        self._join_deadline_ms = None
        self._join_limit_ms = 0.0
        self.generation = (self.generation + 1) & 0x7FFFFFFF
        if not self.members:
            self.leader = None
            self.protocol = None
            self._enter(GroupState.EMPTY, now_ms)
            outcome.save = True
            return outcome
        if self.leader not in self.members or not self.members[self.leader].awaiting_join:
            self.leader = next((m.member_id for m in self.members.values() if m.awaiting_join), self.leader)
        self.protocol = choose_protocol(self.members.values())
        self._enter(GroupState.COMPLETING_REBALANCE, now_ms)
        for member in self.members.values():
            member.synced = False
            member.touch(now_ms)
            if member.awaiting_join:
                member.awaiting_join = False
                outcome.joined[member.member_id] = self._join_reply(member)
        self._sync_deadline_ms = now_ms + max(member.rebalance_timeout_ms for member in self.members.values())
        return outcome

    # -- small things ---------------------------------------------------------------------------------------------

    def _enter(self, target: GroupState, now_ms: float) -> None:
        self.state = check_transition(self.group_id, self.state, target)
        self.state_timestamp_ms = int(now_ms + self._wall_offset_ms)
        if target is GroupState.STABLE:
            self._sync_deadline_ms = None

    def _index(self, member: Member) -> None:
        self.members[member.member_id] = member
        if member.group_instance_id is not None:
            self.static_members[member.group_instance_id] = member.member_id
        if self.leader is None:
            self.leader = member.member_id

    def _fence_waiting(self, member: Member, outcome: Outcome) -> None:
        error = ErrorCode.UNKNOWN_MEMBER_ID if member.group_instance_id is None else ErrorCode.FENCED_INSTANCE_ID
        if member.awaiting_join:
            outcome.joined[member.member_id] = JoinReply(error, member.member_id)
        if member.awaiting_sync:
            outcome.synced[member.member_id] = SyncReply(error)

    def _join_reply(self, member: Member) -> JoinReply:
        listed: tuple[tuple[str, str | None, bytes], ...] = ()
        if member.member_id == self.leader:
            listed = tuple(
                (other.member_id, other.group_instance_id, other.subscription(self.protocol))
                for other in self.members.values()
            )
        return JoinReply(
            ErrorCode.NONE,
            member.member_id,
            self.generation,
            self.protocol_type,
            self.protocol,
            self.leader or "",
            listed,
        )

    def _sync_reply(self, member: Member) -> SyncReply:
        return SyncReply(ErrorCode.NONE, self.protocol_type, self.protocol, member.assignment)


def _merge(into: Outcome, more: Outcome) -> Outcome:
    into.joined |= more.joined
    into.synced |= more.synced
    into.save = into.save or more.save
    return into
