"""Checks of a state of the disk: start a broker on it, compare, lose the power, and start again. free"""

from collections.abc import Iterator
from enum import Enum
from random import Random
from typing import NamedTuple

from lab.client_requests import NONE, offset_fetch
from lab.crash.life import NARROW, Life, LogProblems, Style
from lab.crash.looking import differences, scan, seen
from lab.crash.script import DONE, ENDING, GROUP, SCRATCH, Client, ClientTransaction, Ledger, Refused, Script
from lab.in_memory.disk import MemoryDisk
from lab.in_memory.power import PowerLoss
from ottla.broker.cluster.image import CONSUMER_OFFSETS_TOPIC, INTERNAL_TOPICS
from ottla.broker.log.meta_properties import LogDirectoryError
from ottla.protocol.errors import ProtocolError
from ottla.testkit.in_memory import wire
from ottla.testkit.in_memory.broker import NoAnswer
from ottla.testkit.in_memory.ports import PortCalls
from ottla.testkit.in_memory.schedule import Schedule

SYNC_MS = 5.0
REST_MS = 5000.0
OF_POWER_LOSS = "is damaged"


class Crash(Enum):
    """Ways in which a life of the broker ends. In any order: unsynced names and pages are lost one by one."""

    KILL = "kill"
    POWER = "power loss"
    POWER_ANY = "power loss in any order"
    KILL_THEN_POWER = "kill, then power loss"
    KILL_THEN_POWER_ANY = "kill, then power loss in any order"

    @property
    def power(self) -> PowerLoss | None:
        """The kind of the power loss, or None for a kill alone."""
        if self is Crash.KILL:
            return None
        return PowerLoss.ANY_ORDER if self in (Crash.POWER_ANY, Crash.KILL_THEN_POWER_ANY) else PowerLoss.JOURNAL

    @property
    def killed_before(self) -> bool:
        """Whether the power is lost while the broker starts again after a kill."""
        return self in (Crash.KILL_THEN_POWER, Crash.KILL_THEN_POWER_ANY)


class State(NamedTuple):
    """The disk after a crash, and the client's ledger at that time. `name` describes how to reproduce the state."""

    name: str
    crash: Crash
    flushing: bool
    disk: MemoryDisk
    ledger: Ledger
    style: Style = NARROW


class Found(NamedTuple):
    """The result of a start on a state.

    `problems` are failures. `losses` are the effects that a power loss without flushes may have.
    """

    state: str
    problems: list[str]
    losses: list[str]


def judge(state: State, power_goes_again: bool = True) -> Found:
    """Start the broker on a state, let its transactions end, and start it again.

    If every append is flushed, the records that consumers get right after the first start must also survive a power
    loss at that time.
    """
    keeps = state.flushing or state.crash is Crash.KILL
    problems: list[str] = []
    losses: list[str] = []
    found: list[str] = []
    with LogProblems() as complaints:
        try:
            disk, life = _start(state.disk, state)
            if state.flushing and power_goes_again:
                found += _lost_again(life, disk, state)
            life.advance(REST_MS)
            found += _compare(life, disk, state.ledger, keeps)
            ends = _ends(life)
            life.kill()
            disk, again = _start(disk, state)
            # A transaction that waits for an offline partition sends its markers again at every start.
            if _ends(again) != ends and len(ends) == len(life.partitions()):
                problems.append(f"ends change with a restart: {ends} and {_ends(again)}")
            again.advance(100)
            found += _work_on(again)
            problems += [f"bug: {bug!r}" for bug in (*life.bugs, *again.bugs)]
        except (LogDirectoryError, OSError) as error:
            found.append(f"the broker does not start: {error!r}")
        except ProtocolError as error:
            found.append(f"broken log: a consumer gets damaged data: {error}")
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
    """Report records that a consumer gets right after the start but no longer after a power loss."""
    before = seen(life)
    for kind in PowerLoss:
        left = disk.copy(PortCalls(), _ignore)
        left.random = Random(f"{state.name}, {kind.value}")
        left.lose_power(kind)
        after = seen(_start(left, state)[1])
        lost = [place for place, value in before.items() if after.get(place) != value]
        if lost:
            yield f"shown, then lost with the power ({kind.value}): {len(lost)} records, the first at {lost[0]}"


def _ends(life: Life) -> dict[str, tuple[int, int]]:
    return {p.name: (p.log_end_offset, p.last_stable_offset) for p in life.partitions() if p.offline is None}


def _compare(life: Life, disk: MemoryDisk, ledger: Ledger, keeps: bool) -> Iterator[str]:
    """Report differences between the broker and its files, and between the broker and the client's ledger."""
    cluster = life.assembly.broker.cluster
    logs = scan(disk)
    for partition in life.partitions():
        scanned = logs.get((partition.topic, partition.index))
        if partition.offline is not None or scanned is None:
            continue
        if partition.topic not in INTERNAL_TOPICS:
            yield from differences(partition, scanned)
        else:
            # In a compacted log offsets may be missing at the end of a segment, and the next one may be empty.
            yield from (f"broken log: {damage}" for damage in scanned.damages)
    visible = set(seen(life).values())
    for transaction in ledger.transactions:
        yield from _judge_transaction(transaction, visible)
    yield from (f"lost record {value}" for value in sorted(ledger.plain - visible))
    yield from (f"record of a deleted topic {value}" for value in sorted(ledger.deleted & visible))
    yield from (f"lost topic {name}" for name in sorted(ledger.topics - cluster.topics.keys()))
    yield from (f"deleted topic {name} is back" for name in sorted(ledger.absent & cluster.topics.keys()))
    if keeps and CONSUMER_OFFSETS_TOPIC in cluster.topics:
        yield from _judge_position(life, ledger, visible)


def _judge_transaction(transaction: ClientTransaction, visible: set[str]) -> Iterator[str]:
    found = [value for value in transaction.values if value in visible]
    if transaction.commit and transaction.state in (ENDING, DONE):
        if found and len(found) < len(transaction.values):
            yield f"torn transaction {transaction.name}: {found} of {transaction.values}"
        elif transaction.state == DONE and not found:
            yield f"lost transaction {transaction.name}"
    elif found:
        yield f"G1a: {transaction.name} was never committed: {found}"


def _judge_position(life: Life, ledger: Ledger, visible: set[str]) -> Iterator[str]:
    """Check that the group has the position of its last committed transaction."""
    expected = -1
    for transaction in ledger.transactions:
        committed = bool(transaction.values) and all(value in visible for value in transaction.values)
        if transaction.position is not None and committed:
            expected = transaction.position
    try:
        reply = life.call(offset_fetch(GROUP, "ledger", [0]))
    except NoAnswer as silence:
        yield f"OffsetFetch: {silence}"
        return
    if reply.error_code != NONE:
        yield f"OffsetFetch: error {reply.error_code}"
        return
    position = reply.topics[0].partitions[0].committed_offset
    if position != expected:
        yield f"the group is at {position}, not at {expected}"


def _work_on(life: Life) -> Iterator[str]:
    """Check that new clients can run transactions, if all needed topics exist and all partitions are online."""
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
        # A coordinator may assign a lost epoch again, and the partitions know the batches written with it.
        yield f"refused: a new transaction: {stuck}"


def _ignore(anything: object) -> None:
    """Ignore the value."""
