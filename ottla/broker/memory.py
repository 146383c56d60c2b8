"""One budget for the memory that clients make the broker hold; beyond it they wait, in order. pure

Half of the budget is for requests (`RequestMemory`), half for replies (`ReplyMemory`). A quarter of what requests have
is for those that take no more than `MEDIUM_BYTES`, so that an ordinary batch never waits for the memory of large ones.
What holds no more than `FREE_BYTES` is neither counted nor waits, so whoever is small never feels who is large; the
memory of all is bounded by the budget and `FREE_BYTES` twice for each connection. What is sent from files holds
nothing.

A request claims its whole size, and what it may take decoded, before more of it than `FREE_BYTES` is read. Until then
its connection is not read. What smaller ones take decoded has a part of its own (`Memory.decoded`), so that they do not
wait for who is large.

A reply holds what was built of it, and when it is built, what was not sent. Replies grow freely while all of them hold
no more than half of their memory. Beyond that one grows at a time, and waits until there is room.

Nobody waits for ever:

1. A request that was let in has all that it claimed: it waits for its client, then for its handler. A handler may wait
   for the memory of replies, never for that of requests. One that waits for other clients (JoinGroup, SyncGroup, Fetch)
   holds nothing of its request meanwhile (`Request.forget_body`), and a parked Fetch gives way when somebody waits
   (`lend`).
2. Replies under construction that were not chosen as the one that grows hold at most half, because what they hold was
   granted while all replies together held no more. The one that grows needs at most the other half (`TooLarge`), so it
   waits for replies that are built and not sent, for nothing else.
3. Those wait for their clients. A client that moves nothing while others wait for what it holds is disconnected
   (`Connection.relieve`), so that neither a half-sent request nor an unread reply is held at the expense of others. Who
   hangs up while it waits is missed at the same look.

Requests wait for replies, replies for clients, and clients for nobody that waits here: there is no circle.
"""

from collections.abc import Callable
from typing import Final

from ottla.broker.turns import Gate, Turns, Wait
from ottla.protocol.frames import MAX_ENTRIES

FREE_BYTES: Final = 65_536
"""A request, a reply or a parked Fetch that takes no more than this is not counted."""

MOST_MEMORY_BYTES: Final = 256 * 1024 * 1024
"""The budget where nobody has set one, and the machine has eight times as much."""

MEDIUM_BYTES: Final = 2 * 1024 * 1024
"""A request that takes no more, as nearly every Produce does, has memory where larger ones have none."""

LEAST_MEMORY_BYTES: Final = 16 * 1024 * 1024

ENTRY_BYTES: Final = 300
"""What one entry of an array takes when it is decoded, beside the bytes of its texts: 276 at most."""

_DECODED_RATIO: Final = 32
"""What one byte of a body may become, where entries are small: 26 at most, in structs of one number."""

_STEP_BYTES: Final = 65_536


def decoded_bytes(size_bytes: int) -> int:
    """What a body of this size may take in objects."""
    return size_bytes + min(_DECODED_RATIO * size_bytes, MAX_ENTRIES * ENTRY_BYTES)


class TooLarge(Exception):
    """A reply for which there will never be room."""

    def __init__(self, size_bytes: int, limit_bytes: int) -> None:
        super().__init__(
            f"its reply takes more than {limit_bytes} bytes ({size_bytes} so far); ask for less at once, "
            "or raise queued.max.request.bytes"
        )


class Claim:
    """What one request holds, or waits for, until `release`; a handler that is discarded releases it by being gone."""

    __slots__ = ("_memory", "_on_change", "granted", "size_bytes")

    def __init__(self, memory: "RequestMemory", size_bytes: int, on_change: Callable[[], None]) -> None:
        self._memory = memory
        self._on_change = on_change
        self.size_bytes = size_bytes
        self.granted = False

    def release(self) -> None:
        """Hold nothing any more, or give up waiting."""
        if self.size_bytes:
            self._memory.released(self)
            self.size_bytes = 0

    def keep(self) -> None:
        """What was lent is for a request now: it is not asked back any more."""
        self._memory.keep(self)

    def shrink(self, size_bytes: int) -> None:
        """Hold no more than this: it is known by now what was needed."""
        if size_bytes < self.size_bytes:
            self._memory.shrunk(self, size_bytes)

    def tell(self) -> None:
        """Tell the owner: it was granted what it waited for, or it is asked to give back what it was lent."""
        self._on_change()

    def __del__(self) -> None:
        self.release()


class RequestMemory:
    """What requests hold that are received or handled. Callbacks are queued in the turn, never called inline."""

    __slots__ = ("_lent", "_turns", "_waiting", "held_bytes", "limit_bytes")

    def __init__(self, turns: Turns, limit_bytes: int) -> None:
        self._turns = turns
        # In order; a thousand may give up at once.
        self._waiting: dict[Claim, None] = {}
        self._lent: dict[Claim, None] = {}
        self.limit_bytes = limit_bytes
        self.held_bytes = 0

    @property
    def short(self) -> bool:
        """Whether somebody waits."""
        return bool(self._waiting)

    def claim(self, size_bytes: int, on_grant: Callable[[], None]) -> Claim:
        """Memory for a request; unless it is `granted` at once, `on_grant` is called when there is room.

        A request that is larger than all the memory is let in when no other holds any, as Kafka's memory pool does.
        """
        claim = Claim(self, size_bytes, on_grant)
        if self.has(size_bytes):
            self._grant(claim)
        else:
            self._waiting[claim] = None
            for lent in self._lent:
                self._turns.later(lent.tell)
            self._lent.clear()
        return claim

    def has(self, size_bytes: int) -> bool:
        """Whether so much would be granted at once."""
        return not self._waiting and self._fits(size_bytes)

    async def enter(self, size_bytes: int, on_discard: Callable[[], None] | None = None) -> Claim:
        """Memory for a handler, which holds none; it suspends while there is no room."""
        wait: Wait[None] = Wait(self._turns)
        claim = self.claim(size_bytes, lambda: wait.wake(None))

        def give_up() -> None:
            claim.release()
            if on_discard is not None:
                on_discard()

        if not claim.granted:
            wait.on_discard = give_up
            await wait
        return claim

    def lend(self, size_bytes: int, on_recall: Callable[[], None]) -> Claim | None:
        """Memory for who can give it back at any time (a parked Fetch): half of all at most, None if there is none.

        `on_recall` is called when a request waits for memory.
        """
        if self._waiting or self.held_bytes + size_bytes > self.limit_bytes // 2:
            return None
        claim = Claim(self, size_bytes, on_recall)
        self._grant(claim)
        self._lent[claim] = None
        return claim

    def keep(self, claim: Claim) -> None:
        """What was lent is for a request now: it is not asked back any more."""
        self._lent.pop(claim, None)

    def released(self, claim: Claim) -> None:
        """A claim is given up."""
        if claim.granted:
            claim.granted = False
            self.held_bytes -= claim.size_bytes
            self._lent.pop(claim, None)
        else:
            self._waiting.pop(claim, None)
        self._admit()

    def shrunk(self, claim: Claim, size_bytes: int) -> None:
        """A claim that was granted is for less."""
        self.held_bytes -= claim.size_bytes - size_bytes
        claim.size_bytes = size_bytes
        self._admit()

    def _admit(self) -> None:
        while self._waiting:
            first = next(iter(self._waiting))
            if not self._fits(first.size_bytes):
                return
            del self._waiting[first]
            self._grant(first)
            self._turns.later(first.tell)

    def _fits(self, size_bytes: int) -> bool:
        return not self.held_bytes or self.held_bytes + size_bytes <= self.limit_bytes

    def _grant(self, claim: Claim) -> None:
        claim.granted = True
        self.held_bytes += claim.size_bytes


class Room:
    """What one reply holds: it goes with the reply, and whoever has sent all of that says `built(0)`.

    A handler that is discarded, or fails, gives its room back by being gone.
    """

    __slots__ = ("_alone", "_memory", "held_bytes")

    def __init__(self, memory: "ReplyMemory") -> None:
        self._memory = memory
        self._alone = False
        self.held_bytes = 0

    async def grow(self, size_bytes: int) -> None:
        """Hold `size_bytes` in all, before so much is built. Suspends while there is no room; raises TooLarge."""
        if size_bytes <= FREE_BYTES or size_bytes <= self.held_bytes:
            return
        memory = self._memory
        if size_bytes > memory.limit_bytes // 2:
            raise TooLarge(size_bytes, memory.limit_bytes // 2)
        wanted = min(-(-size_bytes // _STEP_BYTES) * _STEP_BYTES, memory.limit_bytes // 2)
        if not self._alone and memory.held_bytes + wanted - self.held_bytes > memory.limit_bytes // 2:
            await memory.gate.enter(memory.turns)
            self._alone = True
        while memory.held_bytes + wanted - self.held_bytes > memory.limit_bytes:
            await memory.wait()
        self.hold(wanted)

    def hold(self, size_bytes: int) -> None:
        """Hold so much, whether there is room or not: it is there already."""
        self._memory.change(size_bytes - self.held_bytes)
        self.held_bytes = size_bytes

    def built(self, size_bytes: int) -> None:
        """The reply is complete and takes so much: another may grow."""
        self.hold(size_bytes if size_bytes > FREE_BYTES else 0)
        if self._alone:
            self._alone = False
            self._memory.gate.leave()

    def __del__(self) -> None:
        self.built(0)


class ReplyMemory:
    """What replies hold that are built or not sent."""

    __slots__ = ("_waiting", "gate", "held_bytes", "limit_bytes", "turns")

    def __init__(self, turns: Turns, limit_bytes: int) -> None:
        self._waiting: Wait[None] | None = None
        self.turns = turns
        self.gate = Gate()
        self.limit_bytes = limit_bytes
        self.held_bytes = 0

    @property
    def short(self) -> bool:
        """Whether the one that grows waits for those that are not sent."""
        return self._waiting is not None

    def room(self) -> Room:
        """For one reply that may become large."""
        return Room(self)

    def change(self, more_bytes: int) -> None:
        """So much more is held, or less."""
        self.held_bytes += more_bytes
        if more_bytes < 0 and self._waiting is not None:
            self._waiting.wake(None)
            self._waiting = None

    async def wait(self) -> None:
        """Until less is held; for the one that grows."""
        wait: Wait[None] = Wait(self.turns, self._forget)
        self._waiting = wait
        await wait

    def _forget(self) -> None:
        self._waiting = None


class Memory:
    """The budget of one broker, `limit_bytes` in all."""

    __slots__ = ("decoded", "medium", "replies", "requests")

    def __init__(self, turns: Turns, limit_bytes: int) -> None:
        medium_bytes = limit_bytes // 8
        self.requests = RequestMemory(turns, limit_bytes // 2 - medium_bytes)
        self.medium = RequestMemory(turns, medium_bytes)
        """For those that take no more than `MEDIUM_BYTES`."""
        self.replies = ReplyMemory(turns, limit_bytes - limit_bytes // 2)
        self.decoded = RequestMemory(turns, limit_bytes // 8)
        """Beyond the budget: what requests of up to `FREE_BYTES` take once they are decoded."""

    def claim(self, size_bytes: int, on_grant: Callable[[], None]) -> Claim:
        """`RequestMemory.claim` where there is room for it; who takes little waits for others of its kind alone."""
        return self._for(size_bytes).claim(size_bytes, on_grant)

    def lend(self, size_bytes: int, on_recall: Callable[[], None]) -> Claim | None:
        """`RequestMemory.lend`, likewise."""
        return self._for(size_bytes).lend(size_bytes, on_recall) or self.requests.lend(size_bytes, on_recall)

    def _for(self, size_bytes: int) -> RequestMemory:
        if size_bytes > MEDIUM_BYTES or (self.requests.has(size_bytes) and not self.medium.has(size_bytes)):
            return self.requests
        return self.medium

    @property
    def short(self) -> bool:
        """Whether somebody waits for what others hold."""
        return self.requests.short or self.medium.short or self.replies.short
