"""Limits on open files: the least recently used log files are closed, and opened again at their next use. shell

This module splits the descriptors that the system allows the process: half are for logs, some for files that are open
during one call, and the rest for connections. So log files get a descriptor however many clients connect. Where other
code has taken all descriptors, an idle log file or the one spare descriptor is closed to make room for an urgent call.
"""

import errno
import os
import resource
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from typing import Final, Protocol, TypeVar

T = TypeVar("T")

_NONE: Final = -1
_FEWEST: Final = 16
_ENOUGH: Final = 65_536
_UNLIMITED: Final = 1 << 20
# A sync of files that are not open needs up to 64; the rest is for checkpoints, directories, listeners, the event loop.
_OTHERS: Final = 96


_NO_DESCRIPTOR: Final = frozenset((errno.EMFILE, errno.ENFILE))


class Shortage(OSError):
    """No descriptor or no memory is available. The call has changed nothing and can be tried again."""


def shortage(error: OSError) -> str | None:
    """Return a description of the limit that caused the error; None if the error has another cause."""
    match error.errno:
        case errno.EMFILE:
            return (
                f"this process has all its {descriptor_limit()} files and connections open (RLIMIT_NOFILE, `ulimit -n`)"
            )
        case errno.ENFILE:
            return "the machine has reached its limit of open files (`sysctl fs.file-max`)"
        case errno.ENOMEM:
            return "the machine has no memory left"
    return None


def as_shortage(error: OSError) -> OSError:
    """Return `error`, from a call that changed nothing, as a Shortage if a limit caused it."""
    return error if shortage(error) is None else Shortage(error.errno, error.strerror, error.filename)


class ClosableFile(Protocol):
    """A file whose descriptor may be closed unless it is `held`. Every use sets `used`."""

    used: bool

    @property
    def held(self) -> bool:
        """Whether an unsent reply needs the descriptor."""

    def release_descriptor(self) -> None:
        """Close the descriptor; the next use opens a new one."""


def descriptor_limit() -> int:
    """Return the number of descriptors that the system allows this process (RLIMIT_NOFILE)."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return _UNLIMITED if limit == resource.RLIM_INFINITY else limit


def log_share(limit: int) -> int:
    """Return the number of descriptors for logs: half of `limit`, 16 to 65,536."""
    return max(_FEWEST, min(limit // 2, _ENOUGH))


def connection_share(limit: int, log_files: int = 0) -> int:
    """Return the number of `limit` descriptors for connections; `log_files` are those for logs (0: `log_share`)."""
    return max(1, limit - (log_files or log_share(limit)) - min(_OTHERS, limit // 8))


class Descriptors:
    """The open files of one disk, at most `limit` of them (0: `log_share` of the process's limit at the first opening).

    The file to close is found by the "clock" algorithm, an approximation of least recently used without a step per use:
    a file that was used since it was examined last is passed over once.
    """

    __slots__ = ("_held", "_limit", "_open", "_spare")

    def __init__(self, limit: int = 0) -> None:
        self._limit = limit
        self._held = 0
        self._open: OrderedDict[ClosableFile, None] = OrderedDict()
        self._spare = _NONE

    def __len__(self) -> int:
        return len(self._open)

    def add(self, file: ClosableFile) -> None:
        """Add a file that has opened its descriptor; close that of another file if there are too many."""
        if not self._limit:
            self._limit = log_share(descriptor_limit())
        if self._spare == _NONE:
            self._spare = self._take_spare()
        files = self._open
        while len(files) >= self._limit:
            oldest, _ = files.popitem(last=False)
            if oldest.used or oldest.held:
                oldest.used = False
                files[oldest] = None
            else:
                oldest.release_descriptor()
        files[file] = None

    def hold(self) -> bool:
        """Keep the descriptor of one more file open until `release`; return False if half of `limit` are held already.

        So clients that read slowly, or never, leave the other half to the logs.
        """
        if self._held >= self._limit // 2:
            return False
        self._held += 1
        return True

    def release(self) -> None:
        """End one `hold`."""
        self._held -= 1

    def remove(self, file: ClosableFile) -> None:
        """Remove a file whose descriptor was closed."""
        self._open.pop(file, None)

    def find(self, call: Callable[[], T]) -> T:
        """Return the result of a call that needs a descriptor; try again after closing an idle one.

        Raises Shortage if no descriptor is available, and OSError.
        """
        try:
            return call()
        except OSError as error:
            if error.errno not in _NO_DESCRIPTOR or not self._free_descriptor():
                raise as_shortage(error) from None
        try:
            return call()
        except OSError as error:
            raise as_shortage(error) from None

    def close(self) -> None:
        """Close the spare descriptor."""
        spare, self._spare = self._spare, _NONE
        if spare != _NONE:
            os.close(spare)

    def _free_descriptor(self) -> bool:
        """Close the spare descriptor or that of an idle file; return False if neither exists.

        `add` opens a new spare descriptor later.
        """
        if self._spare != _NONE:
            self.close()
            return True
        return self._close_idle_file()

    def _close_idle_file(self) -> bool:
        oldest = next((file for file in self._open if not file.held), None)
        if oldest is None:
            return False
        del self._open[oldest]
        oldest.release_descriptor()
        return True

    def _take_spare(self) -> int:
        """Open the spare descriptor; -1 if none is available and no log file can be closed for it."""
        for _ in range(2):
            with suppress(OSError):
                return os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
            if len(self._open) < 2 or not self._close_idle_file():  # keep the file that was opened just now
                break
        return _NONE
