"""Each call of the disk port fails once: check the answers to the client, and the state after a restart. free

The restart has a disk without errors. A failed sync has lost the bytes that it should have written, even if later syncs
succeed: Linux behaves like this (errseq and clean pages). A short write leaves a part of its bytes in the file, and
truncating them fails as well.
"""

import errno
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Final, NamedTuple

from lab.crash.life import Life, LogProblems
from lab.crash.log_directory import DIRECTORY
from lab.crash.script import DONE, OPEN, Ledger, Refused, Script
from lab.crash.verdicts import SYNC_MS, Crash, State, judge
from lab.in_memory.disk import MemoryDisk, MemoryFile, MemorySyncJob
from lab.in_memory.disk_errors import DiskErrors
from lab.in_memory.tree import Directory, Inode
from ottla.broker.log.meta_properties import LogDirectoryError
from ottla.broker.ports.disk import Buffer
from ottla.testkit.in_memory.broker import NoAnswer
from ottla.testkit.in_memory.ports import PortCalls
from ottla.testkit.in_memory.schedule import Schedule

SYNCS: Final = frozenset(("sync", "sync_dir"))
LIVES: Final = 3
TRANSACTIONS: Final = 5


class Failure(NamedTuple):
    """A failure of call number `at` of a script with an error number; a `short` write has written a part."""

    at: int
    number: int
    short: bool = False

    def __str__(self) -> str:
        return f"{errno.errorcode[self.number]}{' after a short write' if self.short else ''} of call {self.at}"


KINDS: Final = ((errno.EIO, False), (errno.ENOSPC, False), (errno.ENOSPC, True))


class FailOnce(DiskErrors):
    """Disk errors that count the calls that can fail, and fail one of them."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(Counter())
        self.failure = failure
        self.count = 0
        self.failed: str | None = None
        self.script: Script | None = None
        self.ledger = Ledger()
        self.on_device: Callable[[], bytes] = bytes
        self.durable = b""

    def call(self, name: str) -> None:
        self.count += 1
        if self.count == self.failure.at:
            self.failed = name
            self.durable = self.on_device()
            if self.script is not None:
                self.ledger = self.script.ledger.copy()
            raise OSError(self.failure.number, os.strerror(self.failure.number), name)


class FailingFile(MemoryFile):
    """A file whose failed append may leave a part of its bytes."""

    __slots__ = ("_short",)

    def append(self, buffers: Sequence[Buffer]) -> None:
        before = self.size_bytes
        data = b"".join(bytes(buffer) for buffer in buffers)
        try:
            super().append([data])
        except OSError:
            disk = self._disk
            del self._inode.data[before:]
            if isinstance(disk.errors, FailOnce) and disk.errors.failure.short:
                self._inode.data += data[: len(data) // 2]
            raise


class FailingDisk(MemoryDisk):
    """A disk with one failing call."""

    def __init__(self, schedule: Schedule, failure: Failure) -> None:
        self._lost: set[Inode | Directory] = set()
        super().__init__(PortCalls(), Random(failure.at), lambda end: _ignore(schedule.after(SYNC_MS, end)))
        self.torn_writes = False
        self.make_dirs(DIRECTORY)
        self.sync_dir("/")
        self.failing = FailOnce(failure)
        self.failing.on_device = self._on_device
        self.errors = self.failing

    def _on_device(self) -> bytes:
        """Return all bytes that a power loss cannot remove now."""
        return b"".join(inode.durable for inode in self._tree.files().values())

    def open(self, path: str, create: bool = False) -> MemoryFile:
        found = super().open(path, create)
        return FailingFile(self, found._inode)

    def write(self, path: str, data: Buffer) -> None:
        try:
            super().write(path, data)
        except OSError:
            inode = self._tree.find(path)
            if self.failing.failure.short and isinstance(inode, Inode):
                inode.data[:] = bytes(data)[: len(data) // 2]
            raise

    def start_sync(self, paths: Sequence[str], on_end: Callable[[], None] | None = None) -> MemorySyncJob:
        nodes = {path: self._tree.find(path) for path in paths}
        sound = [path for path, node in nodes.items() if node not in self._lost]

        def on_job_end() -> None:
            if job.error is not None:
                self._lost.update(node for node in nodes.values() if node is not None)
            if on_end is not None:
                on_end()

        job = super().start_sync(sound, on_job_end)
        return job

    def sync_inodes(self, inodes: Sequence[Inode]) -> None:
        try:
            super().sync_inodes([inode for inode in inodes if inode not in self._lost])
        except OSError:
            self._lost.update(inodes)
            raise


def play(failure: Failure, flushing: bool) -> tuple[str | None, list[str]]:
    """Run the script on a disk that fails once. Return the name of the failed call (None if there is no such call) and
    the problems."""
    schedule = Schedule()
    disk = FailingDisk(schedule, failure)
    failing = disk.failing
    with LogProblems() as complaints:
        script = _Watched(disk, schedule, flushing)
        script.run_to_failure()
    if failing.failed is None:
        return None, []
    problems = [*_log_problems(complaints, script, failing, flushing)]
    ledger = Ledger() if script.script is None else script.script.ledger
    for crash in (Crash.KILL, Crash.POWER, Crash.POWER_ANY) if flushing else (Crash.KILL,):
        left = disk.copy(PortCalls(), _ignore)
        left.errors = DiskErrors(Counter())
        if crash.power is not None:
            left.lose_power(crash.power)
        state = State(f"then {crash.value}", crash, flushing, left, ledger)
        problems += judge(state, power_goes_again=crash is Crash.KILL).problems
    return failing.failed, [f"{failure} ({failing.failed}{', flushed' if flushing else ''}): {p}" for p in problems]


class _Over(Exception):
    """Raised instead of starting the broker again on the failed disk."""


class _Watched:
    """A run of the script up to the end of the life in which a call fails."""

    def __init__(self, disk: FailingDisk, schedule: Schedule, flushing: bool) -> None:
        self.disk = disk
        self.schedule = schedule
        self.flushing = flushing
        self.script: Script | None = None
        self.lives: list[Life] = []
        self.refused: str | None = None
        self.bug: Exception | None = None

    def run_to_failure(self) -> None:
        try:
            self.script = Script(self._start)
            self.disk.failing.script = self.script
            self.script.run(LIVES, TRANSACTIONS)
        except (LogDirectoryError, OSError, NoAnswer, Refused) as error:
            self.refused = f"{type(error).__name__}: {error}"
        except _Over:
            pass
        except Exception as bug:
            self.bug = bug

    def _start(self) -> Life:
        if self.disk.failing.failed is not None:
            raise _Over
        life = Life(self.disk, self.schedule, self.flushing)
        self.lives.append(life)
        return life


def _log_problems(complaints: LogProblems, watched: _Watched, failing: FailOnce, flushing: bool) -> Iterator[str]:
    if watched.bug is not None:
        yield f"bug: {watched.bug!r}"
    yield from (f"bug: {bug!r}" for life in watched.lives for bug in life.bugs)
    yield from (f"traceback: {line}" for line in complaints.tracebacks)
    lines = [*complaints.errors, *complaints.warnings, *([watched.refused] if watched.refused else [])]
    if not lines:
        yield "nothing is logged or reported"
    offline = [line for line in complaints.errors if "is offline" in line]
    if offline and "start the broker again" not in offline[0]:
        yield f"the log line does not say what to do: {offline[0]}"
    script = watched.script
    if script is not None and flushing and failing.failed in SYNCS:
        # A requested decision may have been durable before the failure; the checks after the restart show whether.
        known = {each.name for each in failing.ledger.transactions if each.state != OPEN}
        later = [each.name for each in script.ledger.transactions if each.state == DONE and each.name not in known]
        # A record whose answer was on its way may have been durable too.
        plain = script.ledger.plain - failing.ledger.plain
        later += sorted(value for value in plain if value.encode() not in failing.durable)
        if later:
            yield f"acknowledged after a failed sync: {later}"


def _ignore(anything: object) -> None:
    """Ignore the value."""


def sweep(flushing: bool, every: int = 1, first: int = 1) -> tuple[Counter[str], list[str]]:
    """Fail every `every`-th call of the script in each way. Return the number of failures by kind, and the problems."""
    met: Counter[str] = Counter()
    problems: list[str] = []
    at = first
    while True:
        name: str | None = ""
        for number, short in KINDS:
            if short and name not in ("append", "write"):
                continue
            name, found = play(Failure(at, number, short), flushing)
            if name is None:
                return met, problems
            met[f"{errno.errorcode[number]} of {name}{', short' if short else ''}"] += 1
            problems += found
        at += every
