"""Parts of files that are sent with sendfile: the kernel copies them from its cache to the socket. shell"""

import os
import socket as socketlib
from collections.abc import Callable
from typing import Final, Protocol

_MOST_BYTES: Final = 1 << 20
"""Limit of one sendfile call, which takes about 0.1 ms from the page cache."""


_MORE: Final = getattr(socketlib, "MSG_MORE", 0)


class CutShort(Exception):
    """The file ends before the slice does, so the announced bytes cannot be sent."""


class FileSlice(Protocol):
    """A part of a file, consumed from its start. It stays readable after the file is renamed or removed.

    `len` returns the remaining bytes. Raises OSError if reading fails, CutShort if the file has become shorter.
    """

    def __len__(self) -> int: ...

    def take(self, size_bytes: int) -> bytes:
        """Read up to `size_bytes` bytes, at least one."""

    def send_to(self, socket: int, spare_bytes: int) -> int:
        """Send bytes, except the last `spare_bytes`, to a non-blocking socket.

        Returns the number of bytes sent, 0 if the socket accepts none now. Raises OSError for the file or the socket.
        """


def send_before_more(socket: int, data: bytes) -> int:
    """Send bytes to a non-blocking socket with MSG_MORE: the kernel combines them with the bytes that follow at once.

    Returns the number of bytes sent. Raises OSError.
    """
    ours = socketlib.socket(socketlib.AF_INET, socketlib.SOCK_STREAM, 0, fileno=socket)  # family and type are not used
    try:
        return ours.send(data, _MORE)
    except BlockingIOError:
        return 0
    finally:
        ours.detach()


class RealSlice:
    """A part of a real file, whose descriptor stays open as long as this object exists."""

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
