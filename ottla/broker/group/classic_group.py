"""A classic consumer group: how members come and go, and how a rebalance goes. pure

Every method takes the moment as an argument and returns what must happen: replies to members that wait, and the step
that must be logged. Who is a member between two generations lives in memory only and changes at once; what the group's
last record (`value`) says changes by `logged` alone, once the step's record is in the log. `next_deadline_ms` and
`tick` are its timers.

Source: `org.apache.kafka.coordinator.group.GroupMetadataManager` (classicGroup...), `classic.ClassicGroup` of
Kafka 4.3.1.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from ottla.broker.group import lines
from ottla.broker.group.members import Member, Moment, Protocols, Roster, Timeouts
from ottla.broker.group.replies import Assigned, Emptied, JoinReply, Outcome, Restarted, Step, SyncReply
from ottla.broker.group.states import ClassicGroupState, check_transition
from ottla.broker.group.subscriptions import Subscriptions
from ottla.protocol.errors import ErrorCode
from ottla.protocol.offsets_records import GroupValue

# A new member cannot send heartbeats before it knows its id, and a parked JoinGroup hides that its client is gone.
NEW_MEMBER_TIMEOUT_MS: Final = 5 * 60 * 1000
# When nobody joined, the rebalance is put off by the members' own timeout, which may be 0.
LEAST_PUT_OFF_MS: Final = 100
MAX_GENERATION: Final = 0x7FFFFFFF
CONSUMERS: Final = "consumer"
# Ids that were handed out and not used: a client may ask for one after the other.
MOST_RESERVED: Final = 1_000
NEVER_MS: Final = float("inf")


class ClassicGroup:
    """One classic group.

    `initial_delay_ms` holds the first rebalance open for members that start together; `state_timestamp_ms` is wall
    time. `due_ms` is a time before which `tick` has nothing to do: heartbeats move deadlines back, so it may be early.
    """

    def __init__(self, group_id: str, initial_delay_ms: int, wall_ms: int) -> None:
        self.group_id = group_id
        self.state = ClassicGroupState.EMPTY
        self.state_timestamp_ms = wall_ms
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        self.roster = Roster()
        # What the members of the generation read, if they are consumers.
        self.subscriptions: Subscriptions | None = None
        self.due_ms = NEVER_MS
        self._initial_delay_ms = initial_delay_ms
        self._join_deadline_ms = NEVER_MS
        self._sync_deadline_ms = NEVER_MS
        # Who has not sent SyncGroup in this generation.
        self._unsynced: set[str] = set()
        # The first rebalance after Empty: it ends by its timer alone, prolonged up to a limit while members come.
        self._is_initial = False
        self._initial_limit_ms = 0.0
        self._grew = False

    @property
    def members(self) -> dict[str, Member]:
        return self.roster.members

    @property
    def is_of_consumers(self) -> bool:
        """Whether its members are, or were, consumers: others may use groups for purposes of their own."""
        return self.protocol_type == CONSUMERS

    def is_subscribed(self, topic: str) -> bool:
        """Whether a member may be reading the topic. Consumers of whom we cannot tell read everything."""
        topics = self.subscribed
        return self.is_of_consumers if topics is None else topic in topics

    @property
    def subscribed(self) -> set[str] | None:
        """The topics of all members; None if one of them does not say them as Kafka's consumers do."""
        return None if self.subscriptions is None else self.subscriptions.topics

    @property
    def knows_subscriptions(self) -> bool:
        """Whether `subscribed` is known without much reading."""
        return self.subscriptions is None or self.subscriptions.read(0)

    def read_subscriptions(self, most: int) -> None:
        """Read the next `most` names of what the members read."""
        if self.subscriptions is not None:
            self.subscriptions.read(most)

    def _learn_subscriptions(self) -> None:
        given = [member.subscription(self.protocol) for member in self.members.values()]
        self.subscriptions = Subscriptions(given) if self.is_of_consumers else None

    # -- what is durable ------------------------------------------------------------------------------------------

    def value(self, assignments: Mapping[str, bytes] | None = None) -> GroupValue:
        """The group's record as it stands, or with other assignments by member id."""
        members = tuple(
            each.saved(self.protocol, None if assignments is None else assignments.get(each.member_id, b""))
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
        """Take over a record that was loaded, from scratch."""
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
        """Loading is over: every loaded member gets a fresh session. Until then nobody's ends."""
        for member in self.members.values():
            self._touch(member, now_ms)

    def begin_again(self, now: Moment) -> Outcome:
        """A loaded group has more members than a group may have: those who join first stay.

        Groups are asked as soon as their partition is loaded, and this may come later: to a rebalance nothing is added.
        """
        if self.state is not ClassicGroupState.STABLE:
            return Outcome()
        return self._prepare_rebalance(now, "it was loaded with more members than group.max.size")

    # -- members come ---------------------------------------------------------------------------------------------

    def accepts(self, protocol_type: str, protocols: Protocols) -> bool:
        """Whether a member with these protocols can be in the group."""
        if self.state is ClassicGroupState.EMPTY:
            return bool(protocol_type) and bool(protocols)
        return protocol_type == self.protocol_type and self.roster.shares(protocols)

    def has_room(self, member_id: str, max_size: int) -> bool:
        """Whether this member may join. In a rebalance those count who joined already: the last ones are out."""
        if self.state is ClassicGroupState.EMPTY or len(self.members) < max_size:
            return True
        member = self.members.get(member_id)
        if self.state is not ClassicGroupState.PREPARING_REBALANCE:
            return member is not None
        return (member is not None and member.awaiting_join) or self.roster.joined_count < max_size

    def reserve(self, member_id: str, session_timeout_ms: int, now_ms: float) -> None:
        """A new member is told its id first and must come back with it before its session ends (KIP-394)."""
        pending = self.roster.pending
        if len(pending) >= MOST_RESERVED:
            del pending[next(iter(pending))]  # whoever comes back with it is told to ask anew
        pending[member_id] = self._note(now_ms + session_timeout_ms)

    def add(self, member: Member, protocol_type: str, now: Moment, client_reason: str | None = None) -> Outcome:
        """A new member joins: rebalance."""
        if not self.members:
            self.protocol_type = protocol_type
        self._grew = True
        member.is_new = True
        member.session_deadline_ms = self._note(now.monotonic_ms + NEW_MEMBER_TIMEOUT_MS)
        self.roster.add(member)
        return self._joining(member, now, lines.added(member, client_reason))

    def rejoin(
        self, member: Member, protocols: Protocols, timeouts: Timeouts, now: Moment, client_reason: str | None = None
    ) -> Outcome:
        """A member joins again.

        Who wants the same as before gets the current generation again, since it may have missed the reply; in a stable
        group the leader does not, because it joins again when it wants a new assignment.
        """
        settled = self.state is ClassicGroupState.COMPLETING_REBALANCE or (
            self.state is ClassicGroupState.STABLE and member.member_id != self.roster.leader
        )
        if settled and protocols == member.protocols:
            return Outcome(joined={member.member_id: self._join_reply(member)})
        leads, changed = member.member_id == self.roster.leader, protocols != member.protocols
        self.roster.update(member, protocols, timeouts)
        return self._joining(member, now, lines.joined_again(member, leads, changed, client_reason))

    def replace_static(
        self, member: Member, new_id: str, protocols: Protocols, timeouts: Timeouts, can_skip: bool, now: Moment
    ) -> Outcome:
        """A static member restarted: it goes on under a new member id, whoever still uses the old one is fenced.

        A stable group stays as it is when its protocol does not change, once that is logged.
        """
        if self.state is ClassicGroupState.STABLE and self.roster.choose_protocol(member, protocols) == self.protocol:
            return Outcome(step=self._restart_of(member, new_id, protocols, timeouts, can_skip))
        outcome = self._answer_waiting(member, ErrorCode.FENCED_INSTANCE_ID)
        old_id = member.member_id
        self._replace(member, new_id, protocols, timeouts, now)
        return outcome.add(self._joining(member, now, lines.replaced(member, old_id)))

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
        """The record has the member at the end of the list, where it will be."""
        before = self.value()
        restarted = replace(member, member_id=new_id)
        restarted.want(protocols, timeouts)
        others = tuple(each for each in before.members if each.member_id != member.member_id)
        leader = new_id if before.leader == member.member_id else before.leader
        record = before._replace(leader=leader, members=(*others, restarted.saved(self.protocol)))
        return Restarted(record, member.member_id, new_id, protocols, timeouts, can_skip)

    # -- members go -----------------------------------------------------------------------------------------------

    def leave(
        self, who: Sequence[tuple[str, str | None]], now: Moment, client_reason: str | None = None
    ) -> tuple[list[ErrorCode], Outcome]:
        """Members leave, as (member id, instance id): an error for each. Without a member id the instance id counts."""
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
        return Outcome().tell(lines.happened(self, why)).add(self._complete_join_if_all_joined(now))

    # -- sync -----------------------------------------------------------------------------------------------------

    def sync(self, member: Member, assignments: Iterable[tuple[str, bytes]]) -> Outcome:
        """A checked member asks for its assignment; the leader brings everybody's, which must be logged first."""
        if self.state is ClassicGroupState.STABLE:
            self._has_synced(member.member_id)
            return Outcome(synced={member.member_id: self._sync_reply(member)})
        if member.member_id == self.roster.leader:
            given = dict(assignments)
            return Outcome(step=Assigned(self.value(given), member.member_id, given))
        self._has_synced(member.member_id)
        member.awaiting_sync = True
        return Outcome()

    def _has_synced(self, member_id: str) -> None:
        self._unsynced.discard(member_id)
        if not self._unsynced:
            self._sync_deadline_ms = NEVER_MS

    def _tell_assignment(self, error: ErrorCode, now: Moment) -> Outcome:
        outcome = Outcome()
        for member in self.members.values():
            if member.awaiting_sync:
                member.awaiting_sync = False
                self._touch(member, now.monotonic_ms)
                outcome.synced[member.member_id] = SyncReply(error) if error else self._sync_reply(member)
        return outcome

    # -- what is in the log ---------------------------------------------------------------------------------------

    def logged(self, step: Step, error: ErrorCode, now: Moment) -> Outcome:
        """The step's record is in the log, or was refused with `error`: what follows.

        An assignment that cannot be logged fails those who wait for it and starts over; a static member that restarted
        must try again. A group is empty without a record too: its last members would time out after a restart.
        """
        match step:
            case Assigned():
                return self._assigned(step, error, now)
            case Restarted():
                return Outcome(joined={step.new_id: JoinReply(error)}) if error else self._restarted(step, now)
            case Emptied():
                self._begin_generation(None)
                self._enter(ClassicGroupState.EMPTY, now)
                self.due_ms = self.next_deadline_ms()
                return Outcome().tell(lines.emptied(self))

    def _assigned(self, step: Assigned, error: ErrorCode, now: Moment) -> Outcome:
        self._has_synced(step.leader_id)
        self.members[step.leader_id].awaiting_sync = True
        if error:
            outcome = self._tell_assignment(error, now)
            return outcome.add(self._prepare_rebalance(now, f"the assignment was not logged: {error.name}"))
        for member in self.members.values():
            member.assignment = step.assignments.get(member.member_id, b"")
        self._enter(ClassicGroupState.STABLE, now)
        return self._tell_assignment(ErrorCode.NONE, now).tell(lines.assigned(self))

    def _restarted(self, step: Restarted, now: Moment) -> Outcome:
        """A leader that cannot be told to skip the assignment (JoinGroup below v9, KIP-814) is told that its old self
        leads, so that it acts as a follower."""
        member, old_leader = self.members[step.old_id], self.roster.leader
        outcome = self._answer_waiting(member, ErrorCode.FENCED_INSTANCE_ID)
        self._replace(member, step.new_id, step.protocols, step.timeouts, now)
        reply = self._join_reply(member)
        if step.can_skip_assignment:
            reply = reply._replace(skip_assignment=old_leader == step.old_id)
        else:
            reply = reply._replace(leader=old_leader or "", members=())
        outcome.joined[step.new_id] = reply
        return outcome.tell(lines.restarted(self, member, step.old_id))

    # -- time -----------------------------------------------------------------------------------------------------

    def next_deadline_ms(self) -> float:
        """When the next member, reserved id or phase runs out of time; `NEVER_MS` when none does."""
        deadlines = [member.session_deadline_ms for member in self.members.values() if not member.is_excused]
        return min((*deadlines, *self.roster.pending.values(), self._join_deadline_ms, self._sync_deadline_ms))

    def tick(self, now: Moment) -> Outcome:
        """End sessions and rebalances whose time is over."""
        outcome, now_ms = Outcome(), now.monotonic_ms
        lapsed = [member_id for member_id, at_ms in self.roster.pending.items() if at_ms <= now_ms]
        if lapsed:
            self.roster.remove_all(lapsed)
            outcome.add(self._complete_join_if_all_joined(now))
        silent = [m for m in self.members.values() if not m.is_excused and m.session_deadline_ms <= now_ms]
        for member in silent:
            outcome.add(self._drop(member.member_id))
        if silent:
            outcome.add(self._went(now, lines.silent([each.member_id for each in silent])))
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
        """A deadline that is new."""
        self.due_ms = min(self.due_ms, deadline_ms)
        return deadline_ms

    # -- the rebalance --------------------------------------------------------------------------------------------

    def _joining(self, member: Member, now: Moment, why: str) -> Outcome:
        self.roster.set_joined(member, True)
        if self.state is not ClassicGroupState.PREPARING_REBALANCE:
            return self._prepare_rebalance(now, why)
        outcome = Outcome().tell(lines.happened(self, why)) if member.is_new else Outcome()
        return outcome.add(self._complete_join_if_all_joined(now))

    def _prepare_rebalance(self, now: Moment, why: str) -> Outcome:
        """Everybody must join again; who waits for an assignment of the old generation is told so."""
        outcome, now_ms = Outcome(), now.monotonic_ms
        if self.state is ClassicGroupState.COMPLETING_REBALANCE:
            for member in self.members.values():
                member.assignment = b""
            outcome = self._tell_assignment(ErrorCode.REBALANCE_IN_PROGRESS, now)
        outcome.tell(lines.preparing(self, why))
        self._sync_deadline_ms = NEVER_MS
        timeout_ms = self.roster.rebalance_timeout_ms if self.members else LEAST_PUT_OFF_MS
        self._is_initial = self.state is ClassicGroupState.EMPTY
        if self._is_initial:
            self._initial_limit_ms = now_ms + max(timeout_ms, self._initial_delay_ms)
            self._grew = False
        self._join_deadline_ms = self._note(now_ms + (self._initial_delay_ms if self._is_initial else timeout_ms))
        self._enter(ClassicGroupState.PREPARING_REBALANCE, now)
        return outcome.add(self._complete_join_if_all_joined(now))

    def _complete_join_if_all_joined(self, now: Moment) -> Outcome:
        if (
            self.state is not ClassicGroupState.PREPARING_REBALANCE
            or self._is_initial
            or not self.roster.everybody_joined
        ):
            return Outcome()
        return self._complete_join(now)

    def _join_time_over(self, now: Moment) -> Outcome:
        """The first rebalance is prolonged while members keep coming, up to the first one's rebalance timeout."""
        now_ms = now.monotonic_ms
        if self._is_initial and self._grew and now_ms < self._initial_limit_ms:
            self._grew = False
            self._join_deadline_ms = self._note(min(now_ms + self._initial_delay_ms, self._initial_limit_ms))
            return Outcome()
        return self._complete_join(now)

    def _complete_join(self, now: Moment) -> Outcome:
        """A new generation of those who joined and of the static members, who may come later."""
        outcome = Outcome()
        late = [m.member_id for m in self.members.values() if not m.awaiting_join and m.group_instance_id is None]
        if late:
            self.roster.remove_all(late)
            outcome.tell(lines.happened(self, lines.late_to_join(late)))
        if not self.members:
            self._join_deadline_ms = self._note(now.monotonic_ms + LEAST_PUT_OFF_MS)  # to come back to it
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
        outcome.joined = self._tell_generation(now.monotonic_ms)
        return outcome.tell(lines.stabilized(self))

    def _next_generation(self) -> int:
        return (self.generation + 1) & MAX_GENERATION

    def _begin_generation(self, protocol: str | None) -> None:
        self._join_deadline_ms = NEVER_MS
        self._is_initial = False
        self.generation = self._next_generation()
        self.protocol = protocol
        self._learn_subscriptions()

    def _tell_generation(self, now_ms: float) -> dict[str, JoinReply]:
        joined = {}
        for member in self.members.values():
            if member.awaiting_join:
                joined[member.member_id] = self._join_reply(member)
            self.roster.set_joined(member, False)
            member.is_new = False
            self._touch(member, now_ms)
        self._unsynced = set(self.members)
        return joined

    def _enter(self, target: ClassicGroupState, now: Moment) -> None:
        self.state = check_transition(self.group_id, self.state, target)
        self.state_timestamp_ms = now.wall_ms

    # -- replies --------------------------------------------------------------------------------------------------

    def _answer_waiting(self, member: Member, error: ErrorCode) -> Outcome:
        """Nothing more comes for this member id: whoever waits with it is told why."""
        outcome = Outcome()
        if member.awaiting_join:
            known_as = member.member_id if error is ErrorCode.FENCED_INSTANCE_ID else ""
            outcome.joined[member.member_id] = JoinReply(error, known_as)
        if member.awaiting_sync:
            outcome.synced[member.member_id] = SyncReply(error)
        self.roster.set_joined(member, False)
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
