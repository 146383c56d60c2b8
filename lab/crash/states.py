"""Crash states of the scripted workload: disks after a kill or a power loss at any call of the broker's ports. free

A state is the content of the disk before or after a port call. A broker is started on it and checked. After a kill
nothing is lost. A power loss removes names and bytes that were not synced, in the order of a journal or in any order.
If every append is flushed, no acknowledged record is lost by a power loss; if none is, `docs/simulation.md` lists the
losses that may happen.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from random import Random
from typing import Final

from lab.crash.life import NARROW, WIDE, Life, LogProblems, Style
from lab.crash.log_directory import DIRECTORY
from lab.crash.script import Script
from lab.crash.verdicts import SYNC_MS, Crash, State, judge
from lab.in_memory.disk import MemoryDisk
from ottla.broker.log.meta_properties import LogDirectoryError
from ottla.testkit.in_memory.ports import Killed, PortCalls
from ottla.testkit.in_memory.schedule import Schedule

FIRST_CALLS: Final = 90
"""The power loss after a kill happens at one of the first 90 port calls of the start, mostly before the first sync."""
STARTING_MS: Final = 30.0
CRASHES: Final = (
    Crash.POWER_ANY,
    Crash.KILL_THEN_POWER_ANY,
    Crash.POWER,
    Crash.KILL_THEN_POWER,
    Crash.POWER_ANY,
    Crash.KILL,
    Crash.KILL_THEN_POWER_ANY,
)
"""Mostly power losses, because they leave several states after a call and a kill only few."""


class Recorder(PortCalls):
    """Port calls that call `seen` twice each: before and after the effect of the port call."""

    __slots__ = ("seen",)

    def __init__(self) -> None:
        super().__init__()
        self.seen: Callable[[], None] | None = None

    def call(self, name: str) -> None:
        super().call(name)
        if self.seen is not None:
            self.seen()


def style_of(seed: int) -> Style:
    """Return the style of a seed: even seeds have batches that cross page boundaries."""
    return WIDE if seed % 2 == 0 else NARROW


def visit_states(
    seed: int, flushing: bool, choose_crashes: Callable[[int], Iterable[Crash]], visit: Callable[[State], None]
) -> int:
    """Run the script once. `visit` gets the state after each crash of `choose_crashes`. Return the number of calls."""
    schedule, recorder, style = Schedule(), Recorder(), style_of(seed)
    disk = MemoryDisk(recorder, Random(seed), lambda end: _ignore(schedule.after(SYNC_MS, end)))
    disk.torn_writes = False
    disk.make_dirs(DIRECTORY)
    disk.sync_dir("/")
    script: Script | None = None

    def seen() -> None:
        if script is None:
            return
        for number, crash in enumerate(choose_crashes(recorder.count)):
            name = f"seed {seed}{', flushing' if flushing else ''}, port call {recorder.count}.{number}, {crash.value}"
            left = _left_by(disk, crash, flushing, style, Random(name))
            visit(State(name, crash, flushing, left, script.ledger.copy(), style))

    script = Script(lambda: Life(disk, schedule, flushing, style), seed)
    recorder.seen = seen
    script.run()
    return recorder.count


def _left_by(disk: MemoryDisk, crash: Crash, flushing: bool, style: Style, random: Random) -> MemoryDisk:
    """Return the disk that the next start finds. It may hold a part of an append that has not ended."""
    left = _twin(disk, random)
    left.tear(disk)
    power = crash.power
    if crash.killed_before:
        schedule = Schedule()
        between = left.copy(PortCalls(), lambda end: _ignore(schedule.after(SYNC_MS, end)))
        between.ports.kill_at = 1 + int(random.random() ** 2 * FIRST_CALLS)
        try:
            with LogProblems():
                Life(between, schedule, flushing, style).advance(STARTING_MS)
        except (Killed, LogDirectoryError, OSError):
            pass  # the next start shows whether this one should have succeeded
        left = _twin(between, random)
    if power is not None:
        left.lose_power(power)
    return left


def _twin(disk: MemoryDisk, random: Random) -> MemoryDisk:
    twin = disk.copy(PortCalls(), _ignore)
    twin.random = random
    return twin


def _ignore(anything: object) -> None:
    """Ignore the value."""


class Tally:
    """Results of many states. `losses` counts states by the kind of their losses."""

    def __init__(self) -> None:
        self.states: Counter[str] = Counter()
        self.losses: Counter[str] = Counter()
        self.problems: list[str] = []

    def add(self, state: State) -> None:
        """Check a state and add its result."""
        found = judge(state)
        self.states[f"{state.crash.value}{', flushed' if state.flushing else ''}"] += 1
        self.losses.update({line.partition(" ")[0].rstrip(":") for line in found.losses})
        self.problems += [f"{found.state}: {problem}" for problem in found.problems]

    def merge(self, other: "Tally") -> None:
        """Add the results of another process."""
        self.states.update(other.states)
        self.losses.update(other.losses)
        self.problems += other.problems


def sample(seed: int, flushing: bool, every: int = 1) -> Tally:
    """Check one state at every `every`-th port call of the script."""
    tally = Tally()

    def choose_crashes(call: int) -> Iterator[Crash]:
        if call % every == 0:
            yield CRASHES[call // every % len(CRASHES)]

    visit_states(seed, flushing, choose_crashes, tally.add)
    return tally
