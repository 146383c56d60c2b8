"""A membership of the classic protocol in a group that may be of either protocol, as its client knows it. free

An eager client gives up all partitions before it joins. A cooperative one reports what it owns, gives up what the
assignment has taken from it, and then joins again (KIP-429). The leader of a classic group assigns a partition only if
no other member reports it. The classic protocol names topics, so a client takes a new topic for the old one of its
name.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from lab.client_requests import (
    FENCED_INSTANCE_ID,
    ILLEGAL_GENERATION,
    MEMBER_ID_REQUIRED,
    NONE,
    NOT_A_MEMBER,
    REBALANCE_IN_PROGRESS,
    heartbeat,
    join_group,
    leave_group,
    sync_group,
)
from lab.simulation.groups.membership import REBALANCE_MS, Beat, GroupPartition, Membership
from lab.simulation.process import Lost, Process, Script
from ottla.broker.assembly import Assembly
from ottla.protocol.fields import Writer
from ottla.protocol.internal_topics.consumer_protocol import (
    TYPE,
    Partitions,
    encode_assignment,
    read_assignment,
    read_subscription,
)
from ottla.protocol.steps import to_the_end

SESSION_MS: Final = 800
JOIN_MS: Final = REBALANCE_MS + 800.0
"""How long a client waits for the others to join."""
EAGER: Final = "range"
COOPERATIVE: Final = "cooperative-sticky"
_SUBSCRIPTION_VERSION: Final = 1
_REMOVED: Final = frozenset((*NOT_A_MEMBER, FENCED_INSTANCE_ID))

TopicCounts = dict[str, tuple[bytes, int] | None]
"""Topic id and number of partitions by name; None for a topic that does not exist."""


class Restart(NamedTuple):
    """Knowledge that a static member loses by a restart. It gets its assignment again, without a rebalance."""

    generation: int
    withheld: frozenset[GroupPartition]
    """What the last assignment withheld until this client had given it up and joined."""
    assigned_of: TopicCounts | None
    """The topics that this client, as the leader, had assigned."""
    names: tuple[str, ...]
    """The subscription with which this client had joined."""


NO_RESTART: Final = Restart(0, frozenset(), None, ())


class ClassicMembership(Membership):
    """A member of the classic protocol. `epoch` is its generation, and its member id is empty before it joins."""

    def __init__(
        self,
        process: Process,
        group: str,
        names: Sequence[str],
        instance_id: str | None,
        protocol: str,
        serial: int,
    ) -> None:
        super().__init__(process, group, names, instance_id, None, serial)
        self.protocol = protocol
        self.member_id = ""
        self._must_join = True
        self._names: dict[bytes, str] = {}
        self._withheld: set[GroupPartition] = set()
        self._joined_for: tuple[str, ...] = ()
        self.restart = NO_RESTART
        self._assigned_of: TopicCounts | None = None
        """The topics that this client, as the leader, has assigned."""

    def note_restart(self) -> None:
        """Note what a static member forgets when it restarts for the first time in a generation."""
        if self.instance_id is not None and self.epoch not in (0, self.restart.generation):
            self.restart = Restart(self.epoch, frozenset(self._withheld), self._assigned_of, self._joined_for)

    def rejoin(self, with_new_id: bool = False) -> None:
        self.note_restart()
        self._withheld = set()
        super().rejoin()
        self._must_join, self._assigned_of = True, None
        if with_new_id:
            self.serial += 1
            self.member_id = ""
            self.is_overtaken = False

    def beat(self) -> Script:
        """Send a heartbeat, or join if the group is rebalanced and nothing is left to give up."""
        self._rename_topics()
        if self._assigned_of is not None and self._find_topics(self._assigned_of) not in (None, self._assigned_of):
            self._must_join = True
        self._must_join |= self.says_all
        if self._must_join and self.epoch and self.protocol == EAGER:
            self.assigned = set()
        if not self.epoch or (self._must_join and not self.must_give_up):
            yield from self._join()
            return
        self.beats += 1
        try:
            answer = yield from self.process.call(heartbeat(self.group, *self.caller, self.instance_id))
        except Lost:
            return
        if not self._drop_if_gone(answer.error_code) and answer.error_code == REBALANCE_IN_PROGRESS:
            self._must_join = True

    def leave(self, for_a_while: bool = False) -> Script:
        """Leave the group. A static member that leaves for a while sends nothing."""
        member_id, is_member = self.member_id, self.epoch > 0
        self.rejoin(with_new_id=True)
        if for_a_while or not is_member:
            self.process.hang_up()
            return
        try:
            answer = yield from self.process.call(leave_group(self.group, member_id, self.instance_id))
        except Lost:
            return
        self.world.met["classic members that left"] += not answer.error_code

    def _join(self) -> Script:
        """Send JoinGroup and SyncGroup, and follow the assignment. Leave the rest to the next heartbeat otherwise."""
        try:
            answer = yield from self._call_join()
            if answer.error_code == MEMBER_ID_REQUIRED:
                self.member_id = answer.member_id
                answer = yield from self._call_join()
            if self._drop_if_gone(answer.error_code) or answer.error_code:
                return
            self.member_id, self.epoch, self._joined_for = answer.member_id, answer.generation_id, self.names
            shares: dict[str, bytes] = {}
            self._assigned_of = None
            if answer.leader == self.member_id:
                shares = self._divide(answer.members)
            self.beats += 1
            request = sync_group(self.group, *self.caller, shares, self.instance_id)
            answer = yield from self.process.call(request, timeout_ms=JOIN_MS)
        except Lost:
            return
        if not self._drop_if_gone(answer.error_code) and answer.error_code == NONE and self.world.assembly is not None:
            self._take_assignment(self.world.assembly, bytes(answer.assignment))

    def _call_join(self) -> Script:
        if not self.epoch:
            self.is_overtaken = False  # it owns nothing, and says so
        content = encode_subscription(self.names, self._name(self.owned))
        protocol = TYPE, self.protocol, content
        self.beats += 1
        request = join_group(self.group, self.member_id, SESSION_MS, REBALANCE_MS, protocol, self.instance_id)
        return (yield from self.process.call(request, Beat(self), JOIN_MS))

    def _drop_if_gone(self, error: int) -> bool:
        """Forget the membership if the error says that the client is no member of this generation. Return whether."""
        if error not in _REMOVED:
            return False
        self.world.met["classic members that had been removed"] += 1
        self.rejoin(with_new_id=error != ILLEGAL_GENERATION)
        return True

    def _take_assignment(self, assembly: Assembly, content: bytes) -> None:
        self.says_all = self._must_join = False
        self._names.update((topic.topic_id, name) for name, topic in assembly.broker.cluster.topics.items())
        self.assigned = find_places(assembly, content)
        self.owned_by_name -= self.assigned
        self._withheld = self.owned - self.assigned
        new = self.assigned - self.owned
        if self.must_give_up:
            self._must_join = True
        else:
            self.acknowledge()
            self.is_overtaken = False
        self.world.met["assignments of classic members"] += 1
        if self.world.groups is not None:
            self.world.groups.on_heartbeat_answer(self, new)

    def _divide(self, members: Iterable[Any]) -> dict[str, bytes]:
        """Assign the topics of all members, each partition to one that may have it, as the leader."""
        found = {each.member_id: to_the_end(read_subscription(bytes(each.metadata))) for each in members}
        topics = self._find_topics(sorted({name for each in found.values() for name in each.topics}))
        if topics is None:
            raise Lost
        self._assigned_of = topics
        shares: dict[str, dict[str, list[int]]] = {member_id: {} for member_id in found}
        turn = 0
        for name, topic in topics.items():
            count = 0 if topic is None else topic[1]
            subscribers = sorted(member_id for member_id in found if name in found[member_id].topics)
            for index in range(count):
                member_id = subscribers[(turn + index) % len(subscribers)]
                others = (other for other in found if other != member_id)
                if not any(index in found[other].owned.get(name, ()) for other in others):
                    shares[member_id].setdefault(name, []).append(index)
            turn += count
        return {
            member_id: to_the_end(encode_assignment(share.items(), _SUBSCRIPTION_VERSION))
            for member_id, share in shares.items()
        }

    def _find_topics(self, names: Iterable[str]) -> TopicCounts | None:
        """Return the topics of these names; None while the broker is down."""
        assembly = self.world.assembly
        if assembly is None:
            return None
        found = {name: assembly.broker.cluster.topics.get(name) for name in names}
        return {
            name: None if topic is None else (topic.topic_id, topic.partition_count) for name, topic in found.items()
        }

    def _rename_topics(self) -> None:
        """Take new topics for the old ones of their names."""
        if self.world.assembly is None:
            return
        topics = self.world.assembly.broker.cluster.topics
        self._names.update((topic.topic_id, name) for name, topic in topics.items())
        newer = {old: topics[name].topic_id for old, name in self._names.items() if name in topics}
        owned = {(newer.get(topic_id, topic_id), index) for topic_id, index in self.owned}
        self.owned_by_name |= owned - self.owned
        self.owned = owned
        self.assigned = {(newer.get(topic_id, topic_id), index) for topic_id, index in self.assigned}

    def _name(self, places: Iterable[GroupPartition]) -> Partitions:
        """Return partitions by the name of their topic."""
        found: dict[str, list[int]] = {}
        for topic_id, index in sorted(places):
            found.setdefault(self._names[topic_id], []).append(index)
        return found


def find_places(assembly: Assembly, content: bytes) -> set[GroupPartition]:
    """Return the partitions of an assignment that exist."""
    topics = assembly.broker.cluster.topics
    partitions = to_the_end(read_assignment(content)).partitions if content else {}
    return {
        (topics[name].topic_id, index)
        for name, indexes in partitions.items()
        if name in topics
        for index in indexes
        if index < topics[name].partition_count
    }


def encode_subscription(names: Sequence[str], owned: Mapping[str, Sequence[int]]) -> bytes:
    """Encode a subscription with the partitions that a member owns."""
    writer = Writer()
    writer.int16(_SUBSCRIPTION_VERSION)
    writer.array(names, writer.string)
    writer.int32(-1)
    writer.int32(len(owned))
    for name, indexes in owned.items():
        writer.string(name)
        writer.array(indexes, writer.int32)
    return bytes(writer.out)
