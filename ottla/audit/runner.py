"""Runners of the tasks of an audit: threads of this process, or another runner with the same results. shell"""

import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol, TextIO, TypeVar

from ottla.audit.tasks import Result, Work

if TYPE_CHECKING:
    from ottla.scan.compiled.kernels import Longs

T = TypeVar("T")

# The least work of a task: a Spark task costs a Python worker about 50 ms.
TASK_BYTES = 256 * 1024 * 1024

Function = Callable[[Work], Result]
Naming = Callable[[Work], "tuple[Longs, Result]"]


class AuditFailed(Exception):
    """The directory could not be read completely; the text is one line."""


class FilesVanished(AuditFailed):
    """A listed file is gone, because the broker deleted or compacted it. An audit may succeed after another listing."""


class Runner(Protocol):
    """A runner of a function over pieces of work. `parallelism`: the number that run at once."""

    @property
    def parallelism(self) -> int: ...

    def run(self, function: Function, works: Sequence[Work], label: str) -> list[Result]:
        """Return the results, in any order. `label` describes the work on the progress line."""
        ...

    def reduce(
        self, function: Naming, combine: "Callable[[Sequence[Longs]], T]", works: Sequence[Work], label: str
    ) -> tuple[list[T], list[Result]]:
        """Combine rows with the same hash. `function` returns rows whose first column is a hash, and a result."""
        ...


def run(runner: Runner, function: Function, works: Sequence[Work], label: str) -> list[Result]:
    """Return the results in order of partition and range. Raises AuditFailed with the first reason."""
    results = sorted(runner.run(function, works, label), key=lambda one: (one.partition, one.ordinal))
    raise_first_error(results)
    return results


def raise_first_error(results: Sequence[Result]) -> None:
    """Raise FilesVanished if all errors are of vanished files, else AuditFailed with the first other reason."""
    for result in sorted((one for one in results if one.error), key=lambda one: one.has_vanished):
        raise (FilesVanished if result.has_vanished else AuditFailed)(result.error)


class Progress:
    """A progress line on a terminal. Other streams get nothing."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._watched = stream.isatty()
        self._width = 0

    def show(self, text: str) -> None:
        if self._watched:
            self._stream.write("\r" + text.ljust(self._width))
            self._stream.flush()
            self._width = len(text)

    def clear(self) -> None:
        if self._watched and self._width:
            self._stream.write("\r" + " " * self._width + "\r")
            self._stream.flush()
            self._width = 0

    @contextmanager
    def report_compiling(self) -> Iterator[None]:
        """Report that kernels are being compiled, which takes some seconds once on each machine."""
        if not self._watched:
            yield
            return
        from ottla.scan.compiled.reports import report_compiling

        with report_compiling(lambda: self.show("compiling for some seconds, once on each machine")):
            yield


class ThreadRunner:
    """Threads of this process: the kernels, CRCs and reads release the GIL."""

    def __init__(self, threads: int, stream: TextIO | None = None) -> None:
        self._threads = threads
        self._progress = Progress(sys.stderr if stream is None else stream)

    @property
    def parallelism(self) -> int:
        return self._threads

    def run(self, function: Function, works: Sequence[Work], label: str) -> list[Result]:
        return self._run(function, works, label)

    def reduce(
        self, function: Naming, combine: "Callable[[Sequence[Longs]], T]", works: Sequence[Work], label: str
    ) -> tuple[list[T], list[Result]]:
        done = self._run(function, works, label)
        return [combine([rows for rows, _ in done])] if done else [], [result for _, result in done]

    def _run(self, function: Callable[[Work], T], works: Sequence[Work], label: str) -> list[T]:
        total = sum(work.part.cost_bytes for work in works)
        size_mib = sum(work.part.size_bytes for work in works) / 2**20
        size = f" of {size_mib:,.0f} MiB" if size_mib >= 1 else ""
        done = 0
        results: list[T] = []
        # The largest first, so that no large one runs alone at the end.
        ordered = sorted(works, key=lambda work: -work.part.cost_bytes)
        with self._progress.report_compiling(), ThreadPoolExecutor(self._threads) as pool:
            self._progress.show(f"{label}: 0%{size}")
            running = {pool.submit(function, work): work for work in ordered}
            try:
                for future in as_completed(running):
                    results.append(future.result())
                    done += running[future].part.cost_bytes
                    self._progress.show(f"{label}: {done / max(total, 1):.0%}{size}")
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise
            finally:
                self._progress.clear()
        return results
