"""Leaders that move between the brokers of a process, and brokers that stop and start. free"""

from collections.abc import Callable
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, Final

from ottla.broker.assembly import Assembly
from ottla.broker.cluster.image import INTERNAL_TOPICS
from ottla.broker.cluster.leadership import Leadership, LeadershipProblem

if TYPE_CHECKING:
    from lab.simulation.world import World

INTERNAL: Final = 0.5
"""Share of the moves that move a coordinator."""
ABRUPT: Final = 0.5
"""Share of the stops that end the connections before the leaders move."""


class LeaderFaults:
    """Moves, stops and starts. A restart of the process starts all its brokers."""

    def __init__(self, world: "World", random: Random) -> None:
        self._world = world
        self._random = random

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
        topic, index = random.choice(places)
        place = cluster.topics[topic].registrations[index]
        others = [each for each in place.isr if each != place.leader and each not in cluster.stopped_ids]
        if others:
            to = random.choice(others)
            what = "coordinators moved" if is_internal else "leaders moved"
            self._change(assembly, what, lambda leadership: leadership.move_leader(topic, index, to))

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
        end_connections = partial(world.end_connections, node_id - world.first_id)
        is_abrupt = self._random.random() < ABRUPT
        if is_abrupt:
            end_connections()
        self._change(
            assembly,
            "brokers stopped",
            lambda leadership: leadership.stop_broker(node_id),
            None if is_abrupt else end_connections,
        )
        world.schedule.after(for_ms, partial(self._start_broker, assembly, node_id))

    def start_all(self) -> None:
        """Start all brokers that are stopped."""
        assembly = self._world.assembly
        if assembly is not None:
            for node_id in sorted(assembly.broker.cluster.stopped_ids):
                self._start_broker(assembly, node_id)

    def _start_broker(self, assembly: Assembly, node_id: int) -> None:
        if self._world.assembly is assembly and node_id in assembly.broker.cluster.stopped_ids:
            self._change(assembly, "brokers started", lambda leadership: leadership.start_broker(node_id))

    def _change(
        self,
        assembly: Assembly,
        what: str,
        work: Callable[[Leadership], Any],
        on_end: Callable[[], None] | None = None,
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

        def change() -> None:
            assembly.broker.turns.start(work(Leadership(assembly.broker.cluster)), on_success, on_failure)

        world.run_in_turn(change)
