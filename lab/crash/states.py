"""Crash states of the scripted workload: what a kill or a power loss may leave at any call of the broker's ports. free

A state is what the disk holds before or after a port call, judged by a broker that is started on it. After a kill
nothing is lost. After a power loss names and bytes that were not synced are gone in the order of a journal, or in any.
Where every append is flushed, a power loss takes nothing either that was acknowledged; where none is, it may take what
`docs/simulation.md` says.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from random import Random
from typing import Final

from lab.crash.life import NARROW, WIDE, Complaints, Life, Style
from lab.crash.script import Script
from lab.crash.stage import DIRECTORY
from lab.crash.verdicts import SYNC_MS, Crash, State, judge
from ottla.broker.log.meta_properties import LogDirectoryError
from ottla.testkit.in_memory.disk import MemoryDisk
from ottla.testkit.in_memory.ports import Killed, PortCalls
from ottla.testkit.in_memory.schedule import Schedule

FIRST_CALLS: Final = 90
"""Of a start after a kill: the power goes at one of them, mostly before anything has been synced."""
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
"""Power losses leave more than one state behind a call, a kill but few."""


class Recorder(PortCalls):
    """Port calls of a workload that somebody looks at, each twice: before and after its effect."""

    __slots__ = ("seen",)

    def __init__(self) -> None:
        super().__init__()
        self.seen: Callable[[], None] | None = None

    def call(self, name: str) -> None:
        super().call(name)
        if self.seen is not None:
            self.seen()


def style_of(seed: int) -> Style:
    """Every other seed has batches that lie across pages."""
    return WIDE if seed % 2 == 0 else NARROW


def visit_states(
    seed: int, flushing: bool, wanted: Callable[[int], Iterable[Crash]], visit: Callable[[State], None]
) -> int:
    """Run the script once; `visit` gets the states that are `wanted` at a port call. The number of calls."""
    schedule, recorder, style = Schedule(), Recorder(), style_of(seed)
    disk = MemoryDisk(recorder, Random(seed), lambda end: _ignore(schedule.after(SYNC_MS, end)))
    disk.torn_writes = False
    disk.make_dirs(DIRECTORY)
    disk.sync_dir("/")
    script: Script | None = None

    def seen() -> None:
        if script is None:
            return
        for number, crash in enumerate(wanted(recorder.count)):
            name = f"seed {seed}{', flushing' if flushing else ''}, port call {recorder.count}.{number}, {crash.value}"
            left = _left_by(disk, crash, flushing, style, Random(name))
            visit(State(name, crash, flushing, left, script.ledger.copy(), style))

    script = Script(lambda: Life(disk, schedule, flushing, style), seed)
    recorder.seen = seen
    script.run()
    return recorder.count


def _left_by(disk: MemoryDisk, crash: Crash, flushing: bool, style: Style, random: Random) -> MemoryDisk:
    """What the next start finds; the part of an append that is under way may be there."""
    left = _twin(disk, random)
    left.tear(disk)
    power = crash.power
    if crash.killed_before:
        schedule = Schedule()
        between = left.copy(PortCalls(), lambda end: _ignore(schedule.after(SYNC_MS, end)))
        between.ports.kill_at = 1 + int(random.random() ** 2 * FIRST_CALLS)
        try:
            with Complaints():
                Life(between, schedule, flushing, style).rest(STARTING_MS)
        except (Killed, LogDirectoryError, OSError):
            pass  # whether it should have come up is judged at the next start
        left = _twin(between, random)
    if power is not None:
        left.lose_power(power)
    return left


def _twin(disk: MemoryDisk, random: Random) -> MemoryDisk:
    twin = disk.copy(PortCalls(), _ignore)
    twin.random = random
    return twin


def _ignore(anything: object) -> None:
    """Nobody wants it."""


class Tally:
    """What came of many states. `losses` counts states, by what they lost."""

    def __init__(self) -> None:
        self.states: Counter[str] = Counter()
        self.losses: Counter[str] = Counter()
        self.problems: list[str] = []

    def add(self, state: State) -> None:
        """Judge one more."""
        found = judge(state)
        self.states[f"{state.crash.value}{', flushed' if state.flushing else ''}"] += 1
        self.losses.update({line.partition(" ")[0].rstrip(":") for line in found.losses})
        self.problems += [f"{found.state}: {problem}" for problem in found.problems]

    def merge(self, other: "Tally") -> None:
        """Take over what another process has found."""
        self.states.update(other.states)
        self.losses.update(other.losses)
        self.problems += other.problems


def sample(seed: int, flushing: bool, every: int = 1) -> Tally:
    """One state at every `every`-th port call of the script."""
    tally = Tally()

    def wanted(call: int) -> Iterator[Crash]:
        if call % every == 0:
            yield CRASHES[call // every % len(CRASHES)]

    visit_states(seed, flushing, wanted, tally.add)
    return tally
