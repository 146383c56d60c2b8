"""The memory reservations of one connection: for a large request, and for unsent replies. shell

Only connections that have had a large request or reply have this object. Smaller ones are not counted.
"""

from collections.abc import Callable
from typing import Final

from ottla.broker.memory import FREE_BYTES, Memory, ReplyReservation, Reservation
from ottla.protocol.requests.frames import ReceiveBuffer

LEAST_MOVED_BYTES: Final = 65_536
"""A client that others wait for must move this many bytes between two checks, or it is disconnected."""


class ConnectionMemory:
    """The reservation of the request that is being received, a recallable one for the receive buffer, and those of
    replies."""

    __slots__ = ("_inbox", "_mark", "_memory", "_recallable", "_reply_reservations", "_reservation")

    def __init__(self, memory: Memory, inbox: ReceiveBuffer) -> None:
        self._memory = memory
        self._inbox = inbox
        self._reservation: Reservation | None = None
        self._recallable: Reservation | None = None
        self._reply_reservations: list[ReplyReservation] = []
        self._mark: tuple[object, int] | None = None

    @property
    def waits(self) -> bool:
        """Whether the request that is being received waits for memory and must not be read further."""
        return self._reservation is not None and not self._reservation.granted

    def receive(self, size_bytes: int, on_grant: Callable[[], None]) -> None:
        """Reserve `size_bytes` for the request that is being received, if that was not done yet. Sets `waits` if memory
        is short."""
        if self._reservation is not None:
            return
        recallable, self._recallable = self._recallable, None
        if recallable is not None and recallable.size_bytes >= size_bytes:
            recallable.stop_recall()
            self._reservation = recallable
            return
        if recallable is not None:
            recallable.release()

        def allow_growth() -> None:
            self._inbox.may_grow = True
            on_grant()

        self._reservation = self._memory.reserve(size_bytes, allow_growth)
        if not self._reservation.granted:
            self._inbox.may_grow = False
            self._inbox.shrink()

    def hand_over(self) -> Reservation | None:
        """Return the reservation of the received request, which is then responsible for it."""
        reservation, self._reservation = self._reservation, None
        return reservation

    def on_frame_end(self) -> None:
        """Keep the receive buffer after its frame was handled, as a reservation that is released when another request
        waits."""
        kept_bytes = self._inbox.capacity_bytes
        if self._recallable is None:
            if kept_bytes > FREE_BYTES:
                self._recallable = self._memory.reserve_recallable(kept_bytes, self._on_recall)
                if self._recallable is None:
                    self._inbox.trim()
        elif kept_bytes <= FREE_BYTES:
            self._recallable.release()
            self._recallable = None

    def hold_reply(self, reservation: ReplyReservation) -> None:
        """Hold the reservation of a reply until it is sent."""
        self._reply_reservations.append(reservation)

    def on_unsent(self, size_bytes: int) -> None:
        """Reserve memory for the unsent rest of a reply without a reservation, because the socket is full."""
        if not self._reply_reservations and size_bytes > FREE_BYTES:
            reservation = self._memory.replies.reserve()
            reservation.hold(size_bytes)
            self._reply_reservations.append(reservation)

    def on_sent(self) -> None:
        """Release the reservations of replies, because all replies are sent."""
        for reservation in self._reply_reservations:
            reservation.built(0)
        self._reply_reservations.clear()

    def is_stalled(self, unsent_bytes: int) -> bool:
        """Return whether the client holds memory and has moved almost nothing since the last call."""
        level: tuple[object, int] | None = None
        if self._reservation is not None and self._reservation.granted:
            level = self._reservation, -self._inbox.buffered_bytes
        elif self._reply_reservations:
            level = self._reply_reservations[0], unsent_bytes
        before, self._mark = self._mark, level
        if before is None or level is None or before[0] is not level[0]:
            return False
        return before[1] - level[1] < LEAST_MOVED_BYTES

    def release(self) -> None:
        """Release everything, because the connection has ended."""
        for reservation in (self._reservation, self._recallable):
            if reservation is not None:
                reservation.release()
        self._reservation = self._recallable = None
        self.on_sent()

    def _on_recall(self) -> None:
        recallable, self._recallable = self._recallable, None
        if recallable is not None:
            self._inbox.trim()
            recallable.release()
