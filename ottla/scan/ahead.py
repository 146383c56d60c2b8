"""Reading a remote file before its bytes are asked for: at a store's latency, waiting costs more than reading. shell"""

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

    def fetch(self, size: int, position: int) -> bytes:
        """Up to `size` bytes at `position`; fewer at the end. Raises OSError."""
        ...


class ReadAhead:
    """[start, end) of a file, in order, in windows of READ_BYTES, of which the next ones are on their way.

    The file is opened and its first window fetched at once, in a thread; what goes wrong there is raised where it is
    needed. One window at hand and WINDOWS_AHEAD that come: no more is held.
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
        """Fill `view` from `position` on, or a part of it; returns how many bytes, 0 at the end of the file."""
        if not self._start <= position < self._start + len(self._window):
            self._move(position, len(view))
        at = position - self._start
        part = self._window[at : at + len(view)]
        view[: len(part)] = part
        return len(part)

    def read(self, size: int, position: int) -> bytes:
        """Bytes somewhere: a header that is probed for does not displace the window at hand."""
        at = position - self._start
        if at >= 0 and at + size <= len(self._window):
            return bytes(self._window[at : at + size])
        return self._opened.result().fetch(size, position)

    def close(self) -> None:
        """Nothing more is asked for, and what is on its way is dropped when it comes."""
        self._window = memoryview(b"")
        for _, future in self._coming:
            future.cancel()
        self._coming.clear()

    def _move(self, position: int, needed: int) -> None:
        """Make the window that holds `position` the one at hand, and ask for those behind it."""
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
        self._start, self._window = position, memoryview(source.fetch(size, position))

    def _start_read(self, source: Source) -> None:
        while len(self._coming) < WINDOWS_AHEAD and self._next < self._end:
            end = self._window_end(self._next)
            self._coming.append((self._next, pool().submit(source.fetch, end - self._next, self._next)))
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
        return source.fetch(size, position)


def pool() -> ThreadPoolExecutor:
    """The threads of this process that wait for a store. What runs in them must not wait for others of them."""
    return _pool(os.getpid())


def each(function: Callable[[S], T], items: Iterable[S]) -> list[T]:
    """The results in order, many asked for at once. Raises what the first of them raises."""
    return [future.result() for future in [pool().submit(function, item) for item in items]]


@lru_cache(maxsize=1)
def _pool(process: int) -> ThreadPoolExecutor:
    # A forked process has none of its parent's threads.
    return ThreadPoolExecutor(THREADS, thread_name_prefix=f"ottla-ahead-{process}")
