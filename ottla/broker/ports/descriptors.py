"""How many files are open at once: those not used for long are closed, and opened again when they are used. shell"""

import resource
from collections import OrderedDict
from typing import Final, Protocol

_FEWEST: Final = 16
_ENOUGH: Final = 65_536


class Resting(Protocol):
    """A file that can do without its descriptor. `used` is set by every use."""

    used: bool

    def rest(self) -> None:
        """Close the descriptor; the next use opens another."""


def default_limit() -> int:
    """Half of what the system allows this process: the rest is for connections."""
    allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return _ENOUGH if allowed == resource.RLIM_INFINITY else max(_FEWEST, min(allowed // 2, _ENOUGH))


class Descriptors:
    """The open files of one disk, at most `limit` of them (0: `default_limit` at the first opening).

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
            self._limit = default_limit()
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
