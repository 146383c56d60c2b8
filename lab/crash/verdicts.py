"""Judging a state of the disk: a broker is started on it, looked at, robbed of its power, and started again. free"""

from collections.abc import Iterator
from enum import Enum
from random import Random
from typing import NamedTuple

from lab.crash.life import NARROW, Complaints, Life, Style
from lab.crash.looking import differences, scan, seen
from lab.crash.script import ASKED, DONE, GROUP, SCRATCH, Client, Ledger, Refused, Script, Told
from ottla.broker.cluster.image import CONSUMER_OFFSETS_TOPIC, INTERNAL_TOPICS
from ottla.broker.log.meta_properties import LogDirectoryError
from ottla.protocol.errors import ProtocolError
from ottla.testkit.in_memory import wire
from ottla.testkit.in_memory.broker import NoAnswer
from ottla.testkit.in_memory.disk import MemoryDisk
from ottla.testkit.in_memory.ports import PortCalls
from ottla.testkit.in_memory.power import PowerLoss
from ottla.testkit.in_memory.schedule import Schedule

SYNC_MS = 5.0
REST_MS = 5000.0
OF_POWER_LOSS = "is damaged"


class Crash(Enum):
    """How a life ends. In any order: what was not synced is lost name by name and page by page."""

    KILL = "kill"
    POWER = "power loss"
    POWER_ANY = "power loss in any order"
    KILL_THEN_POWER = "kill, then power loss"
    KILL_THEN_POWER_ANY = "kill, then power loss in any order"

    @property
    def power(self) -> PowerLoss | None:
        """How the power goes."""
        if self is Crash.KILL:
            return None
        return PowerLoss.ANY_ORDER if self in (Crash.POWER_ANY, Crash.KILL_THEN_POWER_ANY) else PowerLoss.JOURNAL

    @property
    def killed_before(self) -> bool:
        """Whether the power goes while the broker starts again after a kill."""
        return self in (Crash.KILL_THEN_POWER, Crash.KILL_THEN_POWER_ANY)


class State(NamedTuple):
    """What is left, and what the client had been told by then. `name` says how to come here again."""

    name: str
    crash: Crash
    flushing: bool
    disk: MemoryDisk
    ledger: Ledger
    style: Style = NARROW


class Found(NamedTuple):
    """What a start on a state showed: `problems` must not be, `losses` are what a power loss without flushes may do."""

    state: str
    problems: list[str]
    losses: list[str]


def judge(state: State, power_goes_again: bool = True) -> Found:
    """Start the broker on a state, let its transactions end, start it once more.

    Where every append is flushed, what consumers got of the first start is there as well if the power goes at once.
    """
    keeps = state.flushing or state.crash is Crash.KILL
    problems: list[str] = []
    losses: list[str] = []
    found: list[str] = []
    with Complaints() as complaints:
        try:
            disk, life = _start(state.disk, state)
            if state.flushing and power_goes_again:
                found += _lost_again(life, disk, state)
            life.rest(REST_MS)
            found += _look(life, disk, state.ledger, keeps)
            ends = _ends(life)
            life.kill()
            disk, again = _start(disk, state)
            # A transaction that waits for a partition which is offline sends its markers again with every start.
            if _ends(again) != ends and len(ends) == len(life.partitions()):
                problems.append(f"ends change with a restart: {ends} and {_ends(again)}")
            again.rest(100)
            found += _work_on(again)
            problems += [f"bug: {bug!r}" for bug in (*life.bugs, *again.bugs)]
        except (LogDirectoryError, OSError) as error:
            found.append(f"the broker does not start: {error!r}")
        except ProtocolError as error:
            found.append(f"broken log: what a consumer gets is damaged: {error}")
    problems += [f"traceback: {line}" for line in complaints.tracebacks]
    problems += [f"error: {line}" for line in complaints.errors if OF_POWER_LOSS not in line]
    damaged = sorted({line.partition(":")[0] for line in complaints.errors if OF_POWER_LOSS in line})
    found += [f"offline: {name}" for name in damaged]
    (problems if keeps else losses).extend(found)
    if not keeps:
        problems += [line for line in losses if line.startswith(("broken", "wrong", "the broker does not"))]
        losses = [line for line in losses if line not in problems]
    return Found(state.name, problems, losses)


def _start(disk: MemoryDisk, state: State) -> tuple[MemoryDisk, Life]:
    schedule = Schedule()
    twin = disk.copy(PortCalls(), lambda end: _ignore(schedule.after(SYNC_MS, end)))
    return twin, Life(twin, schedule, state.flushing, state.style)


def _lost_again(life: Life, disk: MemoryDisk, state: State) -> Iterator[str]:
    """What a consumer got right after the start, and does not get again after a power loss."""
    before = seen(life)
    for kind in PowerLoss:
        left = disk.copy(PortCalls(), _ignore)
        left.random = Random(f"{state.name}, {kind.value}")
        left.lose_power(kind)
        after = seen(_start(left, state)[1])
        gone = [place for place, value in before.items() if after.get(place) != value]
        if gone:
            yield f"shown and lost with the power ({kind.value}): {len(gone)} records, the first at {gone[0]}"


def _ends(life: Life) -> dict[str, tuple[int, int]]:
    return {p.name: (p.log_end_offset, p.last_stable_offset) for p in life.partitions() if p.offline is None}


def _look(life: Life, disk: MemoryDisk, ledger: Ledger, keeps: bool) -> Iterator[str]:
    """What is not as the client was told."""
    cluster = life.assembly.broker.cluster
    logs = scan(disk)
    for partition in life.partitions():
        scanned = logs.get((partition.topic, partition.index))
        if partition.offline is not None or scanned is None:
            continue
        if partition.topic not in INTERNAL_TOPICS:
            yield from differences(partition, scanned)
        else:
            # In a compacted log offsets may be missing at the end of a segment, and the one behind it may be empty.
            yield from (f"broken log: {damage}" for damage in scanned.damages)
    shown = set(seen(life).values())
    for told in ledger.transactions:
        yield from _judge_transaction(told, shown)
    yield from (f"lost record {value}" for value in sorted(ledger.plain - shown))
    yield from (f"record of a deleted topic {value}" for value in sorted(ledger.gone & shown))
    yield from (f"lost topic {name}" for name in sorted(ledger.topics - cluster.topics.keys()))
    yield from (f"deleted topic {name} is back" for name in sorted(ledger.absent & cluster.topics.keys()))
    if keeps and CONSUMER_OFFSETS_TOPIC in cluster.topics:
        yield from _judge_position(life, ledger, shown)


def _judge_transaction(told: Told, shown: set[str]) -> Iterator[str]:
    found = [value for value in told.values if value in shown]
    if told.commit and told.state in (ASKED, DONE):
        if found and len(found) < len(told.values):
            yield f"torn transaction {told.name}: {found} of {told.values}"
        elif told.state == DONE and not found:
            yield f"lost transaction {told.name}"
    elif found:
        yield f"G1a: {told.name} was never committed: {found}"


def _judge_position(life: Life, ledger: Ledger, shown: set[str]) -> Iterator[str]:
    """The group stands where its last committed transaction has put it."""
    expected = -1
    for told in ledger.transactions:
        committed = bool(told.values) and all(value in shown for value in told.values)
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


def _ignore(anything: object) -> None:
    """Nobody wants it."""
