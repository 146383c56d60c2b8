"""Runs long work on bytes (`ottla.protocol.steps`): steps on the event loop, calls in other threads. shell

The memory of all batches in work is limited. Recompression for a topic's codec may take seconds and much memory, so
large batches are recompressed one at a time. The work makes no decisions: its caller reads the state of the log after
the work, in the step that changes the state.
"""

from collections.abc import Callable
from typing import Any, Final, TypeVar

from ottla.broker.memory import RequestMemory, Reservation
from ottla.broker.ports.workers import Workers
from ottla.broker.turns import Gate, Turns, Wait
from ottla.protocol.steps import SHORT_BYTES, Steps, Work

T = TypeVar("T")

LARGE_BYTES: Final = 2 * 1024 * 1024
"""Batches with more bytes of records are recompressed one at a time."""
SLOW_US: Final = 20_000.0
"""Calls that take longer are passed to the workers' queue for slow calls."""


class LongWork:
    """The long work of one broker."""

    def __init__(self, turns: Turns, workers: Workers, memory_bytes: int) -> None:
        self._turns = turns
        self._workers = workers
        self._memory = RequestMemory(turns, memory_bytes)
        self._slow_gate = Gate()

    @property
    def is_idle(self) -> bool:
        """Whether no work holds memory or the gate."""
        return self._memory.held_bytes == 0 and not self._slow_gate.taken

    async def drive(self, steps: Steps[T], *, slow: bool = False, gate: Gate | None = None) -> T:
        """Run the steps and return their result. `slow`: the work may take seconds; other work must not wait for it.
        A `gate` is entered first, and left at the end."""
        hold: _Hold | None = None
        turns = self._turns
        if gate is not None:
            hold = _Hold(self._memory, gate)
            await hold.enter_gate(turns)
        answer: Any = None
        failure: Exception | None = None
        try:
            while True:
                step = steps.send(answer) if failure is None else steps.throw(failure)
                answer = failure = None
                if not isinstance(step, Work):
                    turns.charged_us += step
                    if turns.is_spent:
                        await turns.yield_if_due(None if hold is None else hold.leave)
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
                    answer, failure = await self._run_in_worker(step, None if hold is None else hold.leave)
        except StopIteration as stop:
            result: T = stop.value
        except Exception:  # not if the handler is discarded: then the object it waited for releases the memory
            if hold is not None:
                hold.leave()
            raise
        if hold is not None:
            hold.leave()
        return result

    async def _run_in_worker(self, work: Work, leave: Callable[[], None] | None) -> tuple[Any, Exception | None]:
        """Run the call in a worker. If the handler is discarded, release the memory when the worker has ended."""
        wait: Wait[tuple[Any, Exception | None]] = Wait(self._turns)
        ended = False

        def on_end(answer: Any, failure: Exception | None) -> None:
            nonlocal ended
            ended = True
            if not wait.done:
                wait.wake((answer, failure))
            elif leave is not None:
                leave()

        def on_discard() -> None:
            if (ended or job.cancel()) and leave is not None:
                leave()

        job = self._workers.start(work.call, on_end, slow=work.cost_us > SLOW_US)
        wait.on_discard = on_discard
        return await wait


class _Hold:
    """Reservation of one piece of work: memory, and the gate if the work is slow and large."""

    __slots__ = ("_gate", "_inside", "_memory", "_reservation")

    def __init__(self, memory: RequestMemory, gate: Gate | None) -> None:
        self._memory = memory
        self._gate = gate
        self._inside = False
        self._reservation: Reservation | None = None

    async def enter_gate(self, turns: Turns) -> None:
        if self._gate is not None:
            await self._gate.enter(turns)
            self._inside = True

    async def grow(self, turns: Turns, size_bytes: int, scratch_bytes: int) -> None:
        """Reserve `size_bytes`, twice that for recompression. An earlier, smaller reservation is released first.

        The scratch memory of a call is added for large batches only. For others the number of threads limits it, and
        no work waits for a second reservation while it has records in memory.
        """
        gate = self._gate
        needed = size_bytes if gate is None else 2 * size_bytes
        if size_bytes > LARGE_BYTES:
            needed += scratch_bytes
        if self._reservation is not None and needed <= self._reservation.size_bytes:
            return
        self._release_memory()
        if gate is not None and not self._inside and size_bytes > LARGE_BYTES:
            await self.enter_gate(turns)
        self._reservation = await self._memory.enter(needed, self._leave_gate)

    def leave(self) -> None:
        self._release_memory()
        self._leave_gate()

    def _release_memory(self) -> None:
        reservation, self._reservation = self._reservation, None
        if reservation is not None:
            reservation.release()

    def _leave_gate(self) -> None:
        if self._inside and self._gate is not None:
            self._inside = False
            self._gate.leave()
