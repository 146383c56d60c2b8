"""The port for work in other threads: calls that let go of Python's lock. shell

Two queues, so that a batch whose compression takes seconds does not hold up those that are checked in milliseconds. A
call must not touch anything of the broker's: it gets bytes and gives bytes.
"""

import threading
import weakref
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, Final, Protocol, TypeAlias

from ottla.broker.ports.side_by_side import processors
from ottla.protocol.steps import SHORT_US

OnEnd: TypeAlias = Callable[[Any, Exception | None], None]
"""Told what the call gave, or what it raised."""

SLOW_THREADS_MOST: Final = 4
"""zstd takes up to 48 MiB in each of them (`MOST_TABLES_BYTES`), beside the records."""


class Job(Protocol):
    """A call that was handed over."""

    def cancel(self) -> bool:
        """Nobody wants the result any more. True if the call was not begun and never will be: `on_end` is not told."""


class Workers(Protocol):
    """Runs calls elsewhere; `on_end` is an event of its own turn. Calls of up to `least_us` are not worth the way."""

    least_us: float

    def start(self, call: Callable[[], Any], on_end: OnEnd, *, slow: bool) -> Job: ...


class WorkerJob:
    """What stands in the queue of a thread."""

    __slots__ = ("_begun", "_call", "_from_thread", "_lock", "_on_end")

    def __init__(
        self, call: Callable[[], Any], on_end: OnEnd, from_thread: Callable[[Callable[[], None]], None]
    ) -> None:
        self._call: Callable[[], Any] | None = call
        self._on_end = on_end
        self._from_thread = from_thread
        self._lock = threading.Lock()
        self._begun = False

    def cancel(self) -> bool:
        with self._lock:
            if self._begun:
                return False
            self._begun = True
            self._call = None  # what it would have read is given back
            return True

    def run(self) -> None:
        """In the thread."""
        with self._lock:
            call, self._call = self._call, None
            self._begun = True
        if call is None:
            return
        answer: Any = None
        failure: Exception | None = None
        try:
            answer = call()
        except Exception as error:
            failure = error
        on_end = self._on_end
        self._from_thread(lambda: on_end(answer, failure))


_Queue: TypeAlias = "SimpleQueue[WorkerJob | None]"


class ThreadWorkers:
    """At most one thread for each processor, and two at least; they are started when they are needed first."""

    __slots__ = ("__weakref__", "_from_thread", "_queues", "_started", "_threads_most", "least_us")

    def __init__(self, from_thread: Callable[[Callable[[], None]], None]) -> None:
        """`from_thread` is the clock's."""
        self.least_us = SHORT_US
        self._from_thread = from_thread
        self._queues: tuple[_Queue, _Queue] = (SimpleQueue(), SimpleQueue())
        self._threads_most = (1, min(SLOW_THREADS_MOST, max(1, processors() - 1)))
        self._started = [0, 0]
        weakref.finalize(self, _stop, self._queues, self._started)

    def start(self, call: Callable[[], Any], on_end: OnEnd, *, slow: bool) -> WorkerJob:
        queue = self._queues[slow]
        job = WorkerJob(call, on_end, self._from_thread)
        queue.put(job)
        if self._started[slow] < self._threads_most[slow]:
            self._started[slow] += 1
            name = "slow work" if slow else "work"
            threading.Thread(target=_run, args=(queue,), name=name, daemon=True).start()
        return job

    def stop(self) -> None:
        """End the threads, behind what they have still to do."""
        _stop(self._queues, self._started)


def _stop(queues: tuple[_Queue, _Queue], started: list[int]) -> None:
    for queue, count in zip(queues, started, strict=True):
        for _ in range(count):
            queue.put(None)
    started[:] = [0, 0]


def _run(queue: _Queue) -> None:
    while (job := queue.get()) is not None:
        job.run()
        del job  # it would keep what waits for it


class LaterJob:
    """What is planned for an event."""

    __slots__ = ("cancelled",)

    def __init__(self) -> None:
        self.cancelled = False

    def cancel(self) -> bool:
        self.cancelled = True
        return True


class LaterWorkers:
    """Runs each call as an event of its own, for a broker without threads. `defer` says when: a clock's `next_turn`."""

    __slots__ = ("_defer", "least_us")

    def __init__(self, defer: Callable[[Callable[[], None]], None], least_us: float = SHORT_US) -> None:
        self.least_us = least_us
        self._defer = defer

    def start(self, call: Callable[[], Any], on_end: OnEnd, *, slow: bool) -> Job:
        job = LaterJob()

        def run() -> None:
            if job.cancelled:
                return
            try:
                answer = call()
            except Exception as error:
                on_end(None, error)
            else:
                on_end(answer, None)

        self._defer(run)
        return job
