"""Delayed deletion of files that are no longer used, over many turns. shell

Files are renamed first and deleted after `file.delete.delay.ms`. If the broker stops before, the next start deletes
them. A large file is truncated in steps, because the kernel would block the event loop while it frees all of it.

No file is changed before its new name is on the device. Else a power loss could restore the old name for an incomplete
file or directory: a log that is cut short, or without its topic id. The new names of segments also show a recovery why
offsets are missing, when a power loss has restored others of them.

Source: Kafka's `LogManager.deleteLogs`, `LocalLog.deleteSegmentFiles` (4.3.1).
"""

from collections import deque
from collections.abc import Callable, Iterable
from contextlib import closing
from logging import getLogger
from typing import Final

from ottla.broker.log.swap import DELETED
from ottla.broker.ports.clock import Clock, Timer
from ottla.broker.ports.disk import Disk
from ottla.broker.turns import OneAtATime, Turns, Wait
from ottla.protocol.checkpoints import is_delete_directory

_log = getLogger(__name__)

STEP_BYTES: Final = 32 * 1024 * 1024
STEP_US: Final = 2_000.0
"""Time that ext4 needs to free `STEP_BYTES`."""


async def sync_in_background(disk: Disk, clock: Clock, turns: Turns, paths: list[str]) -> None:
    """Put files and directories on the device without blocking the event loop. Raises OSError."""
    ended: Wait[None] = Wait(turns)
    job = disk.start_sync(paths, lambda: clock.from_thread(lambda: ended.wake(None)))
    await ended
    if job.error is not None:
        raise job.error


class FileDeleter:
    """A queue of files and directories to delete.

    `failed` is called with the error of a failed sync; after it nothing is deleted.
    """

    def __init__(self, disk: Disk, clock: Clock, turns: Turns, failed: Callable[[OSError], None]) -> None:
        self._disk = disk
        self._clock = clock
        self._turns = turns
        self._failed = failed
        self._paths: deque[str] = deque()
        self._timers: dict[int, Timer] = {}
        self._delayed = 0
        self._deleting = OneAtATime(turns, self._log_failure)
        self._closed = False

    def delete_later(self, paths: Iterable[str], delay_ms: float) -> None:
        """Delete files and directories after `delay_ms`."""
        later = list(paths)
        if not later or self._closed:
            return
        self._delayed += 1
        number = self._delayed

        def delete() -> None:
            del self._timers[number]
            self.delete(later)

        self._timers[number] = self._clock.call_later(delay_ms, delete)

    def delete(self, paths: Iterable[str]) -> None:
        """Start to delete files and directories."""
        self._paths.extend(paths)
        self._deleting.start(self._delete_all)

    def close(self) -> None:
        """Stop deleting, and drop the queue."""
        self._closed = True
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self._paths.clear()

    async def _delete_all(self) -> None:
        while self._paths and not self._closed:
            paths = list(self._paths)
            self._paths.clear()
            renamed = [path for path in paths if is_delete_directory(path) or path.endswith(DELETED)]
            try:
                if renamed:
                    directories = {path.rpartition("/")[0] for path in renamed}
                    await sync_in_background(self._disk, self._clock, self._turns, [*directories])
            except OSError as error:
                self.close()
                self._failed(error)
            for path in paths:
                while not self._closed and not self._delete_part(path):
                    await self._turns.yield_if_due()
                await self._turns.yield_if_due()

    def _log_failure(self, error: Exception) -> None:
        _log.error("Deleting unused files failed; the next start deletes them", exc_info=error)

    def _delete_part(self, path: str) -> bool:
        """Delete a part of `path`; return whether the path is done."""
        disk = self._disk
        try:
            try:
                names = disk.list(path)
            except NotADirectoryError:
                return self._delete_file(path)
            if names:
                self._delete_file(f"{path}/{names[0]}")
                return False
            disk.remove_tree(path)
        except FileNotFoundError:
            return True
        except OSError as error:
            _log.error("%s cannot be removed; the next start tries again: %s", path, error)
        return True

    def _delete_file(self, path: str) -> bool:
        size_bytes = self._disk.size_bytes(path)
        if size_bytes > STEP_BYTES:
            with closing(self._disk.open(path)) as file:
                file.truncate(size_bytes - STEP_BYTES)
            self._turns.charge(STEP_US)
            return False
        self._disk.remove(path)
        self._turns.charge(STEP_US * size_bytes / STEP_BYTES)
        return True
