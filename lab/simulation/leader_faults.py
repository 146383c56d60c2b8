"""Leaders that move between the brokers of a process, brokers that stop, and coordinators that load slowly. free"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, Final

from lab.planting import Original, Replacement
from lab.simulation.broker_parts import SlowPeers
from ottla.broker.assembly import Assembly
from ottla.broker.cluster.image import INTERNAL_TOPICS
from ottla.broker.cluster.leadership import LeadershipProblem
from ottla.broker.coordinator.loader import CoordinatorLoader
from ottla.broker.deadline import sleep
from ottla.broker.ports.clock import Clock
from ottla.broker.turns import Handler
from ottla.protocol.values import TopicPartition

if TYPE_CHECKING:
    from lab.simulation.world import World

INTERNAL: Final = 0.5
"""Share of the moves that move a coordinator."""
AGAIN: Final = 0.4
"""Share of the moves that another move of the same partition follows, perhaps while its coordinator is loading."""
AGAIN_MS: Final = 20.0
SLOW: Final = 0.2
"""Share of the batches after which a coordinator that loads is interrupted."""
SLOW_MS: Final = 30.0
ABRUPT: Final = 0.5
"""Share of the stops that end the connections before the leaders move."""
RESET: Final = 0.5
"""Share of the cut links at which a connection between two brokers ends too."""


class LeaderFaults:
    """Moves, stops and starts. A restart of the process starts all its brokers."""

    def __init__(self, world: "World", random: Random) -> None:
        self._world = world
        self._random = random
        self._peers: SlowPeers

    def connect_brokers(self, clock: Clock) -> SlowPeers:
        """Return the connections between the brokers of a life."""
        self._peers = SlowPeers(self._world, clock, Random(f"{self._world.seed} {self._world.kills}"))
        return self._peers

    def move(self, _value: float) -> None:
        """Give a random partition another leader in sync."""
        assembly = self._world.assembly
        if assembly is None:
            return
        cluster, random = assembly.broker.cluster, self._random
        is_internal = random.random() < INTERNAL
        places = [
            (topic, index)
            for topic, known in sorted(cluster.topics.items())
            for index in range(known.partition_count)
            if (topic in INTERNAL_TOPICS) is is_internal
        ]
        self._move(assembly, random.choice(places), "coordinators moved" if is_internal else "leaders moved")

    def _move(self, assembly: Assembly, moved: TopicPartition, what: str) -> None:
        cluster, random = assembly.broker.cluster, self._random
        topic, index = moved
        place = cluster.topics[topic].registrations[index]
        others = [each for each in place.isr if each != place.leader and each not in cluster.stopped_ids]
        if not others or self._world.assembly is not assembly or self._world.resting:
            return
        to = random.choice(others)

        def move_again() -> None:
            if random.random() < AGAIN:
                again = partial(self._move, assembly, moved, what)
                self._world.schedule.after(random.random() * AGAIN_MS, again)

        self._change(assembly, what, assembly.leadership.move_leader(topic, index, to), move_again)

    def stop_broker(self, for_ms: float) -> None:
        """Stop a random broker, unless it is the last one, and start it after a delay."""
        assembly = self._world.assembly
        if assembly is None:
            return
        cluster, world = assembly.broker.cluster, self._world
        running = [each for each in cluster.own_ids if each not in cluster.stopped_ids]
        if len(running) == 1:
            return
        node_id = self._random.choice(running)
        if self._random.random() < ABRUPT:
            world.end_connections(node_id - world.first_id)
        self._change(assembly, "brokers stopped", assembly.stop_broker(node_id))
        world.schedule.after(for_ms, partial(self._start_broker, assembly, node_id))

    def cut_link(self, for_ms: float) -> None:
        """Cut the link between two random brokers for a while."""
        assembly, world = self._world.assembly, self._world
        links = None if assembly is None else assembly.broker.links
        if assembly is None or links is None:
            return
        one, other = self._random.sample(assembly.broker.cluster.own_ids, 2)
        pair = frozenset((one, other))
        if pair not in links.cut:
            links.disconnect(one, other)
            world.met["links cut"] += 1
            world.schedule.after(for_ms, partial(links.cut.discard, pair))
        if self._random.random() < RESET:
            world.run_in_turn(self._peers.reset_one)

    def end(self) -> None:
        """Start all brokers that are stopped, and restore the links."""
        assembly = self._world.assembly
        if assembly is None:
            return
        for node_id in sorted(assembly.broker.cluster.stopped_ids):
            self._start_broker(assembly, node_id)
        if assembly.broker.links is not None:
            assembly.broker.links.reconnect()

    def _start_broker(self, assembly: Assembly, node_id: int) -> None:
        if self._world.assembly is assembly and node_id in assembly.broker.cluster.stopped_ids:
            self._change(assembly, "brokers started", assembly.start_broker(node_id))

    def _change(
        self, assembly: Assembly, what: str, change: Handler[None], on_end: Callable[[], None] | None = None
    ) -> None:
        world = self._world

        def on_success(_none: None) -> None:
            world.note(what, b"")
            world.met[what] += 1
            if on_end is not None:
                on_end()

        def on_failure(error: Exception) -> None:
            if not isinstance(error, (LeadershipProblem, OSError)):
                raise error
            world.met[f"{what}: refused"] += 1

        world.run_in_turn(lambda: ignore(assembly.broker.turns.start(change, on_success, on_failure)))

    @contextmanager
    def slow_loads(self) -> Iterator[None]:
        """Interrupt coordinators that load, as long logs do."""

        async def build(original: Original, loader: CoordinatorLoader[Any], index: int) -> Any:
            settle, turns, random, world = loader._settle, loader._turns, self._random, self._world

            async def settle_slowly(shard: Any) -> None:
                if random.random() < SLOW:
                    await sleep(turns, world.clock, random.random() * SLOW_MS)
                if settle is not None:
                    await settle(shard)

            loader._settle = settle_slowly
            try:
                return await original(loader, index)
            finally:
                loader._settle = settle

        with Replacement(CoordinatorLoader, "_build", build).plant():
            yield


def ignore(_activity: object) -> None:
    """Ignore an activity, whose end calls back."""
