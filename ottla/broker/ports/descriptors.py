"""How many files are open at once: those not used for long are closed, and opened again when they are used. shell

The one place that splits what the system allows the process: half for logs, some for files that live for one call, and
connections get what is left. So however many clients come, the logs find their descriptors free. Where somebody else
takes them all the same, a log file that rests, and one spare descriptor, make room for what must be done now.
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
# A sync of files that are not open takes up to 64; the rest is for checkpoints, directories, listeners, the event loop.
_OTHERS: Final = 96


_NO_DESCRIPTOR: Final = frozenset((errno.EMFILE, errno.ENFILE))


class Shortage(OSError):
    """There is no descriptor or no memory to be had. Nothing was done and nothing is lost: it may be tried again."""


def shortage(error: OSError) -> str | None:
    """Which limit was met; None if it is another failure."""
    match error.errno:
        case errno.EMFILE:
            return f"this process may have {allowed()} files and connections open (RLIMIT_NOFILE, `ulimit -n`)"
        case errno.ENFILE:
            return "the machine may have no more files open (`sysctl fs.file-max`)"
        case errno.ENOMEM:
            return "the machine has no memory left"
    return None


def told(error: OSError) -> OSError:
    """The error of a call that has done nothing: a Shortage if it is one."""
    return error if shortage(error) is None else Shortage(error.errno, error.strerror, error.filename)


class Resting(Protocol):
    """A file that can do without its descriptor, unless it is `held`. `used` is set by every use."""

    used: bool

    @property
    def held(self) -> bool:
        """Whether a reply that is not sent yet needs the descriptor."""

    def rest(self) -> None:
        """Close the descriptor; the next use opens another."""


def allowed() -> int:
    """How many descriptors the system allows this process."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return _UNLIMITED if limit == resource.RLIM_INFINITY else limit


def log_share(limit: int) -> int:
    """How many of `limit` descriptors are for logs: half of them."""
    return max(_FEWEST, min(limit // 2, _ENOUGH))


def connection_share(limit: int, log_files: int = 0) -> int:
    """How many of `limit` descriptors connections may take; `log_files` is what logs may (0: `log_share`)."""
    return max(1, limit - (log_files or log_share(limit)) - min(_OTHERS, limit // 8))


class Descriptors:
    """The open files of one disk, at most `limit` of them (0: `log_share` of what is allowed at the first opening).

    Which one has to rest is found without a step per use: a file that was used since the hand came by last is passed
    over once ("clock", an approximation of least recently used).
    """

    __slots__ = ("_held", "_limit", "_open", "_spare")

    def __init__(self, limit: int = 0) -> None:
        self._limit = limit
        self._held = 0
        self._open: OrderedDict[Resting, None] = OrderedDict()
        self._spare = _NONE

    def __len__(self) -> int:
        return len(self._open)

    def opened(self, file: Resting) -> None:
        """A file has a descriptor now; another may lose its own."""
        if not self._limit:
            self._limit = log_share(allowed())
        if self._spare == _NONE:
            self._spare = self._take_spare()
        files = self._open
        while len(files) >= self._limit:
            oldest, _ = files.popitem(last=False)
            if oldest.used or oldest.held:
                oldest.used = False
                files[oldest] = None
            else:
                oldest.rest()
        files[file] = None

    def hold(self) -> bool:
        """Whether one more file may keep its descriptor; `release` ends it. At most half of them may.

        So clients that read slowly, or never, leave the other half to the logs.
        """
        if self._held >= self._limit // 2:
            return False
        self._held += 1
        return True

    def release(self) -> None:
        """One that was held may rest again."""
        self._held -= 1

    def closed(self, file: Resting) -> None:
        """A file has no descriptor any more."""
        self._open.pop(file, None)

    def find(self, call: Callable[[], T]) -> T:
        """What a call gives that needs a descriptor. Raises Shortage when there is none for it; OSError."""
        try:
            return call()
        except OSError as error:
            if error.errno not in _NO_DESCRIPTOR or not self._make_room():
                raise told(error) from None
        try:
            return call()
        except OSError as error:
            raise told(error) from None

    def close(self) -> None:
        """Give back the spare one."""
        spare, self._spare = self._spare, _NONE
        if spare != _NONE:
            os.close(spare)

    def _make_room(self) -> bool:
        """Close a descriptor of ours; False if there is none. The spare one comes back when there is room again."""
        if self._spare != _NONE:
            self.close()
            return True
        return self._rest_one()

    def _rest_one(self) -> bool:
        oldest = next((file for file in self._open if not file.held), None)
        if oldest is None:
            return False
        del self._open[oldest]
        oldest.rest()
        return True

    def _take_spare(self) -> int:
        """A descriptor to be given up when there is no other; -1 if there is none, and no log file can rest for it."""
        for _ in range(2):
            with suppress(OSError):
                return os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
            if len(self._open) < 2 or not self._rest_one():  # not the one that was opened just now
                break
        return _NONE
