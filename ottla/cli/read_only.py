"""Read-only files with the interface of the broker's files. shell

A running broker may append to an open file. The size is that of the moment of opening.
"""

import errno
import os
from collections.abc import Sequence
from typing import NoReturn, Self

from ottla.broker.ports.disk import Buffer
from ottla.files import next_data, open_regular


class ReadOnlyFile:
    """An open file that refuses every change with EROFS. `read_bytes` counts what was read."""

    __slots__ = ("_descriptor", "_path", "read_bytes", "size_bytes")

    def __init__(self, path: str) -> None:
        self._path = path
        self._descriptor = open_regular(path)
        self.size_bytes: int = os.fstat(self._descriptor).st_size
        self.read_bytes = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def pread(self, size_bytes: int, position: int) -> bytes:
        content = os.pread(self._descriptor, size_bytes, position)
        self.read_bytes += len(content)
        return content

    def next_data(self, position: int) -> int:
        """Return the first position from `position` on that is not in a hole of a sparse file."""
        return next_data(self._descriptor, position, self.size_bytes)

    def append(self, buffers: Sequence[Buffer]) -> None:
        self._refuse()

    def slice(self, position: int, size_bytes: int) -> None:
        """Do nothing: this file is not sent to sockets."""

    def overwrite(self, position: int, data: Buffer) -> None:
        self._refuse()

    def truncate(self, size_bytes: int) -> None:
        self._refuse()

    def sync(self) -> None:
        """Do nothing: no byte was written."""

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def _refuse(self) -> NoReturn:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), self._path)
