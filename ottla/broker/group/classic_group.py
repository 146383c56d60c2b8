"""A classic consumer group: its members and its rebalances. pure

Every method takes the time as an argument and returns an `Outcome`: replies to waiting members, and the step to log.
Membership between two generations is in memory only and changes at once. Only `apply_step` changes the state that the
group's last record (`value`) holds, after the step's record was appended. `next_deadline_ms` and `tick` are its timers.

Source: `GroupMetadataManager` (classicGroup...), `ClassicGroup` of Kafka 4.3.1.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from ottla.broker.group import lines
from ottla.broker.group.members import NEVER_MS, NEW_MEMBER_TIMEOUT_MS, Member, Moment, Protocols, Roster, Timeouts
from ottla.broker.group.replies import Assigned, Emptied, JoinReply, Outcome, Restarted, Step, SyncReply
from ottla.broker.group.states import ClassicGroupState, check_transition
from ottla.broker.group.subscriptions import Subscriptions
from ottla.protocol.errors import ErrorCode
from ottla.protocol.internal_topics.offsets_records import GroupValue

# When no member has joined, the members' own timeout delays the rebalance again. It may be 0.
LEAST_PUT_OFF_MS: Final = 100
MAX_GENERATION: Final = 0x7FFFFFFF
CONSUMERS: Final = "consumer"
# Member ids that were assigned and not used yet; the bound is for clients that only ask for ids.
MOST_RESERVED: Final = 1_000


class ClassicGroup:
    """A classic group.

    `initial_delay_ms` delays the first rebalance for members that start together. `state_timestamp_ms` is wall time.
    `tick` has nothing to do before `due_ms`, which may be too early, because heartbeats extend deadlines.
    """

    def __init__(self, group_id: str, initial_delay_ms: int, wall_ms: int) -> None:
        self.group_id = group_id
        self.state = ClassicGroupState.EMPTY
        self.state_timestamp_ms = wall_ms
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        self.roster = Roster()
        # Topics to which the members of the generation are subscribed, if they are consumers.
        self.subscriptions: Subscriptions | None = None
        self.due_ms = NEVER_MS
        self._initial_delay_ms = initial_delay_ms
        self._join_deadline_ms = NEVER_MS
        self._sync_deadline_ms = NEVER_MS
        # Ids of members that have not sent SyncGroup in this generation.
        self._unsynced: set[str] = set()
        # The first rebalance after Empty. Only its timer ends it, and is prolonged while members come.
        self._is_initial = False
        self._initial_limit_ms = 0.0
        self._grew = False

    @property
    def members(self) -> dict[str, Member]:
        return self.roster.members

    @property
    def is_empty(self) -> bool:
        """Whether the group has no members, so that it may be deleted."""
        return self.state is ClassicGroupState.EMPTY

    @property
    def is_of_consumers(self) -> bool:
        """Whether the members are, or were, consumers. Other clients may use groups for purposes of their own."""
        return self.protocol_type == CONSUMERS

    def is_subscribed(self, topic: str) -> bool:
        """Return whether a member may read the topic. True for all topics if a subscription cannot be read."""
        topics = self.subscribed
        return self.is_of_consumers if topics is None else topic in topics

    @property
    def subscribed(self) -> set[str] | None:
        """Return the topics of all members; None if a subscription is not in the format of Kafka's consumers."""
        return None if self.subscriptions is None else self.subscriptions.topics

    @property
    def knows_subscriptions(self) -> bool:
        """Whether all subscriptions have been read, so that `subscribed` is cheap."""
        return self.subscriptions is None or self.subscriptions.read(0)

    def read_subscriptions(self, most: int) -> None:
        """Read the next `most` topic names of the members' subscriptions."""
        if self.subscriptions is not None:
            self.subscriptions.read(most)

    def _learn_subscriptions(self) -> None:
        given = [member.subscription(self.protocol) for member in self.members.values()]
        self.subscriptions = Subscriptions(given) if self.is_of_consumers else None

    # -- the group's record ---------------------------------------------------------------------------------------

    def value(self, assignments: Mapping[str, bytes] | None = None) -> GroupValue:
        """Return the group's record, with its own assignments or with those given by member id."""
        members = tuple(
            each.to_record(self.protocol, None if assignments is None else assignments.get(each.member_id, b""))
            for each in self.members.values()
        )
        return GroupValue(
            self.protocol_type or "",
            self.generation,
            self.protocol,
            self.roster.leader,
            self.state_timestamp_ms,
            members,
        )

    def restore(self, value: GroupValue) -> None:
        """Replace the group's state with that of a loaded record."""
        self.roster = Roster()
        self.protocol_type = value.protocol_type or None
        self.generation = value.generation
        self.protocol = value.protocol
        self.state = ClassicGroupState.STABLE if value.members else ClassicGroupState.EMPTY
        self.state_timestamp_ms = value.state_timestamp_ms
        for saved in value.members:
            rebalance_ms = saved.rebalance_timeout_ms
            member = Member(
                saved.member_id,
                saved.group_instance_id,
                saved.client_id,
                saved.client_host,
                Timeouts(saved.session_timeout_ms if rebalance_ms == -1 else rebalance_ms, saved.session_timeout_ms),
                ((value.protocol or "", saved.subscription),),
                saved.assignment,
                session_deadline_ms=NEVER_MS,
            )
            self.roster.add(member)
        if value.leader in self.members:
            self.roster.lead(value.leader)
        self._learn_subscriptions()

    def start_sessions(self, now_ms: float) -> None:
        """Start a new session for every loaded member. Called after loading; until then no session expires."""
        for member in self.members.values():
            self._touch(member, now_ms)

    def begin_again(self, now: Moment, why: str) -> Outcome:
        """Rebalance a loaded group, of which only some may stay, or one that was of the consumer protocol.

        Only a Stable group: one that served requests before this call may have begun a rebalance already.
        """
        if self.state is not ClassicGroupState.STABLE:
            return Outcome()
        return self._prepare_rebalance(now, why)

    # -- join -----------------------------------------------------------------------------------------------------

    def accepts(self, protocol_type: str, protocols: Protocols) -> bool:
        """Return whether the protocols of a member are compatible with those of the group."""
        if self.state is ClassicGroupState.EMPTY:
            return bool(protocol_type) and bool(protocols)
        return protocol_type == self.protocol_type and self.roster.shares(protocols)

    def can_add(self, member_id: str, max_size: int) -> bool:
        """Return whether this member may join. During a rebalance only joined members count."""
        if self.state is ClassicGroupState.EMPTY or len(self.members) < max_size:
            return True
        member = self.members.get(member_id)
        if self.state is not ClassicGroupState.PREPARING_REBALANCE:
            return member is not None
        return (member is not None and member.awaiting_join) or self.roster.joined_count < max_size

    def reserve(self, member_id: str, session_timeout_ms: int, now_ms: float) -> None:
        """Reserve an id that a new member must join with before its session ends (KIP-394)."""
        pending = self.roster.pending
        if len(pending) >= MOST_RESERVED:
            del pending[next(iter(pending))]  # a JoinGroup with this id gets UNKNOWN_MEMBER_ID
        pending[member_id] = self._note(now_ms + session_timeout_ms)

    def add(self, member: Member, protocol_type: str, now: Moment, client_reason: str | None = None) -> Outcome:
        """Add a new member and rebalance."""
        if not self.members:
            self.protocol_type = protocol_type
        self._grew = True
        member.is_new = True
        member.session_deadline_ms = self._note(now.monotonic_ms + NEW_MEMBER_TIMEOUT_MS)
        self.roster.add(member)
        return self._joining(member, now, lines.describe_new_member(member, client_reason))

    def rejoin(
        self, member: Member, protocols: Protocols, timeouts: Timeouts, now: Moment, client_reason: str | None = None
    ) -> Outcome:
        """Handle a JoinGroup of a member that is in the group.

        With unchanged protocols it gets the current generation again, since it may have missed the reply. The leader of
        a stable group does not, because it joins again when it wants a new assignment.
        """
        has_generation = self.state is ClassicGroupState.COMPLETING_REBALANCE or (
            self.state is ClassicGroupState.STABLE and member.member_id != self.roster.leader
        )
        if has_generation and protocols == member.protocols:
            return Outcome(joined={member.member_id: self._join_reply(member)})
        leads, changed = member.member_id == self.roster.leader, protocols != member.protocols
        self.roster.update(member, protocols, timeouts)
        return self._joining(member, now, lines.joined_again(member, leads, changed, client_reason))

    def replace_static(
        self, member: Member, new_id: str, protocols: Protocols, timeouts: Timeouts, can_skip: bool, now: Moment
    ) -> Outcome:
        """Give a restarted static member a new member id. Requests with the old id are fenced.

        A stable group whose protocol does not change keeps its generation. The change follows the logged record.
        """
        if self.state is ClassicGroupState.STABLE and self.roster.choose_protocol(member, protocols) == self.protocol:
            return Outcome(step=self._restart_of(member, new_id, protocols, timeouts, can_skip))
        outcome = self._answer_waiting(member, ErrorCode.FENCED_INSTANCE_ID)
        old_id = member.member_id
        self._replace(member, new_id, protocols, timeouts, now)
        return outcome.add(self._joining(member, now, lines.describe_replacement(member, old_id)))

    def _replace(self, member: Member, new_id: str, protocols: Protocols, timeouts: Timeouts, now: Moment) -> None:
        if member.member_id in self._unsynced:
            self._unsynced.remove(member.member_id)
            self._unsynced.add(new_id)
        self.roster.rename(member, new_id)
        self.roster.update(member, protocols, timeouts)
        member.is_new = False
        self._touch(member, now.monotonic_ms)

    def _restart_of(
        self, member: Member, new_id: str, protocols: Protocols, timeouts: Timeouts, can_skip: bool
    ) -> Restarted:
        """Return the step. Its record has the member last, where the group will have it."""
        before = self.value()
        restarted = replace(member, member_id=new_id)
        restarted.want(protocols, timeouts)
        others = tuple(each for each in before.members if each.member_id != member.member_id)
        leader = new_id if before.leader == member.member_id else before.leader
        record = before._replace(leader=leader, members=(*others, restarted.to_record(self.protocol)))
        return Restarted(record, member.member_id, new_id, protocols, timeouts, can_skip)

    # -- leave ----------------------------------------------------------------------------------------------------

    def leave(
        self, who: Sequence[tuple[str, str | None]], now: Moment, client_reason: str | None = None
    ) -> tuple[list[ErrorCode], Outcome]:
        """Remove members (member id, instance id), return their errors. Without a member id the instance id counts."""
        errors, left, outcome = [], [], Outcome()
        for member_id, group_instance_id in who:
            if not member_id:
                member_id = self.roster.static.get(group_instance_id or "", "")
                error = ErrorCode.NONE if member_id else ErrorCode.UNKNOWN_MEMBER_ID
            elif member_id in self.roster.pending:
                error = ErrorCode.NONE
            else:
                error = self.roster.error(member_id, group_instance_id)
            errors.append(error)
            if not error:
                left.append(member_id)
                outcome.add(self._drop(member_id))
        if left:
            outcome.add(self._went(now, lines.left(left, client_reason)))
        return errors, outcome

    def _drop(self, member_id: str) -> Outcome:
        member = self.members.get(member_id)
        outcome = Outcome() if member is None else self._answer_waiting(member, ErrorCode.UNKNOWN_MEMBER_ID)
        self.roster.remove(member_id)
        return outcome

    def _went(self, now: Moment, why: str) -> Outcome:
        if self.state in (ClassicGroupState.STABLE, ClassicGroupState.COMPLETING_REBALANCE):
            return self._prepare_rebalance(now, why)
        return Outcome().add_line(lines.describe_event(self, why)).add(self._complete_full_join(now))

    # -- sync -----------------------------------------------------------------------------------------------------

    def sync(self, member: Member, assignments: Iterable[tuple[str, bytes]]) -> Outcome:
        """Handle SyncGroup of a checked member. The leader sends all assignments, which must be logged first."""
        if self.state is ClassicGroupState.STABLE:
            self._note_sync(member.member_id)
            return Outcome(synced={member.member_id: self._sync_reply(member)})
        if member.member_id == self.roster.leader:
            given = dict(assignments)
            return Outcome(step=Assigned(self.value(given), member.member_id, given))
        self._note_sync(member.member_id)
        member.awaiting_sync = True
        return Outcome()

    def _note_sync(self, member_id: str) -> None:
        self._unsynced.discard(member_id)
        if not self._unsynced:
            self._sync_deadline_ms = NEVER_MS

    def _reply_assignment(self, error: ErrorCode, now: Moment) -> Outcome:
        outcome = Outcome()
        for member in self.members.values():
            if member.awaiting_sync:
                member.awaiting_sync = False
                self._touch(member, now.monotonic_ms)
                outcome.synced[member.member_id] = SyncReply(error) if error else self._sync_reply(member)
        return outcome

    # -- apply a logged step --------------------------------------------------------------------------------------

    def apply_step(self, step: Step, error: ErrorCode, now: Moment) -> Outcome:
        """Apply a step whose record was appended to the log, or was refused with `error`.

        After an error, an assignment fails its waiting members and the group rebalances; a restarted member must try
        again. A group becomes empty even after an error, because its last members would time out after a restart.
        """
        match step:
            case Assigned():
                return self._apply_assignment(step, error, now)
            case Restarted():
                return Outcome(joined={step.new_id: JoinReply(error)}) if error else self._apply_restart(step, now)
            case Emptied():
                self._begin_generation(None)
                self._enter(ClassicGroupState.EMPTY, now)
                self.due_ms = self.next_deadline_ms()
                return Outcome().add_line(lines.describe_empty_generation(self))

    def _apply_assignment(self, step: Assigned, error: ErrorCode, now: Moment) -> Outcome:
        self._note_sync(step.leader_id)
        self.members[step.leader_id].awaiting_sync = True
        if error:
            outcome = self._reply_assignment(error, now)
            return outcome.add(self._prepare_rebalance(now, f"the assignment was not logged: {error.name}"))
        for member in self.members.values():
            member.assignment = step.assignments.get(member.member_id, b"")
        self._enter(ClassicGroupState.STABLE, now)
        return self._reply_assignment(ErrorCode.NONE, now).add_line(lines.describe_assignment(self))

    def _apply_restart(self, step: Restarted, now: Moment) -> Outcome:
        """Apply a restart. A leader that must skip the assignment but cannot (before JoinGroup v9, KIP-814) gets the
        old member id as leader, so that it acts as a follower."""
        member, old_leader = self.members[step.old_id], self.roster.leader
        outcome = self._answer_waiting(member, ErrorCode.FENCED_INSTANCE_ID)
        self._replace(member, step.new_id, step.protocols, step.timeouts, now)
        reply = self._join_reply(member)
        if step.can_skip_assignment:
            reply = reply._replace(skip_assignment=old_leader == step.old_id)
        else:
            reply = reply._replace(leader=old_leader or "", members=())
        outcome.joined[step.new_id] = reply
        return outcome.add_line(lines.describe_restart(self, member, step.old_id))

    # -- timers ---------------------------------------------------------------------------------------------------

    def next_deadline_ms(self) -> float:
        """Return the earliest deadline of a member, a reserved id or a rebalance phase; `NEVER_MS` if there is none."""
        deadlines = [member.session_deadline_ms for member in self.members.values() if not member.is_exempt]
        return min((*deadlines, *self.roster.pending.values(), self._join_deadline_ms, self._sync_deadline_ms))

    def tick(self, now: Moment) -> Outcome:
        """Expire sessions, reserved ids and rebalance phases whose deadlines have passed."""
        outcome, now_ms = Outcome(), now.monotonic_ms
        lapsed = [member_id for member_id, at_ms in self.roster.pending.items() if at_ms <= now_ms]
        if lapsed:
            self.roster.remove_all(lapsed)
            outcome.add(self._complete_full_join(now))
        silent = [m for m in self.members.values() if not m.is_exempt and m.session_deadline_ms <= now_ms]
        for member in silent:
            outcome.add(self._drop(member.member_id))
        if silent:
            outcome.add(self._went(now, lines.describe_silence([each.member_id for each in silent])))
        if self._sync_deadline_ms <= now_ms:
            late = [member_id for member_id in self.members if member_id in self._unsynced]
            self.roster.remove_all(late)
            outcome.add(self._prepare_rebalance(now, lines.late_to_sync(late)))
        if self._join_deadline_ms <= now_ms:
            outcome.add(self._join_time_over(now))
        self.due_ms = self.next_deadline_ms()
        return outcome

    def _touch(self, member: Member, now_ms: float) -> None:
        member.touch(now_ms)
        self._note(member.session_deadline_ms)

    def _note(self, deadline_ms: float) -> float:
        """Lower `due_ms` to a new deadline, and return the deadline."""
        self.due_ms = min(self.due_ms, deadline_ms)
        return deadline_ms

    # -- the rebalance --------------------------------------------------------------------------------------------

    def _joining(self, member: Member, now: Moment, why: str) -> Outcome:
        self.roster.set_awaiting_join(member, True)
        if self.state is not ClassicGroupState.PREPARING_REBALANCE:
            return self._prepare_rebalance(now, why)
        outcome = Outcome().add_line(lines.describe_event(self, why)) if member.is_new else Outcome()
        return outcome.add(self._complete_full_join(now))

    def _prepare_rebalance(self, now: Moment, why: str) -> Outcome:
        """Start a rebalance: all members must join again. Waiting SyncGroups get REBALANCE_IN_PROGRESS."""
        outcome, now_ms = Outcome(), now.monotonic_ms
        if self.state is ClassicGroupState.COMPLETING_REBALANCE:
            for member in self.members.values():
                member.assignment = b""
            outcome = self._reply_assignment(ErrorCode.REBALANCE_IN_PROGRESS, now)
        outcome.add_line(lines.preparing(self, why))
        self._sync_deadline_ms = NEVER_MS
        timeout_ms = self.roster.rebalance_timeout_ms if self.members else LEAST_PUT_OFF_MS
        self._is_initial = self.state is ClassicGroupState.EMPTY
        if self._is_initial:
            self._initial_limit_ms = now_ms + max(timeout_ms, self._initial_delay_ms)
            self._grew = False
        self._join_deadline_ms = self._note(now_ms + (self._initial_delay_ms if self._is_initial else timeout_ms))
        self._enter(ClassicGroupState.PREPARING_REBALANCE, now)
        return outcome.add(self._complete_full_join(now))

    def _complete_full_join(self, now: Moment) -> Outcome:
        if (
            self.state is not ClassicGroupState.PREPARING_REBALANCE
            or self._is_initial
            or not self.roster.everybody_joined
        ):
            return Outcome()
        return self._complete_join(now)

    def _join_time_over(self, now: Moment) -> Outcome:
        """End the join phase. Prolong the first rebalance while members join, up to the first's rebalance timeout."""
        now_ms = now.monotonic_ms
        if self._is_initial and self._grew and now_ms < self._initial_limit_ms:
            self._grew = False
            self._join_deadline_ms = self._note(min(now_ms + self._initial_delay_ms, self._initial_limit_ms))
            return Outcome()
        return self._complete_join(now)

    def _complete_join(self, now: Moment) -> Outcome:
        """Begin a generation of the members that joined and of the static members, which may join later."""
        outcome = Outcome()
        late = [m.member_id for m in self.members.values() if not m.awaiting_join and m.group_instance_id is None]
        if late:
            self.roster.remove_all(late)
            outcome.add_line(lines.describe_event(self, lines.late_to_join(late)))
        if not self.members:
            self._join_deadline_ms = self._note(now.monotonic_ms + LEAST_PUT_OFF_MS)  # tick tries again
            value = GroupValue(self.protocol_type or "", self._next_generation(), None, None, now.wall_ms, ())
            outcome.step = Emptied(value)
            return outcome
        if not self.roster.elect():
            put_off_ms = max(self.roster.rebalance_timeout_ms, LEAST_PUT_OFF_MS)
            self._join_deadline_ms = self._note(now.monotonic_ms + put_off_ms)
            return outcome
        self._begin_generation(self.roster.choose_protocol())
        self._enter(ClassicGroupState.COMPLETING_REBALANCE, now)
        self._sync_deadline_ms = self._note(now.monotonic_ms + self.roster.rebalance_timeout_ms)
        outcome.joined = self._reply_generation(now.monotonic_ms)
        return outcome.add_line(lines.describe_generation(self))

    def _next_generation(self) -> int:
        return (self.generation + 1) & MAX_GENERATION

    def _begin_generation(self, protocol: str | None) -> None:
        self._join_deadline_ms = NEVER_MS
        self._is_initial = False
        self.generation = self._next_generation()
        self.protocol = protocol
        self._learn_subscriptions()

    def _reply_generation(self, now_ms: float) -> dict[str, JoinReply]:
        joined = {}
        for member in self.members.values():
            if member.awaiting_join:
                joined[member.member_id] = self._join_reply(member)
            self.roster.set_awaiting_join(member, False)
            member.is_new = False
            self._touch(member, now_ms)
        self._unsynced = set(self.members)
        return joined

    def _enter(self, target: ClassicGroupState, now: Moment) -> None:
        self.state = check_transition(self.group_id, self.state, target)
        self.state_timestamp_ms = now.wall_ms

    # -- replies --------------------------------------------------------------------------------------------------

    def _answer_waiting(self, member: Member, error: ErrorCode) -> Outcome:
        """Send an error to the requests that wait with this member id, because it is no longer a member."""
        outcome = Outcome()
        if member.awaiting_join:
            known_as = member.member_id if error == ErrorCode.FENCED_INSTANCE_ID else ""
            outcome.joined[member.member_id] = JoinReply(error, known_as)
        if member.awaiting_sync:
            outcome.synced[member.member_id] = SyncReply(error)
        self.roster.set_awaiting_join(member, False)
        member.awaiting_sync = False
        return outcome

    def _join_reply(self, member: Member) -> JoinReply:
        listed: tuple[tuple[str, str | None, bytes], ...] = ()
        if member.member_id == self.roster.leader:
            listed = tuple(
                (other.member_id, other.group_instance_id, other.subscription(self.protocol))
                for other in self.members.values()
            )
        leader = self.roster.leader or ""
        return JoinReply(
            ErrorCode.NONE, member.member_id, self.generation, self.protocol_type, self.protocol, leader, listed
        )

    def _sync_reply(self, member: Member) -> SyncReply:
        return SyncReply(ErrorCode.NONE, self.protocol_type, self.protocol, member.assignment)
