"""A budget for the memory that clients make the broker hold. When it is spent, requests wait in order. pure

`docs/decisions/memory-budget.md` has the rules. A request reserves its whole size, and the size of its decoded body,
before more than `FREE_BYTES` is read. A reply reserves the bytes that were built of it, and when it is complete, the
bytes that were not sent.

No request waits for ever:

1. An admitted request has reserved all it needs: it waits for its client, then for its handler. A handler may wait for
   the memory of replies, never for that of requests. A handler that waits for other clients (JoinGroup, SyncGroup,
   Fetch) holds nothing of its request in that time (`Request.forget_body`), and a parked Fetch releases its memory when
   a request waits (`reserve_recallable`).
2. Replies under construction, except the one that grows, hold at most half of the memory, because it was granted while
   all replies together held no more. The reply that grows needs at most the other half (`TooLarge`), so it waits only
   for replies that are built and not sent.
3. Unsent replies wait for their clients. A client that makes no progress while others wait for its memory is
   disconnected (`Connection.close_on_stall`), so neither a half-sent request nor an unread reply blocks others. The
   same check finds clients that hang up while they wait.

Requests wait for replies, replies for clients, and clients wait for nothing here: there is no cycle.
"""

from collections.abc import Callable
from typing import Final

from ottla.broker.turns import Gate, Turns, Wait
from ottla.protocol.requests.frames import MAX_ENTRIES

FREE_BYTES: Final = 65_536
"""A request, a reply or a parked Fetch of at most this size is not counted."""

MOST_MEMORY_BYTES: Final = 256 * 1024 * 1024
"""The default budget, if the machine has at least eight times as much."""

MEDIUM_BYTES: Final = 2 * 1024 * 1024
"""A request of at most this size, as nearly every Produce, uses the part of the memory reserved for such requests."""

LEAST_MEMORY_BYTES: Final = 16 * 1024 * 1024

ENTRY_BYTES: Final = 300
"""The memory of one decoded array entry without the bytes of its texts: 276 at most."""

_DECODED_RATIO: Final = 32
"""The memory of one body byte when entries are small: 26 at most, in structs of one number."""

_STEP_BYTES: Final = 65_536


def decoded_bytes(size_bytes: int) -> int:
    """Return the bytes that the decoded objects of a body of this size may take."""
    return size_bytes + min(_DECODED_RATIO * size_bytes, MAX_ENTRIES * ENTRY_BYTES)


class TooLarge(Exception):
    """A reply that is larger than the memory for replies."""

    def __init__(self, size_bytes: int, limit_bytes: int) -> None:
        super().__init__(
            f"its reply takes more than {limit_bytes} bytes ({size_bytes} so far); ask for less at once, "
            "or raise queued.max.request.bytes"
        )


class Reservation:
    """A memory reservation of one request, granted or waiting, until `release`. It is also released when it is deleted,
    as with a discarded handler."""

    __slots__ = ("_memory", "granted", "on_change", "size_bytes")

    def __init__(self, memory: "RequestMemory", size_bytes: int, on_change: Callable[[], None]) -> None:
        self._memory = memory
        self.on_change = on_change
        """Called when the memory that it waits for is granted, or its recallable memory must be released."""
        self.size_bytes = size_bytes
        self.granted = False

    def release(self) -> None:
        """Release the memory, or stop waiting for it."""
        if self.size_bytes:
            self._memory.release(self)
            self.size_bytes = 0

    def stop_recall(self) -> None:
        """Use recallable memory for a request: it is not recalled any more."""
        self._memory.recallable.pop(self, None)

    def shrink(self, size_bytes: int) -> None:
        """Reduce the reservation to `size_bytes`, when the real size is known."""
        if size_bytes < self.size_bytes:
            self._memory.held_bytes -= self.size_bytes - size_bytes
            self.size_bytes = size_bytes
            self._memory.admit()

    def __del__(self) -> None:
        self.release()


class RequestMemory:
    """The memory of requests that are received or handled. Callbacks are queued in the turn, never called inline."""

    def __init__(self, turns: Turns, limit_bytes: int) -> None:
        self._turns = turns
        # In order of arrival. A dict, because a thousand of them may be discarded at once.
        self._waiting: dict[Reservation, None] = {}
        self.recallable: dict[Reservation, None] = {}
        self.limit_bytes = limit_bytes
        self.held_bytes = 0

    @property
    def short(self) -> bool:
        """Whether a request waits for memory."""
        return bool(self._waiting)

    def reserve(self, size_bytes: int, on_grant: Callable[[], None]) -> Reservation:
        """Reserve memory for a request. If it is not `granted` at once, `on_grant` is called when there is enough.

        A request that is larger than all the memory is admitted when no other holds any, as in Kafka's memory pool.
        """
        reservation = Reservation(self, size_bytes, on_grant)
        if self.has(size_bytes):
            self._grant(reservation)
        else:
            self._waiting[reservation] = None
            for recallable in self.recallable:
                self._turns.later(recallable.on_change)
            self.recallable.clear()
        return reservation

    def has(self, size_bytes: int) -> bool:
        """Return whether this many bytes would be granted at once."""
        return not self._waiting and self._fits(size_bytes)

    async def enter(self, size_bytes: int, on_discard: Callable[[], None] | None = None) -> Reservation:
        """Reserve memory for a handler that has none. Suspends while memory is short."""
        wait: Wait[None] = Wait(self._turns)
        reservation = self.reserve(size_bytes, lambda: wait.wake(None))

        def give_up() -> None:
            reservation.release()
            if on_discard is not None:
                on_discard()

        if not reservation.granted:
            wait.on_discard = give_up
            await wait
        return reservation

    def reserve_recallable(self, size_bytes: int, on_recall: Callable[[], None]) -> Reservation | None:
        """Reserve memory that its owner can release at any time (a parked Fetch). None if more than half is in use.

        `on_recall` is called when a request waits for memory; the owner must then release it.
        """
        if self._waiting or self.held_bytes + size_bytes > self.limit_bytes // 2:
            return None
        reservation = Reservation(self, size_bytes, on_recall)
        self._grant(reservation)
        self.recallable[reservation] = None
        return reservation

    def release(self, reservation: Reservation) -> None:
        """Take back the memory of a reservation, or remove it from the queue."""
        if reservation.granted:
            reservation.granted = False
            self.held_bytes -= reservation.size_bytes
            self.recallable.pop(reservation, None)
        else:
            self._waiting.pop(reservation, None)
        self.admit()

    def admit(self) -> None:
        """Grant the reservations that wait first, as long as they fit."""
        while self._waiting:
            first = next(iter(self._waiting))
            if not self._fits(first.size_bytes):
                return
            del self._waiting[first]
            self._grant(first)
            self._turns.later(first.on_change)

    def _fits(self, size_bytes: int) -> bool:
        return not self.held_bytes or self.held_bytes + size_bytes <= self.limit_bytes

    def _grant(self, reservation: Reservation) -> None:
        reservation.granted = True
        self.held_bytes += reservation.size_bytes


class ReplyReservation:
    """The memory reservation of one reply. It moves with the reply; the sender calls `built(0)` when all is sent.

    The reservation of a discarded or failed handler is released when it is deleted.
    """

    __slots__ = ("_alone", "_memory", "held_bytes")

    def __init__(self, memory: "ReplyMemory") -> None:
        self._memory = memory
        self._alone = False
        self.held_bytes = 0

    async def grow(self, size_bytes: int) -> None:
        """Reserve `size_bytes` in all, before so much is built. Suspends while memory is short; raises TooLarge."""
        if size_bytes <= FREE_BYTES or size_bytes <= self.held_bytes:
            return
        memory = self._memory
        if size_bytes > memory.limit_bytes // 2:
            raise TooLarge(size_bytes, memory.limit_bytes // 2)
        needed = min(-(-size_bytes // _STEP_BYTES) * _STEP_BYTES, memory.limit_bytes // 2)
        if not self._alone and memory.held_bytes + needed - self.held_bytes > memory.limit_bytes // 2:
            await memory.gate.enter(memory.turns)
            self._alone = True
        while memory.held_bytes + needed - self.held_bytes > memory.limit_bytes:
            await memory.wait()
        self.hold(needed)

    def hold(self, size_bytes: int) -> None:
        """Reserve `size_bytes` even if memory is short, because the bytes exist already."""
        self._memory.change(size_bytes - self.held_bytes)
        self.held_bytes = size_bytes

    def built(self, size_bytes: int) -> None:
        """Set the size of the complete reply. Another reply may grow now."""
        self.hold(size_bytes if size_bytes > FREE_BYTES else 0)
        if self._alone:
            self._alone = False
            self._memory.gate.leave()

    def __del__(self) -> None:
        self.built(0)


class ReplyMemory:
    """The memory of replies that are being built or are not sent yet."""

    def __init__(self, turns: Turns, limit_bytes: int) -> None:
        self._waiting: Wait[None] | None = None
        self.turns = turns
        self.gate = Gate()
        self.limit_bytes = limit_bytes
        self.held_bytes = 0

    @property
    def short(self) -> bool:
        """Whether the reply that grows waits for unsent replies."""
        return self._waiting is not None

    def reserve(self) -> ReplyReservation:
        """Return the reservation for one reply that may become large."""
        return ReplyReservation(self)

    def change(self, more_bytes: int) -> None:
        """Add `more_bytes`, which may be negative, to the memory in use."""
        self.held_bytes += more_bytes
        if more_bytes < 0 and self._waiting is not None:
            self._waiting.wake(None)
            self._waiting = None

    async def wait(self) -> None:
        """Wait until less memory is in use. Only the reply that grows calls this."""
        wait: Wait[None] = Wait(self.turns, self._forget)
        self._waiting = wait
        await wait

    def _forget(self) -> None:
        self._waiting = None


class Memory:
    """The memory budget of one broker, `limit_bytes` in all."""

    def __init__(self, turns: Turns, limit_bytes: int) -> None:
        medium_bytes = limit_bytes // 8
        self.requests = RequestMemory(turns, limit_bytes // 2 - medium_bytes)
        self.medium = RequestMemory(turns, medium_bytes)
        """For requests of at most `MEDIUM_BYTES`."""
        self.replies = ReplyMemory(turns, limit_bytes - limit_bytes // 2)
        self.decoded = RequestMemory(turns, limit_bytes // 8)
        """In addition to the budget: the decoded bodies of requests of up to `FREE_BYTES`."""
        self.fetch_sessions_bytes = limit_bytes // 16
        """In addition to the budget: the most memory of fetch sessions."""

    def reserve(self, size_bytes: int, on_grant: Callable[[], None]) -> Reservation:
        """Call `RequestMemory.reserve` on the part of the memory that fits. A small request waits only for other small
        ones."""
        return self._for(size_bytes).reserve(size_bytes, on_grant)

    def reserve_recallable(self, size_bytes: int, on_recall: Callable[[], None]) -> Reservation | None:
        """Reserve memory in the part that fits until it is recalled (see `RequestMemory`)."""
        return self._for(size_bytes).reserve_recallable(size_bytes, on_recall) or self.requests.reserve_recallable(
            size_bytes, on_recall
        )

    def _for(self, size_bytes: int) -> RequestMemory:
        if size_bytes > MEDIUM_BYTES or (self.requests.has(size_bytes) and not self.medium.has(size_bytes)):
            return self.requests
        return self.medium

    @property
    def short(self) -> bool:
        """Whether a request or a reply waits for memory."""
        return self.requests.short or self.medium.short or self.replies.short
