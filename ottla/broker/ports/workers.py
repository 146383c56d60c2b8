"""The port for work in other threads: calls that release Python's interpreter lock. shell

There are two queues, so that a batch whose compression takes seconds does not delay checks that take milliseconds. A
call must not use any state of the broker: it takes bytes and returns bytes.
"""

import threading
import weakref
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, Final, Protocol, TypeAlias

from ottla.broker.ports.side_by_side import processors
from ottla.protocol.steps import SHORT_US

OnEnd: TypeAlias = Callable[[Any, Exception | None], None]
"""Callback with the result of a call, or with the exception that it raised."""

SLOW_THREADS_MOST: Final = 4
"""Limit of threads for slow work: zstd takes up to 48 MiB in each (`MOST_TABLES_BYTES`), apart from the records."""


class Job(Protocol):
    """A call that was passed to the workers."""

    def cancel(self) -> bool:
        """Cancel the call; True if it has not begun: it will never run, and `on_end` is not called."""


class Workers(Protocol):
    """Runs calls in other threads. `on_end` runs as an event in a turn of its own.

    Calls that take up to `least_us` are not worth the transfer: the caller runs them itself.
    """

    least_us: float

    def start(self, call: Callable[[], Any], on_end: OnEnd, *, slow: bool) -> Job: ...


class WorkerJob:
    """A call in the queue of a thread."""

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
            self._call = None  # releases the memory of its arguments
            return True

    def run(self) -> None:
        """Run the call, unless it was cancelled, and pass its result to `on_end`. Runs in the worker thread."""
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
    """Worker threads: at most one for each processor, but at least two. They start at the first use."""

    __slots__ = ("__weakref__", "_from_thread", "_queues", "_started", "_threads_most", "least_us")

    def __init__(self, from_thread: Callable[[Callable[[], None]], None]) -> None:
        """Create the port without threads. `from_thread` is `Clock.from_thread`."""
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
        """End the threads after their queued calls."""
        _stop(self._queues, self._started)


def _stop(queues: tuple[_Queue, _Queue], started: list[int]) -> None:
    for queue, count in zip(queues, started, strict=True):
        for _ in range(count):
            queue.put(None)
    started[:] = [0, 0]


def _run(queue: _Queue) -> None:
    while (job := queue.get()) is not None:
        job.run()
        del job  # otherwise it keeps its waiting callback alive


class DeferredJob:
    """A call that is scheduled as an event."""

    __slots__ = ("cancelled",)

    def __init__(self) -> None:
        self.cancelled = False

    def cancel(self) -> bool:
        self.cancelled = True
        return True


class DeferredWorkers:
    """Runs each call as an event of its own, for a broker without threads. `defer` schedules it (`Clock.next_turn`)."""

    __slots__ = ("_defer", "least_us")

    def __init__(self, defer: Callable[[Callable[[], None]], None], least_us: float = SHORT_US) -> None:
        self.least_us = least_us
        self._defer = defer

    def start(self, call: Callable[[], Any], on_end: OnEnd, *, slow: bool) -> Job:
        job = DeferredJob()

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
