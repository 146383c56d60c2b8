"""Parts of files that are sent without being read: the kernel copies them from its cache to the socket. shell"""

import os
import socket as socketlib
from collections.abc import Callable
from typing import Final, Protocol

_MOST_BYTES: Final = 1 << 20
"""In one call: about 0.1 ms from the cache."""


_MORE: Final = getattr(socketlib, "MSG_MORE", 0)


class CutShort(Exception):
    """The file ends before the slice does: what was promised cannot be sent."""


class FileSlice(Protocol):
    """A part of a file that is taken from its front. It can be read whatever becomes of the file's name.

    `len` gives the bytes that are left. OSError if reading fails, CutShort if the file is shorter than it was.
    """

    def __len__(self) -> int: ...

    def take(self, size_bytes: int) -> bytes:
        """Up to so many bytes, at least one."""

    def send_to(self, socket: int, spare_bytes: int) -> int:
        """Send bytes, but not the last `spare_bytes`, to a socket that does not block.

        Returns how many, 0 if it takes none now. OSError also for the socket's sake.
        """


def send_before_more(socket: int, data: bytes) -> int:
    """Send bytes to a socket that does not block, to leave with those that follow at once. How many; OSError."""
    ours = socketlib.socket(socketlib.AF_INET, socketlib.SOCK_STREAM, 0, fileno=socket)  # nothing is asked of it
    try:
        return ours.send(data, _MORE)
    except BlockingIOError:
        return 0
    finally:
        ours.detach()


class RealSlice:
    """A part of a file of the operating system, whose descriptor stays open as long as this object lives."""

    __slots__ = ("_descriptor", "_left_bytes", "_on_end", "_position")

    def __init__(self, descriptor: int, position: int, size_bytes: int, on_end: Callable[[], None]) -> None:
        self._descriptor = descriptor
        self._position = position
        self._left_bytes = size_bytes
        self._on_end = on_end

    def __len__(self) -> int:
        return self._left_bytes

    def __del__(self) -> None:
        self._on_end()

    def take(self, size_bytes: int) -> bytes:
        data = os.pread(self._descriptor, min(size_bytes, self._left_bytes), self._position)
        self._advance(len(data))
        return data

    def send_to(self, socket: int, spare_bytes: int) -> int:
        size_bytes = min(self._left_bytes - spare_bytes, _MOST_BYTES)
        try:
            sent = os.sendfile(socket, self._descriptor, self._position, size_bytes)
        except BlockingIOError:
            return 0
        self._advance(sent)
        return sent

    def _advance(self, size_bytes: int) -> None:
        if size_bytes == 0:
            raise CutShort(f"{self._left_bytes} bytes are missing at position {self._position}")
        self._position += size_bytes
        self._left_bytes -= size_bytes
