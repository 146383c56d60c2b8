"""Crash states of the scripted workload: what a kill or a power loss may leave at any call of the broker's ports. free

A state is what the disk holds before or after a port call, judged by a broker that is started on it. After a kill
nothing is lost. After a power loss each directory is a prefix of the journal of names, each file a prefix of what was
written behind its last sync, or zeros there. Where every append is flushed, a power loss takes nothing either that was
acknowledged; where none is, it may take what `docs/simulation.md` says.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from pathlib import Path
from random import Random
from typing import Final, NamedTuple

from ottla.broker.cluster.image import CONSUMER_OFFSETS_TOPIC, INTERNAL_TOPICS
from ottla.broker.log.checkpoints import parse_directory_name
from ottla.broker.log.manager import LogDirectoryError
from ottla.testkit.crash.life import Complaints, Life, NoAnswer
from ottla.testkit.crash.script import ASKED, DONE, GROUP, SCRATCH, Client, Ledger, Refused, Script, Told
from ottla.testkit.crash.stage import DIRECTORY
from ottla.testkit.scanner import ScannedPartition, scan_contents
from ottla.testkit.simulation import wire
from ottla.testkit.simulation.disk import MemoryDisk
from ottla.testkit.simulation.ports import Killed, PortCalls
from ottla.testkit.simulation.schedule import Schedule

SYNC_MS: Final = 5.0
REST_MS: Final = 5000.0
FIRST_CALLS: Final = 90
"""Of a start after a kill: the power goes at one of them, mostly before anything has been synced."""
OF_POWER_LOSS: Final = "is damaged"


class Crash(Enum):
    """How a life ends."""

    KILL = "kill"
    POWER = "power loss"
    KILL_THEN_POWER = "kill, then power loss"


CRASHES: Final = (Crash.POWER, Crash.KILL_THEN_POWER, Crash.POWER, Crash.KILL_THEN_POWER, Crash.KILL)
"""Power losses leave more than one state behind a call, a kill but one."""


class State(NamedTuple):
    """What is left, and what the client had been told by then. `name` says how to come here again."""

    name: str
    crash: Crash
    flushing: bool
    disk: MemoryDisk
    ledger: Ledger


class Found(NamedTuple):
    """What a start on a state showed: `problems` must not be, `losses` are what a power loss without flushes may do."""

    state: str
    problems: list[str]
    losses: list[str]


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


def visit_states(
    seed: int, flushing: bool, wanted: Callable[[int], Iterable[Crash]], visit: Callable[[State], None]
) -> int:
    """Run the script once; `visit` gets the states that are `wanted` at a port call. The number of calls."""
    schedule, recorder = Schedule(), Recorder()
    disk = MemoryDisk(recorder, Random(seed), lambda end: _ignore(schedule.after(SYNC_MS, end)))
    disk.torn_writes = False
    script: Script | None = None

    def seen() -> None:
        if script is None:
            return
        for number, crash in enumerate(wanted(recorder.count)):
            name = f"seed {seed}{', flushing' if flushing else ''}, port call {recorder.count}.{number}, {crash.value}"
            left = _left_by(disk, crash, flushing, Random(name))
            if left is not None:
                visit(State(name, crash, flushing, left, script.ledger.copy()))

    script = Script(lambda: Life(disk, schedule, flushing), seed)
    recorder.seen = seen
    script.run()
    return recorder.count


def _left_by(disk: MemoryDisk, crash: Crash, flushing: bool, random: Random) -> MemoryDisk | None:
    """What the next start finds; None if the start in between did not come to be killed."""
    left = _twin(disk, random)
    if crash is Crash.POWER:
        left.lose_power()
    if crash is Crash.KILL_THEN_POWER:
        schedule = Schedule()
        between = left.copy(PortCalls(), lambda end: _ignore(schedule.after(SYNC_MS, end)))
        between.random = random
        between.ports.kill_at = 1 + int(random.random() ** 2 * FIRST_CALLS)
        try:
            with Complaints():
                Life(between, schedule, flushing).rest(0)
        except Killed:
            pass
        between.lose_power()
        left = _twin(between, random)
    return left


def _twin(disk: MemoryDisk, random: Random) -> MemoryDisk:
    twin = disk.copy(PortCalls(), _ignore)
    twin.random = random
    return twin


def judge(state: State) -> Found:
    """Start the broker on a state, let its transactions end, start it once more."""
    keeps = state.flushing or state.crash is Crash.KILL
    problems: list[str] = []
    losses: list[str] = []
    with Complaints() as complaints:
        try:
            disk, life = _start(state.disk, state.flushing)
            life.rest(REST_MS)
            found = [*_look(life, disk, state.ledger, keeps)]
            ends = _ends(life)
            life.kill()
            disk, again = _start(disk, state.flushing)
            # A transaction that waits for a partition which is offline sends its markers again with every start.
            if _ends(again) != ends and len(ends) == len(life.partitions()):
                problems.append(f"ends change with a restart: {ends} and {_ends(again)}")
            again.rest(100)
            found += _work_on(again)
            problems += [f"bug: {bug!r}" for bug in (*life.bugs, *again.bugs)]
        except (LogDirectoryError, OSError) as error:
            found = [f"the broker does not start: {error!r}"]
    problems += [f"traceback: {line}" for line in complaints.tracebacks]
    problems += [f"error: {line}" for line in complaints.errors if OF_POWER_LOSS not in line]
    damaged = sorted({line.partition(":")[0] for line in complaints.errors if OF_POWER_LOSS in line})
    found += [f"offline: {name}" for name in damaged]
    (problems if keeps else losses).extend(found)
    if not keeps:
        problems += [line for line in losses if line.startswith(("broken", "wrong", "the broker does not"))]
        losses = [line for line in losses if line not in problems]
    return Found(state.name, problems, losses)


def _start(disk: MemoryDisk, flushing: bool) -> tuple[MemoryDisk, Life]:
    schedule = Schedule()
    twin = disk.copy(PortCalls(), lambda end: _ignore(schedule.after(SYNC_MS, end)))
    return twin, Life(twin, schedule, flushing)


def _ends(life: Life) -> dict[str, tuple[int, int]]:
    return {p.name: (p.log_end_offset, p.last_stable_offset) for p in life.partitions() if p.offline is None}


def _look(life: Life, disk: MemoryDisk, ledger: Ledger, keeps: bool) -> Iterator[str]:
    """What is not as the client was told."""
    cluster = life.assembly.broker.cluster
    logs = _scan(disk)
    for partition in life.partitions():
        if partition.offline is not None:
            continue
        scanned = logs.get((partition.topic, partition.index))
        if scanned is None:
            continue
        for damage in scanned.damages:
            yield f"broken log: {damage}"
        # In a compacted log offsets may be missing at the end of a segment, and the one behind it may be empty.
        if partition.log_end_offset != scanned.log_end_offset and partition.topic not in INTERNAL_TOPICS:
            ends = f"{partition.log_end_offset}, its files at {scanned.log_end_offset}"
            yield f"wrong end: {partition.name} ends at {ends}"
        if partition.last_stable_offset != partition.log_end_offset and partition.topic not in INTERNAL_TOPICS:
            yield f"hanging transaction in {partition.name}"
    visible = {
        (record.value or b"").decode()
        for (topic, index), scanned in logs.items()
        if topic in cluster.topics and not topic.startswith("__")
        for record in scanned.records("read_committed")
    }
    for told in ledger.transactions:
        yield from _judge_transaction(told, visible)
    yield from (f"lost record {value}" for value in sorted(ledger.plain - visible))
    yield from (f"lost topic {name}" for name in sorted(ledger.topics - cluster.topics.keys()))
    yield from (f"deleted topic {name} is back" for name in sorted(ledger.absent & cluster.topics.keys()))
    if keeps and CONSUMER_OFFSETS_TOPIC in cluster.topics:
        yield from _judge_position(life, ledger, visible)


def _judge_transaction(told: Told, visible: set[str]) -> Iterator[str]:
    shown = [value for value in told.values if value in visible]
    if told.commit and told.state in (ASKED, DONE):
        if shown and len(shown) < len(told.values):
            yield f"torn transaction {told.name}: {shown} of {told.values}"
        elif told.state == DONE and not shown:
            yield f"lost transaction {told.name}"
    elif shown:
        yield f"G1a: {told.name} was never committed: {shown}"


def _judge_position(life: Life, ledger: Ledger, visible: set[str]) -> Iterator[str]:
    """The group stands where its last committed transaction has put it."""
    expected = -1
    for told in ledger.transactions:
        committed = bool(told.values) and all(value in visible for value in told.values)
        if told.position is not None and committed:
            expected = told.position
    try:
        reply = life.call(wire.offset_fetch(GROUP, "ledger", [0]))
    except NoAnswer as silence:
        yield f"OffsetFetch: {silence}"
        return
    if reply.error_code != wire.NONE:
        yield f"OffsetFetch: error {reply.error_code}"
        return
    position = reply.topics[0].partitions[0].committed_offset
    if position != expected:
        yield f"the group stands at {position}, not at {expected}"


def _work_on(life: Life) -> Iterator[str]:
    """A new instance of a client can work, where all that it needs is there."""
    cluster = life.assembly.broker.cluster
    needed = {"ledger", "audit", SCRATCH, "__transaction_state", CONSUMER_OFFSETS_TOPIC}
    online = all(partition.offline is None for partition in life.partitions())
    if not online or not needed <= cluster.topics.keys():
        return
    script = Script.on(life)
    try:
        Client(script, "one", wire.V2).transact(commit=True, position=None)
        Client(script, "two", wire.V1).transact(commit=False, position=7)
    except (NoAnswer, Refused) as stuck:
        # A coordinator that forgot an epoch gives it again, and the partitions know what was written with it.
        yield f"refused: a new transaction: {stuck}"


def _scan(disk: MemoryDisk) -> dict[tuple[str, int], ScannedPartition]:
    found: dict[tuple[str, int], list[tuple[Path, bytes]]] = {}
    for path, content in sorted(disk.all_files().items()):
        name, _, file = path.removeprefix(f"{DIRECTORY}/").rpartition("/")
        key = parse_directory_name(name)
        if key is not None and file.endswith(".log"):
            found.setdefault(key, []).append((Path(path), content))
    return {key: scan_contents(segments) for key, segments in found.items()}


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
