"""Every request and its reply as bytes, the last so many of them. shell"""

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Final, Protocol

from ottla.broker.outbox import Part
from ottla.testkit.faults.fault import Fault

MOST_BYTES: Final = 64 * 1024 * 1024
_BUFFERS: Final = (bytes, bytearray, memoryview)


class Now(Protocol):
    """What the journal asks for the time."""

    def now_ms(self) -> int:
        """Milliseconds since 1970."""


class Passage:
    """One request that has come in, and what became of it."""

    __slots__ = (
        *("began_ms", "ended_behind", "ended_ms", "faults", "kept", "number", "peer", "reason", "reply", "request"),
    )

    def __init__(self, number: int, began_ms: int, peer: str, request: bytes) -> None:
        self.number = number
        self.began_ms = began_ms
        self.peer = peer
        self.request = request
        """The frame, without its size."""
        self.reply: bytes | None = None
        """The frame that was sent, with its size; empty when none was, None while none is."""
        self.ended_ms: int | None = None
        self.ended_behind: int | None = None
        """The number of the last request that had come in when this one ended: times are too coarse for an order."""
        self.kept = True
        """Whether the journal still has it."""
        self.reason = ""
        """Why the connection was closed instead."""
        self.faults: list[int] = []

    def struck(self, fault: Fault) -> None:
        """A fault strikes it."""
        self.faults.append(fault.id)


class Journal:
    """What passes; the oldest goes when there is more than `most_bytes`. Times are the machine's."""

    def __init__(self, clock: Now, most_bytes: int = MOST_BYTES) -> None:
        self._clock = clock
        self._most_bytes = most_bytes
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
        self._grow(passage, len(request))
        return passage

    def end(self, passage: Passage, parts: Sequence[Part]) -> Sequence[Part]:
        """Its reply is sent; returns what to send, as what was read is not there twice."""
        read = [part if isinstance(part, _BUFFERS) else _read(part) for part in parts]
        passage.reply = b"".join(read)
        self._ended(passage)
        self._grow(passage, len(passage.reply))
        return read

    def refused(self, passage: Passage, reason: str) -> None:
        """Its connection is closed."""
        passage.reason = reason
        self._ended(passage)

    def since(self, number: int) -> Iterator[Passage]:
        """What has come in after this one, oldest first."""
        return (passage for passage in tuple(self._passages) if passage.number > number)

    @property
    def last(self) -> int:
        """The number of the last that has come in."""
        return self._number

    def _ended(self, passage: Passage) -> None:
        passage.ended_ms = self._clock.now_ms()
        passage.ended_behind = self._number

    def _grow(self, passage: Passage, size_bytes: int) -> None:
        if not passage.kept:
            return
        self._size_bytes += size_bytes
        while self._size_bytes > self._most_bytes and len(self._passages) > 1:
            gone = self._passages.popleft()
            gone.kept = False
            self._size_bytes -= len(gone.request) + len(gone.reply or b"")
            self.dropped += 1


def _read(part: Part) -> bytes:
    """A slice of a file, to its end."""
    assert not isinstance(part, _BUFFERS)
    pieces = []
    while len(part):
        pieces.append(part.take(len(part)))
    return b"".join(pieces)
