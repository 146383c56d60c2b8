"""The members of a classic group, and the leader and the protocol that they elect. pure

Source: `org.apache.kafka.coordinator.group.classic.ClassicGroup`, `ClassicGroupMember` of Kafka 4.3.1.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from ottla.protocol.errors import ErrorCode
from ottla.protocol.internal_topics.offsets_records import GroupMember

# A new member cannot send heartbeats before it knows its id, and a parked JoinGroup hides that its client is gone.
NEW_MEMBER_TIMEOUT_MS: Final = 5 * 60 * 1000
NEVER_MS: Final = float("inf")

Protocols = tuple[tuple[str, bytes], ...]
"""(assignor name, subscription) in the member's order of preference, each name once."""


class Moment(NamedTuple):
    """The current time of both clocks: intervals use the monotonic time, stored timestamps the wall time. Neither
    clock follows from the other: a suspended machine stops one of them, and setting the clock moves only the wall
    time."""

    monotonic_ms: float
    wall_ms: int


class Timeouts(NamedTuple):
    """The timeouts that a member requests when it joins."""

    rebalance_ms: int
    session_ms: int


class Caller(NamedTuple):
    """The sender of a request in a group; generation -1 and an empty member id if it is not a member."""

    group_id: str
    generation: int = -1
    member_id: str = ""
    group_instance_id: str | None = None

    @property
    def is_member(self) -> bool:
        return self.generation >= 0 or self.member_id != "" or self.group_instance_id is not None


class JoinAsk(NamedTuple):
    """A JoinGroup request.

    `known_id_needed`: v4+ (KIP-394); `can_skip_assignment`: v9+ (KIP-814); `reason`: v8+ (KIP-800). `protocols` are as
    the client sent them: any number, and a name may occur more than once.
    """

    group_id: str
    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    timeouts: Timeouts
    protocol_type: str
    protocols: Iterable[tuple[str, bytes]]
    known_id_needed: bool
    can_skip_assignment: bool
    reason: str | None = None

    @property
    def needs_id(self) -> bool:
        """Whether the member must join again with the id that the reply gives it."""
        return not self.member_id and self.group_instance_id is None and self.known_id_needed


@dataclass(slots=True)
class Member:
    """A member. From `session_deadline_ms` on the fields are in memory only."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    timeouts: Timeouts
    protocols: Protocols
    assignment: bytes = b""
    session_deadline_ms: float = field(default=0.0)
    is_new: bool = False
    awaiting_join: bool = False
    awaiting_sync: bool = False
    _subscription: tuple[str | None, bytes] = field(default=(None, b""), init=False, repr=False, compare=False)

    @property
    def is_exempt(self) -> bool:
        """Whether the session cannot expire, because the member waits for a reply and knows its member id already."""
        return (self.awaiting_join or self.awaiting_sync) and not self.is_new

    def subscription(self, protocol: str | None) -> bytes:
        """Return the metadata that the member sent for `protocol`; empty if it sent none."""
        if self._subscription[0] != protocol:
            self._subscription = (
                protocol,
                next((metadata for name, metadata in self.protocols if name == protocol), b""),
            )
        return self._subscription[1]

    def want(self, protocols: Protocols, timeouts: Timeouts) -> None:
        """Set the protocols and timeouts with which the member joins again."""
        self.protocols, self.timeouts, self._subscription = protocols, timeouts, (None, b"")

    def touch(self, now_ms: float) -> None:
        """Restart the session timeout."""
        self.session_deadline_ms = now_ms + self.timeouts.session_ms

    def to_record(self, protocol: str | None, assignment: bytes | None = None) -> GroupMember:
        """Return the member for the group's record, with its own assignment or the given one."""
        return GroupMember(
            member_id=self.member_id,
            group_instance_id=self.group_instance_id,
            client_id=self.client_id,
            client_host=self.client_host,
            rebalance_timeout_ms=self.timeouts.rebalance_ms,
            session_timeout_ms=self.timeouts.session_ms,
            subscription=self.subscription(protocol),
            assignment=self.assignment if assignment is None else assignment,
        )


class Roster:
    """The members of one group in the order in which they joined.

    `static` maps instance ids to member ids (KIP-345). `pending` maps ids that were assigned and not used yet to the
    time when they expire (KIP-394).
    """

    __slots__ = ("_leader", "_supporters", "joined_count", "members", "pending", "static")

    def __init__(self) -> None:
        self.members: dict[str, Member] = {}
        self.static: dict[str, str] = {}
        self.pending: dict[str, float] = {}
        self._leader: str | None = None
        # The number of members that wait for the next generation. It is a counter, because each JoinGroup reads it.
        self.joined_count = 0
        self._supporters: Counter[str] = Counter()

    @property
    def leader(self) -> str | None:
        """The first member, or the elected one. It is found at the first use, because many members may leave at
        once."""
        if self._leader is None and self.members:
            self._leader = next(iter(self.members))
        return self._leader

    def lead(self, member_id: str) -> None:
        """Make this member the leader."""
        self._leader = member_id

    def add(self, member: Member) -> None:
        """Add a member."""
        self.pending.pop(member.member_id, None)
        self.members[member.member_id] = member
        self._count(member.protocols, 1)
        if member.group_instance_id is not None:
            self.static[member.group_instance_id] = member.member_id

    def remove(self, member_id: str) -> Member | None:
        """Remove a member or a pending id."""
        self.pending.pop(member_id, None)
        member = self.members.pop(member_id, None)
        if member is None:
            return None
        self.set_awaiting_join(member, False)
        self._count(member.protocols, -1)
        if member.group_instance_id is not None:
            self.static.pop(member.group_instance_id, None)
        if self._leader == member_id:
            self._leader = None
        return member

    def remove_all(self, member_ids: Iterable[str]) -> None:
        """Remove several members or pending ids."""
        for member_id in member_ids:
            self.remove(member_id)

    def set_awaiting_join(self, member: Member, joined: bool) -> None:
        """Record whether a member waits for the next generation."""
        self.joined_count += joined - member.awaiting_join
        member.awaiting_join = joined

    def rename(self, member: Member, new_id: str) -> None:
        """Give a static member a new member id. Requests with its old id are fenced from now on."""
        old_id, member.member_id = member.member_id, new_id
        if self.leader == old_id:
            self._leader = new_id
        del self.members[old_id]
        self.members[new_id] = member
        if member.group_instance_id is not None:
            self.static[member.group_instance_id] = new_id

    def update(self, member: Member, protocols: Protocols, timeouts: Timeouts) -> None:
        """Set the protocols and timeouts with which a member joins again."""
        self._count(member.protocols, -1)
        self._count(protocols, 1)
        member.want(protocols, timeouts)

    def error(self, member_id: str, group_instance_id: str | None) -> ErrorCode:
        """Return UNKNOWN_MEMBER_ID or FENCED_INSTANCE_ID if this is not a member, else NONE."""
        if group_instance_id is not None:
            owner = self.static.get(group_instance_id)
            if owner is not None and owner != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
            if owner is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
        return ErrorCode.NONE if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    def shares(self, protocols: Protocols) -> bool:
        """Return whether every member supports one of these protocols."""
        return any(self._supporters[name] == len(self.members) for name in _names(protocols))

    def choose_protocol(self, restarted: Member | None = None, protocols: Protocols = ()) -> str:
        """Return the protocol with the most votes. Each member votes for the first of its protocols that all members
        support.

        The member `restarted` votes with `protocols` instead of those with which it joined.
        """
        ballots = [protocols if member is restarted else member.protocols for member in self.members.values()]
        moved = Counter(_names(protocols))
        moved.subtract(_names(restarted.protocols) if restarted is not None else ())
        common = {name for name in _names(ballots[0]) if self._supporters[name] + moved[name] == len(ballots)}
        votes = Counter(next(name for name in _names(ballot) if name in common) for ballot in ballots)
        return max(votes, key=lambda name: votes[name])

    def elect(self) -> bool:
        """Elect a member that joined as the leader, unless the leader has joined; return False if no member has
        joined."""
        if self.leader is not None and self.members[self.leader].awaiting_join:
            return True
        joined = next((member.member_id for member in self.members.values() if member.awaiting_join), None)
        if joined is not None:
            self._leader = joined
        return joined is not None

    @property
    def everybody_joined(self) -> bool:
        return not self.pending and self.joined_count == len(self.members)

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest rebalance timeout of the members, at least 0."""
        return max([0, *(member.timeouts.rebalance_ms for member in self.members.values())])

    def _count(self, protocols: Protocols, step: int) -> None:
        supporters = self._supporters
        for name, _metadata in protocols:
            supporters[name] += step
            if not supporters[name]:
                del supporters[name]


def _names(protocols: Protocols) -> Iterable[str]:
    return (name for name, _metadata in protocols)
