"""Regular files of other programs: opened without waiting, read up to a limit. shell

In place of a file, a path may be a FIFO, a device, a socket or a link to one of them: opening it may block, reading it
may never end. A file may be larger than memory. All code reads small files with `read`, and opens files with
`open_regular`; both raise OSError with the path and one line with the remedy. Files that a user names on the command
line are read with `read_argument`, which accepts a pipe as well.
"""

import errno
import os
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

_MIB: Final = 1 << 20
_PIECE_BYTES: Final = 65_536
# Limits above the largest files that Kafka or Ottla writes, by the end of the name. A person writes all other files.
_LIMITS: Final = (
    ((".index", ".timeindex", ".txnindex", ".snapshot"), 64 * _MIB),
    (("-checkpoint",), 32 * _MIB),
    ((".checkpoint", ".jsonl"), 128 * _MIB),
)
TEXT_BYTES: Final = 4 * _MIB
_KINDS: Final[tuple[tuple[Callable[[int], bool], str], ...]] = (
    (stat.S_ISDIR, "a directory"),
    (stat.S_ISFIFO, "a FIFO"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


class UnsuitableFile(OSError):
    """Error: the path is no regular file, or the file is too large. Its text is one line with the path."""

    def __str__(self) -> str:
        return f"{self.filename}: {self.strerror}"


def limit_of(path: str) -> int:
    """Return the largest size in bytes that a small file of this name may have."""
    return next((most for suffixes, most in _LIMITS if path.endswith(suffixes)), TEXT_BYTES)


def open_regular(path: str, flags: int = os.O_RDONLY) -> int:
    """Open a regular file and return its descriptor, without blocking. Raise OSError for anything else."""
    try:
        descriptor = os.open(path, flags | os.O_CLOEXEC | os.O_NONBLOCK, 0o644)
    except FileNotFoundError:
        refuse_dangling(path)
        raise
    except OSError as error:
        if error.errno in (errno.ENXIO, errno.EISDIR, errno.EOPNOTSUPP):  # macOS: EOPNOTSUPP for a socket
            raise _not_regular(path, Path(path).stat().st_mode) from None
        raise _circular(error, path) from None
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        raise _not_regular(path, mode)
    return descriptor


def read_descriptor(descriptor: int, path: str, most_bytes: int | None = None) -> bytes:
    """Read a small file to its end. Raise OSError if it is larger than `most_bytes`, or than its name allows."""
    most_bytes = limit_of(path) if most_bytes is None else most_bytes
    size_bytes = os.fstat(descriptor).st_size
    pieces: list[bytes] = []
    left = most_bytes + 1
    if size_bytes <= most_bytes:
        while left and (piece := os.read(descriptor, min(left, max(size_bytes, _PIECE_BYTES) + 1))):
            pieces.append(piece)
            left -= len(piece)
            if most_bytes + 1 - left == size_bytes > 0:
                break
        if left:
            return pieces[0] if len(pieces) == 1 else b"".join(pieces)
    raise too_large(path, max(size_bytes, most_bytes + 1), most_bytes)


def read(path: str, most_bytes: int | None = None) -> bytes:
    """Read a small regular file. Raise OSError if it is no regular file, or too large."""
    descriptor = open_regular(path)
    try:
        return read_descriptor(descriptor, path, most_bytes)
    finally:
        os.close(descriptor)


def read_argument(path: str, most_bytes: int | None = None) -> bytes:
    """Read a small file that a user names. Read a pipe, such as bash's `<(command)`, until its writer ends."""
    if not _is_stream(path):
        return read(path, most_bytes)
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return read_descriptor(descriptor, path, most_bytes)
    finally:
        os.close(descriptor)


def _is_stream(path: str) -> bool:
    """Return whether the path is a pipe, a terminal or `/dev/null`, which can be read only once, up to a limit."""
    try:
        mode = Path(path).stat().st_mode
    except OSError:
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISCHR(mode)


def refuse_dangling(path: str) -> None:
    """Raise OSError if the path is a link without a target: the file is not absent, its target is missing."""
    with suppress(FileNotFoundError, NotADirectoryError):
        if stat.S_ISLNK(os.lstat(path).st_mode):
            target = str(Path(path).readlink())
            text = f"is a link to {target!r}, which does not exist: mount or restore it, or remove the link"
            raise UnsuitableFile(errno.EINVAL, text, path)


def check_regular(path: str) -> os.stat_result:
    """Return the status of a regular file. Raise OSError for anything else, including a link without a target."""
    try:
        found = os.stat(path)  # noqa: PTH116  (a Path costs more than the call)
    except FileNotFoundError:
        refuse_dangling(path)
        raise
    except OSError as error:
        raise _circular(error, path) from None
    if not stat.S_ISREG(found.st_mode):
        raise _not_regular(path, found.st_mode)
    return found


def next_data(descriptor: int, position: int, size_bytes: int) -> int:
    """Return the first position from `position` on that is not in a hole of a sparse file; `size_bytes` without one."""
    try:
        return os.lseek(descriptor, position, os.SEEK_DATA)
    except OSError as error:
        return size_bytes if error.errno == errno.ENXIO else position


def too_large(path: str, size_bytes: int, most_bytes: int) -> OSError:
    """Return the error for a file above its limit."""
    text = (
        f"has {size_bytes} bytes, and such a file has at most {most_bytes}: move it away, or put the right file there"
    )
    return UnsuitableFile(errno.EFBIG, text, path)


def _circular(error: OSError, path: str) -> OSError:
    """Return the error, with a text that says how to fix a link that leads to itself."""
    if error.errno != errno.ELOOP:
        return error
    return UnsuitableFile(
        errno.EINVAL, "is a link that leads back to itself: move it away, or put the file there", path
    )


def _not_regular(path: str, mode: int) -> OSError:
    kind = next((name for is_kind, name in _KINDS if is_kind(mode)), "no regular file")
    return UnsuitableFile(errno.EINVAL, f"is {kind}, not a file: move it away, or put the file there", path)
