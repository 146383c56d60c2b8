"""The disk port: the broker's only access to files, and its source of random ids and names. shell"""

import errno
import os
import secrets
import shutil
import threading
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple, Protocol, TypeAlias, TypeVar

from ottla import files
from ottla.broker.costs import COPY_BYTE_US, FILE_CALL_US, SYNC_US, WRITE_FILE_US
from ottla.broker.ports.descriptors import Descriptors, as_shortage
from ottla.broker.ports.locks import RealLock
from ottla.broker.ports.side_by_side import processors, spread_steps
from ottla.broker.ports.slices import FileSlice, RealSlice
from ottla.broker.ports.syncs import Syncs, sync_descriptor
from ottla.broker.ports.timed import Timed, charge_duration
from ottla.protocol.steps import Steps

_NONE: Final = -1

# A Path costs more than the call that it makes, and a start makes ten for each partition.
_stat, _list, _mkdir, _rename, _unlink = os.stat, os.listdir, os.mkdir, os.replace, os.unlink

Buffer: TypeAlias = bytes | bytearray | memoryview
T = TypeVar("T")
R = TypeVar("R")

# More buffers than this in one writev are refused by Linux (IOV_MAX).
_IOV_MAX: Final = 1024


class Volume(NamedTuple):
    """The file system that holds `path` (absolute): its size, and the bytes that can still be written."""

    path: str
    total_bytes: int
    usable_bytes: int


class File(Protocol):
    """An open file. Failed IO raises OSError."""

    size_bytes: int

    def append(self, buffers: Sequence[Buffer]) -> None:
        """Write all bytes at the end, or none: after an error `size_bytes` is as before, a partial write is cut off."""

    def pread(self, size_bytes: int, position: int) -> bytes:
        """Return `size_bytes` bytes from `position`; fewer only at the end of the file."""

    def slice(self, position: int, size_bytes: int) -> FileSlice | None:
        """Return existing bytes as a slice, to be sent later; None if slices hold too many files: read them instead."""

    def overwrite(self, position: int, data: Buffer) -> None:
        """Replace existing bytes."""

    def truncate(self, size_bytes: int) -> None: ...

    def sync(self) -> None:
        """Wait until the content is on the device (fdatasync)."""

    def close(self) -> None: ...


class Lock(Protocol):
    """A held lock file."""

    def release(self) -> None: ...


class SyncJob(Protocol):
    """A sync that runs in the background. `error` is set when it is `done`."""

    done: bool
    error: OSError | None


class Disk(Protocol):
    """The broker's only access to files. Paths are strings; failed IO raises OSError.

    A Shortage is an OSError that does not concern the storage: the call has changed nothing and can be tried again.

    Calls on names and whole files, and syncs that the caller waits for, call `charge` with microseconds: their listed
    cost, or the measured time on a real disk if that is more. The caller charges the work on an open file, because it
    knows how much of it a request can cause.
    """

    charge: Callable[[float], None]

    def open(self, path: str, create: bool = False) -> File: ...

    def exists(self, path: str) -> bool: ...

    def size_bytes(self, path: str) -> int: ...

    def list(self, path: str) -> list[str]:
        """Return the sorted names in a directory. Raises FileNotFoundError if there is no such directory."""

    def make_dir(self, path: str) -> None:
        """Make one directory. Raises FileExistsError if it exists."""

    def make_dirs(self, path: str) -> None:
        """Make a directory and its parents; no effect if it exists."""

    def rename(self, old: str, new: str) -> None: ...

    def remove(self, path: str) -> None: ...

    def remove_tree(self, path: str) -> None: ...

    def read(self, path: str) -> bytes: ...

    def write(self, path: str, data: Buffer) -> None:
        """Create or replace a file, neither atomically nor synced: for content that other files can restore."""

    def write_atomically(self, path: str, data: Buffer, sync: bool = True) -> None:
        """Write `path`.tmp, sync it, rename it to `path`. Without `sync` it survives a crash of the process only."""

    def sync(self, paths: Sequence[str]) -> None:
        """Wait until these files (not directories) are on the device."""

    def start_sync(self, paths: Sequence[str], on_end: Callable[[], None] | None = None) -> SyncJob:
        """Start to sync files and directories in the background, in the order of the calls. Missing ones are skipped.

        The caller polls the job, or gets the call `on_end` from another thread.
        """

    def sync_dir(self, path: str) -> None:
        """Make the names in a directory durable."""

    def modified_ms(self, path: str) -> int: ...

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        """Set the modification time of a file."""

    def volume(self, path: str) -> Volume: ...

    def lock(self, path: str) -> Lock:
        """Lock the file and write this process's id into it. Raises LockHeld."""

    def random_id(self) -> bytes:
        """Return 16 random bytes for an id or a name that no other broker draws."""

    def run_parallel(
        self, work: Callable[["Disk", T], R], items: Sequence[T], sizes: Sequence[int], done: Callable[[int], None]
    ) -> Steps[dict[int, R]]:
        """Return {index of an item: result of `work`}, computed in parallel processes; failed ones are missing.

        `done` is called with each index when its result has arrived.
        Items and results must be picklable. `work` gets a disk of its own. Raises OSError if `work` does.
        """


class RealFile:
    """A file of the operating system, written at its end and read anywhere.

    A disk may close the descriptor of an idle file; the next use opens the path again. So a file must be closed before
    it is renamed or removed. While slices of it exist the descriptor stays open, also after `close`.
    """

    __slots__ = ("_descriptor", "_disk", "_path", "_slices", "_written", "size_bytes", "used")

    def __init__(self, path: str, create: bool, disk: "RealDisk | None" = None) -> None:
        self._path = path
        self._disk = disk
        self._descriptor = _NONE
        self._written = False
        self._slices = 0
        self.used = True
        self.size_bytes: int = os.fstat(self._open(os.O_CREAT if create else 0)).st_size

    def _open(self, flags: int = 0) -> int:
        """Open a descriptor."""
        if not self._path:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        if self._disk is None:
            self._descriptor = files.open_regular(self._path, os.O_RDWR | flags)
        else:
            self._descriptor = self._disk.file_descriptor(self._path, os.O_RDWR | flags)
            self._disk.descriptors.add(self)
        return self._descriptor

    def _ready(self) -> int:
        """Return an open descriptor for a use of the file."""
        self.used = True
        return self._open() if self._descriptor == _NONE else self._descriptor

    def _ready_to_write(self) -> int:
        """Return the descriptor for a write. Its sync must use the same one, which alone reports a lost write."""
        descriptor = self._ready()
        if not self._written:
            self._written = True
            if self._disk is not None:
                self._disk.register_writer(self, self._path)
        return descriptor

    @property
    def descriptor(self) -> int | None:
        """The descriptor; None if it was closed."""
        return None if self._descriptor == _NONE else self._descriptor

    @property
    def held(self) -> bool:
        """Whether slices need the descriptor."""
        return self._slices > 0

    def release_descriptor(self) -> None:
        """Close the descriptor, unless slices need it; the next use opens a new one."""
        if self._slices:
            return
        descriptor, self._descriptor = self._descriptor, _NONE
        if descriptor == _NONE:
            return
        if self._disk is None:
            os.close(descriptor)
        else:
            self._disk.syncs.close(descriptor)

    def append(self, buffers: Sequence[Buffer]) -> None:
        position = self.size_bytes
        descriptor = self._descriptor
        if descriptor == _NONE or not self._written:
            descriptor = self._ready_to_write()
        self.used = True
        try:
            if len(buffers) == 1:
                (data,) = buffers
                end = position + len(data)
                written = os.pwrite(descriptor, data, position)
            else:
                end = position + sum(map(len, buffers))
                written = os.pwritev(descriptor, buffers[:_IOV_MAX], position)
            if position + written != end:
                self._append_rest(b"".join(buffers), position, written)
        except OSError as error:
            if self._cut_back(position):
                raise as_shortage(error) from None
            raise
        self.size_bytes = end

    def _append_rest(self, data: bytes, position: int, written: int) -> None:
        """Continue a partial write (a signal, a full disk, more than IOV_MAX buffers) until the system refuses."""
        while written < len(data):
            written += os.pwrite(self._ready(), memoryview(data)[written:], position + written)

    def _cut_back(self, size_bytes: int) -> bool:
        # If this fails too, bytes stay after the end: the failed append takes the log offline, and recovery cuts them.
        with suppress(OSError):
            os.ftruncate(self._ready(), size_bytes)
            return True
        return False

    def pread(self, size_bytes: int, position: int) -> bytes:
        try:
            return os.pread(self._ready(), size_bytes, position)
        except OSError as error:
            raise as_shortage(error) from None

    def slice(self, position: int, size_bytes: int) -> RealSlice | None:
        descriptor = self._ready()
        if not self._slices and self._disk is not None and not self._disk.descriptors.hold():
            return None
        self._slices += 1
        return RealSlice(descriptor, position, size_bytes, self._end_slice)

    def _end_slice(self) -> None:
        self._slices -= 1
        if self._slices:
            return
        if self._disk is not None:
            self._disk.descriptors.release()
        if not self._path:  # closed meanwhile
            self.release_descriptor()

    def overwrite(self, position: int, data: Buffer) -> None:
        written = 0
        while written < len(data):
            written += os.pwrite(self._ready_to_write(), memoryview(data)[written:], position + written)

    def truncate(self, size_bytes: int) -> None:
        os.ftruncate(self._ready_to_write(), size_bytes)
        self.size_bytes = size_bytes

    def sync(self) -> None:
        if self._disk is None:
            sync_descriptor(self._ready())
            return
        began_ns = self._disk.now_ns()
        try:
            sync_descriptor(self._ready())
        finally:
            self._disk.charge_since(began_ns, SYNC_US)

    def close(self) -> None:
        self.release_descriptor()
        if self._disk is not None:
            self._disk.unregister(self, self._path)
        self._path = ""


class RealDisk(Timed):
    """The file system of the machine."""

    __slots__ = ("__weakref__", "_writers", "descriptors", "syncs")

    def __init__(self, open_files_max: int = 0) -> None:
        """Use the file system. At most `open_files_max` files from `open` are open at once (0: `log_share` of
        `descriptors.py`)."""
        super().__init__()
        self.descriptors = Descriptors(open_files_max)
        self.syncs = Syncs()
        # The open files that were written, by path: a file is often opened a second time, to be read.
        self._writers: dict[str, tuple[RealFile, ...]] = {}
        weakref.finalize(self, self.syncs.stop)
        weakref.finalize(self, self.descriptors.close)

    @charge_duration(FILE_CALL_US)
    def open(self, path: str, create: bool = False) -> RealFile:
        return RealFile(path, create, self)

    def descriptor(self, path: str, flags: int) -> int:
        """Return a new descriptor of a file. Raises Shortage, OSError."""
        return self.descriptors.find(lambda: os.open(path, flags | os.O_CLOEXEC, 0o644))

    def file_descriptor(self, path: str, flags: int) -> int:
        """Return a new descriptor of a regular file; anything else is refused. Raises Shortage, OSError."""
        return self.descriptors.find(lambda: files.open_regular(path, flags))

    def register_writer(self, file: RealFile, path: str) -> None:
        """Register a file at its first write since it was opened: a sync of its path will use its descriptor."""
        self._writers[path] = (*self._writers.get(path, ()), file)

    def unregister(self, file: RealFile, path: str) -> None:
        """Remove a file that was closed for the last time."""
        self.descriptors.remove(file)
        writers = self._writers.get(path, ())
        if file in writers:
            others = tuple(each for each in writers if each is not file)
            if others:
                self._writers[path] = others
            else:
                del self._writers[path]

    @charge_duration(FILE_CALL_US, included=True)
    def exists(self, path: str) -> bool:
        try:
            _stat(path)
        except (FileNotFoundError, NotADirectoryError):
            files.refuse_dangling(path)
            return False
        return True

    @charge_duration(FILE_CALL_US, included=True)
    def size_bytes(self, path: str) -> int:
        return files.check_regular(path).st_size

    def list(self, path: str) -> list[str]:
        names: list[str] = []
        began_ns = self.now_ns()
        try:
            names = sorted(self.descriptors.find(lambda: _list(path)))
        finally:
            self.charge_since(began_ns, FILE_CALL_US + len(names))
        return names

    @charge_duration(FILE_CALL_US)
    def make_dir(self, path: str) -> None:
        _mkdir(path)

    def make_dirs(self, path: str) -> None:
        Path(path).mkdir(parents=True, exist_ok=True)

    @charge_duration(FILE_CALL_US)
    def rename(self, old: str, new: str) -> None:
        _rename(old, new)

    @charge_duration(FILE_CALL_US)
    def remove(self, path: str) -> None:
        _unlink(path)

    @charge_duration(10 * FILE_CALL_US)
    def remove_tree(self, path: str) -> None:
        self.descriptors.find(lambda: shutil.rmtree(path))

    def read(self, path: str) -> bytes:
        began_ns = self.now_ns()
        descriptor = self.file_descriptor(path, os.O_RDONLY)
        content = b""
        try:
            content = files.read_descriptor(descriptor, path)
            return content
        finally:
            os.close(descriptor)
            self.charge_since(began_ns, FILE_CALL_US + len(content) * COPY_BYTE_US)

    def write(self, path: str, data: Buffer) -> None:
        self._write(path, data, sync=False)

    def write_atomically(self, path: str, data: Buffer, sync: bool = True) -> None:
        temporary = f"{path}.tmp"
        self._write(temporary, data, sync)
        self.rename(temporary, path)
        if sync:
            self.sync_dir(os.fspath(Path(path).parent))

    def sync(self, paths: Sequence[str]) -> None:
        for path in paths:
            _stat(path)
        if not paths:
            return
        began_ns = self.now_ns()
        # The sync thread waits for a descriptor, and none can be freed while this thread waits for the sync thread.
        os.close(self.descriptor(os.devnull, os.O_RDONLY))
        ended = threading.Event()
        job = self.start_sync(paths, ended.set)
        ended.wait()
        self.charge_since(began_ns, SYNC_US)
        if job.error is not None:
            raise job.error

    def start_sync(self, paths: Sequence[str], on_end: Callable[[], None] | None = None) -> SyncJob:
        descriptors, others = [], []
        for path in paths:
            written = [file.descriptor for file in self._writers.get(path, ())]
            known = [descriptor for descriptor in written if descriptor is not None]
            descriptors += known
            if not known or len(known) < len(written):
                others.append(path)
        return self.syncs.start(descriptors, others, on_end)

    @charge_duration(SYNC_US)
    def sync_dir(self, path: str) -> None:
        descriptor = self.descriptor(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    @charge_duration(FILE_CALL_US, included=True)
    def modified_ms(self, path: str) -> int:
        return _stat(path).st_mtime_ns // 1_000_000

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        os.utime(path, ns=(modified_ms * 1_000_000, modified_ms * 1_000_000))

    def volume(self, path: str) -> Volume:
        usage = shutil.disk_usage(path)
        return Volume(str(Path(path).absolute()), usage.total, usage.free)

    def lock(self, path: str) -> RealLock:
        return RealLock(path)

    def random_id(self) -> bytes:
        return secrets.token_bytes(16)

    def run_parallel(
        self, work: Callable[[Disk, T], R], items: Sequence[T], sizes: Sequence[int], done: Callable[[int], None]
    ) -> Steps[dict[int, R]]:
        if processors() < 2:
            return {}
        return (yield from spread_steps(lambda item: work(RealDisk(), item), items, sizes, done))

    def _write(self, path: str, data: Buffer, sync: bool) -> None:
        began_ns = self.now_ns()
        descriptor = self.file_descriptor(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        try:
            written = 0
            try:
                while written < len(data):
                    written += os.write(descriptor, memoryview(data)[written:])
            except OSError as error:
                raise as_shortage(error) from None  # the next try writes the whole file again
            if sync:
                os.fsync(descriptor)
        finally:
            os.close(descriptor)
            self.charge_since(began_ns, WRITE_FILE_US + len(data) * COPY_BYTE_US + (SYNC_US if sync else 0.0))
