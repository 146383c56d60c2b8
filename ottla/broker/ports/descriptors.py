"""How many files are open at once: those not used for long are closed, and opened again when they are used. shell

The one place that splits what the system allows the process: half for logs, some for files that live for one call, and
connections get what is left. So however many clients come, the logs find their descriptors free.
"""

import resource
from collections import OrderedDict
from typing import Final, Protocol

_FEWEST: Final = 16
_ENOUGH: Final = 65_536
_UNLIMITED: Final = 1 << 20
# A sync of files that are not open takes up to 64; the rest is for checkpoints, directories, listeners, the event loop.
_OTHERS: Final = 96


class Resting(Protocol):
    """A file that can do without its descriptor. `used` is set by every use."""

    used: bool

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

    __slots__ = ("_limit", "_open")

    def __init__(self, limit: int = 0) -> None:
        self._limit = limit
        self._open: OrderedDict[Resting, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._open)

    def opened(self, file: Resting) -> None:
        """A file has a descriptor now; another may lose its own."""
        if not self._limit:
            self._limit = log_share(allowed())
        files = self._open
        while len(files) >= self._limit:
            oldest, _ = files.popitem(last=False)
            if oldest.used:
                oldest.used = False
                files[oldest] = None
            else:
                oldest.rest()
        files[file] = None

    def closed(self, file: Resting) -> None:
        """A file has no descriptor any more."""
        self._open.pop(file, None)
