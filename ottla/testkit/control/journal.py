"""Journal of the latest requests and replies, as bytes. shell"""

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Final, Protocol

from ottla.broker.outbox import Part
from ottla.testkit.faults.fault import Fault

MOST_BYTES: Final = 64 * 1024 * 1024
_BUFFERS: Final = (bytes, bytearray, memoryview)


class Now(Protocol):
    """Wall clock of the journal."""

    def now_ms(self) -> int:
        """Return milliseconds since 1970."""


class Passage:
    """A received request and its result."""

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
        """The sent frame, with its size; empty if none was sent, None if the request is unanswered or refused."""
        self.ended_ms: int | None = None
        self.ended_behind: int | None = None
        """Number of the last request received when this one ended. Times are too coarse to give an order."""
        self.kept = True
        """Whether it is still in the journal."""
        self.reason = ""
        """The reason if the connection was closed instead of a reply."""
        self.faults: list[int] = []

    def struck(self, fault: Fault) -> None:
        """Record that a fault fires on the request."""
        self.faults.append(fault.id)


class Journal:
    """Requests and replies. Drops the oldest ones above `most_bytes`. Times are from the machine's clock."""

    def __init__(self, clock: Now, most_bytes: int = MOST_BYTES) -> None:
        self._clock = clock
        self._most_bytes = most_bytes
        self._passages: deque[Passage] = deque()
        self._size_bytes = 0
        self._number = 0
        self.dropped = 0
        """Number of dropped requests."""

    def begin(self, request: bytes, peer: str) -> Passage:
        """Add a received request."""
        self._number += 1
        passage = Passage(self._number, self._clock.now_ms(), peer, request)
        self._passages.append(passage)
        self._grow(passage, len(request))
        return passage

    def record_reply(self, passage: Passage, parts: Sequence[Part]) -> Sequence[Part]:
        """Record the reply, and return the parts to send: file slices are read here and can be read only once."""
        read = [part if isinstance(part, _BUFFERS) else _read(part) for part in parts]
        passage.reply = b"".join(read)
        self._end(passage)
        self._grow(passage, len(passage.reply))
        return read

    def record_refusal(self, passage: Passage, reason: str) -> None:
        """Record that the connection was closed, with the reason."""
        passage.reason = reason
        self._end(passage)

    def since(self, number: int) -> Iterator[Passage]:
        """Return the requests after this number, oldest first."""
        return (passage for passage in tuple(self._passages) if passage.number > number)

    @property
    def last(self) -> int:
        """The number of the last received request."""
        return self._number

    def _end(self, passage: Passage) -> None:
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
    """Read a file slice to its end."""
    assert not isinstance(part, _BUFFERS)
    pieces = []
    while len(part):
        pieces.append(part.take(len(part)))
    return b"".join(pieces)
