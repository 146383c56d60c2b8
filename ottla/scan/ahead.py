"""Read-ahead in a remote file: at a store's latency, waiting costs more than reading too much. shell"""

import os
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import lru_cache
from typing import Protocol, TypeVar

T = TypeVar("T")
S = TypeVar("S")

READ_BYTES = 8 * 1024 * 1024
WINDOWS_AHEAD = 2
# Requests that wait for the store; they need almost no CPU.
THREADS = 32


class Source(Protocol):
    """An open file of any kind, from which several threads may fetch."""

    size_bytes: int

    def read(self, size: int, position: int) -> bytes:
        """Return up to `size` bytes at `position`; fewer at the end of the file. Raises OSError."""
        ...


class ReadAhead:
    """Reads bytes [start, end) of a file in order, in windows of READ_BYTES, and fetches the next windows in advance.

    A thread opens the file and fetches its first window at once; the first read raises an error of that thread.
    Memory holds at most the current window and WINDOWS_AHEAD more.
    """

    def __init__(self, open_source: Callable[[], Source], start: int, end: int) -> None:
        self._end = end
        self._window = memoryview(b"")
        self._start = start
        self._opened: Future[Source] = Future()
        self._next = self._window_end(start)
        first = pool().submit(self._open_and_fetch, open_source, self._next - start, start)
        self._coming: deque[tuple[int, Future[bytes]]] = deque([(start, first)])

    @property
    def size_bytes(self) -> int:
        return self._opened.result().size_bytes

    def read_into(self, view: memoryview, position: int) -> int:
        """Fill `view`, or its first part, from `position` on. Return the bytes read, 0 at the end of the file."""
        if not self._start <= position < self._start + len(self._window):
            self._move(position, len(view))
        at = position - self._start
        part = self._window[at : at + len(view)]
        view[: len(part)] = part
        return len(part)

    def read(self, size: int, position: int) -> bytes:
        """Return up to `size` bytes at any position. The current window stays, so probing for a header is cheap."""
        at = position - self._start
        if at >= 0 and at + size <= len(self._window):
            return bytes(self._window[at : at + size])
        return self._opened.result().read(size, position)

    def close(self) -> None:
        """Cancel the fetches that have not begun, and drop the results of the others."""
        self._window = memoryview(b"")
        for _, future in self._coming:
            future.cancel()
        self._coming.clear()

    def _move(self, position: int, needed: int) -> None:
        """Make the window that holds `position` the current one, and fetch the windows after it."""
        source = self._opened.result()
        self._window = memoryview(b"")
        while self._coming:
            start, coming = self._coming.popleft()
            if start <= position < self._window_end(start):
                self._start_read(source)
                self._start, self._window = start, memoryview(coming.result())
                return
        # The caller reads at another position than expected: continue from there.
        self._next = max(position + needed, self._window_end(position))
        size = self._next - position
        self._start_read(source)
        self._start, self._window = position, memoryview(source.read(size, position))

    def _start_read(self, source: Source) -> None:
        while len(self._coming) < WINDOWS_AHEAD and self._next < self._end:
            end = self._window_end(self._next)
            self._coming.append((self._next, pool().submit(source.read, end - self._next, self._next)))
            self._next = end

    def _window_end(self, start: int) -> int:
        return max(start, min(start + READ_BYTES, self._end))

    def _open_and_fetch(self, open_source: Callable[[], Source], size: int, position: int) -> bytes:
        try:
            source = open_source()
        except BaseException as error:
            self._opened.set_exception(error)
            raise
        self._opened.set_result(source)
        return source.read(size, position)


def pool() -> ThreadPoolExecutor:
    """Return this process's threads that wait for a store. A task in the pool must not wait for another task in it."""
    return _pool(os.getpid())


def each(function: Callable[[S], T], items: Iterable[S]) -> list[T]:
    """Call `function` for the items in parallel and return the results in order. Raises the first error in order."""
    return [future.result() for future in [pool().submit(function, item) for item in items]]


@lru_cache(maxsize=1)
def _pool(process: int) -> ThreadPoolExecutor:
    # A forked process has none of its parent's threads.
    return ThreadPoolExecutor(THREADS, thread_name_prefix=f"ottla-ahead-{process}")
