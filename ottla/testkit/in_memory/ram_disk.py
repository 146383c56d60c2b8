"""A disk whose files are in memory. shell"""

import errno
import os
import secrets
from collections.abc import Callable, Sequence
from typing import Final, NoReturn, TypeVar

from ottla.broker.ports.disk import Buffer, Disk, File, Lock, SyncJob, Volume
from ottla.broker.ports.timed import ignore_cost
from ottla.protocol.steps import Steps

T = TypeVar("T")
R = TypeVar("R")

VOLUME_BYTES: Final = 1 << 40


class RamDisk:
    """The `Disk` port. `written` has the files by path. Directories can be made, not renamed or removed."""

    def __init__(self) -> None:
        self.charge: Callable[[float], None] = ignore_cost
        self.written: dict[str, bytearray] = {}
        self._directories: set[str] = set()

    def open(self, path: str, create: bool = False) -> File:
        if path not in self.written:
            try:
                self.written[path] = bytearray(self.read(path))
            except FileNotFoundError:
                if not create:
                    raise
                self.written[path] = bytearray()
        return _RamFile(self.written[path])

    def exists(self, path: str) -> bool:
        return path in self.written or path in self._directories

    def size_bytes(self, path: str) -> int:
        return len(self.read(path))

    def list(self, path: str) -> list[str]:
        if path in self.written:
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
        if path not in self._directories:
            raise_missing(path)
        return sorted(names_in(path, (*self.written, *self._directories)))

    def make_dir(self, path: str) -> None:
        if self.exists(path):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        self._directories.add(path)

    def make_dirs(self, path: str) -> None:
        parts = path.split("/")
        self._directories.update("/".join(parts[:depth]) for depth in range(2, len(parts) + 1))

    def rename(self, old: str, new: str) -> None:
        """Rename a file."""
        if old not in self.written:
            raise_missing(old)
        self.written[new] = self.written.pop(old)

    def remove(self, path: str) -> None:
        if self.written.pop(path, None) is None:
            raise_missing(path)

    def remove_tree(self, path: str) -> None:
        refuse_change(path)

    def read(self, path: str) -> bytes:
        if path not in self.written:
            raise_missing(path)
        return bytes(self.written[path])

    def write(self, path: str, data: Buffer) -> None:
        self.written[path] = bytearray(data)

    def write_atomically(self, path: str, data: Buffer, sync: bool = True) -> None:
        self.write(path, data)

    def sync(self, paths: Sequence[str]) -> None:
        """Do nothing: no file is on a device."""

    def start_sync(self, paths: Sequence[str], on_end: Callable[[], None] | None = None) -> SyncJob:
        if on_end is not None:
            on_end()
        return _Done()

    def sync_dir(self, path: str) -> None:
        """Do nothing: no file is on a device."""

    def modified_ms(self, path: str) -> int:
        return 0

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        """Do nothing: files in memory have no times."""

    def volume(self, path: str) -> Volume:
        return Volume(path, VOLUME_BYTES, VOLUME_BYTES)

    def lock(self, path: str) -> Lock:
        self.written.setdefault(path, bytearray())
        return _RamLock()

    def random_id(self) -> bytes:
        return secrets.token_bytes(16)

    def run_parallel(
        self, work: Callable[[Disk, T], R], items: Sequence[T], sizes: Sequence[int], done: Callable[[int], None]
    ) -> Steps[dict[int, R]]:
        yield from ()
        return {}


class _RamFile:
    """An open file in memory."""

    __slots__ = ("_content",)

    def __init__(self, content: bytearray) -> None:
        self._content = content

    @property
    def size_bytes(self) -> int:
        return len(self._content)

    @size_bytes.setter
    def size_bytes(self, size_bytes: int) -> None:
        self.truncate(size_bytes)

    def append(self, buffers: Sequence[Buffer]) -> None:
        for buffer in buffers:
            self._content += buffer

    def pread(self, size_bytes: int, position: int) -> bytes:
        return bytes(self._content[position : position + size_bytes])

    def slice(self, position: int, size_bytes: int) -> None:
        """Do nothing: this disk sends no data to sockets."""

    def overwrite(self, position: int, data: Buffer) -> None:
        self._content[position : position + len(data)] = data

    def truncate(self, size_bytes: int) -> None:
        del self._content[size_bytes:]

    def sync(self) -> None:
        """Do nothing: the file is in memory."""

    def close(self) -> None:
        """Do nothing: the content is kept."""


class _RamLock:
    def release(self) -> None:
        """Do nothing: no other process sees the disk."""


class _Done:
    """A finished sync."""

    done = True
    error: OSError | None = None


def names_in(directory: str, paths: Sequence[str]) -> set[str]:
    """Return the names of the paths that are directly in the directory."""
    return {name for above, _, name in (path.rpartition("/") for path in paths) if above == directory}


def raise_missing(path: str) -> NoReturn:
    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)


def refuse_change(path: str) -> NoReturn:
    raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)
