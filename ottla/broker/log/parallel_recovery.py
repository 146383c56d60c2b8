"""Recovery of long logs in parallel processes after a crash, before the logs are opened one by one. shell

`log_loader.py` recovers each log, in a process that writes the files and sends back the result. A log without a result
is recovered when it is opened.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple

from ottla.broker.log.loaded import LoadedLog
from ottla.broker.log.log_config import LogConfig
from ottla.broker.log.log_loader import Start, load_log, new_log
from ottla.broker.log.segments.log_segment import LogSegment
from ottla.broker.log.segments.log_segments import LogSegments
from ottla.broker.ports.disk import Disk
from ottla.protocol import checkpoints
from ottla.protocol.steps import Steps

LEAST_BYTES: Final = 1 << 20
"""Shorter logs are recovered when they are opened."""

WORTH_BYTES: Final = 128 << 20
"""From this total size on, processes save more time than they cost."""

_LOG_NAME_LENGTH: Final = 24


class LogToRecover(NamedTuple):
    """A log to recover. `size_bytes` is about the size that recovery reads."""

    directory: str
    settings: LogConfig
    start: Start
    size_bytes: int


class RecoveredSegment(NamedTuple):
    """A segment after its recovery."""

    base_offset: int
    size_bytes: int
    created_ms: int
    has_txn_index: bool


class RecoveredLog(NamedTuple):
    """Result of the recovery of a log in a process: `LoadedLog` as a picklable value."""

    segments: list[RecoveredSegment]
    end_offset: int
    fields: dict[str, Any]
    """The fields of `LoadedLog` except the segments."""


def bytes_to_recover(disk: Disk, directory: str, recovery_point: int) -> int:
    """Return about how many bytes a recovery reads: those from the segment with the recovery point on."""
    try:
        size_bytes = disk.size_bytes(f"{directory}/{recovery_point:020d}.log")
        if size_bytes < LEAST_BYTES:
            return size_bytes  # almost always the last segment; one call must be enough for thousands of empty logs
    except FileNotFoundError:
        pass
    with suppress(FileNotFoundError):
        names = [each for each in disk.list(directory) if each.endswith(".log") and len(each) == _LOG_NAME_LENGTH]
        bases = [int(each[:20]) for each in names]
        first = max((base for base in bases if base <= recovery_point), default=0)
        return sum(disk.size_bytes(f"{directory}/{base:020d}.log") for base in bases if base >= first)
    return 0


def recover_in_processes(
    disk: Disk, jobs: Sequence[LogToRecover], done: Callable[[str], None] = lambda directory: None
) -> Steps[dict[str, RecoveredLog]]:
    """Recover the logs that are long enough in parallel processes; return {directory: result}.

    `done` is called with the directory of each log when its recovery has ended. Raises OSError.
    """
    jobs = [job for job in jobs if job.size_bytes >= LEAST_BYTES]
    sizes = [job.size_bytes for job in jobs]
    if len(jobs) < 2 or sum(sizes) < WORTH_BYTES:
        return {}
    recovered = yield from disk.run_parallel(_recover, jobs, sizes, lambda place: done(jobs[place].directory))
    return {jobs[place].directory: found for place, found in recovered.items()}


def _recover(disk: Disk, job: LogToRecover) -> RecoveredLog:
    """Recover a log and close its files. Runs in a process of its own."""
    loaded = load_log(disk, job.directory, job.settings, job.start)
    unsynced = loaded.unsynced
    if loaded.damage is None and loaded.epochs.changed:
        path = f"{job.directory}/{checkpoints.LEADER_EPOCHS}"
        disk.write_atomically(path, checkpoints.encode_epochs(loaded.epochs.entries), sync=False)
        loaded.epochs.mark_clean()
        unsynced += (path,)
    loaded.segments.close()
    segments = [
        RecoveredSegment(segment.base_offset, segment.size_bytes, segment.created_ms, segment.has_txn_index)
        for segment in loaded.segments
    ]
    fields = loaded._replace(unsynced=unsynced)._asdict()
    del fields["segments"]
    return RecoveredLog(segments, loaded.segments.end_offset, fields)


def use_recovered_log(disk: Disk, directory: str, settings: LogConfig, found: RecoveredLog, now_ms: int) -> LoadedLog:
    """Return the log that a process has recovered, as the broker uses it."""
    if found.fields["damage"] is not None:
        return new_log(disk, directory, settings, 0, now_ms)._replace(damage=found.fields["damage"])
    interval_bytes = settings.index_interval_bytes
    segments = [LogSegment(disk, directory, interval_bytes=interval_bytes, **each._asdict()) for each in found.segments]
    return LoadedLog(segments=LogSegments(disk, directory, segments, found.end_offset), **found.fields)
