"""Scratch buffer for decompressed record sections. free"""

import numpy as np

from ottla.protocol.compression import READ_LIMIT_BYTES, decompress_into, first_size, larger_size
from ottla.scan.compiled.kernels import Bytes

_FIRST_BYTES = 8 * 1024 * 1024
# A buffer that grew beyond this for one batch is not kept.
_KEPT_BYTES = 32 * 1024 * 1024


class Scratch:
    """Decompressed record sections, one after the other."""

    def __init__(self) -> None:
        self.buffer: Bytes = np.empty(_FIRST_BYTES, dtype=np.uint8)
        self.filled = 0

    def clear(self) -> None:
        """Remove the content."""
        self.filled = 0
        if len(self.buffer) > _KEPT_BYTES:
            self.buffer = np.empty(_FIRST_BYTES, dtype=np.uint8)

    def add(self, compression: int, payload: memoryview) -> tuple[int, int]:
        """Decompress `payload` after the content so far and return (start, end). Raises ProtocolError, TooLarge."""
        start = self.filled
        size = first_size(payload, compression, READ_LIMIT_BYTES)
        while True:
            self._make_room(size)
            room = min(len(self.buffer) - start, READ_LIMIT_BYTES)
            written = decompress_into(payload, compression, self.buffer[start : start + room].data)
            if written is not None:
                self.filled += written
                return start, self.filled
            size = larger_size(payload, compression, room, READ_LIMIT_BYTES)

    def _make_room(self, size: int) -> None:
        if self.filled + size > len(self.buffer):
            grown = np.empty(self.filled + size, dtype=np.uint8)
            grown[: self.filled] = self.buffer[: self.filled]
            self.buffer = grown
