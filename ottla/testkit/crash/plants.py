"""Bugs on purpose: each breaks one rule of durability or recovery, to see that the crash tests notice. free

A plant is a context manager; the broker is as it was when it ends. What is hunted for is the loss that the bug is:
most bugs do other things as well, and which of them the first state shows depends on how the port calls are numbered.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace
from typing import Any, Final, NamedTuple

from ottla.broker.cluster.kraft_log import METADATA_TOPIC
from ottla.broker.log import batches, log_loader, tail_kind
from ottla.broker.log.checkpointer import Checkpointer
from ottla.broker.log.flusher import Flusher
from ottla.broker.log.log_config import MAX_INT64
from ottla.broker.log.log_manager import LogManager
from ottla.broker.log.log_segment import LogSegment
from ottla.broker.log.log_segments import LogSegments
from ottla.broker.log.partition import Partition
from ottla.broker.log.unified_log import UnifiedLog
from ottla.testkit.crash.damages import Kind, Scene, Wrong
from ottla.testkit.crash.failures import KINDS, SYNCS, Failure, play
from ottla.testkit.crash.logs import Shape
from ottla.testkit.crash.states import CRASHES, visit_states
from ottla.testkit.crash.verdicts import State, judge
from ottla.testkit.simulation.disk import MemoryDisk, MemoryFile
from ottla.testkit.simulation.plants import replaced

SMALL: Final = Shape(16_384, 300)
SEED: Final = 1
EVERY: Final = 12
"""Of the states that bugs are hunted in."""


class Notice(NamedTuple):
    """After how many tries a plant was noticed as what it is, and all that was wrong then."""

    tries: int
    problems: str


class _Enough(BaseException):
    """It was found. Not an Exception: no handler of the broker may catch it."""


# --- what is promised of a power loss


def acknowledged_early() -> AbstractContextManager[None]:
    """An append is acknowledged before it is on the device."""
    return _durable_at_once(lambda topic: topic != METADATA_TOPIC)


@contextmanager
def recovery_unsynced() -> Iterator[None]:
    """What recovery finds is taken for durable, and is not."""
    recovering: list[bool] = []

    def recover(known: Any) -> Any:
        def _recover(self: Any, sound: int) -> None:
            recovering.append(True)
            try:
                known(self, sound)
            finally:
                recovering.pop()

        return _recover

    def sync(known: Any) -> Any:
        return lambda self: None if recovering else known(self)

    with replaced(log_loader.LogLoader, "_recover", recover), replaced(MemoryFile, "sync", sync):
        yield


def names_unsynced() -> AbstractContextManager[None]:
    """A flush puts the content of a new file on the device, and not its name."""

    def make(known: Any) -> Any:
        return lambda self: [path for path in known(self) if path.endswith(".log")]

    return replaced(UnifiedLog, "files_to_flush", make)


def recovery_point_too_far() -> AbstractContextManager[None]:
    """A recovery point moves to where the log ends when a sync has ended, not to what it has covered."""

    def make(known: Any) -> Any:
        def _end_sync(self: Checkpointer) -> None:
            covered = self._sync.covered if self._sync is not None and self._sync.job.done else []
            known(self)
            for partition, _ in covered:
                partition.log.recovery_point = partition.log_end_offset

        return _end_sync

    return replaced(Checkpointer, "_end_sync", make)


def roll_unsynced() -> AbstractContextManager[None]:
    """The next segment is written while the end of the one before is not on the device."""

    def make(known: Any) -> Any:
        def _roll(self: UnifiedLog, now_ms: int) -> None:
            settings = self.config
            self.config = replace(settings, flush_messages=MAX_INT64)
            try:
                known(self, now_ms)
            finally:
                self.config = settings

        return _roll

    return replaced(UnifiedLog, "_roll", make)


def metadata_unsynced() -> AbstractContextManager[None]:
    """Topics and blocks of producer ids are handed out before their records are on the device."""
    return _durable_at_once(lambda topic: topic == METADATA_TOPIC)


def _durable_at_once(of: Callable[[str], bool]) -> AbstractContextManager[None]:
    def make(known: Any) -> Any:
        def _written(self: Partition) -> None:
            if of(self.topic):
                self._advance(self.log_end_offset)
            else:
                known(self)

        return _written

    return replaced(Partition, "_written", make)


def stop_unsynced() -> AbstractContextManager[None]:
    """A clean stop says so before the logs are on the device."""

    def checkpoints_only(known: Any) -> Any:
        return lambda disk, paths: known(disk, [path for path in paths if path.endswith(".tmp")])

    def make(known: Any) -> Any:
        def _save_all(self: LogManager) -> Any:
            with replaced(MemoryDisk, "sync", checkpoints_only):
                return known(self)

        return _save_all

    return replaced(LogManager, "_save_all", make)


# --- what recovery does


def torn_tail_kept() -> AbstractContextManager[None]:
    """Recovery sees a torn tail and leaves it where it is."""
    return replaced(LogSegment, "truncate", lambda _known: lambda self, size_bytes: None)


def producers_unread() -> AbstractContextManager[None]:
    """Recovery takes the newest snapshot for what producers are at the end, and looks at no batch behind it."""
    return replaced(log_loader, "replay", lambda _known: lambda *arguments: None)


@contextmanager
def crc_unchecked() -> Iterator[None]:
    """Recovery believes what it reads."""

    class Any_:
        def __eq__(self, other: object) -> bool:
            return True

        __hash__ = None  # type: ignore[assignment]

    with replaced(batches, "crc32c", lambda _known: lambda data: Any_()):
        yield


def cut_at_any_damage() -> AbstractContextManager[None]:
    """A log is cut at the first bad batch, whatever stands behind it, as Kafka does."""
    return replaced(log_loader, "classify_tail", lambda _known: lambda *tail: tail_kind.TailKind.TORN)


def lost_pages_unknown() -> AbstractContextManager[None]:
    """A page that never came is taken for damage."""
    return replaced(tail_kind, "_has_lost_page", lambda _known: lambda file, position: False)


# --- what follows from a call that fails


def append_error_ignored() -> AbstractContextManager[None]:
    """A failed write is nobody's business."""

    def make(known: Any) -> Any:
        def append(self: LogSegments, *arguments: Any) -> None:
            with suppress(OSError):
                known(self, *arguments)

        return append

    return replaced(LogSegments, "append", make)


def sync_error_ignored() -> AbstractContextManager[None]:
    """A flush that failed acknowledges like any other."""

    def make(known: Any) -> Any:
        def _ended(self: Flusher) -> None:
            if self._job is not None:
                self._job.error = None
            known(self)

        return _ended

    return replaced(Flusher, "_ended", make)


def failed_sync_retried() -> AbstractContextManager[None]:
    """A flush that failed is tried again, and the second one is believed."""

    def make(known: Any) -> Any:
        def _ended(self: Flusher) -> None:
            if self._job is None or self._job.error is None:
                known(self)
                return
            self._job = None
            covered, self._covered = self._covered, []
            for partition, _ in covered:
                self.flush(partition)

        return _ended

    return replaced(Flusher, "_ended", make)


# --- hunts


def _in_states(loss: str) -> Notice | None:
    """Crash states of a broker that flushes."""
    found: list[Notice] = []
    tries = 0

    def wanted(call: int) -> Iterator[Any]:
        if call % EVERY == 0:
            yield CRASHES[call // EVERY % len(CRASHES)]

    def visit(state: State) -> None:
        nonlocal tries
        tries += 1
        problems = "; ".join(judge(state).problems)
        if loss in problems:
            found.append(Notice(tries, problems))
            raise _Enough

    with suppress(_Enough):
        visit_states(SEED, True, wanted, visit)
    return found[0] if found else None


def _in_damage(loss: str, kind: Kind, every: int) -> Notice | None:
    """Damages of a log of 16 KiB."""
    scene = Scene(SMALL, 0)
    tries = 0
    for each in scene.damages(scene.path("log"), kind):
        if each.at % every and kind is not Kind.HOLE:
            continue
        tries += 1
        try:
            scene.play(each)
        except Wrong as wrong:
            if loss in str(wrong):
                return Notice(tries, str(wrong))
    return None


def _in_failures(loss: str, only_syncs: bool, every: int = 7) -> Notice | None:
    """Failing calls of a broker that flushes."""
    tries, at = 0, 1
    while True:
        name, found = play(Failure(at, *KINDS[0]), flushing=True)
        if name is None:
            return None
        tries += not only_syncs or name in SYNCS
        problems = "; ".join(found)
        if loss in problems:
            return Notice(tries, problems)
        at += every


class Plant(NamedTuple):
    """A bug, and where it is looked for."""

    bug: Callable[[], AbstractContextManager[None]]
    hunt: Callable[[str], Notice | None]


PLANTS: Final[dict[str, Plant]] = {
    "acknowledged-early": Plant(acknowledged_early, _in_states),
    "recovery-unsynced": Plant(recovery_unsynced, _in_states),
    "names-unsynced": Plant(names_unsynced, _in_states),
    "recovery-point-too-far": Plant(recovery_point_too_far, _in_states),
    "roll-unsynced": Plant(roll_unsynced, _in_states),
    "metadata-unsynced": Plant(metadata_unsynced, _in_states),
    "stop-unsynced": Plant(stop_unsynced, _in_states),
    "torn-tail-kept": Plant(torn_tail_kept, _in_states),
    "producers-unread": Plant(producers_unread, _in_states),
    "crc-unchecked": Plant(crc_unchecked, lambda loss: _in_damage(loss, Kind.FLIP, 997)),
    "cut-at-any-damage": Plant(cut_at_any_damage, lambda loss: _in_damage(loss, Kind.FLIP, 997)),
    "lost-pages-unknown": Plant(lost_pages_unknown, lambda loss: _in_damage(loss, Kind.HOLE, 1)),
    "append-error-ignored": Plant(append_error_ignored, lambda loss: _in_failures(loss, False)),
    "sync-error-ignored": Plant(sync_error_ignored, lambda loss: _in_failures(loss, True)),
    "failed-sync-retried": Plant(failed_sync_retried, lambda loss: _in_failures(loss, True)),
}


def noticed(name: str, loss: str) -> Notice | None:
    """How soon the plant is noticed as the `loss` that it is, in the judge's words; None if it never is."""
    plant = PLANTS[name]
    with plant.bug():
        return plant.hunt(loss)
