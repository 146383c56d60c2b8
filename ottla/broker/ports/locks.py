"""The lock of a log directory, which keeps out Apache Kafka as well. shell

flock keeps out other Ottla brokers, in this process and others; the POSIX lock keeps out Kafka (`FileChannel.lock`). A
POSIX lock belongs to the process, and closing any descriptor of the file releases it. So this module keeps a list of
the files that the process has locked: opening one to test its lock would release the lock.
"""

import errno
import fcntl
import os
import threading
from contextlib import suppress
from pathlib import Path
from typing import Final

from ottla.files import open_regular

_File = tuple[int, int]

# (device, inode) -> the process that locked it, because a fork inherits this dict but not the POSIX lock.
_locked: Final[dict[_File, int]] = {}
_guard: Final = threading.Lock()


class LockHeld(Exception):
    """Another process, or another broker of this one, holds the lock; `pid` is None if the file has no process id."""

    def __init__(self, path: str, pid: int | None) -> None:
        super().__init__(f"{path} is locked by {'another process' if pid is None else f'process {pid}'}")
        self.pid = pid


class RealLock:
    """Both kinds of lock on one file, which contains the process id. Raises LockHeld, OSError."""

    __slots__ = ("_descriptor", "_file")

    def __init__(self, path: str) -> None:
        with _guard:
            with suppress(FileNotFoundError):
                if _locked.get(_identity(Path(path).stat())) == os.getpid():
                    raise LockHeld(path, os.getpid())
            self._descriptor = open_regular(path, os.O_RDWR | os.O_CREAT)
            try:
                self._take(path)
            except (LockHeld, OSError):
                os.close(self._descriptor)
                raise
            self._file = _identity(os.fstat(self._descriptor))
            _locked[self._file] = os.getpid()

    def _take(self, path: str) -> None:
        descriptor = self._descriptor
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.EACCES):
                raise
            pid = os.pread(descriptor, 20, 0).strip()
            raise LockHeld(path, int(pid) if pid.isdigit() else None) from None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        """Release the lock; no effect if it was released."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            with _guard:
                _locked.pop(self._file, None)
                with suppress(OSError):  # the process id is for human readers
                    os.ftruncate(descriptor, 0)
                os.close(descriptor)


def _identity(status: os.stat_result) -> _File:
    return status.st_dev, status.st_ino
