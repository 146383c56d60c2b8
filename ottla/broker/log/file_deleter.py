"""Deleting files that nobody reads any more, later and in shares. shell

What is to go is renamed first and deleted after `file.delete.delay.ms`; what a stop leaves behind, the next start
deletes. A large file is cut shorter in steps: the kernel would free all of it at once, while everybody waits.

Nothing is touched before its new name is on the device. A power loss could bring the old name back, and it would lead
to what is left: a log without the id of its topic, or cut short. The new names of segments also tell a recovery why
offsets are missing when others of them have come back.

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
"""What it costs ext4 to free so much."""


class FileDeleter:
    """Files and directories of files that are to go. `failed` hears of a sync that fails; nothing goes then."""

    def __init__(self, disk: Disk, clock: Clock, turns: Turns, failed: Callable[[OSError], None]) -> None:
        self._disk = disk
        self._clock = clock
        self._turns = turns
        self._failed = failed
        self._paths: deque[str] = deque()
        self._timers: dict[int, Timer] = {}
        self._delayed = 0
        self._deleting = OneAtATime(turns, self._broke)
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
        """Delete files and directories, from now on."""
        self._paths.extend(paths)
        self._deleting.start(self._delete_all)

    def close(self) -> None:
        """Delete nothing more."""
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
            error = await self._settle({path.rpartition("/")[0] for path in renamed})
            if error is not None:
                self.close()
                self._failed(error)
            for path in paths:
                while not self._closed and not self._delete_part(path):
                    await self._turns.share()
                await self._turns.share()

    def _broke(self, error: Exception) -> None:
        _log.error("Files that nobody reads are left for the next start", exc_info=error)

    async def _settle(self, directories: set[str]) -> OSError | None:
        """Put the names in directories on the device, beside the loop; why that failed."""
        if not directories:
            return None
        ended: Wait[None] = Wait(self._turns)
        job = self._disk.start_sync([*directories], lambda: self._clock.from_thread(lambda: ended.wake(None)))
        await ended
        return job.error

    def _delete_part(self, path: str) -> bool:
        """Do one step; whether nothing more is to be done."""
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
            _log.error("%s cannot be removed, the next start tries again: %s", path, error)
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
