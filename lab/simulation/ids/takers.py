"""Takers of producer ids, the ZooKeeper that counts their blocks, and the check that no id is given twice. free

Another process takes blocks too, in some runs with the id of a broker of the simulation. In the other runs the node is
wiped, or set back to what it was, and raised after a while, as `ottla ids raise` does.
"""

from collections.abc import Callable, Iterator
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Final

from lab.in_memory.zookeeper import ModelConnection, ModelZooKeeper
from lab.simulation.leader_faults import ignore
from lab.simulation.setting import ZOOKEEPER
from ottla.broker.assembly import Assembly
from ottla.broker.ports.clock import Clock
from ottla.broker.txn.values import Decision
from ottla.protocol.producer_id_node import NODE, Block, encode_block, parse_address, parse_block

if TYPE_CHECKING:
    from lab.simulation.world import World

BLOCK: Final = 8
"""Ids of a block, so that blocks are taken all the time."""
PATH: Final = parse_address(ZOOKEEPER).root + NODE
TAKE_MS: Final = 15.0
OTHERS: Final = 0.6
"""Share of the runs in which another process takes blocks."""
SAME_BROKER: Final = 0.6
LOST: Final = 0.15
SLOW_MS: Final = 40.0
OUTAGE: Final = 0.01
OUTAGE_MS: Final = 2_000.0
WIPE: Final = 0.02
RAISE_MS: Final = 600.0


class IdTakers:
    """The takers of one run, and all ids that they have got."""

    def __init__(self, world: "World", random: Random) -> None:
        self._world = world
        self._random = random
        self._model = ModelZooKeeper()
        self._given: dict[int, str] = {}
        self._has_others = random.random() < OTHERS
        self._other_id = world.first_id + (0 if random.random() < SAME_BROKER else 9)
        self._past: list[bytes] = []
        self._gives_at_rest = False

    def connect(self, clock: Clock) -> ModelConnection:
        """Return the connection of a life of the broker."""
        schedule = self._world.schedule

        def after(delay_ms: float, work: Callable[[], None]) -> None:
            schedule.after(delay_ms, partial(clock.next_turn, work))

        return ModelConnection(self._model, after, self._random, LOST, SLOW_MS)

    def began_life(self, assembly: Assembly) -> None:
        """Take small blocks, and begin to take ids."""
        blocks = assembly.broker.id_blocks
        if blocks is not None:
            blocks._size = BLOCK
        self._plan(assembly)

    def check(self) -> Iterator[str]:
        """Check that ids are given when ZooKeeper does not fail any more."""
        if not self._gives_at_rest:
            yield "no producer id is given at rest"

    def _plan(self, assembly: Assembly) -> None:
        self._world.schedule.after(self._random.random() * TAKE_MS, partial(self._take, assembly))

    def _take(self, assembly: Assembly) -> None:
        world, random = self._world, self._random
        if world.assembly is not assembly or self._gives_at_rest:
            return
        if world.resting:
            self._model.is_up = True
            self._raise_counter()
        stopped = assembly.broker.cluster.stopped_ids
        broker = random.choice([each for each in assembly.broker.brokers if each.cluster.node_id not in stopped])

        def on_result(decision: Decision) -> None:
            if decision.error:
                world.met[f"ids: {decision.error.name}"] += 1
                return
            known = assembly.broker.cluster.image.next_producer_id
            if decision.producer_id >= known:
                world.violations.append(
                    f"id-not-logged: {decision.producer_id} is given, the log knows those below {known}"
                )
            self._give(decision.producer_id, f"broker {broker.cluster.node_id}")
            self._gives_at_rest = world.resting

        def raise_bug(error: Exception) -> None:
            raise error

        work = broker.transactions.init_producer_id(None, 1_000)
        world.run_in_turn(lambda: ignore(assembly.broker.turns.start(work, on_result, raise_bug)))
        if not world.resting:
            self._disturb(assembly)
        self._plan(assembly)

    def _give(self, producer_id: int, to: str) -> None:
        world = self._world
        world.met["ids given"] += 1
        if producer_id in self._given:
            world.violations.append(f"id-twice: {producer_id} is given to {self._given[producer_id]} and to {to}")
        self._given[producer_id] = to

    def _disturb(self, assembly: Assembly) -> None:
        """Let ZooKeeper fail for a while, and another process or an administrator change the node."""
        model, random, world = self._model, self._random, self._world
        if random.random() < OUTAGE:
            model.is_up = False
            world.met["outages of ZooKeeper"] += 1
            world.schedule.after(random.random() * OUTAGE_MS, self._end_outage)
        elif self._has_others and random.random() < 0.2:
            self._take_block()
        elif not self._has_others and PATH in model.nodes:
            self._past.append(model.nodes[PATH][0])
            if random.random() < WIPE:
                self._wipe(assembly)

    def _end_outage(self) -> None:
        self._model.is_up = True

    def _take_block(self) -> None:
        """Take a block as another process does."""
        found = parse_block(self._model.nodes.get(PATH, (b"", 0))[0])
        first = 0 if found is None else found.last + 1
        if found is None and self._given:
            return  # it knows nothing of ids before the node
        self._model.put(PATH, encode_block(Block(self._other_id, first, first + BLOCK - 1)))
        for each in range(first, first + BLOCK):
            self._give(each, "another process")

    def _wipe(self, assembly: Assembly) -> None:
        world, model = self._world, self._model
        if self._random.random() < 0.5:
            del model.nodes[PATH]
            world.met["nodes deleted"] += 1
            return
        model.put(PATH, self._random.choice(self._past))
        world.met["nodes set back"] += 1

        world.schedule.after(self._random.random() * RAISE_MS, self._raise_counter)

    def _raise_counter(self) -> None:
        """Raise the node to what the log of the broker names, as an administrator does until ids are given again."""
        if self._world.assembly is None:
            return
        known = self._world.assembly.broker.cluster.controller.next_producer_id
        found = parse_block(self._model.nodes.get(PATH, (b"", 0))[0])
        if known and (found is None or found.last + 1 < known):
            self._model.put(PATH, encode_block(Block(-1, known - BLOCK, known - 1)))
