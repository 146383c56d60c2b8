"""What strikes at a moment of its own: each fault of the plan, and what it does to the world. free"""

from collections.abc import Callable, Iterable
from random import Random
from typing import TYPE_CHECKING, Final

from lab.simulation import faults
from lab.simulation.faults import Fault
from ottla.broker.cluster.features import TRANSACTION_FEATURE, FeatureUpdate, UpgradeType, update_problem
from ottla.testkit.in_memory.disk_errors import draw_bad_disk

if TYPE_CHECKING:
    from lab.simulation.world import World

LEVELS: Final = 3
HELP_MS: Final = 700.0
"""How long it takes at most until somebody sees that the broker complains, mends the disk and starts it again."""


class Troubles:
    """The faults of one run. `random` is drawn from by those that the first profiles did not have."""

    def __init__(self, world: "World", random: Random) -> None:
        self.bad_markers = 0
        """So many markers of the next ones are refused, or written while the answer is lost."""
        self.random = random
        self._world = world
        self._help_is_coming = False

    def plan(self, active: Iterable[Fault]) -> None:
        """Everything but kills at port calls, which are counted and not timed."""
        world = self._world
        doing: dict[str, Callable[[float], None]] = {
            faults.KILL: world.kill,
            faults.POWER: world.lose_power,
            faults.KILL_POWER: self._kill_then_lose_power,
            faults.STOP: world.stop,
            faults.STALL: self._stall,
            faults.RESET: self._reset,
            faults.MARKER: self._spoil_markers,
            faults.DISK: self._break_disk,
            faults.LEVEL: self._change_level,
        }
        for fault in active:
            if fault.kind in doing:
                world.schedule.at(fault.at, self._striking(doing[fault.kind], fault))

    def end(self) -> None:
        """The world rests."""
        self.bad_markers = 0
        errors = self._world.disk.errors
        self._world.met["disk errors without a complaint"] += errors.struck > 0 and not self._help_is_coming
        errors.mend()

    def complained(self, message: str) -> None:
        """The broker logs an error. With a failing disk it has to; then somebody mends the disk and restarts it."""
        world = self._world
        # A background sync may be looked at after the disk was mended.
        if not (world.disk.errors.struck or world.disk.failed_syncs):
            world.violations.append(f"error log: {message}")
        elif not self._help_is_coming:
            self._help_is_coming = True
            world.schedule.after(self.random.random() * HELP_MS, self._help)

    def cannot_start(self, error: Exception) -> None:
        """The broker does not start. With a failing disk somebody mends it and tries again."""
        world = self._world
        if not world.disk.errors.struck:
            world.violations.append(f"the broker cannot start: {error}")
            return
        world.met["starts that failed"] += 1
        world.disk.errors.mend()
        world.start_later(self.random.random() * HELP_MS)

    def _help(self) -> None:
        world = self._world
        self._help_is_coming = False
        world.disk.errors.mend()
        world.disk.failed_syncs = 0
        if self.random.random() < 0.5:
            world.stop(self.random.random() * 100)
        else:
            world.kill(self.random.random() * 100)

    def _striking(self, do: Callable[[float], None], fault: Fault) -> Callable[[], None]:
        def strike() -> None:
            if not self._world.resting:
                self._world.note(fault.kind, b"")
                do(fault.value)

        return strike

    def _stall(self, delay_ms: float) -> None:
        """One connection is slow for a while: what was sent on it comes late, also when its client has left it."""
        alive = self._world.alive_links()
        if alive:
            self._world.random.choice(alive).stall(delay_ms)

    def _reset(self, _value: float) -> None:
        alive = self._world.alive_links()
        if alive:
            self._world.random.choice(alive).reset()

    def _spoil_markers(self, count: float) -> None:
        self.bad_markers += 1 + int(count)

    def _kill_then_lose_power(self, after_ms: float) -> None:
        """The broker is killed, perhaps started again, and then the power goes."""
        world = self._world
        world.met["kills before a power loss"] += world.assembly is not None
        world.kill(self.random.random() * 2 * after_ms)
        world.schedule.after(after_ms, lambda: None if world.resting else world.lose_power(after_ms))

    def _break_disk(self, kind: float) -> None:
        self._world.disk.errors.break_down(draw_bad_disk(Random(int(kind * 10))))

    def _change_level(self, level: float) -> None:
        """UpdateFeatures, as its handler does it."""
        assembly = self._world.assembly
        if assembly is None:
            return
        cluster = assembly.broker.cluster
        now = cluster.feature(TRANSACTION_FEATURE)
        wanted = int(level) if int(level) != now else (now + 1) % LEVELS
        how = UpgradeType.UPGRADE if wanted > now else UpgradeType.UNSAFE_DOWNGRADE
        update = FeatureUpdate(TRANSACTION_FEATURE, wanted, how)
        if update_problem(cluster.image.features, [update], cluster.node_id) is None:
            world = self._world

            def changed(problem: str | None) -> None:
                world.level = cluster.feature(TRANSACTION_FEATURE)
                world.met[f"transaction.version {now} to {world.level}"] += 1

            def failed(error: Exception) -> None:
                if not isinstance(error, OSError):  # the directory is offline, and help is coming
                    raise error

            def change() -> None:
                assembly.broker.turns.start(cluster.controller.update_features([update]), changed, failed)

            world.in_turn(change)
