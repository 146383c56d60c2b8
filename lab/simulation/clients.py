"""The clients of a run, drawn from its seed. free"""

from collections.abc import Callable, Iterator
from random import Random
from typing import TYPE_CHECKING, Final

from lab.simulation.consumers import Consumer, Copier, KeyReader
from lab.simulation.faults import Profile
from lab.simulation.greedy import Greedy
from lab.simulation.groups.group_consumers import draw_group_clients
from lab.simulation.groups.migrating_consumers import draw_migrating_clients
from lab.simulation.members import Member
from lab.simulation.process import Process, Script
from lab.simulation.producers import Admin, Producer, ProducerBehaviour, draw_behaviours
from lab.simulation.setting import GROUP, KEYED_PLACES
from ottla.protocol.values import TopicPartition

if TYPE_CHECKING:
    from lab.simulation.world import World

SLOW: Final = ProducerBehaviour(transactions=5, pause=0.35, pause_ms=2000.0, timeout_ms=4000)
"""A member that its group removes at times, while its transaction stays open."""
DATA: Final[list[TopicPartition]] = [("data", 0), ("data", 1)]
INPUTS: Final[list[TopicPartition]] = [("in", 0), ("in", 1)]
OUTPUTS: Final[list[TopicPartition]] = [("out", 0), ("out", 1)]

Client = tuple[Process, Callable[[], Script]]
"""A client and its script."""


def draw_clients(world: "World", draws: Random, later: Random) -> list[Client]:
    """Return the clients of a run. What the first profiles did not have draws from `later`."""
    profile = world.profile
    behaviours = _draw_behaviours(profile, draws, later)

    def child() -> Random:
        return Random(draws.getrandbits(64))

    found: list[Client] = []
    written = [*DATA, *KEYED_PLACES] if profile.compacts else DATA
    for number in range(draws.randint(*profile.producers)):
        transactional_ids = profile.transactional_ids
        producer = Producer(
            world, f"p{number}", child(), f"t{draws.randrange(transactional_ids)}", written, next(behaviours)
        )
        found.append((producer, producer.run))
    copiers = draws.randint(*profile.copiers)
    has_members = profile.members or profile.group_consumers
    feeding = ProducerBehaviour(transactions=12 if has_members else 3, depth=2, pause=0.4)
    feed = Producer(world, "feed", child(), None, INPUTS, feeding)
    found.append((feed, feed.run))
    for number in range(copiers):
        source = ("in", draws.randrange(2))
        copier = Copier(world, f"c{number}", child(), f"copy-{source[1]}", source, OUTPUTS, GROUP, next(behaviours))
        found.append((copier, copier.run))
    for number in range(draws.randint(2, profile.members) if profile.members else 0):
        owner = f"member-{draws.randrange(profile.members)}"
        member = Member(world, f"m{number}", child(), owner, INPUTS, OUTPUTS, GROUP, SLOW)
        found.append((member, member.run))
    for committed in (True, False):
        name = "rc" if committed else "ru"
        consumer = Consumer(world, name, child(), [*DATA, *OUTPUTS], committed)
        found.append((consumer, consumer.run))
        if profile.compacts:
            key_reader = KeyReader(world, f"keys-{name}", child(), KEYED_PLACES, committed)
            found.append((key_reader, key_reader.run))
    if draws.random() < profile.admin:
        admin = Admin(world, "admin", child())
        found.append((admin, admin.run))
    for number in range(profile.greedy):
        greedy = Greedy(world, f"greedy-{number}", Random(later.getrandbits(64)))
        found.append((greedy, greedy.run))
    if profile.group_consumers:
        found += (draw_migrating_clients if profile.migrates else draw_group_clients)(world, later)
    return found


def _draw_behaviours(profile: Profile, draws: Random, later: Random) -> Iterator[ProducerBehaviour]:
    """Draw the behaviours of producers and copiers of a profile without end."""
    for drawn in draw_behaviours(draws):
        depth = max(drawn.depth, profile.depth)
        drawn = drawn._replace(depth=depth, patience_ms=profile.patience_ms, hasty=max(drawn.hasty, profile.hasty))
        if not profile.skips:
            drawn = drawn._replace(skip=0.0)
        if profile.takes_back:
            drawn = drawn._replace(takes_back=profile.takes_back, hasty=0.0)
        if profile.compacts or profile.takes_back:
            drawn = drawn._replace(transactions=3 * drawn.transactions)
        if profile.impatient and later.random() < profile.impatient:
            drawn = drawn._replace(patience_ms=2 + later.random() ** 2 * 100, echo=0.15)
        yield drawn
