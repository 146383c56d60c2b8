"""A membership of the consumer protocol, as its client knows it, and the heartbeats that move it. free

A client gives up partitions before it reports so, and takes partitions only from a reply. So a partition that it holds
(`owned`) is its own until the broker removes the member. A heartbeat that arrives after the client has sent a later one
may report what is no longer true: `is_overtaken` says that one did.

A subscription is a set of topic names or a regular expression. `classic_membership.py` has the members of the classic
protocol.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from lab.client_requests import (
    FENCED_INSTANCE_ID,
    FENCED_MEMBER_EPOCH,
    GROUP_ID_NOT_FOUND,
    NONE,
    NOT_COORDINATOR,
    UNKNOWN_MEMBER_ID,
    consumer_group_heartbeat,
)
from lab.simulation.process import Attempt, Lost, Process, Script
from ottla.broker.group.consumer.members import LEAVE_EPOCH, LEAVE_STATIC_EPOCH

if TYPE_CHECKING:
    from lab.simulation.world import World

REBALANCE_MS: Final = 900
_REMOVED: Final = frozenset((UNKNOWN_MEMBER_ID, FENCED_MEMBER_EPOCH, FENCED_INSTANCE_ID, GROUP_ID_NOT_FOUND))

GroupPartition = tuple[bytes, int]
"""A partition by topic id."""


class Beat(Attempt):
    """A heartbeat on its way."""

    __slots__ = ("member_id", "membership", "number")

    def __init__(self, membership: "Membership") -> None:
        super().__init__(membership.process, None)
        self.membership = membership
        self.member_id = membership.member_id
        self.number = membership.beats

    def mark_if_late(self) -> None:
        """Mark the membership if the broker handles the heartbeat after the client has sent a later one."""
        membership = self.membership
        if self.number != membership.beats and self.member_id == membership.member_id:
            membership.is_overtaken = True
            membership.world.met["late heartbeats"] += 1


class Membership:
    """A member of one group. `assigned` is what the broker gave it last, `owned` what it has not given up yet."""

    def __init__(
        self,
        process: Process,
        group: str,
        names: Sequence[str],
        instance_id: str | None = None,
        assignor: str | None = None,
        serial: int = 0,
    ) -> None:
        self.process = process
        self.world: World = process.world
        self.group = group
        self.names = tuple(names)
        self.regex: str | None = None
        """The regular expression of topics. An empty one replaces an earlier one; None is no expression so far."""
        self.instance_id = instance_id
        self.assignor = assignor
        self.serial = serial
        self.member_id = f"{process.name}/{serial}"
        self.epoch = 0
        self.assigned: set[GroupPartition] = set()
        self.owned: set[GroupPartition] = set()
        self.given_up: set[GroupPartition] = set()
        self.owned_by_name: set[GroupPartition] = set()
        """Partitions of new topics that a client takes for old ones of their names. No answer has given them to it."""
        self.positions: dict[GroupPartition, int] = {}
        """The positions in owned partitions, from their first fetch on."""
        self.beats = 0
        self.is_overtaken = False
        self.says_all = True
        """Whether the next heartbeat says everything, as after a lost reply. Its answer has the whole assignment."""

    @property
    def must_give_up(self) -> bool:
        """Whether the client owns a partition that the broker has taken from it."""
        return not self.owned <= self.assigned

    @property
    def caller(self) -> tuple[int, str]:
        """The epoch and the member id of a commit or fetch."""
        return self.epoch, self.member_id

    def rejoin(self, with_new_id: bool = False) -> None:
        """Drop all partitions and join with the next heartbeat, perhaps as another member."""
        self.epoch = 0
        self.assigned, self.owned, self.owned_by_name = set(), set(), set()
        self.positions.clear()
        self.beats += 1
        if with_new_id:
            self.serial += 1
            self.member_id = f"{self.process.name}/{self.serial}"
            self.is_overtaken = False

    def subscribe(self, names: Iterable[str], regex: str | None = None) -> None:
        """Subscribe to other topics with the next heartbeat."""
        self.names, self.regex = tuple(names), regex
        self.says_all = True

    def acknowledge(self) -> None:
        """Give up what the broker has taken, and take what it has given."""
        self.given_up |= self.owned - self.assigned
        self.owned = set(self.assigned)
        self.positions = {place: position for place, position in self.positions.items() if place in self.owned}

    def beat(self) -> Script:
        """Send a heartbeat and follow the answer."""
        if self.epoch == 0:
            self.is_overtaken, self.says_all = False, True  # it owns nothing, and says so
        says_all = self.says_all
        owned = _by_topic(self.owned) if says_all or self.process.random.random() < 0.7 else None
        request = consumer_group_heartbeat(
            self.group,
            self.member_id,
            self.epoch,
            self.instance_id,
            self._subscription() if says_all else None,
            owned,
        )
        self.beats += 1
        try:
            answer = yield from self.process.call(request, Beat(self))
        except Lost:
            self.says_all = True
            return
        if answer.error_code in _REMOVED:
            self.world.met["members that had been removed"] += 1
            self.rejoin(with_new_id=self.process.random.random() < 0.3)
        elif answer.error_code == NONE:
            self._follow(answer)
        elif answer.error_code == NOT_COORDINATOR:
            self.says_all = True  # the heartbeat may count, and the next coordinator does not repeat the assignment

    def leave(self, for_a_while: bool = False) -> Script:
        """Leave the group, as a static member perhaps for a while. The answer may be lost."""
        epoch = LEAVE_STATIC_EPOCH if for_a_while else LEAVE_EPOCH
        request = consumer_group_heartbeat(self.group, self.member_id, epoch, self.instance_id)
        self.rejoin()
        try:
            answer = yield from self.process.call(request, Beat(self))
        except Lost:
            return
        if not answer.error_code:
            self.world.met["static members that left for a while" if for_a_while else "members that left"] += 1

    def _subscription(self) -> tuple[int, Sequence[str], str | None, str | None]:
        return REBALANCE_MS, self.names, self.regex, self.assignor

    def _follow(self, answer: Any) -> None:
        self.epoch = answer.member_epoch
        self.says_all = False
        if answer.assignment is not None:
            topics = answer.assignment.topic_partitions
            self.assigned = {(topic.topic_id.bytes, index) for topic in topics for index in topic.partitions}
        new = self.assigned - self.owned
        if not self.must_give_up:
            self.acknowledge()
        groups = self.world.groups
        if groups is not None:
            groups.on_heartbeat_answer(self, new)


def _by_topic(partitions: Iterable[GroupPartition]) -> Mapping[bytes, Sequence[int]]:
    found: dict[bytes, list[int]] = {}
    for topic_id, index in sorted(partitions):
        found.setdefault(topic_id, []).append(index)
    return found
