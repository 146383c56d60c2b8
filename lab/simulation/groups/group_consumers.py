"""Clients of the consumer protocol: consumers of topics that change, and copiers that share their inputs. free"""

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Final

from lab.client_requests import (
    STALE_MEMBER_EPOCH,
    UNKNOWN_MEMBER_ID,
    create_partitions,
    create_topic,
    delete_topic,
    member_offset_fetch,
    offset_commit,
)
from lab.simulation.consumers import Copier
from lab.simulation.groups.membership import GroupPartition, Membership
from lab.simulation.process import Lost, Process, Script
from lab.simulation.producers import Abortable, ProducerBehaviour, Refused
from lab.simulation.setting import GROUP, GROUP_TOPICS
from ottla.protocol.values import TopicPartition
from ottla.testkit.in_memory.wire import Request

if TYPE_CHECKING:
    from lab.simulation.world import World

NAMES: Final = (*GROUP_TOPICS, "g2")
"""Topics of the groups; the last one does not exist at first."""
MOST_PARTITIONS: Final = 9
BEAT_MS: Final = 100.0
LONG_PAUSE_MS: Final = 2200.0
"""Longer than a session and a rebalance timeout."""
ACTIONS: Final = (12, 26)
SUBSCRIPTIONS: Final = (("g0",), ("g0", "g1"), ("g1", "g2"), NAMES, ())
ASSIGNORS: Final = (None, "range", "uniform")
SLOW: Final = ProducerBehaviour(transactions=6, pause=0.35, pause_ms=2000.0, timeout_ms=4000)
"""A copier that its group removes at times, while its transaction stays open."""


class GroupClient(Process):
    """A client with a membership."""

    member: Membership

    def settle(self) -> Script:
        """Send heartbeats and do at once what they ask for, until the world stops the client.

        What the broker gave in the answer to a late heartbeat is unknown to the client until it says everything.
        """
        while True:
            self.member.acknowledge()
            self.member.says_all |= self.member.is_overtaken
            yield from self.member.beat()
            yield from self.sleep(BEAT_MS)


class GroupConsumer(GroupClient):
    """A consumer that gives up partitions late or never, commits, pauses, crashes, leaves, and changes topics."""

    def __init__(
        self,
        world: "World",
        name: str,
        random: Random,
        group: str,
        instance_id: str | None,
        assignor: str | None,
    ) -> None:
        super().__init__(world, name, random)
        names = random.choice(SUBSCRIPTIONS[:-1])
        self.member = Membership(self, group, names, instance_id, assignor)
        self._gives_up = 1.0
        self._commits = 0

    def run(self) -> Script:
        for _ in range(self.random.randint(*ACTIONS)):
            yield from self.sleep(BEAT_MS * (0.5 + self.random.random()))
            if self.world.resting:
                break
            yield from self._act()
        self.has_worked = True
        yield from self.settle()

    def _act(self) -> Script:
        member, kind = self.member, self.random.random()
        if not member.epoch or kind < 0.6:
            yield from self._beat()
        elif kind < 0.76:
            yield from self._commit()
        elif kind < 0.81:
            yield from self._fetch()
        elif kind < 0.85:
            self._subscribe()
            yield from member.beat()
        elif kind < 0.88:
            yield from member.leave()
            yield from self._stay_away()
        elif kind < 0.93 and member.instance_id is not None:
            yield from member.leave(for_a_while=True)
            yield from self._stay_away()
        elif kind < 0.96:
            self.world.met["group members that crashed"] += 1
            self.hang_up()
            member.rejoin(with_new_id=self.random.random() < 0.8)
            yield from self._stay_away()
        else:
            self.world.met["group members that paused"] += 1
            yield from self.sleep(self.random.random() * LONG_PAUSE_MS)

    def _subscribe(self) -> None:
        self.member.subscribe(self.random.choice(SUBSCRIPTIONS))

    def _beat(self) -> Script:
        member = self.member
        if member.must_give_up and self.random.random() < self._gives_up:
            member.acknowledge()
        had_to = member.must_give_up
        yield from member.beat()
        if member.must_give_up and not had_to:
            self._gives_up = self.random.choice((1.0, 0.3, 0.3, 0.0))
            self.world.met["revocations"] += 1
            self.world.met["revocations that are not acknowledged"] += not self._gives_up

    def _stay_away(self) -> Script:
        """Wait, sometimes longer than a session, and come back with the same member id or another."""
        yield from self.sleep(self.random.random() ** 2 * LONG_PAUSE_MS)
        self.member.rejoin(with_new_id=self.random.random() < 0.5)

    def _commit(self) -> Script:
        """Commit an offset of a partition that the member owns, or with an old epoch of one that it has owned."""
        is_stale = self.random.random() < 0.3
        place = self._draw_place(self.member.owned | self.member.given_up if is_stale else self.member.owned)
        if place is None:
            return
        epoch, member_id = self.member.caller
        if is_stale:
            epoch = max(0, epoch - self.random.randint(1, 3))
        self._commits += 1
        request = offset_commit(self.member.group, (epoch, member_id), *place, self._commits)
        try:
            answer = yield from self.call(request)
        except Lost:
            return
        refused = bool(answer.topics[0].partitions[0].error_code)
        self.world.met["commits of members refused" if refused else "commits of members"] += 1

    def _fetch(self) -> Script:
        """Fetch the committed offset of a partition that the member owns; with an old epoch the broker must refuse."""
        place = self._draw_place(self.member.owned)
        if place is None:
            return
        epoch, member_id = self.member.caller
        is_stale = self.random.random() < 0.2
        epoch -= is_stale
        try:
            answer = yield from self.call(member_offset_fetch(self.member.group, (epoch, member_id), *place))
        except Lost:
            return
        refused = bool(answer.groups[0].error_code)
        self.world.met["fetches of members refused"] += refused
        if is_stale and not refused:
            self.world.violations.append(f"stale-fetch: {member_id} fetched {place} with the old epoch {epoch}")

    def _draw_place(self, places: set[GroupPartition]) -> TopicPartition | None:
        """Return one of these partitions whose topic still exists."""
        assembly = self.world.assembly
        topics = {} if assembly is None else assembly.broker.cluster.image.topics_by_id
        found = [(topics[key].name, index) for key, index in sorted(places) if key in topics]
        return self.random.choice(found) if found else None


class GroupCopier(Copier, GroupClient):
    """A copier whose inputs its group assigns, and which commits with its member epoch (KIP-447)."""

    def __init__(self, world: "World", name: str, random: Random, transactional_id: str) -> None:
        super().__init__(world, name, random, transactional_id, ("in", 0), [("out", 0), ("out", 1)], GROUP, SLOW)
        self.member = Membership(self, GROUP, ("in",), name if random.random() < 0.3 else None)

    def run(self) -> Script:
        yield from super().run()
        self.has_worked = True
        yield from self.settle()

    def transaction(self) -> Script:
        """Send a heartbeat, because no transaction is open now, and copy from one of the assigned partitions."""
        if self.world.resting:
            yield from self.settle()
        if self.random.random() < 0.7:
            self.member.acknowledge()
        yield from self.member.beat()
        self.membership = self.member.caller
        if not self.member.owned:
            yield from self.sleep(self.random.random() * 200)
            return
        _topic_id, index = self.random.choice(sorted(self.member.owned))
        self.source, self.position = ("in", index), None
        yield from super().transaction()

    def work(self) -> Script:
        try:
            yield from super().work()
        except Refused as refused:
            if refused.error in (UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH):
                raise Abortable from None
            raise

    def fetch_position(self) -> Script:
        answer = yield from self.call(member_offset_fetch(self.group, self.membership, *self.source))
        (found,) = answer.groups
        row = found.topics[0].partitions[0] if found.topics else None
        return found.error_code, row


class TopicAdmin(Process):
    """A client that creates and deletes the topics of the groups, and gives them partitions."""

    has_worked = True

    def run(self) -> Script:
        while not self.world.resting:
            yield from self.sleep(100 + self.random.random() * 1500)
            try:
                yield from self.call(self._draw())
            except Lost:
                continue
            self.world.met["requests to change topics"] += 1

    def _draw(self) -> Request:
        name, kind = self.random.choice(NAMES), self.random.random()
        if kind < 0.25 and name != NAMES[0]:
            return delete_topic(name)
        count = self.random.randint(1, MOST_PARTITIONS)
        return create_partitions(name, count) if kind < 0.6 else create_topic(name, count)


def draw_group_clients(world: "World", random: Random) -> list[tuple[Process, Callable[[], Script]]]:
    """Return the clients of the consumer protocol of a run, with their scripts."""

    def child() -> Random:
        return Random(random.getrandbits(64))

    found: list[tuple[Process, Callable[[], Script]]] = []
    for number in range(random.randint(1, 3)):
        copier = GroupCopier(world, f"gc{number}", child(), f"group-copy-{random.randrange(3)}")
        found.append((copier, copier.run))
    group, assignor = "consumers", random.choice(ASSIGNORS)
    for number in range(random.randint(2, world.profile.group_consumers)):
        instance_id = f"instance-{number}" if random.random() < 0.4 else None
        consumer = GroupConsumer(world, f"g{number}", child(), group, instance_id, assignor)
        found.append((consumer, consumer.run))
    admin = TopicAdmin(world, "topics", child())
    found.append((admin, admin.run))
    return found
