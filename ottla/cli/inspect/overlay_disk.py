"""A disk that keeps the broker's writes, truncations and removals in memory and leaves the files unchanged. shell

The broker's own loading and recovery run on this disk. So `ottla inspect` can show the result of a start, and
`ottla repair` its plan, without a second copy of the rules.
"""

import errno
import os
import re
from pathlib import Path

from ottla import files
from ottla.broker.ports.disk import Buffer, File, Lock, RealDisk, Volume
from ottla.cli.read_only import ReadOnlyFile
from ottla.testkit.in_memory.ram_disk import RamDisk, names_in, raise_missing, refuse_change

_LOG = re.compile(r"/\d{20}\.log(\.\w+)?$")


class OverlayDisk(RamDisk):
    """The real files, with changes in memory. `.log` files are never copied, only truncated.

    `moves` has the files that were renamed (old and new path) or removed (an empty new path), in order.
    """

    def __init__(self) -> None:
        super().__init__()
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
        if path not in self.written and _LOG.search(path) and self._is_real(path):
            view = _LogView(self._real(path), path, self.truncated)
            self._views.append(view)
            return view
        return super().open(path, create)

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
        return sorted(names | names_in(path, (*self.written, *self._origins)))

    def make_dir(self, path: str) -> None:
        if self.exists(path):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        refuse_change(path)

    def make_dirs(self, path: str) -> None:
        if not self.exists(path):
            refuse_change(path)

    def rename(self, old: str, new: str) -> None:
        """Rename a file. Directories are not supported."""
        if old in self.written:
            self.written[new] = self.written.pop(old)
        else:
            origin = self._real_or_raise(old)
            if Path(origin).is_dir():
                refuse_change(old)
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
            raise_missing(path)
        self.written.pop(path, None)
        self.truncated.pop(path, None)

    def read(self, path: str) -> bytes:
        if path in self.written:
            return bytes(self.written[path])
        return files.read(self._real_or_raise(path))

    def write(self, path: str, data: Buffer) -> None:
        super().write(path, data)
        self.removed.discard(path)

    def modified_ms(self, path: str) -> int:
        return 0 if path in self.written else Path(self._real_or_raise(path)).stat().st_mtime_ns // 1_000_000

    def volume(self, path: str) -> Volume:
        return RealDisk().volume(path)

    def lock(self, path: str) -> Lock:
        refuse_change(path)

    def close(self) -> None:
        """Close the files that are still open."""
        for view in self._views:
            view.close()

    def _real(self, path: str) -> str:
        return self._origins.get(path, path)

    def _is_real(self, path: str) -> bool:
        # A link to nothing is refused when it is read.
        return path not in self.removed and os.path.lexists(self._real(path))

    def _real_or_raise(self, path: str) -> str:
        if not self._is_real(path):
            raise_missing(path)
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
