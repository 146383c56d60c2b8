"""Drives long work on batches (`ottla.protocol.steps`): slices on the event loop, calls in other threads. shell

What batches hold while they are worked on is bounded as a whole, and of those that a topic has compressed anew, which
may take seconds and much memory, large ones are worked on one at a time. Nothing is decided meanwhile: whoever drives
work looks at the state when it has ended, in the step that changes it.
"""

from collections.abc import Callable
from typing import Any, Final, TypeVar

from ottla.broker.memory import Claim, RequestMemory
from ottla.broker.ports.workers import Workers
from ottla.broker.turns import Gate, Turns, Wait
from ottla.protocol.steps import SHORT_BYTES, Steps, Work

T = TypeVar("T")

LARGE_BYTES: Final = 2 * 1024 * 1024
"""Records above this are compressed anew one batch at a time."""
SLOW_US: Final = 20_000.0
"""A call that takes longer is a slow one to the workers."""


class LongWork:
    """The long work of one broker."""

    __slots__ = ("_memory", "_slow_gate", "_turns", "_workers")

    def __init__(self, turns: Turns, workers: Workers, memory_bytes: int) -> None:
        self._turns = turns
        self._workers = workers
        self._memory = RequestMemory(turns, memory_bytes)
        self._slow_gate = Gate()

    @property
    def is_idle(self) -> bool:
        """Whether nobody holds anything."""
        return self._memory.held_bytes == 0 and not self._slow_gate.taken

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
                        hold = _Hold(self._memory, self._slow_gate if slow else None)
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

    __slots__ = ("_claim", "_gate", "_inside", "_memory")

    def __init__(self, memory: RequestMemory, gate: Gate | None) -> None:
        self._memory = memory
        self._gate = gate
        self._inside = False
        self._claim: Claim | None = None

    async def grow(self, turns: Turns, size_bytes: int, scratch_bytes: int) -> None:
        """Hold so much from now on; of what was held before nothing is left. What is compressed anew is held twice.

        What calls take beside is counted for what is large; for the rest the number of threads is bound enough, and
        nobody waits a second time with records in hand.
        """
        gate = self._gate
        wanted = size_bytes if gate is None else 2 * size_bytes
        if size_bytes > LARGE_BYTES:
            wanted += scratch_bytes
        if self._claim is not None and wanted <= self._claim.size_bytes:
            return
        self._give_back()
        if gate is not None and not self._inside and size_bytes > LARGE_BYTES:
            await gate.enter(turns)
            self._inside = True
        self._claim = await self._memory.enter(wanted, self._leave_gate)

    def leave(self) -> None:
        self._give_back()
        self._leave_gate()

    def _give_back(self) -> None:
        claim, self._claim = self._claim, None
        if claim is not None:
            claim.release()

    def _leave_gate(self) -> None:
        if self._inside and self._gate is not None:
            self._inside = False
            self._gate.leave()
