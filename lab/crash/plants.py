"""Bugs on purpose: each breaks one rule of durability or recovery, to check that the crash tests detect it. free

Each hunt looks for the loss that defines the bug. Most bugs have other effects as well, and the effect that the first
state shows depends on the numbers of the port calls.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from types import ModuleType
from typing import Any, Final, NamedTuple

from lab.crash.damages import Kind, StoppedLog, Wrong
from lab.crash.failures import KINDS, SYNCS, Failure, play
from lab.crash.logs import Shape
from lab.crash.states import CRASHES, visit_states
from lab.crash.verdicts import State, judge
from lab.planting import Change, Plant
from ottla.broker.log import batches, checkpointer, flusher, log_loader, log_manager, partition, tail_kind, unified_log

SMALL: Final = Shape(16_384, 300)
SEED: Final = 1
EVERY: Final = 12
"""Hunts in crash states use the states of every 12th port call."""


class Notice(NamedTuple):
    """The number of tries until the loss of a plant was found, and all problems of that try."""

    tries: int
    problems: str


class _Enough(BaseException):
    """Raised when the loss was found. A BaseException, so that no handler of the broker catches it."""


# --- hunts


def _in_states(loss: str) -> Notice | None:
    """Look for the loss in crash states of a broker that flushes."""
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
    """Look for the loss in damages of a log of 16 KiB."""
    scene = StoppedLog(SMALL, 0)
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
    """Look for the loss after failing calls of a broker that flushes."""
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


Hunt = Callable[[str], Notice | None]


class Hunted(NamedTuple):
    """A bug, and the function that looks for it."""

    bug: Plant
    hunt: Hunt


def _plant(hunt: Hunt, rule: str, module: ModuleType, before: str, after: str) -> Hunted:
    return Hunted(Plant(rule, Change(module, before, after)), hunt)


def _in_flips(loss: str) -> Notice | None:
    return _in_damage(loss, Kind.FLIP, 997)


def _in_holes(loss: str) -> Notice | None:
    return _in_damage(loss, Kind.HOLE, 1)


def _in_calls(loss: str) -> Notice | None:
    return _in_failures(loss, False)


def _in_syncs(loss: str) -> Notice | None:
    return _in_failures(loss, True)


PLANTS: Final[dict[str, Hunted]] = {
    # --- durability at a power loss
    "acknowledged-early": _plant(
        _in_states,
        "An append is acknowledged before it is on the device.",
        partition,
        "if end_offset - log.flushed_offset",
        'if self.topic == "__cluster_metadata" and end_offset - log.flushed_offset',
    ),
    "recovery-unsynced": _plant(
        _in_states,
        "What recovery finds is taken for durable, and is not.",
        log_loader,
        "segment.file.sync()",
        "pass",
    ),
    "names-unsynced": _plant(
        _in_states,
        "A flush puts the content of a new file on the device, and not its name.",
        unified_log,
        "if segments[0].base_offset >= self.flushed_offset or len(segments) > 1:",
        "if False:",
    ),
    "recovery-point-too-far": _plant(
        _in_states,
        "A recovery point moves to where the log ends when a sync has ended, not to what it has covered.",
        checkpointer,
        "log.recovery_point = max(log.recovery_point, offset)",
        "log.recovery_point = log.log_end_offset",
    ),
    "roll-unsynced": _plant(
        _in_states,
        "The next segment is written while the end of the one before is not on the device.",
        unified_log,
        "if self.config.flush_messages != MAX_INT64:",
        "if False:",
    ),
    "metadata-unsynced": _plant(
        _in_states,
        "Topics and blocks of producer ids are handed out before their records are on the device.",
        partition,
        "if end_offset - log.flushed_offset",
        'if self.topic != "__cluster_metadata" and end_offset - log.flushed_offset',
    ),
    "stop-unsynced": _plant(
        _in_states,
        "A clean stop says so before the logs are on the device.",
        log_manager,
        "self._disk.sync(paths)",
        "self._disk.sync([])",
    ),
    # --- recovery
    "torn-tail-kept": _plant(
        _in_states,
        "Recovery sees a torn tail and leaves it where it is.",
        log_loader,
        "segment.truncate(bad.position)",
        "pass",
    ),
    "producers-unread": _plant(
        _in_states,
        "Recovery takes the newest snapshot for what producers are at the end, and looks at no batch behind it.",
        log_loader,
        "if header.producer_id < 0:",
        "if True:",
    ),
    "crc-unchecked": _plant(
        _in_flips,
        "Recovery believes what it reads.",
        batches,
        "if check_crc and crc32c(chunk[at + ATTRIBUTES_OFFSET : batch_end]) != crc:",
        "if False:",
    ),
    "cut-at-any-damage": _plant(
        _in_flips,
        "A log is cut at the first bad batch, whatever stands behind it, as Kafka does.",
        log_loader,
        "tail = classify_tail(segment.file, bad, self.end_offset)",
        "tail = TailKind.TORN",
    ),
    "lost-pages-unknown": _plant(
        _in_holes,
        "A page that never came is taken for damage.",
        tail_kind,
        "if _has_lost_page(file, bad.position):",
        "if False:",
    ),
    # --- failing calls
    "append-error-ignored": _plant(
        _in_calls,
        "A failed write is nobody's business.",
        unified_log,
        "segments.append(batch, size_bytes, last_offset, max_timestamp_ms)",
        """try:
            segments.append(batch, size_bytes, last_offset, max_timestamp_ms)
        except OSError:
            pass""",
    ),
    "sync-error-ignored": _plant(
        _in_syncs,
        "A flush that failed acknowledges like any other.",
        flusher,
        "if job is not None and job.error is not None:",
        "if False:",
    ),
    "failed-sync-retried": _plant(
        _in_syncs,
        "A flush that failed is tried again, and the second one is believed.",
        flusher,
        "self._failed(job.error)",
        "[self.flush(partition) for partition, _ in covered]",
    ),
}


def noticed(name: str, loss: str) -> Notice | None:
    """Look for a plant by its `loss`, a part of a problem's text. Return None if no test finds it."""
    bug, hunt = PLANTS[name]
    with bug():
        return hunt(loss)
