"""Bugs on purpose: each breaks one rule of durability or recovery, to check that the crash tests detect it. free

Each hunt searches for the loss that defines the bug. Most bugs have other effects as well, and the effect that the
first state shows depends on the numbers of the port calls.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from types import ModuleType
from typing import Any, Final, NamedTuple

from lab.crash.damages import Kind, StoppedLog, Wrong
from lab.crash.failures import KINDS, SYNCS, Failure, play
from lab.crash.logs import Shape
from lab.crash.states import CRASHES, visit_states
from lab.crash.verdicts import State, judge
from lab.planting import Original, Plant, Replacement
from ottla.broker.cluster.kraft_log import METADATA_TOPIC
from ottla.broker.config.option import INT64_MAX
from ottla.broker.log import batches, log_loader, replay, tail_kind
from ottla.broker.log.checkpointer import Checkpointer
from ottla.broker.log.flusher import Flusher
from ottla.broker.log.log_loader import LogLoader
from ottla.broker.log.partition import Partition
from ottla.broker.log.segments.log_segment import LogSegment
from ottla.broker.log.segments.log_segments import LogSegments
from ottla.broker.log.tail_kind import TailKind
from ottla.broker.log.unified_log import UnifiedLog

SMALL: Final = Shape(16_384, 300)
SEED: Final = 1
EVERY: Final = 17
"""Hunts in crash states use the states of every 17th port call."""
FIRST_STOP: Final = 2400
"""A port call before the first clean stop that shows a stop without a sync."""


class Notice(NamedTuple):
    """The number of tries until the loss of a plant was found, and all problems of that try."""

    tries: int
    problems: str


class _Enough(BaseException):
    """Raised when the loss was found. A BaseException, so that no handler of the broker catches it."""


# --- hunts


def _in_states(loss: str, first: int = 0) -> Notice | None:
    """Search for the loss in crash states of a broker that flushes, from the port call `first` on."""
    found: list[Notice] = []
    tries = 0

    def choose_crashes(call: int) -> Iterator[Any]:
        if call >= first and call % EVERY == 0:
            yield CRASHES[call // EVERY % len(CRASHES)]

    def visit(state: State) -> None:
        nonlocal tries
        tries += 1
        problems = "; ".join(judge(state).problems)
        if loss in problems:
            found.append(Notice(tries, problems))
            raise _Enough

    with suppress(_Enough):
        visit_states(SEED, True, choose_crashes, visit)
    return found[0] if found else None


def _in_damage(loss: str, kind: Kind, every: int) -> Notice | None:
    """Search for the loss in damages of a log of 16 KiB."""
    stopped = StoppedLog(SMALL, 0)
    tries = 0
    for each in stopped.damages(stopped.path("log"), kind):
        if each.at % every and kind is not Kind.HOLE:
            continue
        tries += 1
        try:
            stopped.play(each)
        except Wrong as wrong:
            if loss in str(wrong):
                return Notice(tries, str(wrong))
    return None


def _in_failures(loss: str, only_syncs: bool, every: int = 7) -> Notice | None:
    """Search for the loss after failing calls of a broker that flushes."""
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


def _in_states_of_stops(loss: str) -> Notice | None:
    return _in_states(loss, FIRST_STOP)


def _in_flips(loss: str) -> Notice | None:
    return _in_damage(loss, Kind.FLIP, 997)


def _in_holes(loss: str) -> Notice | None:
    return _in_damage(loss, Kind.HOLE, 1)


def _in_calls(loss: str) -> Notice | None:
    return _in_failures(loss, False)


def _in_syncs(loss: str) -> Notice | None:
    return _in_failures(loss, True)


# --- bugs: the first parameter is the function of the broker that the bug replaces


def _do_nothing(_original: Original, *_: object) -> None:
    """Do nothing."""


def _answer_no(_original: Original, *_: object) -> bool:
    return False


def _flush_only_metadata(after_append: Original, partition: Partition) -> None:
    if partition.topic == METADATA_TOPIC:
        after_append(partition)
    else:
        partition._advance(partition.log.log_end_offset)


def _flush_all_but_metadata(after_append: Original, partition: Partition) -> None:
    if partition.topic == METADATA_TOPIC:
        partition._advance(partition.log.log_end_offset)
    else:
        after_append(partition)


def _leave_out_names(files_to_flush: Original, log: UnifiedLog) -> list[str]:
    return [path for path in files_to_flush(log) if path.endswith(".log")]


def _move_to_log_end(end_sync: Original, checkpointer: Checkpointer) -> None:
    sync = checkpointer._sync
    end_sync(checkpointer)
    if sync is not None and checkpointer._sync is None:
        for partition, _offset in sync.covered:
            partition.log.recovery_point = partition.log.log_end_offset


def _roll_as_without_flushes(roll: Original, log: UnifiedLog) -> None:
    settings = log.config
    log.config = replace(settings, flush_messages=INT64_MAX)
    try:
        roll(log)
    finally:
        log.config = settings


def _name_no_files(original: Original, owner: UnifiedLog | Checkpointer) -> list[str]:
    """Write the files, and leave them out of the sync."""
    original(owner)
    return []


def _ignore_crc(check_run: Original, *arguments: Any) -> Any:
    *others, _check_crc = arguments
    return check_run(*others, False)


def _call_it_torn(_classify_tail: Original, *_: object) -> TailKind:
    return TailKind.TORN


def _ignore_error(append: Original, *arguments: Any) -> None:
    with suppress(OSError):
        append(*arguments)


def _ignore_sync_error(end: Original, flusher: Flusher) -> None:
    flusher._job = None
    end(flusher)


def _flush_again(end: Original, flusher: Flusher) -> None:
    """Flush the same partitions again after an error, and do not report it."""
    partitions = [partition for partition, _offset in flusher._covered]
    report = flusher._failed

    def retry(_error: OSError) -> None:
        for partition in partitions:
            flusher.flush(partition)

    flusher._failed = retry
    try:
        end(flusher)
    finally:
        flusher._failed = report


class Hunted(NamedTuple):
    """A bug, and the function that searches for it."""

    bug: Plant
    hunt: Hunt


def _plant(hunt: Hunt, rule: str, owner: ModuleType | type, name: str, bug: Callable[..., Any]) -> Hunted:
    return Hunted(Plant(rule, Replacement(owner, name, bug)), hunt)


PLANTS: Final[dict[str, Hunted]] = {
    # --- durability at a power loss
    "acknowledged-early": _plant(
        _in_states,
        "The partition acknowledges an append before it is on the device.",
        Partition,
        "_after_append",
        _flush_only_metadata,
    ),
    "recovery-unsynced": _plant(
        _in_states,
        "Recovery takes the records that it finds for durable, and does not sync them.",
        LogLoader,
        "_sync_segment",
        _do_nothing,
    ),
    "names-unsynced": _plant(
        _in_states,
        "A flush puts the content of a new file on the device, and not its name.",
        UnifiedLog,
        "files_to_flush",
        _leave_out_names,
    ),
    "recovery-point-too-far": _plant(
        _in_states,
        "A recovery point moves to the log end when a sync has ended, not to the offset that the sync has covered.",
        Checkpointer,
        "_end_sync",
        _move_to_log_end,
    ),
    "roll-unsynced": _plant(
        _in_states,
        "The log writes the next segment while the end of the one before is not on the device.",
        UnifiedLog,
        "_roll",
        _roll_as_without_flushes,
    ),
    "metadata-unsynced": _plant(
        _in_states,
        "The controller hands out topics and blocks of producer ids before their records are on the device.",
        Partition,
        "_after_append",
        _flush_all_but_metadata,
    ),
    "stop-unsynced": Hunted(
        Plant(
            "A clean stop writes its mark before the logs are on the device.",
            Replacement(UnifiedLog, "save", _name_no_files),
            Replacement(Checkpointer, "unsynced_paths", _name_no_files),
        ),
        _in_states_of_stops,
    ),
    # --- recovery
    "torn-tail-kept": _plant(
        _in_states, "Recovery finds a torn tail and leaves it in the file.", LogSegment, "truncate", _do_nothing
    ),
    "producers-unread": Hunted(
        Plant(
            "Recovery takes the newest snapshot for the last state of the producers, and reads no batch after it.",
            Replacement(log_loader, "replay", _do_nothing),
            Replacement(replay, "replay", _do_nothing),
        ),
        _in_states,
    ),
    "crc-unchecked": _plant(
        _in_flips, "Recovery does not check the CRC of a batch.", batches, "_check_run", _ignore_crc
    ),
    "cut-at-any-damage": _plant(
        _in_flips,
        "Recovery cuts a log at the first bad batch, even if sound batches follow, as Kafka does.",
        tail_kind,
        "classify_tail",
        _call_it_torn,
    ),
    "lost-pages-unknown": _plant(
        _in_holes, "Recovery takes a page that was never written for damage.", tail_kind, "_has_lost_page", _answer_no
    ),
    # --- failing calls
    "append-error-ignored": _plant(_in_calls, "The log ignores a failed write.", LogSegments, "append", _ignore_error),
    "sync-error-ignored": _plant(
        _in_syncs, "A failed flush acknowledges like any other.", Flusher, "_end", _ignore_sync_error
    ),
    "failed-sync-retried": _plant(
        _in_syncs, "The flusher repeats a failed flush, and believes the second one.", Flusher, "_end", _flush_again
    ),
}


def hunt_plant(name: str, loss: str) -> Notice | None:
    """Search for a plant by its `loss`, a part of a problem's text. Return None if no test finds it."""
    bug, hunt = PLANTS[name]
    with bug():
        return hunt(loss)
