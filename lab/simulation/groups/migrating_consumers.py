"""Consumers of both protocols in one group: they leave or crash and come back with the other protocol. free

So the broker upgrades and downgrades the group while it has members. A consumer commits positions that follow the
committed offset, so that the offsets of a partition never go back when it changes its owner.
"""

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Final

from lab.client_requests import member_offset_fetch, offset_commit
from lab.simulation.groups.classic_membership import COOPERATIVE, EAGER, NO_RESTART, ClassicMembership
from lab.simulation.groups.group_consumers import ASSIGNORS, LONG_PAUSE_MS, SUBSCRIPTIONS, GroupConsumer, TopicAdmin
from lab.simulation.groups.membership import GroupPartition, Membership
from lab.simulation.process import Lost, Process, Script
from ottla.broker.group.members import Caller
from ottla.protocol.values import TopicPartition

if TYPE_CHECKING:
    from lab.simulation.world import World

CLASSIC_SHARE: Final = 0.6
"""Share of the consumers that begin with the classic protocol."""
MIGRATION_SHARE: Final = 0.12
"""Share of the actions of a consumer after which it has the other protocol."""
COMMIT_SHARE: Final = 0.4
"""Share of the heartbeats that a commit precedes."""
REGEX_SHARE: Final = 0.35
"""Share of the runs in which consumers of the consumer protocol subscribe by regular expressions."""
REGEXES: Final = ("g.*", "g[01]", "g2|g1", "none")


class MigratingConsumer(GroupConsumer):
    """A consumer that changes its protocol."""

    def __init__(
        self,
        world: "World",
        name: str,
        random: Random,
        group: str,
        instance_id: str | None,
        assignor: str | None,
        classic_protocol: str,
        has_regexes: bool,
    ) -> None:
        super().__init__(world, name, random, group, instance_id, assignor)
        self._assignor = assignor
        self._classic_protocol = classic_protocol
        self._has_regexes = has_regexes
        self._last_positions: dict[GroupPartition, int] = {}
        self._restart = NO_RESTART
        if random.random() < CLASSIC_SHARE:
            self.member = self._draw_other()
        self._subscribe()

    def _draw_other(self) -> Membership:
        """Return a membership of the other protocol, under another member id."""
        old = self.member
        serial = old.serial + 1
        if isinstance(old, ClassicMembership):
            old.note_restart()
            self._restart = old.restart
            return Membership(self, old.group, old.names, old.instance_id, self._assignor, serial)
        found = ClassicMembership(self, old.group, old.names, old.instance_id, self._classic_protocol, serial)
        found.restart = self._restart
        return found

    def _act(self) -> Script:
        if self.random.random() < MIGRATION_SHARE:
            yield from self._migrate()
        else:
            yield from super()._act()

    def _migrate(self) -> Script:
        """Leave or crash, and come back with the other protocol, perhaps before the session has ended."""
        member = self.member
        if self.random.random() < 0.5:
            yield from member.leave(for_a_while=member.instance_id is not None)
        else:
            self.hang_up()
        self.member = self._draw_other()
        self._subscribe()
        is_classic = isinstance(self.member, ClassicMembership)
        self.world.met["members that changed to the " + ("classic" if is_classic else "consumer") + " protocol"] += 1
        yield from self.sleep(self.random.random() ** 2 * LONG_PAUSE_MS)

    def _subscribe(self) -> None:
        if not self._has_regexes or isinstance(self.member, ClassicMembership):
            super()._subscribe()
        elif self.random.random() < 0.7:
            self.member.subscribe((), self.random.choice(REGEXES))
        else:
            self.member.subscribe(self.random.choice(SUBSCRIPTIONS), "")

    def _beat(self) -> Script:
        """Send a heartbeat, perhaps after a commit: it may be the last one before a partition is given up."""
        if self.random.random() < COMMIT_SHARE:
            yield from self._commit()
        yield from super()._beat()

    def _commit(self) -> Script:
        """Commit the next position of an owned partition, or in an old epoch that of one that it owns or owned."""
        member, is_stale = self.member, self.random.random() < 0.3
        known = [place for place in self._last_positions if place not in member.owned or place in member.positions]
        place = self._draw(known if is_stale else member.owned)
        if place is None:
            return
        key, named = place
        if not is_stale and key not in member.positions:
            yield from self._fetch_position(key, named)
            if key not in member.positions:
                return
        epoch, member_id = member.caller
        if is_stale:
            epoch, offset = max(0, epoch - self.random.randint(1, 3)), self._last_positions[key]
        else:
            offset = member.positions[key] + self.random.randint(1, 3)
            member.positions[key] = self._last_positions[key] = offset
        try:
            answer = yield from self.call(offset_commit(member.group, (epoch, member_id), *named, offset))
        except Lost:
            if self.world.groups is not None:
                self.world.groups.offsets.lost.add((Caller(member.group, epoch, member_id), offset))
            return
        refused = bool(answer.topics[0].partitions[0].error_code)
        self.world.met["commits of members refused" if refused else "commits of members"] += 1

    def _fetch(self) -> Script:
        place = self._draw(self.member.owned)
        if place is not None:
            yield from self._fetch_position(*place)

    def _fetch_position(self, key: GroupPartition, named: TopicPartition) -> Script:
        """Fetch the committed offset of an owned partition, and continue there."""
        try:
            answer = yield from self.call(member_offset_fetch(self.member.group, self.member.caller, *named))
        except Lost:
            return
        (found,) = answer.groups
        row = found.topics[0].partitions[0] if found.topics else None
        if found.error_code or row is None or row.error_code:
            self.world.met["fetches of members refused"] += 1
            return
        self.member.positions[key] = self._last_positions[key] = max(row.committed_offset, 0)

    def _draw(
        self, places: "set[GroupPartition] | list[GroupPartition]"
    ) -> tuple[GroupPartition, TopicPartition] | None:
        """Return one of these partitions whose topic still exists, also by the topic's name."""
        assembly = self.world.assembly
        topics = {} if assembly is None else assembly.broker.cluster.image.topics_by_id
        found = [(key, (topics[key[0]].name, key[1])) for key in sorted(places) if key[0] in topics]
        return self.random.choice(found) if found else None


def draw_migrating_clients(world: "World", random: Random) -> list[tuple[Process, Callable[[], Script]]]:
    """Return the clients of a run whose consumers migrate, with their scripts."""

    def child() -> Random:
        return Random(random.getrandbits(64))

    found: list[tuple[Process, Callable[[], Script]]] = []
    assignor, protocol = random.choice(ASSIGNORS), random.choice((EAGER, COOPERATIVE))
    has_regexes = random.random() < REGEX_SHARE
    for number in range(random.randint(2, world.profile.group_consumers)):
        instance_id = f"instance-{number}" if random.random() < 0.4 else None
        consumer = MigratingConsumer(
            world, f"g{number}", child(), "consumers", instance_id, assignor, protocol, has_regexes
        )
        found.append((consumer, consumer.run))
    admin = TopicAdmin(world, "topics", child())
    found.append((admin, admin.run))
    return found
