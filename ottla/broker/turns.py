"""The run-to-completion core: one event is one turn. pure

Rules

1. Every input of the broker (bytes arrived, a timer fired, a sync ended) enters through `Turns.event`.
2. A turn runs the event, then all work that it woke, in the order in which it was woken, then the end-of-turn hooks:
   one write per connection. Nothing else runs in between. A sync is started in a turn of its own (`log/flusher.py`), so
   that it covers the batches that others have sent in the meantime.
3. A handler is a coroutine driven by hand with `send(None)`. It may suspend only on a `Wait`, so a request that need
   not wait costs one call, no task and no future.
4. `Wait.wake` never resumes its handler inline: the handler is queued, so the waker finishes its own step first. If one
   event wakes many handlers, those beyond the turn budget resume in later turns.
5. A handler whose connection is closed is discarded. It does no work while it is discarded; `Wait.on_discard` removes
   its registrations elsewhere.
6. No work holds the event loop for long. Work whose size depends on a client or on the state spends from the turn
   budget for each piece (`await spend(cost_us)`), and the handler yields when it is spent. `docs/decisions/ledger.md`
   has the reasons.
"""

from collections import deque
from collections.abc import Callable, Coroutine, Generator
from typing import Any, Final, Generic, Protocol, TypeVar

from ottla.broker.costs import RESUME_US

SHARE_US: Final = 2_000.0
"""The turn budget: microseconds that may be charged between two reads of the sockets before long work must yield."""

OWN_US: Final = 300.0
"""The microseconds that a new request may take before it yields because of the charges of others."""

RANKS: Final = ((1, SHARE_US / 2), (4, SHARE_US * 3 / 4), (1 << 30, SHARE_US))
"""(most yields, limit in microseconds) of each rank. Handlers of the first rank run until its limit of the budget is
spent, then those of the second, then the rest. A rank may use what an earlier one leaves, and one handler of each rank
runs in any case."""

MOST_READS: Final = 8
"""The largest number of reads of the sockets before a deadline fires, because a busy broker always has more input."""

T = TypeVar("T")
R = TypeVar("R")

Handler = Coroutine["Wait[Any]", None, R]


class Wait(Generic[T]):
    """An event that a handler waits for once. `await wait` returns the value given to `wake`."""

    __slots__ = ("_activity", "_turns", "_value", "done", "on_discard")

    def __init__(self, turns: "Turns", on_discard: Callable[[], None] | None = None) -> None:
        self._turns = turns
        self._activity: Activity[Any] | None = None
        self._value: T | None = None
        self.done = False
        self.on_discard = on_discard

    def wake(self, value: T) -> None:
        """Resume the waiting handler with `value`. Only the first call has an effect."""
        if self.done:
            return
        self.done = True
        self._value = value
        if self._activity is not None:
            self._turns.resume(self._activity)
        else:
            self.on_discard = None  # no activity is suspended here any more (`on_resume`)

    def __await__(self) -> Generator["Wait[Any]", None, T]:
        if not self.done:
            yield self
        return self._value  # type: ignore[return-value]

    def attach(self, activity: "Activity[Any]") -> None:
        """Set the handler that is suspended here. Only the driver calls this."""
        self._activity = activity

    def on_resume(self) -> None:
        """Clear `on_discard`, because the handler resumes. Otherwise a reference cycle could keep the handler and
        its request until a garbage collection. Only the driver calls this."""
        self._activity = self.on_discard = None

    def discard(self) -> None:
        """Drop the handler and undo its registrations."""
        self.done = True
        self._activity = None
        on_discard, self.on_discard = self.on_discard, None
        if on_discard is not None:
            on_discard()


class _Yield(Wait[None]):
    """A handler that yields to others."""

    __slots__ = ()

    def attach(self, activity: "Activity[Any]") -> None:
        super().attach(activity)
        activity.rests += 1
        self._turns.queue(activity.step, activity.rests)


class Activity(Generic[R]):
    """A handler that has suspended at least once. `rests` counts how often it has yielded."""

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
        """Resume the handler until it ends or reaches its next `Wait`."""
        if self._wait is None:
            return
        self._wait.on_resume()
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

    def charge_and_step(self) -> None:
        """Charge the resumption of a handler that had to wait for another turn budget, and resume it."""
        self._turns.charged_us += RESUME_US
        self.step()

    def discard(self) -> None:
        """Drop the handler where it is suspended. It must not do work in a `finally`."""
        wait, self._wait = self._wait, None
        if wait is not None:
            wait.discard()
            self._coroutine.close()


class OneAtATime:
    """Work of many turns that is not started again while it is `under_way`. `on_bug` gets an exception that ended
    it."""

    def __init__(self, turns: "Turns", on_bug: Callable[[Exception], None]) -> None:
        self._turns = turns
        self._on_bug = on_bug
        self._activity: Activity[None] | None = None
        self.under_way = False

    def start(self, work: Callable[[], Handler[None]]) -> None:
        """Start the work, unless it is running."""
        if not self.under_way:
            self.under_way = True
            self._activity = self._turns.start(work(), self._on_end, self._broke)

    def discard(self) -> None:
        """Drop the work where it is suspended."""
        activity = self._activity
        self._on_end(None)
        if activity is not None:
            activity.discard()

    def _on_end(self, result: None) -> None:
        self._activity = None
        self.under_way = False

    def _broke(self, error: Exception) -> None:
        self._on_end(None)
        self._on_bug(error)


class Gate:
    """A lock: one handler holds it, the others wait in order. The holder must call `leave`, also when it is
    discarded."""

    def __init__(self) -> None:
        self.taken = False
        self._waiting: deque[Wait[None]] = deque()

    async def enter(self, turns: "Turns") -> None:
        """Wait for the lock. Does not suspend if it is free."""
        if not self.taken:
            self.taken = True
            return
        wait: Wait[None] = Wait(turns)

        def give_up() -> None:
            if wait in self._waiting:
                self._waiting.remove(wait)
            else:  # woken, but discarded before it resumed
                self.leave()

        wait.on_discard = give_up
        self._waiting.append(wait)
        await wait

    def leave(self) -> None:
        """Give the lock to the next handler."""
        if self._waiting:
            self._waiting.popleft().wake(None)
        else:
            self.taken = False


class EventMeter(Protocol):
    """A measure of each event together with all work that it wakes."""

    def begin(self) -> None:
        """Start to measure an event."""

    def end(self, work: Callable[[], None]) -> None:
        """Record the event of this work."""


class Turns:
    """The queue of one broker's turn.

    `next_turn(callback)` must run the callback as a later event of its own (the clock port provides it). `on_bug` gets
    exceptions of queued work: they are bugs or failed IO, never caused by a client.
    """

    __slots__ = (
        "_at_end",
        "_began_us",
        "_on_bug",
        "_ready",
        "_renewing",
        "_resting",
        "_running",
        "_share_began_us",
        "charged_us",
        "events",
        "is_fresh",
        "meter",
        "next_turn",
    )

    def __init__(self, next_turn: Callable[[Callable[[], None]], None], on_bug: Callable[[Exception], None]) -> None:
        self.next_turn = next_turn
        """Runs a callback as an event of its own, after the input that arrives before it."""
        self._on_bug = on_bug
        self._ready: deque[Callable[[], None]] = deque()
        self._at_end: list[Callable[[], None]] = []
        self._running = False
        self._resting: tuple[deque[Callable[[], None]], ...] = tuple(deque() for _ in RANKS)
        self._renewing = False
        self._share_began_us = 0.0
        self._began_us = 0.0
        self.is_fresh = False
        """Whether the running handler has never suspended."""
        self.charged_us = 0.0
        """Microseconds of work charged since the start. Hot paths add to it without a call of `charge`."""
        self.events = 0
        """The number of events since the start."""
        self.meter: EventMeter | None = None

    @property
    def is_spent(self) -> bool:
        """Whether the turn budget is spent. Only new small requests may begin then; long work must yield."""
        return self.charged_us - self._share_began_us >= SHARE_US

    @property
    def must_yield(self) -> bool:
        """Whether the running handler must yield: the check of `spend` without a call, for hot paths."""
        charged_us = self.charged_us
        return charged_us - self._share_began_us >= SHARE_US and not (
            self.is_fresh and charged_us - self._began_us < OWN_US
        )

    def charge(self, cost_us: float) -> None:
        """Add `cost_us` microseconds of CPU (see `costs.py`) for work done or about to be done."""
        self.charged_us += cost_us

    def event(self, work: Callable[[], None]) -> None:
        """Run one event to completion. An event raised inside a turn (a transport that calls back) becomes part of that
        turn."""
        if self._running:
            self._ready.append(work)
            return
        self._running = True
        self.events += 1
        meter = self.meter
        if meter is not None:
            meter.begin()
        ready, at_end = self._ready, self._at_end
        ready.appendleft(work)
        try:
            while ready or at_end:
                while ready:
                    step = ready.popleft()
                    try:
                        step()
                    except Exception as error:
                        self._on_bug(error)
                if at_end:
                    ready.extend(at_end)
                    at_end.clear()
        finally:
            self._running = False
            if meter is not None:
                meter.end(work)

    def later(self, work: Callable[[], None]) -> None:
        """Queue work after the work that is already queued in this turn."""
        self._ready.append(work)
        if not self._running:
            self.next_turn(self._resume)

    def resume(self, activity: Activity[Any]) -> None:
        """Resume a woken handler in this turn while the turn budget lasts, else in a later one.

        One sync, one block of producer ids or one append may wake a thousand handlers.
        """
        if self.charged_us - self._share_began_us >= SHARE_US:
            self.run_later(activity.charge_and_step)
            return
        self.charged_us += RESUME_US
        self._ready.append(activity.step)
        if not self._running:
            self.next_turn(self._resume)

    def run_after_input(self, work: Callable[[], None]) -> None:
        """Run `work` in a later turn, once a read of the sockets brings nothing, or after `MOST_READS` reads.

        For timers that end a session. When the process was stopped or starved, due timers run before the sockets are
        read, but the request that keeps the session alive may be waiting there.
        """
        # An event loop of libuv runs this before it first reads the sockets.
        self.next_turn(lambda: self._run_after_events(work, MOST_READS))

    def _run_after_events(self, work: Callable[[], None], reads: int) -> None:
        before = self.events

        def check_again() -> None:
            if reads > 1 and self.events > before + 1:  # one of them is this read
                self._run_after_events(work, reads - 1)
            else:
                work()

        self.next_turn(check_again)

    def at_end(self, hook: Callable[[], None]) -> None:
        """Run `hook` once at the end of the turn (a connection that must write)."""
        self._at_end.append(hook)
        if not self._running:
            self.next_turn(self._resume)

    def start(
        self, coroutine: Handler[R], on_result: Callable[[R], None], on_bug: Callable[[Exception], None]
    ) -> Activity[R] | None:
        """Run a handler to its end or its first `Wait`. Returns the activity if it waits, else None."""
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

    def run_alone(self, work: "Handler[object]") -> None:
        """Run a handler whose result is not needed. An exception that ends it is a bug."""
        self.start(work, lambda _result: None, self._on_bug)

    async def spend(self, cost_us: float, on_discard: Callable[[], None] | None = None) -> None:
        """Charge `cost_us` microseconds of CPU. Continue at once while the turn budget lasts, else in a later turn.

        Every loop whose length depends on a client or on the state awaits this for each item.
        """
        self.charged_us += cost_us
        if self.must_yield:
            await self.pause(on_discard)

    async def yield_if_due(self, on_discard: Callable[[], None] | None = None) -> None:
        """Continue at once while the turn budget lasts, else in a later turn: for work that was charged elsewhere."""
        if self.must_yield:
            await self.pause(on_discard)

    async def pause(self, on_discard: Callable[[], None] | None = None) -> None:
        """Suspend until a later turn, in order of rank among the handlers that yielded."""
        await _Yield(self, on_discard)

    def run_later(self, work: Callable[[], None]) -> None:
        """Run `work` in a later turn, in the first rank of the work that yielded."""
        self._resting[0].append(work)
        self._renew()

    def rest_last(self, work: Callable[[], None]) -> None:
        """Run `work` in a later turn, in the last rank, because nothing waits for it."""
        self._resting[-1].append(work)
        self._renew()

    def queue(self, work: Callable[[], None], rests: int) -> None:
        """Run `work` in a later turn, in the rank of handlers that have yielded `rests` times."""
        rank = next(rank for rank, (most, _) in enumerate(RANKS) if rests <= most)
        self._resting[rank].append(work)
        self._renew()

    def _renew(self) -> None:
        """Begin a new turn budget after the event loop has read the sockets."""
        if not self._renewing:
            self._renewing = True
            self.next_turn(self._begin_share)

    def _begin_share(self) -> None:
        self._renewing = False
        self._share_began_us = self.charged_us
        self._resume_handlers([len(rank) for rank in self._resting], [True] * len(RANKS))

    def _resume_handlers(self, due: list[int], unserved: list[bool]) -> None:
        """Run one yielded handler and the work that it wakes, then the next, until the budget is spent (see `RANKS`).

        `due` is the number of each rank that may run in this pass (a handler that yields again waits for the next one).
        `unserved` is True for a rank of which none has run yet.
        """
        spent_us = self.charged_us - self._share_began_us
        ranks = [rank for rank, count in enumerate(due) if count]
        chosen = next((rank for rank in ranks if unserved[rank] or spent_us < RANKS[rank][1]), None)
        if chosen is None and ranks and spent_us < SHARE_US:
            chosen = ranks[0]
        if chosen is None:
            if any(self._resting):
                self._renew()
            return
        due[chosen] -= 1
        unserved[chosen] = False
        try:
            self._resting[chosen].popleft()()
        except Exception as error:
            self._on_bug(error)
        self._ready.append(lambda: self._resume_handlers(due, unserved))

    def _resume(self) -> None:
        """Do nothing: the event runs the work that was queued outside a turn."""
