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


class JournalEntry:
    """A received request and its result."""

    __slots__ = (
        *("began_ms", "broker", "ended_after", "ended_ms", "faults", "kept", "number", "peer", "reason", "reply"),
        "request",
    )

    def __init__(self, number: int, began_ms: int, peer: str, request: bytes, broker: int | None = None) -> None:
        self.number = number
        self.began_ms = began_ms
        self.peer = peer
        self.request = request
        """The frame, without its size."""
        self.broker = broker
        """The id of the broker that received it, if the process has several; else None."""
        self.reply: bytes | None = None
        """The sent frame, with its size; empty if none was sent, None if the request is unanswered or refused."""
        self.ended_ms: int | None = None
        self.ended_after: int | None = None
        """Number of the last request received when this one ended. Times are too coarse to give an order."""
        self.kept = True
        """Return whether it is still in the journal."""
        self.reason = ""
        """The reason if the connection was closed instead of a reply."""
        self.faults: list[int] = []

    def record_fault(self, fault: Fault) -> None:
        """Record that a fault fires on the request."""
        self.faults.append(fault.id)


class Journal:
    """Requests and replies. Drops the oldest ones above `most_bytes`. Times are from the machine's clock."""

    def __init__(self, clock: Now, most_bytes: int = MOST_BYTES) -> None:
        self._clock = clock
        self._most_bytes = most_bytes
        self._entries: deque[JournalEntry] = deque()
        self._size_bytes = 0
        self._number = 0
        self.dropped = 0
        """Number of dropped requests."""

    def begin(self, request: bytes, peer: str, broker: int | None = None) -> JournalEntry:
        """Add a received request."""
        self._number += 1
        entry = JournalEntry(self._number, self._clock.now_ms(), peer, request, broker)
        self._entries.append(entry)
        self._grow(entry, len(request))
        return entry

    def record_reply(self, entry: JournalEntry, parts: Sequence[Part]) -> Sequence[Part]:
        """Record the reply, and return the parts to send: file slices are read here and can be read only once."""
        read = [part if isinstance(part, _BUFFERS) else _read(part) for part in parts]
        entry.reply = b"".join(read)
        self._end(entry)
        self._grow(entry, len(entry.reply))
        return read

    def record_refusal(self, entry: JournalEntry, reason: str) -> None:
        """Record that the connection was closed, with the reason."""
        entry.reason = reason
        self._end(entry)

    def since(self, number: int) -> Iterator[JournalEntry]:
        """Return the requests after this number, oldest first."""
        return (entry for entry in tuple(self._entries) if entry.number > number)

    @property
    def last(self) -> int:
        """The number of the last received request."""
        return self._number

    def _end(self, entry: JournalEntry) -> None:
        entry.ended_ms = self._clock.now_ms()
        entry.ended_after = self._number

    def _grow(self, entry: JournalEntry, size_bytes: int) -> None:
        if not entry.kept:
            return
        self._size_bytes += size_bytes
        while self._size_bytes > self._most_bytes and len(self._entries) > 1:
            oldest = self._entries.popleft()
            oldest.kept = False
            self._size_bytes -= len(oldest.request) + len(oldest.reply or b"")
            self.dropped += 1


def _read(part: Part) -> bytes:
    """Read a file slice to its end."""
    assert not isinstance(part, _BUFFERS)
    pieces = []
    while len(part):
        pieces.append(part.take(len(part)))
    return b"".join(pieces)
