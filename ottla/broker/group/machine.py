"""A classic consumer group: how members come and go, and how a rebalance goes. pure

Every method takes the monotonic time as an argument and returns what must happen: replies to members that wait, and
whether the group's record must be logged. `next_deadline_ms` and `tick` are its timers. Membership between two
generations lives in memory only; what is durable is the group's last record (`value`).

Source: `org.apache.kafka.coordinator.group.GroupMetadataManager` (classicGroup...), `classic.ClassicGroup` of
Kafka 4.3.1.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from ottla.broker.group.members import Member, Protocols, Roster, Timeouts
from ottla.broker.group.replies import JoinReply, Outcome, SyncReply
from ottla.broker.group.states import GroupState, check_transition
from ottla.broker.group.subscriptions import subscribed_topics
from ottla.protocol.errors import ErrorCode
from ottla.protocol.state_records import GroupValue

# A new member cannot send heartbeats before it knows its id, and a parked JoinGroup hides that its client is gone.
NEW_MEMBER_TIMEOUT_MS: Final = 5 * 60 * 1000
# When nobody joined, the rebalance is put off by the members' own timeout, which may be 0.
LEAST_PUT_OFF_MS: Final = 100
MAX_GENERATION: Final = 0x7FFFFFFF
CONSUMERS: Final = "consumer"


class Group:
    """One classic group.

    `initial_delay_ms` holds the first rebalance open for members that start together; `wall_offset_ms` is what wall
    time is ahead of monotonic time (only the state's timestamp is wall time).
    """

    def __init__(self, group_id: str, initial_delay_ms: int, wall_offset_ms: float, now_ms: float) -> None:
        self.group_id = group_id
        self.state = GroupState.EMPTY
        self.state_timestamp_ms = int(now_ms + wall_offset_ms)
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        self.roster = Roster()
        # What the members of the generation read, if they said so as Kafka's consumers do.
        self.subscribed: frozenset[str] | None = None
        self._initial_delay_ms = initial_delay_ms
        self._wall_offset_ms = wall_offset_ms
        self._join_deadline_ms: float | None = None
        self._sync_deadline_ms: float | None = None
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
        return self.is_of_consumers if self.subscribed is None else topic in self.subscribed

    def _learn_subscriptions(self) -> None:
        subscriptions = [member.subscription(self.protocol) for member in self.members.values()]
        self.subscribed = subscribed_topics(subscriptions) if self.is_of_consumers else None

    # -- what is durable ------------------------------------------------------------------------------------------

    def value(self) -> GroupValue:
        """The group's record as it stands."""
        return GroupValue(
            protocol_type=self.protocol_type or "",
            generation=self.generation,
            protocol=self.protocol,
            leader=self.roster.leader,
            state_timestamp_ms=self.state_timestamp_ms,
            members=tuple(member.saved(self.protocol) for member in self.members.values()),
        )

    def restore(self, value: GroupValue) -> None:
        """Take over a record that was loaded, from scratch."""
        self.roster = Roster()
        self.protocol_type = value.protocol_type or None
        self.generation = value.generation
        self.protocol = value.protocol
        self.state = GroupState.STABLE if value.members else GroupState.EMPTY
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
                synced=True,
            )
            self.roster.add(member)
        if value.leader in self.members:
            self.roster.leader = value.leader
        self._learn_subscriptions()

    def start_sessions(self, now_ms: float) -> None:
        """Loading is over: every loaded member gets a fresh session."""
        for member in self.members.values():
            member.touch(now_ms)

    # -- members come ---------------------------------------------------------------------------------------------

    def accepts(self, protocol_type: str, protocols: Protocols) -> bool:
        """Whether a member with these protocols can be in the group."""
        if self.state is GroupState.EMPTY:
            return bool(protocol_type) and bool(protocols)
        return protocol_type == self.protocol_type and self.roster.shares(protocols)

    def has_room(self, member_id: str, max_size: int) -> bool:
        """Whether this member may join. In a rebalance those count who joined already: the last ones are out."""
        if self.state is GroupState.EMPTY or len(self.members) < max_size:
            return True
        member = self.members.get(member_id)
        if self.state is not GroupState.PREPARING_REBALANCE:
            return member is not None
        already = member is not None and member.awaiting_join
        return already or sum(each.awaiting_join for each in self.members.values()) < max_size

    def reserve(self, member_id: str, session_timeout_ms: int, now_ms: float) -> None:
        """A new member is told its id first and must come back with it before its session ends (KIP-394)."""
        self.roster.pending[member_id] = now_ms + session_timeout_ms

    def add(self, member: Member, protocol_type: str, now_ms: float) -> Outcome:
        """A new member joins: rebalance."""
        if not self.members:
            self.protocol_type = protocol_type
        self._grew = True
        member.is_new = True
        member.session_deadline_ms = now_ms + NEW_MEMBER_TIMEOUT_MS
        self.roster.add(member)
        return self._joining(member, now_ms)

    def rejoin(self, member: Member, protocols: Protocols, timeouts: Timeouts, now_ms: float) -> Outcome:
        """A member joins again.

        Who wants the same as before gets the current generation again, since it may have missed the reply; in a stable
        group the leader does not, because it joins again when it wants a new assignment.
        """
        settled = self.state is GroupState.COMPLETING_REBALANCE or (
            self.state is GroupState.STABLE and member.member_id != self.roster.leader
        )
        if settled and protocols == member.protocols:
            return Outcome(joined={member.member_id: self._join_reply(member)})
        self.roster.update(member, protocols, timeouts)
        return self._joining(member, now_ms)

    def replace_static(
        self, member: Member, new_id: str, protocols: Protocols, timeouts: Timeouts, can_skip: bool, now_ms: float
    ) -> Outcome:
        """A static member restarted: it goes on under a new member id, whoever still uses the old one is fenced.

        A stable group stays as it is when its protocol does not change. A leader that cannot be told to skip the
        assignment (JoinGroup below v9, KIP-814) is told that its old self leads, so that it acts as a follower.
        """
        old_id, old_leader = member.member_id, self.roster.leader
        outcome = self._answer_waiting(member, ErrorCode.FENCED_INSTANCE_ID)
        self.roster.rename(member, new_id)
        self.roster.update(member, protocols, timeouts)
        member.is_new = False
        member.touch(now_ms)
        if self.state is not GroupState.STABLE or self.roster.choose_protocol() != self.protocol:
            return outcome.add(self._joining(member, now_ms))
        reply = self._join_reply(member)
        if can_skip:
            reply = reply._replace(skip_assignment=old_leader == old_id)
        else:
            reply = reply._replace(leader=old_leader or "", members=())
        outcome.joined[new_id] = reply
        outcome.save = True
        return outcome

    # -- members go -----------------------------------------------------------------------------------------------

    def leave(self, who: Sequence[tuple[str, str | None]], now_ms: float) -> tuple[list[ErrorCode], Outcome]:
        """Members leave, as (member id, instance id): an error for each. Without a member id the instance id counts."""
        errors, outcome = [], Outcome()
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
                outcome.add(self._drop(member_id))
        if not all(errors):
            outcome.add(self._went(now_ms))
        return errors, outcome

    def _drop(self, member_id: str) -> Outcome:
        member = self.roster.remove(member_id)
        return Outcome() if member is None else self._answer_waiting(member, ErrorCode.UNKNOWN_MEMBER_ID)

    def _went(self, now_ms: float) -> Outcome:
        if self.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
            return self._prepare_rebalance(now_ms)
        return self._complete_join_if_all_joined(now_ms)

    # -- sync -----------------------------------------------------------------------------------------------------

    def sync(self, member: Member, assignments: Iterable[tuple[str, bytes]]) -> Outcome:
        """A checked member asks for its assignment; the leader brings everybody's."""
        member.synced = True
        if all(other.synced for other in self.members.values()):
            self._sync_deadline_ms = None
        if self.state is GroupState.STABLE:
            return Outcome(synced={member.member_id: self._sync_reply(member)})
        member.awaiting_sync = True
        if member.member_id != self.roster.leader:
            return Outcome()
        given = dict(assignments)
        for other in self.members.values():
            other.assignment = given.get(other.member_id, b"")
        return Outcome(save=True)

    def logged(self, outcome: Outcome, error: ErrorCode, now_ms: float) -> Outcome:
        """The record that `outcome` asked for is in the log, or was refused with `error`: what follows in the end.

        An assignment that cannot be logged fails those who wait for it and starts over; a static member that restarted
        must try again. That a group became empty needs no record: its last members would time out after a restart.
        """
        if self.state is GroupState.COMPLETING_REBALANCE:
            if not error:
                self._enter(GroupState.STABLE, now_ms)
                return outcome.add(self._tell_assignment(ErrorCode.NONE, now_ms))
            self._forget_assignment()
            outcome.add(self._tell_assignment(error, now_ms))
            return outcome.add(self._prepare_rebalance(now_ms))
        if error and self.state is GroupState.STABLE:
            outcome.joined = {member_id: JoinReply(error) for member_id in outcome.joined}
        return outcome

    def _forget_assignment(self) -> None:
        for member in self.members.values():
            member.assignment = b""

    def _tell_assignment(self, error: ErrorCode, now_ms: float) -> Outcome:
        outcome = Outcome()
        for member in self.members.values():
            if member.awaiting_sync:
                member.awaiting_sync = False
                member.touch(now_ms)
                outcome.synced[member.member_id] = SyncReply(error) if error else self._sync_reply(member)
        return outcome

    # -- time -----------------------------------------------------------------------------------------------------

    def next_deadline_ms(self) -> float | None:
        """When `tick` must be called next; None when nothing is due."""
        deadlines = [member.session_deadline_ms for member in self.members.values() if not member.is_excused]
        deadlines += self.roster.pending.values()
        deadlines += [at for at in (self._join_deadline_ms, self._sync_deadline_ms) if at is not None]
        return min(deadlines, default=None)

    def tick(self, now_ms: float) -> Outcome:
        """End sessions and rebalances whose time is over."""
        outcome = Outcome()
        lapsed = [member_id for member_id, at_ms in self.roster.pending.items() if at_ms <= now_ms]
        for member_id in lapsed:
            self.roster.remove(member_id)
        if lapsed:
            outcome.add(self._complete_join_if_all_joined(now_ms))
        silent = [m for m in self.members.values() if not m.is_excused and m.session_deadline_ms <= now_ms]
        for member in silent:
            outcome.add(self._drop(member.member_id))
        if silent:
            outcome.add(self._went(now_ms))
        if self._sync_deadline_ms is not None and self._sync_deadline_ms <= now_ms:
            for member_id in [member.member_id for member in self.members.values() if not member.synced]:
                self.roster.remove(member_id)
            outcome.add(self._prepare_rebalance(now_ms))
        if self._join_deadline_ms is not None and self._join_deadline_ms <= now_ms:
            outcome.add(self._join_time_over(now_ms))
        return outcome

    # -- the rebalance --------------------------------------------------------------------------------------------

    def _joining(self, member: Member, now_ms: float) -> Outcome:
        member.awaiting_join = True
        if self.state is GroupState.PREPARING_REBALANCE:
            return self._complete_join_if_all_joined(now_ms)
        return self._prepare_rebalance(now_ms)

    def _prepare_rebalance(self, now_ms: float) -> Outcome:
        """Everybody must join again; who waits for an assignment of the old generation is told so."""
        outcome = Outcome()
        if self.state is GroupState.COMPLETING_REBALANCE:
            self._forget_assignment()
            outcome = self._tell_assignment(ErrorCode.REBALANCE_IN_PROGRESS, now_ms)
        self._sync_deadline_ms = None
        timeout_ms = self.roster.rebalance_timeout_ms
        self._is_initial = self.state is GroupState.EMPTY
        if self._is_initial:
            self._initial_limit_ms = now_ms + max(timeout_ms, self._initial_delay_ms)
            self._grew = False
        self._join_deadline_ms = now_ms + (self._initial_delay_ms if self._is_initial else timeout_ms)
        self._enter(GroupState.PREPARING_REBALANCE, now_ms)
        return outcome.add(self._complete_join_if_all_joined(now_ms))

    def _complete_join_if_all_joined(self, now_ms: float) -> Outcome:
        if self.state is not GroupState.PREPARING_REBALANCE or self._is_initial or not self.roster.everybody_joined:
            return Outcome()
        return self._complete_join(now_ms)

    def _join_time_over(self, now_ms: float) -> Outcome:
        """The first rebalance is prolonged while members keep coming, up to the first one's rebalance timeout."""
        if self._is_initial and self._grew and now_ms < self._initial_limit_ms:
            self._grew = False
            self._join_deadline_ms = min(now_ms + self._initial_delay_ms, self._initial_limit_ms)
            return Outcome()
        return self._complete_join(now_ms)

    def _complete_join(self, now_ms: float) -> Outcome:
        """A new generation of those who joined and of the static members, who may come later."""
        for member in [m for m in self.members.values() if not m.awaiting_join and m.group_instance_id is None]:
            self.roster.remove(member.member_id)
        if self.members and not self.roster.elect():
            self._join_deadline_ms = now_ms + max(self.roster.rebalance_timeout_ms, LEAST_PUT_OFF_MS)
            return Outcome()
        self._join_deadline_ms = None
        self._is_initial = False
        self.generation = (self.generation + 1) & MAX_GENERATION
        self.protocol = self.roster.choose_protocol() if self.members else None
        self._learn_subscriptions()
        if not self.members:
            self._enter(GroupState.EMPTY, now_ms)
            return Outcome(save=True)
        self._enter(GroupState.COMPLETING_REBALANCE, now_ms)
        self._sync_deadline_ms = now_ms + self.roster.rebalance_timeout_ms
        return Outcome(joined=self._tell_generation(now_ms))

    def _tell_generation(self, now_ms: float) -> dict[str, JoinReply]:
        joined = {}
        for member in self.members.values():
            if member.awaiting_join:
                joined[member.member_id] = self._join_reply(member)
            member.awaiting_join = member.is_new = member.synced = False
            member.touch(now_ms)
        return joined

    def _enter(self, target: GroupState, now_ms: float) -> None:
        self.state = check_transition(self.group_id, self.state, target)
        self.state_timestamp_ms = int(now_ms + self._wall_offset_ms)

    # -- replies --------------------------------------------------------------------------------------------------

    def _answer_waiting(self, member: Member, error: ErrorCode) -> Outcome:
        """Nothing more comes for this member id: whoever waits with it is told why."""
        outcome = Outcome()
        if member.awaiting_join:
            known_as = member.member_id if error is ErrorCode.FENCED_INSTANCE_ID else ""
            outcome.joined[member.member_id] = JoinReply(error, known_as)
        if member.awaiting_sync:
            outcome.synced[member.member_id] = SyncReply(error)
        member.awaiting_join = member.awaiting_sync = False
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
