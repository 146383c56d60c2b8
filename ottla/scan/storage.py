"""Access to a log directory on local disks, or at any URI that `pyarrow.fs` takes (S3, HDFS and others). shell

A local path is read with plain system calls. Every path below a URI keeps its query (`?endpoint_override=...`), so that
a task needs only the path. Remote segments are read in advance in large ranges (`ahead`), small files whole and many in
parallel. Errors are OSError with one line, as those of local files.
"""

import errno
import os
import re
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from functools import lru_cache
from itertools import islice
from typing import Any, NamedTuple, Protocol, TypeVar
from urllib.parse import unquote, urlsplit

from ottla import files
from ottla.scan import ahead

T = TypeVar("T")

# Names that a store lists per request.
NAMES_PER_REQUEST = 1_000

# Hadoop's name of a store -> Arrow's name.
_SCHEMES = {"s3a": "s3", "s3n": "s3"}
_SECRET = re.compile(r"(?<=://)[^/@]*:[^/]*@")
_URI = re.compile(r"[a-z][a-z0-9+.-]+://")
_AWS_ERROR = re.compile(r"(?:AWS Error |HTTP status )([A-Z_]+|\d+)")
_AWS_REASONS = {
    "ACCESS_DENIED": (errno.EACCES, "access denied"),
    "403": (errno.EACCES, "access denied"),
    "INVALID_ACCESS_KEY_ID": (errno.EACCES, "access denied: unknown access key"),
    "SIGNATURE_DOES_NOT_MATCH": (errno.EACCES, "access denied: wrong secret key"),
    "NO_SUCH_BUCKET": (errno.ENOENT, "no such bucket"),
    "NO_SUCH_KEY": (errno.ENOENT, "no such object"),
    "NETWORK_CONNECTION": (errno.EHOSTUNREACH, "the server cannot be reached"),
}


class Entry(NamedTuple):
    """Entry of a directory. `size_bytes` is 0 for a directory."""

    name: str
    is_directory: bool
    size_bytes: int


class Status(NamedTuple):
    """Status of a file. `modified_ms`: since 1970; 0 where the store does not know it."""

    size_bytes: int
    modified_ms: int


class File(Protocol):
    """An open file. All raise OSError."""

    @property
    def size_bytes(self) -> int:
        """Current size."""
        ...

    def read_into(self, view: memoryview, position: int) -> int:
        """Fill `view`, or its first part, from `position` on. Return the bytes read, 0 at the end of the file."""
        ...

    def read(self, size: int, position: int) -> bytes:
        """Return up to `size` bytes at `position`; fewer at the end of the file."""
        ...

    def close(self) -> None: ...


def is_remote(path: str) -> bool:
    return _URI.match(path) is not None and not path.startswith("file:")


def join(directory: str, name: str) -> str:
    base, mark, query = _split(directory)
    return f"{base.rstrip('/')}/{name}{mark}{query}"


def parent(path: str) -> str:
    base, mark, query = _split(path)
    return f"{base.rstrip('/').rpartition('/')[0]}{mark}{query}"


def hide_secrets(path: str) -> str:
    """Return a path to print: a URI without its query and without its secret."""
    base = _split(path)[0]
    return _SECRET.sub("", base) if is_remote(path) else base


def name_of(path: str) -> str:
    return _split(path)[0].rpartition("/")[2]


def stem_of(path: str) -> str:
    return name_of(path).partition(".")[0]


def with_suffix(path: str, suffix: str) -> str:
    """Return the path of the file of the same name with another suffix, like `.index`."""
    return join(parent(path), stem_of(path) + suffix)


def entries(directory: str) -> list[Entry]:
    """List a directory, by name."""
    if is_remote(directory):
        return sorted(entry for _, entry in _list(directory, recursive=False))
    with os.scandir(directory) as found:
        return sorted(Entry(one.name, _is_directory(one), 0) for one in found)


def _is_directory(entry: "os.DirEntry[str]") -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link that leads to itself
        return False


def files_below(directory: str, folders: Sequence[str]) -> dict[str, list[Entry]]:
    """Return the files of the named `folders` directly in a remote directory, by folder.

    A store returns a thousand names per request, one request after the other. One listing of the whole directory is
    best for many small folders, parallel listings are best for large ones. A sample of the folders decides.
    """
    if not folders:
        return {}
    samples = min(ahead.THREADS, 1 + len(folders) // 16)
    sample = folders[:: -(-len(folders) // samples)]
    found = _files_of(directory, sample)
    rest = sorted(set(folders) - found.keys())
    if rest and sum(map(len, found.values())) / len(found) * ahead.THREADS < NAMES_PER_REQUEST:
        return _listed_below(directory)
    return found | _files_of(directory, rest)


def _files_of(directory: str, folders: Sequence[str]) -> dict[str, list[Entry]]:
    def files(name: str) -> list[Entry]:
        try:
            found = _list(join(directory, name), recursive=False)
        except FileNotFoundError:  # deleted meanwhile
            return []
        return [entry for _, entry in found if not entry.is_directory]

    return dict(zip(folders, ahead.each(files, folders), strict=True))


def _listed_below(directory: str) -> dict[str, list[Entry]]:
    folders: dict[str, list[Entry]] = {}
    for place, entry in _list(directory, recursive=True):
        if place and "/" not in place and not entry.is_directory:
            folders.setdefault(place, []).append(entry)
    return folders


def read(path: str) -> bytes:
    """Return the content of a small file. Raises OSError."""
    if is_remote(path):
        remote = _RemoteFile(path)
        most_bytes = files.limit_of(name_of(path))
        if remote.size_bytes > most_bytes:
            raise files.too_large(hide_secrets(path), remote.size_bytes, most_bytes)
        return remote.read(remote.size_bytes, 0)
    return files.read(path)


def read_if_there(path: str) -> bytes | None:
    """Return the content of a small file; None without the file. Raises OSError."""
    try:
        return read(path)
    except FileNotFoundError:
        return None


def each(function: Callable[[str], T], paths: Sequence[str]) -> list[T]:
    """Return the results of a function that reads a small file; remote files in parallel. It must not call `each`."""
    return ahead.each(function, paths) if any(map(is_remote, paths)) else [*map(function, paths)]


class Upcoming:
    """Reader of whole small files in about the given order. It fetches remote files before their turn."""

    def __init__(self, paths: Iterable[str], at_once: int = 16) -> None:
        self._paths = (path for path in paths if is_remote(path))
        self._coming: deque[tuple[str, Future[bytes | None]]] = deque()
        self._at_once = at_once

    def read(self, path: str) -> bytes | None:
        """Return the content, None without the file. Raises OSError."""
        if not is_remote(path):
            return read_if_there(path)
        self._read_ahead()
        expected = [one for one, _ in self._coming]
        if path not in expected:
            return read_if_there(path)
        for _ in range(expected.index(path)):
            self._coming.popleft()
        _, content = self._coming.popleft()
        self._read_ahead()
        return content.result()

    def _read_ahead(self) -> None:
        for path in islice(self._paths, self._at_once - len(self._coming)):
            self._coming.append((path, ahead.pool().submit(read_if_there, path)))


def status(path: str) -> Status:
    """Return size and modification time of a regular file. Raises OSError."""
    if not is_remote(path):
        found = files.check_regular(path)
        return Status(found.st_size, int(found.st_mtime * 1000))
    filesystem, place = locate(path)
    info = translate_errors(path, lambda: filesystem.get_file_info(place))
    if not info.is_file:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
    return Status(info.size, (info.mtime_ns or 0) // 1_000_000)


def exists(path: str) -> bool:
    """Return whether the file exists. Raises OSError if its status cannot be read."""
    try:
        status(path)
    except FileNotFoundError:
        return False
    return True


def open_file(path: str) -> File:
    """Open a file for reads at any position. Raises OSError."""
    return _RemoteFile(path) if is_remote(path) else _LocalFile(path)


def next_data(file: File, position: int) -> int:
    """Return the position to continue at: the end of the hole of a sparse local file, else `position`."""
    return file.next_data(position) if isinstance(file, _LocalFile) else position


def open_range(path: str, start: int, end: int) -> File:
    """Open a file to read [start, end) in order. Threads open and read ahead a remote file: reads may raise OSError."""
    return ahead.ReadAhead(lambda: _RemoteFile(path), start, end) if is_remote(path) else _LocalFile(path)


class _LocalFile:
    def __init__(self, path: str) -> None:
        self._fd = files.open_regular(path)
        self.size_bytes = os.fstat(self._fd).st_size

    def read_into(self, view: memoryview, position: int) -> int:
        return os.preadv(self._fd, [view], position)

    def read(self, size: int, position: int) -> bytes:
        return os.pread(self._fd, size, position)

    def next_data(self, position: int) -> int:
        """Return the first position from `position` on that is not in a hole of a sparse file."""
        return files.next_data(self._fd, position, self.size_bytes)

    def close(self) -> None:
        os.close(self._fd)


class _RemoteFile:
    """A file in a store. Opening requests its size; each fetch is another request.

    `close` only drops Arrow's file, because another thread may still be fetching from it.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        filesystem, place = locate(path)
        self._file = translate_errors(path, lambda: filesystem.open_input_file(place))
        self.size_bytes: int = translate_errors(path, self._file.size)

    def read(self, size: int, position: int) -> bytes:
        size = max(0, min(size, self.size_bytes - position))
        content: bytes = translate_errors(self._path, lambda: self._file.read_at(size, position)) if size else b""
        return content

    def read_into(self, view: memoryview, position: int) -> int:
        content = self.read(len(view), position)
        view[: len(content)] = content
        return len(content)

    def close(self) -> None: ...


def connect(root: str) -> tuple[Any, str]:
    """Return the file system of a URI without a path, and the prefix of paths in it. Raises OSError."""
    from pyarrow import fs

    filesystem, base = fs.FileSystem.from_uri(root)
    return filesystem, base


@lru_cache(maxsize=64)
def _connect_once(root: str) -> tuple[Any, str]:
    return translate_errors(root, lambda: connect(root))


def locate(path: str) -> tuple[Any, str]:
    """Return Arrow's file system of a path or URI, and the path in it. Raises OSError."""
    if not is_remote(path):
        from pyarrow import fs

        return fs.LocalFileSystem(), os.path.abspath(path)  # noqa: PTH100
    parts = urlsplit(path)
    if parts.password is not None:
        raise PermissionError(
            errno.EPERM, "the URI has a secret, which findings show: leave it out", hide_secrets(path)
        )
    query = f"?{parts.query}" if parts.query else ""
    scheme = _SCHEMES.get(parts.scheme, parts.scheme)
    filesystem, base = _connect_once(f"{scheme}://{parts.netloc}{query}")
    return filesystem, base.rstrip("/") + unquote(parts.path).rstrip("/")


def _list(directory: str, *, recursive: bool) -> list[tuple[str, Entry]]:
    """Return entries with the path of their directory, relative to `directory`."""
    from pyarrow import fs

    filesystem, place = locate(directory)
    selector = fs.FileSelector(place or "/", recursive=recursive)
    found = []
    for info in translate_errors(directory, lambda: filesystem.get_file_info(selector)):
        folder = info.path.rpartition("/")[0][len(place) :].strip("/")
        is_directory = info.type == fs.FileType.Directory
        found.append((folder, Entry(info.base_name, is_directory, 0 if is_directory else info.size)))
    return found


def translate_errors(path: str, call: Callable[[], T]) -> T:
    """Call `call` and convert Arrow's errors, some of which are no OSError, to an OSError of one line with `path`."""
    try:
        return call()
    except (OSError, ValueError, NotImplementedError) as error:
        number, text = _reason(error)
        raise OSError(number, text, hide_secrets(path)) from None


def _reason(error: Exception) -> tuple[int, str]:
    """Return number and text of an error. Arrow omits most numbers, and its texts are whole paragraphs."""
    text = str(error).partition("\n")[0]
    for code in _AWS_ERROR.findall(text):
        if code in _AWS_REASONS:
            return _AWS_REASONS[code]
    if isinstance(error, FileNotFoundError):
        return errno.ENOENT, os.strerror(errno.ENOENT)
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno, os.strerror(error.errno)
    return errno.EIO, text


def _split(path: str) -> tuple[str, str, str]:
    """Split into path or URI, `?` if a query follows, and query. A local path may contain a `?`."""
    return path.partition("?") if is_remote(path) else (path, "", "")
