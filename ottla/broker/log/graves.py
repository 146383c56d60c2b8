"""Removing files that nobody reads any more, in shares. shell

What is deleted is renamed first and removed after `file.delete.delay.ms`; what a stop leaves behind, the next start
removes. A large file is cut shorter in steps: the kernel would free all of it at once, while everybody waits.
"""

from collections import deque
from collections.abc import Iterable
from contextlib import closing
from logging import getLogger
from typing import Final

from ottla.broker.ports.clock import Clock, Timer
from ottla.broker.ports.disk import Disk
from ottla.broker.turns import Turns

_log = getLogger(__name__)

STEP_BYTES: Final = 32 * 1024 * 1024
STEP_US: Final = 2_000.0
"""What it costs ext4 to free so much."""


class Graves:
    """Files and directories of files that are to be removed."""

    def __init__(self, disk: Disk, clock: Clock, turns: Turns) -> None:
        self._disk = disk
        self._clock = clock
        self._turns = turns
        self._paths: deque[str] = deque()
        self._timers: dict[int, Timer] = {}
        self._buried = 0
        self._closed = False

    def bury(self, paths: Iterable[str], delay_ms: float) -> None:
        """Remove files and directories after `delay_ms`."""
        later = list(paths)
        if not later or self._closed:
            return
        self._buried += 1
        number = self._buried

        def remove() -> None:
            del self._timers[number]
            self.remove(later)

        self._timers[number] = self._clock.call_later(delay_ms, remove)

    def remove(self, paths: Iterable[str]) -> None:
        """Remove files and directories, from now on."""
        idle = not self._paths
        self._paths.extend(paths)
        if idle:
            self._turns.start(self._remove_all(), _done, _bug)

    def close(self) -> None:
        """Remove nothing more."""
        self._closed = True
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self._paths.clear()

    async def _remove_all(self) -> None:
        while self._paths and not self._closed:
            if self._remove_part(self._paths[0]):
                self._paths.popleft()
            await self._turns.share()

    def _remove_part(self, path: str) -> bool:
        """Do one step; whether nothing more is to be done."""
        disk = self._disk
        try:
            try:
                names = disk.list(path)
            except NotADirectoryError:
                return self._remove_file(path)
            if names:
                self._remove_file(f"{path}/{names[0]}")
                return False
            disk.remove_tree(path)
        except FileNotFoundError:
            return True
        except OSError as error:
            _log.error("%s cannot be removed, the next start tries again: %s", path, error)
        return True

    def _remove_file(self, path: str) -> bool:
        size_bytes = self._disk.size_bytes(path)
        if size_bytes > STEP_BYTES:
            with closing(self._disk.open(path)) as file:
                file.truncate(size_bytes - STEP_BYTES)
            self._turns.charge(STEP_US)
            return False
        self._disk.remove(path)
        self._turns.charge(STEP_US * size_bytes / STEP_BYTES)
        return True


def _done(result: None) -> None:
    """Nobody waits for it."""


def _bug(error: Exception) -> None:
    _log.error("Files that nobody reads are left for the next start", exc_info=error)
