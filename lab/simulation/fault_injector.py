"""Faults of the plan: the effect of each on the world, at its time. free"""

from collections.abc import Callable, Iterable
from random import Random
from typing import TYPE_CHECKING, Final

from lab.in_memory.disk_errors import draw_bad_disk
from lab.simulation import faults
from lab.simulation.faults import Fault
from lab.simulation.leader_faults import LeaderFaults
from ottla.broker.cluster.features import TRANSACTION_FEATURE, FeatureUpdate, UpgradeType, update_problem

if TYPE_CHECKING:
    from lab.simulation.world import World

LEVELS: Final = 3
HELP_MS: Final = 700.0
"""The longest time from an error in the broker's log until the disk is repaired and the broker restarted."""


class FaultInjector:
    """The faults of one run. Only kinds of faults that the first profiles did not have draw from `random`."""

    def __init__(self, world: "World", random: Random) -> None:
        self.bad_markers = 0
        """The number of next markers that are refused, or written while the answer is lost."""
        self.random = random
        self._world = world
        self._help_is_coming = False
        self.leaders = LeaderFaults(world, random)

    def plan(self, active: Iterable[Fault]) -> None:
        """Schedule all faults except kills at port calls, which have a call number and no time."""
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
            faults.MOVE: self.leaders.move,
            faults.STOP_BROKER: self.leaders.stop_broker,
            faults.CUT: self.leaders.cut_link,
        }
        for fault in active:
            if fault.kind in doing:
                world.schedule.at(fault.at, self._striking(doing[fault.kind], fault))

    def end(self) -> None:
        """End all faults and repair the disk."""
        self.bad_markers = 0
        errors = self._world.disk.errors
        self._world.met["disk errors without a complaint"] += errors.failures > 0 and not self._help_is_coming
        errors.mend()
        self.leaders.end()

    def on_error_log(self, message: str) -> None:
        """Handle an error in the broker's log. It is a violation unless the disk fails.

        With a failing disk, repair the disk and restart the broker after a delay.
        """
        world = self._world
        # The broker may see the error of a background sync after the disk was repaired.
        if not (world.disk.errors.failures or world.disk.failed_syncs):
            world.violations.append(f"error log: {message}")
        elif not self._help_is_coming:
            self._help_is_coming = True
            world.schedule.after(self.random.random() * HELP_MS, self._help)

    def cannot_start(self, error: Exception) -> None:
        """Handle a failed start. With a failing disk, repair the disk and start again; otherwise it is a violation."""
        world = self._world
        if not world.disk.errors.failures:
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
        def inject() -> None:
            if not self._world.resting:
                self._world.note(fault.kind, b"")
                do(fault.value)

        return inject

    def _stall(self, delay_ms: float) -> None:
        """Delay the bytes sent on one connection, even after its client has closed it."""
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
        """Kill the broker, perhaps start it again, and then lose the power."""
        world = self._world
        world.met["kills before a power loss"] += world.assembly is not None
        world.kill(self.random.random() * 2 * after_ms)
        world.schedule.after(after_ms, lambda: None if world.resting else world.lose_power(after_ms))

    def _break_disk(self, kind: float) -> None:
        self._world.disk.errors.break_down(draw_bad_disk(Random(int(kind * 10))))

    def _change_level(self, level: float) -> None:
        """Change `transaction.version` as the handler of UpdateFeatures does."""
        assembly = self._world.assembly
        if assembly is None:
            return
        cluster = assembly.broker.cluster
        now = cluster.feature(TRANSACTION_FEATURE)
        target = int(level) if int(level) != now else (now + 1) % LEVELS
        how = UpgradeType.UPGRADE if target > now else UpgradeType.UNSAFE_DOWNGRADE
        update = FeatureUpdate(TRANSACTION_FEATURE, target, how)
        if update_problem(cluster.image.features, [update], cluster.node_id) is None:
            world = self._world

            def on_change(problem: str | None) -> None:
                world.level = cluster.feature(TRANSACTION_FEATURE)
                world.met[f"transaction.version {now} to {world.level}"] += 1

            def on_failure(error: Exception) -> None:
                if not isinstance(error, OSError):  # the directory is offline, and a repair is scheduled
                    raise error

            def change() -> None:
                assembly.broker.turns.start(cluster.controller.update_features([update]), on_change, on_failure)

            world.run_in_turn(change)
