"""The run-to-completion core: one event is one turn. pure

Rules

1. Everything that happens to the broker (bytes arrived, a timer fired, a sync ended) enters through `Turns.event`.
2. A turn runs the event, then all work that it woke, in the order in which it was woken, then the end-of-turn hooks:
   one write per connection. Nothing else runs in between. A sync is started in a turn of its own (`log/flusher.py`),
   so that it covers what others have sent meanwhile.
3. A handler is a coroutine driven by hand with `send(None)`. It may suspend on a `Wait` and on nothing else, so a
   request that need not wait costs one call, no task and no future.
4. `Wait.wake` never resumes its handler inline: the continuation is queued, so the waker finishes its own step first.
   Of many handlers that one event wakes, those that the share does not reach resume in later turns.
5. A handler whose connection is gone is discarded. It does no work while it is discarded; what it registered
   elsewhere is taken back by `Wait.on_discard`.
6. Nobody holds the broker. Work whose size a client or the state decides is charged to one ledger (`charge`, at the
   costs of `costs.py`) and asks after each piece whether others are due (`await share()`). Whoever finds the share
   spent rests, and all who rest get one share together per pass of the event loop: requests that have arrived meanwhile
   go ahead, and a thousand long requests take no more of a pass than one does. A small request does not rest at all
   (but for the first of a connection), and one of middle size goes ahead of those that have rested often.
"""

from collections import deque
from collections.abc import Callable, Coroutine, Generator
from typing import Any, Final, Generic, TypeVar

from ottla.broker.costs import RESUME_US

SHARE_US: Final = 2_000.0
"""What may be charged between two looks at the sockets before long work must rest."""

OWN_US: Final = 300.0
"""What a request that has just arrived may take before it rests for what others have charged."""

RANKS: Final = ((1, SHARE_US / 2), (4, SHARE_US * 3 / 4), (1 << 30, SHARE_US))
"""Who has rested so often at most stands in one rank. The first goes on until so much of a share is spent, then the
second, then the rest. What one rank does not need is for the others, and one of each goes on in any case."""

MOST_LOOKS: Final = 8
"""At the sockets, for input that keeps somebody alive; a busy broker is never out of input."""

T = TypeVar("T")
R = TypeVar("R")

Handler = Coroutine["Wait[Any]", None, R]


class Wait(Generic[T]):
    """Something a handler waits for, once. `await wait` returns the value given to `wake`."""

    __slots__ = ("_activity", "_turns", "_value", "done", "on_discard")

    def __init__(self, turns: "Turns", on_discard: Callable[[], None] | None = None) -> None:
        self._turns = turns
        self._activity: Activity[Any] | None = None
        self._value: T | None = None
        self.done = False
        self.on_discard = on_discard

    def wake(self, value: T) -> None:
        """Resume the waiting handler with `value`; the first call counts, later ones do nothing."""
        if self.done:
            return
        self.done = True
        self._value = value
        if self._activity is not None:
            self._turns.resume(self._activity)
        else:
            self.on_discard = None  # nobody will be suspended here (`ended`)

    def __await__(self) -> Generator["Wait[Any]", None, T]:
        if not self.done:
            yield self
        return self._value  # type: ignore[return-value]

    def attach(self, activity: "Activity[Any]") -> None:
        """Name the handler that is suspended here; called by the driver alone."""
        self._activity = activity

    def ended(self) -> None:
        """The handler goes on: nothing is to be taken back. What takes back may refer to the wait, and both would keep
        the handler and its request until a garbage collection; called by the driver alone."""
        self._activity = self.on_discard = None

    def discard(self) -> None:
        """Forget the handler and take back what it registered."""
        self.done = True
        self._activity = None
        on_discard, self.on_discard = self.on_discard, None
        if on_discard is not None:
            on_discard()


class _Rest(Wait[None]):
    """A handler that lets others go ahead."""

    __slots__ = ()

    def attach(self, activity: "Activity[Any]") -> None:
        super().attach(activity)
        activity.rests += 1
        self._turns.queue(activity.step, activity.rests)


class Activity(Generic[R]):
    """A handler that has suspended at least once. `rests` is how often it has let others go ahead."""

    __slots__ = ("_coroutine", "_on_bug", "_on_result", "_turns", "_wait", "rests")

    def __init__(
        self,
        turns: "Turns",
        coroutine: Handler[R],
        wait: Wait[Any],
        on_result: Callable[[R], None],
        on_bug: Callable[[Exception], None],
    ) -> None:
        self.rests = 0
        self._turns = turns
        self._coroutine = coroutine
        self._on_result = on_result
        self._on_bug = on_bug
        self._wait: Wait[Any] | None = wait
        wait.attach(self)

    def step(self) -> None:
        """Resume the handler; to its end, or to its next `Wait`."""
        if self._wait is None:
            return
        self._wait.ended()
        self._turns.is_fresh = False
        try:
            wait = self._coroutine.send(None)
        except StopIteration as stop:
            self._wait = None
            self._on_result(stop.value)
        except Exception as error:
            self._wait = None
            self._on_bug(error)
        else:
            self._wait = wait
            wait.attach(self)

    def step_charged(self) -> None:
        """Charge the resumption of a handler that had to wait for another share, and resume it."""
        self._turns.charged_us += RESUME_US
        self.step()

    def discard(self) -> None:
        """Drop the handler where it stands; it must not do work in a `finally`."""
        wait, self._wait = self._wait, None
        if wait is not None:
            wait.discard()
            self._coroutine.close()


class OneAtATime:
    """Work of many turns that is not begun anew while it is `under_way`; `on_bug` hears what ended it early."""

    __slots__ = ("_activity", "_on_bug", "_turns", "under_way")

    def __init__(self, turns: "Turns", on_bug: Callable[[Exception], None]) -> None:
        self._turns = turns
        self._on_bug = on_bug
        self._activity: Activity[None] | None = None
        self.under_way = False

    def start(self, work: Callable[[], Handler[None]]) -> None:
        """Begin it, unless it is under way."""
        if not self.under_way:
            self.under_way = True
            self._activity = self._turns.start(work(), self._ended, self._broke)

    def discard(self) -> None:
        """Drop it where it stands."""
        activity = self._activity
        self._ended(None)
        if activity is not None:
            activity.discard()

    def _ended(self, result: None) -> None:
        self._activity = None
        self.under_way = False

    def _broke(self, error: Exception) -> None:
        self._ended(None)
        self._on_bug(error)


class Gate:
    """Lets one handler in at a time, the others wait in order. Whoever is in must `leave`, also when discarded."""

    __slots__ = ("_waiting", "taken")

    def __init__(self) -> None:
        self.taken = False
        self._waiting: deque[Wait[None]] = deque()

    async def enter(self, turns: "Turns") -> None:
        """Wait for the turn; it does not suspend when nobody is in."""
        if not self.taken:
            self.taken = True
            return
        wait: Wait[None] = Wait(turns)

        def give_up() -> None:
            if wait in self._waiting:
                self._waiting.remove(wait)
            else:  # woken, but discarded before it went on
                self.leave()

        wait.on_discard = give_up
        self._waiting.append(wait)
        await wait

    def leave(self) -> None:
        """Let the next one in."""
        if self._waiting:
            self._waiting.popleft().wake(None)
        else:
            self.taken = False


class Turns:
    """The queue of one broker's turn.

    `next_turn(callback)` must run the callback as a later event of its own (the clock port provides it); `on_bug`
    gets exceptions of queued work: they are bugs or failed IO, never a client's doing.
    """

    __slots__ = (
        "_at_end",
        "_began_us",
        "_next_turn",
        "_on_bug",
        "_ready",
        "_renewing",
        "_resting",
        "_running",
        "_share_began_us",
        "charged_us",
        "events",
        "is_fresh",
    )

    def __init__(self, next_turn: Callable[[Callable[[], None]], None], on_bug: Callable[[Exception], None]) -> None:
        self._next_turn = next_turn
        self._on_bug = on_bug
        self._ready: deque[Callable[[], None]] = deque()
        self._at_end: list[Callable[[], None]] = []
        self._running = False
        self._resting: tuple[deque[Callable[[], None]], ...] = tuple(deque() for _ in RANKS)
        self._renewing = False
        self._share_began_us = 0.0
        self._began_us = 0.0
        self.is_fresh = False
        """Whether the handler that runs has never waited."""
        self.charged_us = 0.0
        """Microseconds of work charged since the start. Who cannot afford a call adds to it directly."""
        self.events = 0
        """How many there were."""

    @property
    def over(self) -> bool:
        """Whether the share is spent: only what has just arrived may begin, nothing long goes on."""
        return self.charged_us - self._share_began_us >= SHARE_US

    @property
    def rest_is_due(self) -> bool:
        """Whether the handler that runs has to let others go ahead: `share` without a call, for hot paths."""
        charged_us = self.charged_us
        return charged_us - self._share_began_us >= SHARE_US and not (
            self.is_fresh and charged_us - self._began_us < OWN_US
        )

    def charge(self, cost_us: float) -> None:
        """Enter work of so many microseconds of CPU (see `costs.py`), done or about to be done, into the ledger."""
        self.charged_us += cost_us

    def event(self, work: Callable[[], None]) -> None:
        """Run one event to completion. An event raised inside a turn (a transport that calls back) joins it."""
        if self._running:
            self._ready.append(work)
            return
        self._running = True
        self.events += 1
        ready, at_end = self._ready, self._at_end
        ready.appendleft(work)
        try:
            while ready or at_end:
                while ready:
                    step = ready.popleft()
                    try:  # `_guarded`, without a call
                        step()
                    except Exception as error:
                        self._on_bug(error)
                if at_end:
                    ready.extend(at_end)
                    at_end.clear()
        finally:
            self._running = False

    def later(self, work: Callable[[], None]) -> None:
        """Queue work behind what is already queued in this turn."""
        self._ready.append(work)
        if not self._running:
            self._next_turn(self._resume)

    def resume(self, activity: Activity[Any]) -> None:
        """Resume a woken handler in this turn while the share lasts, else in a later one.

        One sync, one block of producer ids or one append may wake a thousand handlers.
        """
        if self.charged_us - self._share_began_us >= SHARE_US:
            self.rest(activity.step_charged)
            return
        self.charged_us += RESUME_US
        self._ready.append(activity.step)
        if not self._running:
            self._next_turn(self._resume)

    def next_turn(self, work: Callable[[], None]) -> None:
        """Run `work` as an event of its own, behind what arrived meanwhile."""
        self._next_turn(work)

    def behind_input(self, work: Callable[[], None]) -> None:
        """Run `work` in a later turn, once a look at the sockets brought nothing, or after `MOST_LOOKS` of them.

        For whoever declares somebody dead. When the process was stopped or starved, timers that are due run before the
        sockets are read: what would have kept its sender alive lies there.
        """
        # An event loop of libuv runs this before its first look.
        self._next_turn(lambda: self._look(work, MOST_LOOKS))

    def _look(self, work: Callable[[], None], looks: int) -> None:
        before = self.events

        def looked() -> None:
            if looks > 1 and self.events > before + 1:  # one of them is this
                self._look(work, looks - 1)
            else:
                work()

        self._next_turn(looked)

    def at_end(self, hook: Callable[[], None]) -> None:
        """Run `hook` once when the turn's work is done (a connection to write)."""
        self._at_end.append(hook)
        if not self._running:
            self._next_turn(self._resume)

    def start(
        self, coroutine: Handler[R], on_result: Callable[[R], None], on_bug: Callable[[Exception], None]
    ) -> Activity[R] | None:
        """Drive a handler to its end or its first `Wait`; returns the activity in the second case."""
        self.is_fresh = True
        self._began_us = self.charged_us
        try:
            wait = coroutine.send(None)
        except StopIteration as stop:
            on_result(stop.value)
            return None
        except Exception as error:
            on_bug(error)
            return None
        return Activity(self, coroutine, wait, on_result, on_bug)

    async def share(self, on_discard: Callable[[], None] | None = None) -> None:
        """Go on at once while the share lasts, in a later turn when it is spent.

        Every loop over what a client or the state can make long charges for an item and awaits this.
        """
        if self.rest_is_due:
            await self.pause(on_discard)

    async def pause(self, on_discard: Callable[[], None] | None = None) -> None:
        """Let other events run: the handler goes on in a later turn, in its order among those who rest."""
        await _Rest(self, on_discard)

    def rest(self, work: Callable[[], None]) -> None:
        """Run `work` in a later turn, in its order among those who rest."""
        self._resting[0].append(work)
        self._renew()

    def rest_last(self, work: Callable[[], None]) -> None:
        """`rest` behind those who have rested less often: nobody waits for it."""
        self._resting[-1].append(work)
        self._renew()

    def queue(self, work: Callable[[], None], rests: int) -> None:
        """`rest` for who has rested so often already."""
        rank = next(rank for rank, (most, _) in enumerate(RANKS) if rests <= most)
        self._resting[rank].append(work)
        self._renew()

    def _renew(self) -> None:
        """Begin a new share when the event loop has looked at the sockets."""
        if not self._renewing:
            self._renewing = True
            self._next_turn(self._begin_share)

    def _begin_share(self) -> None:
        self._renewing = False
        self._share_began_us = self.charged_us
        self._go_on([len(rank) for rank in self._resting], [True] * len(RANKS))

    def _go_on(self, due: list[int], owed: list[bool]) -> None:
        """Run one who rests and what that wakes, then the next, as far as the share reaches (see `RANKS`).

        `due` is how many of each rank may go on in this pass (who rests again waits for the next one), `owed` whether
        none of the rank did yet.
        """
        spent_us = self.charged_us - self._share_began_us
        ranks = [rank for rank, count in enumerate(due) if count]
        chosen = next((rank for rank in ranks if owed[rank] or spent_us < RANKS[rank][1]), None)
        if chosen is None and ranks and spent_us < SHARE_US:
            chosen = ranks[0]
        if chosen is None:
            if any(self._resting):
                self._renew()
            return
        due[chosen] -= 1
        owed[chosen] = False
        self._guarded(self._resting[chosen].popleft())
        self._ready.append(lambda: self._go_on(due, owed))

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:
            self._on_bug(error)

    def _resume(self) -> None:
        """An event without work of its own: it runs what was queued outside a turn."""
