"""Every request and its reply as bytes, the last so many of them. shell"""

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Final

from ottla.broker.outbox import Part
from ottla.broker.ports.clock import Clock
from ottla.testkit.faults.fault import Fault

MOST_BYTES: Final = 64 * 1024 * 1024
_BUFFERS: Final = (bytes, bytearray, memoryview)


class Passage:
    """One request that has come in, and what became of it."""

    __slots__ = ("began_ms", "ended_ms", "faults", "number", "peer", "reason", "reply", "request")

    def __init__(self, number: int, began_ms: int, peer: str, request: bytes) -> None:
        self.number = number
        self.began_ms = began_ms
        self.peer = peer
        self.request = request
        """The frame, without its size."""
        self.reply: bytes | None = None
        """The frame that was sent, with its size; empty when none was, None while none is."""
        self.ended_ms: int | None = None
        self.reason = ""
        """Why the connection was closed instead."""
        self.faults: list[int] = []

    def struck(self, fault: Fault) -> None:
        """A fault strikes it."""
        self.faults.append(fault.id)


class Journal:
    """What passes, while it is `on`; the oldest goes when there is more than `MOST_BYTES`. Times are the machine's."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._passages: deque[Passage] = deque()
        self._size_bytes = 0
        self._number = 0
        self.dropped = 0
        """How many are gone."""

    def begin(self, request: bytes, peer: str) -> Passage:
        """A request has come in."""
        self._number += 1
        passage = Passage(self._number, self._clock.now_ms(), peer, request)
        self._passages.append(passage)
        self._grow(len(request))
        return passage

    def end(self, passage: Passage, parts: Sequence[Part]) -> Sequence[Part]:
        """Its reply is sent; returns what to send, as what was read is not there twice."""
        read = [part if isinstance(part, _BUFFERS) else _read(part) for part in parts]
        passage.reply = b"".join(read)
        passage.ended_ms = self._clock.now_ms()
        self._grow(len(passage.reply))
        return read

    def refused(self, passage: Passage, reason: str) -> None:
        """Its connection is closed."""
        passage.reason = reason
        passage.ended_ms = self._clock.now_ms()

    def since(self, number: int) -> Iterator[Passage]:
        """What has come in after this one, oldest first."""
        return (passage for passage in tuple(self._passages) if passage.number > number)

    @property
    def last(self) -> int:
        """The number of the last that has come in."""
        return self._number

    def _grow(self, size_bytes: int) -> None:
        self._size_bytes += size_bytes
        while self._size_bytes > MOST_BYTES and len(self._passages) > 1:
            gone = self._passages.popleft()
            self._size_bytes -= len(gone.request) + len(gone.reply or b"")
            self.dropped += 1


def _read(part: Part) -> bytes:
    """A slice of a file, to its end."""
    assert not isinstance(part, _BUFFERS)
    pieces = []
    while len(part):
        pieces.append(part.take(len(part)))
    return b"".join(pieces)
