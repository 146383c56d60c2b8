"""Inspection of a partition directory: the result of a start, and of a check of all batch headers. shell"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

from ottla.broker.log.batches import BadBatch, iter_runs
from ottla.broker.log.loaded import LoadedLog
from ottla.broker.log.log_config import LogConfig
from ottla.broker.log.log_loader import Start, load_log
from ottla.broker.log.producer_state_entry import ProducerStateEntry
from ottla.broker.log.segments.log_segment import MAX_RELATIVE_OFFSET
from ottla.broker.log.tail_kind import TailKind, classify_tail
from ottla.cli.inspect.overlay_disk import OverlayDisk
from ottla.cli.read_only import ReadOnlyFile
from ottla.protocol.batch_header import BatchHeader
from ottla.protocol.checkpoints import LAST_BASE_OFFSET, NO_SUCH_OFFSET
from ottla.scan.log_directory import SEGMENT

CLEAN: Final = "sound"
RECOVERS: Final = "recovers"
TORN: Final = "torn"
DAMAGED: Final = "damaged"
UNREADABLE: Final = "unreadable"

LEFTOVERS: Final = (".swap", ".cleaned", ".deleted", ".tmp")


class OpenTransaction(NamedTuple):
    """A transaction that has begun in a partition and has no marker there."""

    first_offset: int
    producer_id: int
    producer_epoch: int
    last_timestamp_ms: int


class Fault(NamedTuple):
    """The place where the batches of a log become invalid: the first lost offset, and the content there."""

    segment: str
    position: int
    offset: int
    reason: str
    looks_like: str


class PartitionState(NamedTuple):
    """State of a partition after a start. Offsets are None if the log cannot be used.

    A start reads `scan_bytes` of the `.log` files, and truncates `cut_bytes`. `fault` is the first invalid batch by a
    check of every header, even if a start would not notice it.
    """

    name: str
    verdict: str
    log_start: int | None
    log_end: int | None
    last_stable: int | None
    size_bytes: int
    segment_count: int
    scan_bytes: int
    cut_bytes: int
    fault: Fault | None
    problem: str | None
    open_transactions: list[OpenTransaction]
    leftovers: list[str]


def inspect_partition(directory: str, settings: LogConfig, start: Start, verify: bool) -> PartitionState:
    """Load the partition like a start, without changing files. Then check every header."""
    disk = OverlayDisk()
    name = directory.rpartition("/")[2]
    names = disk.list(directory)
    leftovers = [each for each in names if each.endswith(LEFTOVERS)]
    logs = [each for each in names if SEGMENT.match(each)]
    size_bytes = sum(disk.size_bytes(f"{directory}/{each}") for each in logs)
    fault = find_fault(directory, logs, verify)
    try:
        with silent_recovery():
            loaded = load_log(disk, directory, settings, start)
        left_bytes = sum(disk.size_bytes(f"{directory}/{each}") for each in logs if disk.exists(f"{directory}/{each}"))
    finally:
        disk.close()
    cut_bytes = size_bytes - left_bytes if loaded.damage is None and not leftovers else 0
    sound = loaded.damage is None
    opened = _open_transactions(loaded) if sound else []
    end = loaded.segments.end_offset
    stable = min([end, *(max(each.first_offset, loaded.log_start_offset) for each in opened)])
    return PartitionState(
        name,
        _verdict(loaded, fault, cut_bytes, start),
        loaded.log_start_offset if sound else None,
        end if sound else None,
        stable if sound else None,
        size_bytes,
        len(logs),
        disk.log_bytes_read,
        cut_bytes,
        fault,
        _problem(loaded, fault, directory, cut_bytes),
        opened,
        leftovers,
    )


def _verdict(loaded: LoadedLog, fault: Fault | None, cut_bytes: int, start: Start) -> str:
    if loaded.damage is not None:
        return DAMAGED
    if cut_bytes:
        return TORN
    if fault is not None:
        return DAMAGED
    return RECOVERS if loaded.unsynced and not start.clean else CLEAN


def _problem(loaded: LoadedLog, fault: Fault | None, directory: str, cut_bytes: int) -> str | None:
    if loaded.damage is not None:
        return loaded.damage.replace(f"{directory} is damaged: ", "").replace(f"{directory}/", "")
    if cut_bytes:
        return f"a start cuts off {cut_bytes} bytes: a write that was cut short, or pages that a power loss left empty"
    if fault is not None:
        return f"{fault.segment}: {fault.reason} at position {fault.position}; a start would not notice"
    return None


def _open_transactions(loaded: LoadedLog) -> list[OpenTransaction]:
    known: dict[int, ProducerStateEntry] = {each.producer_id: each for each in loaded.producer_state}
    return [
        OpenTransaction(first_offset, producer_id, known[producer_id].epoch, known[producer_id].last_timestamp_ms)
        for first_offset, producer_id in loaded.producer_state.ongoing_txns.items()
    ]


def find_fault(directory: str, logs: list[str], verify: bool) -> Fault | None:
    """Return the first invalid batch of all segments, by its header. Check CRCs if `verify` is set."""
    end_offset = 0
    for number, each in enumerate(logs):
        base = int(each.partition(".")[0])
        if base > LAST_BASE_OFFSET:
            return Fault(each, 0, end_offset, NO_SUCH_OFFSET, TailKind.DAMAGE.value)
        most = base + MAX_RELATIVE_OFFSET
        if number + 1 < len(logs):
            most = min(most, int(logs[number + 1].partition(".")[0]) - 1)
        with ReadOnlyFile(f"{directory}/{each}") as file:
            offset = base
            bad: BadBatch | None = None
            for run in iter_runs(file, 0, file.size_bytes, base, most, verify):
                if run.headers:
                    offset = BatchHeader._make(run.headers[-1]).next_offset
                bad = run.bad
            if bad is not None:
                return Fault(each, bad.position, offset, bad.reason, classify_tail(file, bad, offset).value)
            end_offset = offset
    return None


@contextmanager
def silent_recovery() -> Iterator[None]:
    """Silence the log lines of recovery, because the result has the same facts and nothing is changed."""
    log = logging.getLogger("ottla.broker.log")
    level = log.level
    log.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        log.setLevel(level)
