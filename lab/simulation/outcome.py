"""Run one seed and check the result. pure"""

import traceback
from typing import Any, NamedTuple

from lab.simulation.faults import Fault, Profile
from lab.simulation.world import World
from ottla.testkit import checker

OF_POWER_LOSS = ("is damaged", "hanging-txn")
"""Problems that a power loss without flushes may cause, because each log loses a tail of its own: a log that the broker
refuses to truncate, and a transaction that its coordinator has lost. A transaction that its coordinator knows always
ends."""


class Outcome(NamedTuple):
    """The result of one run.

    `problems` are failures. `known` are anomalies that transactions V1 cannot avoid, with their cause. `lost` are the
    effects that a power loss without flushes may have: logs declared damaged, transactions lost by their coordinator.
    """

    seed: int
    profile: str
    problems: list[str]
    known: list[str]
    lost: list[str]
    trace: str
    steps: int
    kills: int
    plan: list[Fault]
    clients: list[str]
    met: dict[str, int]

    @property
    def signature(self) -> str:
        """The kind of the failure, which shrinking keeps; empty without a failure."""
        return self.problems[0].partition(":")[0] if self.problems else ""


def run_seed(seed: int, profile: Profile | None = None, **options: Any) -> Outcome:
    """Run a seed and check the result; `options` as for `World`."""
    world = World(seed, profile, **options)
    try:
        world.run()
        return judge(world)
    except Exception as error:  # a bug of the simulation fails this seed, and the others still run
        where = traceback.extract_tb(error.__traceback__)[-1]
        problem = f"simulation broke: {error!r} at {where.filename}:{where.lineno}"
        return _outcome(world, [*world.violations, problem], [], [])


def judge(world: World) -> Outcome:
    """Check a world that has run and return its outcome."""
    problems, lost = list(world.violations), []
    if world.lost_power:
        lost = [each for each in problems if any(words in each for words in OF_POWER_LOSS)]
        problems = [each for each in problems if each not in lost]
    known: list[str] = []
    if not problems and not lost:
        for anomaly in checker.check(world.history.entries, world.partitions(), logs_only=world.lost_power):
            (known if anomaly.cause else problems).append(str(anomaly))
    return _outcome(world, problems, known, lost)


def _outcome(world: World, problems: list[str], known: list[str], lost: list[str]) -> Outcome:
    return Outcome(
        world.seed,
        world.profile.name,
        problems,
        known,
        lost,
        world.trace,
        world.steps,
        world.kills,
        world.plan,
        world.clients,
        dict(world.met + world.disk.met),
    )
