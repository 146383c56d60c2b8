"""Work that takes seconds of CPU time, spread over processes. shell

Threads would not help: they share one interpreter lock. A process is forked, does its share of the items and ends.
While it runs it holds its parent's locks, so that no other process opens the files. When the parent dies, it ends
within a tenth of a second.
"""

import os
import threading
import time
from collections.abc import Callable, Sequence
from logging import getLogger
from typing import TYPE_CHECKING, Final, TypeVar, cast

from ottla.protocol.steps import Steps

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

_log = getLogger(__name__)

T = TypeVar("T")
R = TypeVar("R")

_CHECK_S: Final = 0.1
_STEP_SECONDS: Final = 0.02
# Sent as the index of an error that ended a share.
_FAILURE: Final = -1


def processors() -> int:
    """Return the number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def share_out(sizes: Sequence[int], count: int) -> list[list[int]]:
    """Return the indexes of `sizes` in `count` shares of about the same total size."""
    shares: list[list[int]] = [[] for _ in range(count)]
    sums = [0] * count
    for place in sorted(range(len(sizes)), key=lambda at: -sizes[at]):
        least = sums.index(min(sums))
        shares[least].append(place)
        sums[least] += sizes[place]
    return shares


def spread_steps(
    work: Callable[[T], R], items: Sequence[T], sizes: Sequence[int], done: Callable[[int], None]
) -> Steps[dict[int, R]]:
    """Return {index of an item: result of `work`}, computed in parallel processes. Each step waits 20 ms for results.

    `done` is called with the index of each result. Closing the steps kills the processes. Items whose process died, or
    could not be started, are missing. Raises an OSError that `work` raised: a second try might not find it again,
    because the kernel reports a failed sync once.
    """
    from multiprocessing import connection, get_context  # 1.4 MB and 20 ms, which other starts of a broker save

    fork = get_context("fork")
    readers, children = [], []
    try:
        for share in share_out(sizes, min(processors(), len(items))):
            reader, writer = fork.Pipe(duplex=False)
            readers.append(reader)
            with writer:
                some = [(place, items[place]) for place in share]
                child = fork.Process(target=_work_in_child, args=(work, some, writer, os.getpid()))
                child.start()
            children.append(child)
    except OSError as error:
        _log.warning("Cannot start processes that read logs in parallel: %s", error)
    found: dict[int, R] = {}
    failure: OSError | None = None
    try:
        while readers:
            for reader in cast("list[Connection]", connection.wait(readers, _STEP_SECONDS)):
                try:
                    place, result = reader.recv()
                except EOFError:
                    readers.remove(reader)
                    reader.close()
                    continue
                if place == _FAILURE:
                    failure = result
                else:
                    found[place] = result
                    done(place)
            yield _STEP_SECONDS * 1_000_000
    except GeneratorExit:
        for child in children:
            child.kill()
        for reader in readers:
            reader.close()
        raise
    finally:  # wait for the end of the processes, because they hold the locks of this one
        for child in children:
            child.join()
    for child in children:
        if child.exitcode:
            _log.warning("A process that read logs ended with status %d; this process reads them again", child.exitcode)
    if failure is not None:
        raise failure
    return found


def follow(parent: int) -> None:
    """Exit this process, a fork, when its parent has ended."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_CHECK_S)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _work_in_child(work: Callable[[T], R], items: Sequence[tuple[int, T]], writer: "Connection", parent: int) -> None:
    """Run `work` on the items and send the results."""
    follow(parent)
    try:
        for place, item in items:
            writer.send((place, work(item)))
    except OSError as error:
        writer.send((_FAILURE, error))
