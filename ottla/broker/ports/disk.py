"""The disk port: every file that the broker touches, and the ids and names it draws at random. shell"""

import ctypes
import ctypes.util
import errno
import fcntl
import os
import secrets
import shutil
import sys
import threading
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from typing import Final, NamedTuple, Protocol, TypeAlias

from ottla.broker.ports.descriptors import Descriptors

_NONE: Final = -1

Buffer: TypeAlias = bytes | bytearray | memoryview

# More buffers than this in one writev are refused by Linux (IOV_MAX).
_IOV_MAX = 1024
# From this many files on, one syncfs is cheaper than a fdatasync of each (64 files: 0.5 ms against 5.3 ms).
_SYNC_FILES_MAX = 4


class LockHeld(Exception):
    """Another process (or another broker of this one) holds the lock; `pid` is None if it left no number."""

    def __init__(self, path: str, pid: int | None) -> None:
        super().__init__(f"{path} is locked by {'another process' if pid is None else f'process {pid}'}")
        self.pid = pid


class Volume(NamedTuple):
    """The file system that holds a path: the path made absolute, its size, and what may still be written."""

    path: str
    total_bytes: int
    usable_bytes: int


class File(Protocol):
    """An open file. Failed IO raises OSError."""

    size_bytes: int

    def append(self, buffers: Sequence[Buffer]) -> None:
        """Write all bytes at the end, or none: after a failure `size_bytes` is unchanged and the rest is cut off."""

    def pread(self, size_bytes: int, position: int) -> bytes:
        """Up to `size_bytes` bytes from `position`; fewer only at the end of the file."""

    def overwrite(self, position: int, data: Buffer) -> None:
        """Replace bytes that exist."""

    def truncate(self, size_bytes: int) -> None: ...

    def sync(self) -> None:
        """Return when the content is on the device (fdatasync)."""

    def close(self) -> None: ...


class Lock(Protocol):
    """A held lock file."""

    def release(self) -> None: ...


class SyncJob(Protocol):
    """A sync that runs beside the broker. `error` means something only when `done`."""

    done: bool
    error: OSError | None


class Disk(Protocol):
    """All that the broker knows of files. Paths are strings; failed IO raises OSError."""

    def open(self, path: str, create: bool = False) -> File: ...

    def exists(self, path: str) -> bool: ...

    def size_bytes(self, path: str) -> int: ...

    def list(self, path: str) -> list[str]:
        """Names in a directory, sorted; FileNotFoundError if there is no such directory."""

    def make_dir(self, path: str) -> None:
        """Make one directory; FileExistsError if it is there."""

    def make_dirs(self, path: str) -> None:
        """Make a directory and its parents; nothing if it is there."""

    def rename(self, old: str, new: str) -> None: ...

    def remove(self, path: str) -> None: ...

    def remove_tree(self, path: str) -> None: ...

    def read(self, path: str) -> bytes: ...

    def write(self, path: str, data: Buffer) -> None:
        """Create or replace a file, neither atomically nor synced: for what can be made again from other files."""

    def write_atomically(self, path: str, data: Buffer, sync: bool = True) -> None:
        """Write `path`.tmp, sync it, rename it over `path`. Without `sync` only a crash of the process is survived."""

    def sync(self, paths: Sequence[str]) -> None:
        """Return when these files (not directories) are on the device."""

    def start_sync(self, paths: Sequence[str], on_end: Callable[[], None] | None = None) -> SyncJob:
        """`sync` of files and directories beside the caller, in the order of the calls; what is gone is passed over.

        The caller looks at the job later, or gets a call, from another thread.
        """

    def sync_dir(self, path: str) -> None:
        """Make the names in a directory durable."""

    def modified_ms(self, path: str) -> int: ...

    def volume(self, path: str) -> Volume: ...

    def lock(self, path: str) -> Lock:
        """Take the lock file and write this process's number into it; raises LockHeld."""

    def random_id(self) -> bytes:
        """16 random bytes for an id or a name that no other broker draws."""


class RealFile:
    """A file of the operating system, written at its end and read anywhere.

    With `descriptors` it may lose its descriptor while nobody uses it, and opens another: so it is closed before it
    is renamed or removed.
    """

    __slots__ = ("_descriptor", "_descriptors", "_path", "size_bytes", "used")

    def __init__(self, path: str, create: bool, descriptors: Descriptors | None = None) -> None:
        self._path = path
        self._descriptors = descriptors
        self._descriptor = _NONE
        self.used = True
        self.size_bytes: int = os.fstat(self._open(os.O_CREAT if create else 0)).st_size

    def _open(self, flags: int = 0) -> int:
        """Take a descriptor."""
        if not self._path:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        self._descriptor = os.open(self._path, os.O_RDWR | os.O_CLOEXEC | flags, 0o644)
        if self._descriptors is not None:
            self._descriptors.opened(self)
        return self._descriptor

    def _ready(self) -> int:
        """The descriptor, for a use of the file."""
        self.used = True
        return self._open() if self._descriptor == _NONE else self._descriptor

    def rest(self) -> None:
        """Close the descriptor; the next use opens another."""
        descriptor, self._descriptor = self._descriptor, _NONE
        if descriptor != _NONE:
            os.close(descriptor)

    def append(self, buffers: Sequence[Buffer]) -> None:
        position = self.size_bytes
        descriptor = self._ready()
        try:
            if len(buffers) == 1:
                end = position + len(buffers[0])
                written = os.pwrite(descriptor, buffers[0], position)
            else:
                end = position + sum(map(len, buffers))
                written = os.pwritev(descriptor, buffers[:_IOV_MAX], position)
            if position + written != end:
                self._append_rest(b"".join(buffers), position, written)
        except OSError:
            self._cut_back(position)
            raise
        self.size_bytes = end

    def _append_rest(self, data: bytes, position: int, written: int) -> None:
        """The system took only a part (a signal, a full disk, more than IOV_MAX buffers): go on until it takes none."""
        while written < len(data):
            written += os.pwrite(self._ready(), memoryview(data)[written:], position + written)

    def _cut_back(self, size_bytes: int) -> None:
        # If this fails too, bytes stay behind the end: the failed append takes the log offline, and recovery cuts them.
        with suppress(OSError):
            os.ftruncate(self._ready(), size_bytes)

    def pread(self, size_bytes: int, position: int) -> bytes:
        return os.pread(self._ready(), size_bytes, position)

    def overwrite(self, position: int, data: Buffer) -> None:
        written = 0
        while written < len(data):
            written += os.pwrite(self._ready(), memoryview(data)[written:], position + written)

    def truncate(self, size_bytes: int) -> None:
        os.ftruncate(self._ready(), size_bytes)
        self.size_bytes = size_bytes

    def sync(self) -> None:
        _sync_descriptor(self._ready())

    def close(self) -> None:
        self.rest()
        self._path = ""
        if self._descriptors is not None:
            self._descriptors.closed(self)


class RealLock:
    """Both kinds of lock: flock keeps out other brokers of this process, the POSIX lock keeps out Apache Kafka."""

    __slots__ = ("_descriptor",)

    def __init__(self, path: str) -> None:
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            fcntl.lockf(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            pid = os.pread(self._descriptor, 20, 0).strip()
            os.close(self._descriptor)
            raise LockHeld(path, int(pid) if pid.isdigit() else None) from None
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.ftruncate(descriptor, 0)
            os.close(descriptor)


class ThreadSyncJob:
    """A sync in the thread of its disk."""

    __slots__ = ("_disk", "_on_end", "_paths", "done", "error")

    def __init__(self, disk: "RealDisk", paths: Sequence[str], on_end: Callable[[], None] | None) -> None:
        self.done = False
        self.error: OSError | None = None
        self._disk = disk
        self._paths = paths
        self._on_end = on_end

    def run(self) -> None:
        """Sync, and say so."""
        paths = self._paths
        try:
            while paths := [path for path in paths if self._disk.exists(path)]:
                # A file that is deleted with its topic in the meantime has nothing left to lose.
                with suppress(FileNotFoundError):
                    self._disk.sync(paths)
                    break
        except OSError as error:
            self.error = error
        self.done = True
        if self._on_end is not None:
            self._on_end()


def _run_syncs(jobs: "SimpleQueue[ThreadSyncJob | None]") -> None:
    """The thread of a disk: one sync after the other, so that none can miss what another was told of a lost write."""
    while (job := jobs.get()) is not None:
        job.run()
        del job  # it would keep the disk, and so this thread


class RealDisk:
    """The file system of the machine."""

    __slots__ = ("__weakref__", "_descriptors", "_syncs")

    def __init__(self, open_files_max: int = 0) -> None:
        """At most `open_files_max` files that `open` gave are open at once (0: what `descriptors.py` finds fit)."""
        self._descriptors = Descriptors(open_files_max)
        self._syncs: SimpleQueue[ThreadSyncJob | None] | None = None

    def open(self, path: str, create: bool = False) -> RealFile:
        return RealFile(path, create, self._descriptors)

    def exists(self, path: str) -> bool:
        return Path(path).exists()

    def size_bytes(self, path: str) -> int:
        return Path(path).stat().st_size

    def list(self, path: str) -> list[str]:
        with os.scandir(path) as entries:
            return sorted(entry.name for entry in entries)

    def make_dir(self, path: str) -> None:
        Path(path).mkdir()

    def make_dirs(self, path: str) -> None:
        Path(path).mkdir(parents=True, exist_ok=True)

    def rename(self, old: str, new: str) -> None:
        Path(old).replace(new)

    def remove(self, path: str) -> None:
        Path(path).unlink()

    def remove_tree(self, path: str) -> None:
        shutil.rmtree(path)

    def read(self, path: str) -> bytes:
        return Path(path).read_bytes()

    def write(self, path: str, data: Buffer) -> None:
        self._write(path, data, sync=False)

    def write_atomically(self, path: str, data: Buffer, sync: bool = True) -> None:
        temporary = f"{path}.tmp"
        self._write(temporary, data, sync)
        Path(temporary).replace(path)
        if sync:
            self.sync_dir(str(Path(path).parent))

    def sync(self, paths: Sequence[str]) -> None:
        if len(paths) >= _SYNC_FILES_MAX and _syncfs is not None:
            _sync_file_system(paths[0])
            return
        for path in paths:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                _sync_descriptor(descriptor)
            finally:
                os.close(descriptor)

    def start_sync(self, paths: Sequence[str], on_end: Callable[[], None] | None = None) -> ThreadSyncJob:
        if self._syncs is None:
            self._syncs = SimpleQueue()
            threading.Thread(target=_run_syncs, args=(self._syncs,), name="sync", daemon=True).start()
            weakref.finalize(self, self._syncs.put, None)
        job = ThreadSyncJob(self, paths, on_end)
        self._syncs.put(job)
        return job

    def sync_dir(self, path: str) -> None:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def modified_ms(self, path: str) -> int:
        return Path(path).stat().st_mtime_ns // 1_000_000

    def volume(self, path: str) -> Volume:
        usage = shutil.disk_usage(path)
        return Volume(str(Path(path).absolute()), usage.total, usage.free)

    def lock(self, path: str) -> RealLock:
        return RealLock(path)

    def random_id(self) -> bytes:
        return secrets.token_bytes(16)

    def _write(self, path: str, data: Buffer, sync: bool) -> None:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        try:
            written = 0
            while written < len(data):
                written += os.write(descriptor, memoryview(data)[written:])
            if sync:
                os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _sync_descriptor(descriptor: int) -> None:
    if sys.platform == "darwin":
        # fsync on macOS stops at the drive's cache.
        fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)
    else:
        os.fdatasync(descriptor)


def _find_syncfs() -> "ctypes._NamedFuncPointer | None":
    if sys.platform != "linux":
        return None
    return getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)


_syncfs = _find_syncfs()


def _sync_file_system(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if _syncfs is not None and _syncfs(descriptor) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), path)
    finally:
        os.close(descriptor)
