"""A disk that keeps the broker's writes, truncations and removals in memory and leaves the files unchanged. shell

The broker's own loading and recovery run on this disk. So `ottla inspect` can show the result of a start, and
`ottla repair` its plan, without a second copy of the rules.
"""

import errno
import os
import re
import secrets
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn, TypeVar

from ottla import files
from ottla.broker.ports.disk import Buffer, Disk, File, Lock, RealDisk, SyncJob, Volume
from ottla.broker.ports.timed import ignore_cost
from ottla.cli.read_only import ReadOnlyFile
from ottla.protocol.steps import Steps

T = TypeVar("T")
R = TypeVar("R")

_LOG = re.compile(r"/\d{20}\.log(\.\w+)?$")


class OverlayDisk:
    """The real files, with changes in memory. `.log` files are never copied, only truncated.

    `moves` has the files that were renamed (old and new path) or removed (an empty new path), in order.
    """

    def __init__(self) -> None:
        self.charge: Callable[[float], None] = ignore_cost
        self.written: dict[str, bytearray] = {}
        self.removed: set[str] = set()
        self.truncated: dict[str, int] = {}
        self.moves: list[tuple[str, str]] = []
        self._origins: dict[str, str] = {}
        self._views: list[_LogView] = []

    @property
    def log_bytes_read(self) -> int:
        """Number of bytes read from `.log` files so far."""
        return sum(view.read_bytes for view in self._views)

    def open(self, path: str, create: bool = False) -> File:
        if path not in self.written:
            if _LOG.search(path) and self._is_real(path):
                view = _LogView(self._real(path), path, self.truncated)
                self._views.append(view)
                return view
            try:
                self.written[path] = bytearray(self.read(path))
            except FileNotFoundError:
                if not create:
                    raise
                self.written[path] = bytearray()
        return _MemoryFile(self.written[path])

    def exists(self, path: str) -> bool:
        return path in self.written or self._is_real(path)

    def size_bytes(self, path: str) -> int:
        if path in self.written:
            return len(self.written[path])
        size = self.truncated.get(path)
        return files.check_regular(self._real_or_raise(path)).st_size if size is None else size

    def list(self, path: str) -> list[str]:
        with os.scandir(path) as entries:
            names = {entry.name for entry in entries if f"{path}/{entry.name}" not in self.removed}
        added = [*self.written, *self._origins]
        names.update(each.rpartition("/")[2] for each in added if each.rpartition("/")[0] == path)
        return sorted(names)

    def make_dir(self, path: str) -> None:
        if self.exists(path):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        _refuse(path)

    def make_dirs(self, path: str) -> None:
        if not self.exists(path):
            _refuse(path)

    def rename(self, old: str, new: str) -> None:
        """Rename a file. Directories are not supported."""
        if old in self.written:
            self.written[new] = self.written.pop(old)
        else:
            origin = self._real_or_raise(old)
            if Path(origin).is_dir():
                _refuse(old)
            self._origins.pop(old, None)
            self._origins[new] = origin
            self.written.pop(new, None)
            self.truncated.pop(new, None)
            self.removed.add(old)
        self.moves.append((old, new))
        self.removed.discard(new)

    def remove(self, path: str) -> None:
        if self._is_real(path):
            self._origins.pop(path, None)
            self.removed.add(path)
            self.moves.append((path, ""))
        elif path not in self.written:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        self.written.pop(path, None)
        self.truncated.pop(path, None)

    def remove_tree(self, path: str) -> None:
        _refuse(path)

    def read(self, path: str) -> bytes:
        if path in self.written:
            return bytes(self.written[path])
        return files.read(self._real_or_raise(path))

    def write(self, path: str, data: Buffer) -> None:
        self.written[path] = bytearray(data)
        self.removed.discard(path)

    def write_atomically(self, path: str, data: Buffer, sync: bool = True) -> None:
        self.write(path, data)

    def sync(self, paths: Sequence[str]) -> None:
        """Do nothing: no file was written."""

    def start_sync(self, paths: Sequence[str], on_end: Callable[[], None] | None = None) -> SyncJob:
        if on_end is not None:
            on_end()
        return _Done()

    def sync_dir(self, path: str) -> None:
        """Do nothing: no file was written."""

    def modified_ms(self, path: str) -> int:
        return 0 if path in self.written else Path(self._real_or_raise(path)).stat().st_mtime_ns // 1_000_000

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        """Do nothing: files in memory have no times."""

    def volume(self, path: str) -> Volume:
        return RealDisk().volume(path)

    def lock(self, path: str) -> Lock:
        _refuse(path)

    def random_id(self) -> bytes:
        return secrets.token_bytes(16)

    def run_parallel(
        self, work: Callable[[Disk, T], R], items: Sequence[T], sizes: Sequence[int], done: Callable[[int], None]
    ) -> Steps[dict[int, R]]:
        yield from ()
        return {}

    def close(self) -> None:
        """Close the files that are still open."""
        for view in self._views:
            view.close()

    def _real(self, path: str) -> str:
        return self._origins.get(path, path)

    def _is_real(self, path: str) -> bool:
        return path not in self.removed and os.path.lexists(
            self._real(path)
        )  # a link to nothing is refused when it is read

    def _real_or_raise(self, path: str) -> str:
        if not self._is_real(path):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return self._real(path)


class _LogView(ReadOnlyFile):
    """A `.log` that can be truncated: bytes after the new end are not read."""

    __slots__ = ("_name", "_truncated")

    def __init__(self, path: str, name: str, truncated: dict[str, int]) -> None:
        super().__init__(path)
        self._name = name
        self._truncated = truncated
        self.size_bytes = truncated.get(name, self.size_bytes)

    def pread(self, size_bytes: int, position: int) -> bytes:
        return super().pread(max(0, min(size_bytes, self.size_bytes - position)), position)

    def truncate(self, size_bytes: int) -> None:
        self.size_bytes = self._truncated[self._name] = size_bytes


class _MemoryFile:
    """A file that was written to this disk."""

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


class _Done:
    """A finished sync."""

    done = True
    error: OSError | None = None


def _refuse(path: str) -> NoReturn:
    raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)
