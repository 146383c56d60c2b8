"""Drives long work on batches (`ottla.protocol.steps`): slices on the event loop, calls in other threads. shell

What batches hold while they are worked on is bounded as a whole, and of those that a topic has compressed anew, which
may take seconds and much memory, large ones are worked on one at a time. Nothing is decided meanwhile: whoever drives
work looks at the state when it has ended, in the step that changes it.
"""

from collections import deque
from collections.abc import Callable
from typing import Any, Final, TypeVar

from ottla.broker.ports.workers import Workers
from ottla.broker.turns import Gate, Turns, Wait
from ottla.protocol.steps import SHORT_BYTES, Steps, Work

T = TypeVar("T")

LARGE_BYTES: Final = 2 * 1024 * 1024
"""Records above this are compressed anew one batch at a time."""
SLOW_US: Final = 20_000.0
"""A call that takes longer is a slow one to the workers."""


class Allowance:
    """Bytes that may be held at once; who does not find enough left waits, in order.

    Who needs more than there is at all goes in alone.
    """

    __slots__ = ("_limit_bytes", "_waiting", "held_bytes")

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._waiting: deque[tuple[Wait[None], int]] = deque()
        self.held_bytes = 0

    async def enter(self, turns: Turns, size_bytes: int, on_discard: Callable[[], None] | None = None) -> None:
        """Wait for so many bytes; it does not suspend when they are there and nobody waits."""
        if not self._waiting and self._has(size_bytes):
            self.held_bytes += size_bytes
            return
        wait: Wait[None] = Wait(turns)
        place = wait, size_bytes

        def give_up() -> None:
            if place in self._waiting:
                self._waiting.remove(place)
                self._admit()
            else:  # woken, but discarded before it went on
                self.leave(size_bytes)
            if on_discard is not None:
                on_discard()

        wait.on_discard = give_up
        self._waiting.append(place)
        await wait

    def leave(self, size_bytes: int) -> None:
        """Give the bytes back."""
        self.held_bytes -= size_bytes
        self._admit()

    def _has(self, size_bytes: int) -> bool:
        return self.held_bytes == 0 or self.held_bytes + size_bytes <= self._limit_bytes

    def _admit(self) -> None:
        while self._waiting and self._has(self._waiting[0][1]):
            wait, size_bytes = self._waiting.popleft()
            self.held_bytes += size_bytes
            wait.wake(None)


class LongWork:
    """The long work of one broker."""

    __slots__ = ("_allowance", "_slow_gate", "_turns", "_workers")

    def __init__(self, turns: Turns, workers: Workers, memory_bytes: int) -> None:
        self._turns = turns
        self._workers = workers
        self._allowance = Allowance(memory_bytes)
        self._slow_gate = Gate()

    @property
    def is_idle(self) -> bool:
        """Whether nobody holds anything."""
        return self._allowance.held_bytes == 0 and not self._slow_gate.taken

    async def drive(self, steps: Steps[T], *, slow: bool = False) -> T:
        """What the steps come to. `slow` is work that may take seconds, so that others must not wait behind it."""
        hold: _Hold | None = None
        turns = self._turns
        answer: Any = None
        failure: Exception | None = None
        try:
            while True:
                step = steps.send(answer) if failure is None else steps.throw(failure)
                answer = failure = None
                if not isinstance(step, Work):
                    turns.charged_us += step
                    if turns.over:
                        await turns.share(None if hold is None else hold.leave)
                    continue
                if step.memory_bytes > SHORT_BYTES:
                    if hold is None:
                        hold = _Hold(self._allowance, self._slow_gate if slow else None)
                    await hold.grow(turns, step.memory_bytes, step.scratch_bytes)
                if step.cost_us <= self._workers.least_us:
                    turns.charged_us += step.cost_us
                    try:
                        answer = step.call()
                    except Exception as error:
                        failure = error
                else:
                    answer, failure = await self._elsewhere(step, None if hold is None else hold.leave)
        except StopIteration as stop:
            result: T = stop.value
        except Exception:  # not when the handler is discarded: then whatever it waited for leaves
            if hold is not None:
                hold.leave()
            raise
        if hold is not None:
            hold.leave()
        return result

    async def _elsewhere(self, work: Work, leave: Callable[[], None] | None) -> tuple[Any, Exception | None]:
        """Have a worker do it. When its handler is discarded, memory is given back once the worker has let go of it."""
        wait: Wait[tuple[Any, Exception | None]] = Wait(self._turns)
        ended = False

        def on_end(answer: Any, failure: Exception | None) -> None:
            nonlocal ended
            ended = True
            if wait.done:
                give_back()
            else:
                wait.wake((answer, failure))

        def on_discard() -> None:
            if ended or job.cancel():
                give_back()

        def give_back() -> None:
            if leave is not None:
                leave()

        job = self._workers.start(work.call, on_end, slow=work.cost_us > SLOW_US)
        wait.on_discard = on_discard
        outcome = await wait
        wait.on_discard = None  # else they would keep each other, and the answer, until the next garbage collection
        return outcome


class _Hold:
    """What one piece of work holds: bytes, and the gate if it is slow and large."""

    __slots__ = ("_allowance", "_gate", "_inside", "_size_bytes")

    def __init__(self, allowance: Allowance, gate: Gate | None) -> None:
        self._allowance = allowance
        self._gate = gate
        self._inside = False
        self._size_bytes = 0

    async def grow(self, turns: Turns, size_bytes: int, scratch_bytes: int) -> None:
        """Hold so much from now on; of what was held before nothing is left. What is compressed anew is held twice.

        What calls take beside is counted for what is large; for the rest the number of threads is bound enough, and
        nobody waits a second time with records in hand.
        """
        gate = self._gate
        wanted = size_bytes if gate is None else 2 * size_bytes
        if size_bytes > LARGE_BYTES:
            wanted += scratch_bytes
        if wanted <= self._size_bytes:
            return
        self._give_back()
        if gate is not None and not self._inside and size_bytes > LARGE_BYTES:
            await gate.enter(turns)
            self._inside = True
        await self._allowance.enter(turns, wanted, self._leave_gate)
        self._size_bytes = wanted

    def leave(self) -> None:
        self._give_back()
        self._leave_gate()

    def _give_back(self) -> None:
        held, self._size_bytes = self._size_bytes, 0
        if held:
            self._allowance.leave(held)

    def _leave_gate(self) -> None:
        if self._inside and self._gate is not None:
            self._inside = False
            self._gate.leave()
