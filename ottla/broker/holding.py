"""What one connection holds of the budget of memory: for a large request, and for replies that are not sent. shell

It exists for connections that have been large; the others hold nothing that is counted.
"""

from collections.abc import Callable
from typing import Final

from ottla.broker.memory import FREE_BYTES, Claim, Memory, Room
from ottla.protocol.frames import ReceiveBuffer

LEAST_MOVED_BYTES: Final = 65_536
"""A client that others wait for moves at least so much from one look to the next, or it is disconnected."""


class Holding:
    """A request has a claim, which is held here while it is received; memory that is kept for the next one is lent."""

    __slots__ = ("_claim", "_inbox", "_lent", "_mark", "_memory", "_rooms")

    def __init__(self, memory: Memory, inbox: ReceiveBuffer) -> None:
        self._memory = memory
        self._inbox = inbox
        self._claim: Claim | None = None
        self._lent: Claim | None = None
        self._rooms: list[Room] = []
        self._mark: tuple[object, int] | None = None

    @property
    def waits(self) -> bool:
        """Whether the request that is being received must not be read on."""
        return self._claim is not None and not self._claim.granted

    def receive(self, size_bytes: int, on_grant: Callable[[], None]) -> None:
        """Claim `size_bytes` for the request that is being received, unless that was done; `waits` says what came of
        it."""
        if self._claim is not None:
            return
        lent, self._lent = self._lent, None
        if lent is not None and lent.size_bytes >= size_bytes:
            lent.keep()
            self._claim = lent
            return
        if lent is not None:
            lent.release()

        def granted() -> None:
            self._inbox.may_grow = True
            on_grant()

        self._claim = self._memory.claim(size_bytes, granted)
        if not self._claim.granted:
            self._inbox.may_grow = False
            self._inbox.shrink()

    def hand_over(self) -> Claim | None:
        """What the request holds that was received: it goes with the request."""
        claim, self._claim = self._claim, None
        return claim

    def received(self) -> None:
        """The frame is done with; the memory that it was received into may be kept as long as nobody waits for it."""
        kept_bytes = self._inbox.capacity_bytes
        if self._lent is None:
            if kept_bytes > FREE_BYTES:
                self._lent = self._memory.lend(kept_bytes, self._recalled)
                if self._lent is None:
                    self._inbox.trim()
        elif kept_bytes <= FREE_BYTES:
            self._lent.release()
            self._lent = None

    def send(self, room: Room) -> None:
        """What a reply holds that is to be sent."""
        self._rooms.append(room)

    def unsent(self, size_bytes: int) -> None:
        """The socket is full, and so much of a reply that has no room is left."""
        if not self._rooms and size_bytes > FREE_BYTES:
            room = self._memory.replies.room()
            room.hold(size_bytes)
            self._rooms.append(room)

    def sent(self) -> None:
        """All replies have left."""
        for room in self._rooms:
            room.built(0)
        self._rooms.clear()

    def stalled(self, unsent_bytes: int) -> bool:
        """Whether the client has moved next to nothing since this was asked last, and holds memory."""
        level: tuple[object, int] | None = None
        if self._claim is not None and self._claim.granted:
            level = self._claim, -self._inbox.buffered_bytes
        elif self._rooms:
            level = self._rooms[0], unsent_bytes
        before, self._mark = self._mark, level
        if before is None or level is None or before[0] is not level[0]:
            return False
        return before[1] - level[1] < LEAST_MOVED_BYTES

    def release(self) -> None:
        """The connection has ended."""
        for claim in (self._claim, self._lent):
            if claim is not None:
                claim.release()
        self._claim = self._lent = None
        self.sent()

    def _recalled(self) -> None:
        lent, self._lent = self._lent, None
        if lent is not None:
            self._inbox.trim()
            lent.release()
