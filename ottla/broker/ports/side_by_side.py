"""Work that takes seconds of CPU time, spread over processes. shell

Threads would not help: they share one interpreter lock. A process is forked, does its share of the items and ends.
While it runs it holds its parent's locks, so that no other process opens the files. When the parent dies, it ends
within a tenth of a second.
"""

import os
import pickle
import selectors
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from logging import getLogger
from struct import Struct
from typing import Any, TypeVar

from ottla.protocol.steps import Steps, to_the_end

_log = getLogger(__name__)

T = TypeVar("T")
R = TypeVar("R")

_LENGTH = Struct(">q")
_READ_BYTES = 1 << 20
_CHECK_S = 0.1
_STEP_SECONDS = 0.02
# Sent as the index of an error that ended a share.
_FAILURE = -1


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


def run_parallel(work: Callable[[T], R], items: Sequence[T], sizes: Sequence[int]) -> dict[int, R]:
    """Return {index of an item: result of `work`}, computed in parallel processes.

    Items whose process died, or could not be started, are missing. Raises an OSError that `work` raised: a second try
    might not find it again, because the kernel reports a failed sync once.
    """
    return to_the_end(spread_steps(work, items, sizes, lambda place: None))


def spread_steps(
    work: Callable[[T], R], items: Sequence[T], sizes: Sequence[int], done: Callable[[int], None]
) -> Steps[dict[int, R]]:
    """Do `spread` in steps, each of which waits 20 ms for results. Call `done` with the index of each result.

    Closing the steps kills the processes.
    """
    try:
        selector = selectors.DefaultSelector()
    except OSError as error:  # no descriptor is free
        _log.warning("Cannot start processes that read logs in parallel: %s", error)
        return {}
    children: list[int] = []
    parent = os.getpid()
    received: dict[int, bytearray] = {}
    found: dict[int, R] = {}
    for share in share_out(sizes, min(processors(), len(items))):
        ends: tuple[int, ...] = ()
        try:
            ends = reader, writer = os.pipe()
            pid = os.fork()
        except OSError as error:
            _log.warning("Cannot start processes that read logs in parallel: %s", error)
            for descriptor in ends:
                os.close(descriptor)
            break
        if pid == 0:
            _work_in_child(work, [(place, items[place]) for place in share], writer, parent)
        os.close(writer)
        children.append(pid)
        received[reader] = bytearray()
        selector.register(reader, selectors.EVENT_READ)
    try:
        while selector.get_map():
            for key, _ in selector.select(_STEP_SECONDS):
                reader = key.fd
                data = os.read(reader, _READ_BYTES)
                received[reader] += data
                for place, result in _take_complete_results(received[reader]):
                    found[place] = result
                    if place != _FAILURE:
                        done(place)
                if not data:
                    selector.unregister(reader)
                    os.close(reader)
            yield _STEP_SECONDS * 1_000_000
    except GeneratorExit:
        _kill(children, [key.fd for key in selector.get_map().values()])
        raise
    finally:
        selector.close()
    for pid in children:
        status = 0
        with suppress(ChildProcessError):  # without a status if SIGCHLD is ignored
            _, status = os.waitpid(pid, 0)
        if status:
            _log.warning("A process that read logs ended with status %d; this process reads them again", status)
    failure = found.pop(_FAILURE, None)
    if isinstance(failure, OSError):
        raise failure
    return found


def _kill(children: Sequence[int], readers: Sequence[int]) -> None:
    """Kill the processes and wait for their end, because they hold the locks of this process."""
    for pid in children:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        with suppress(ChildProcessError):
            os.waitpid(pid, 0)
    for reader in readers:
        os.close(reader)


def follow(parent: int) -> None:
    """Exit this process, a fork, when its parent has ended."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_CHECK_S)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _work_in_child(work: Callable[[T], R], items: Sequence[tuple[int, T]], writer: int, parent: int) -> None:
    """Run `work` on the items, send the results, and exit the process."""
    status = 1
    try:
        follow(parent)
        try:
            for place, item in items:
                _send(writer, place, work(item))
        except OSError as error:
            _send(writer, _FAILURE, error)
        status = 0
    finally:
        with suppress(BaseException):
            for handler in _log.root.handlers:
                handler.flush()
        os._exit(status)


def _send(descriptor: int, place: int, result: object) -> None:
    data = pickle.dumps((place, result), pickle.HIGHEST_PROTOCOL)
    _write(descriptor, _LENGTH.pack(len(data)) + data)


def _write(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def _take_complete_results(data: bytearray) -> Iterator[tuple[int, Any]]:
    """Yield (index, result) of the complete results, and remove them from `data`."""
    while len(data) >= _LENGTH.size:
        result_end = _LENGTH.size + _LENGTH.unpack_from(data)[0]
        if result_end > len(data):
            return
        yield pickle.loads(data[_LENGTH.size : result_end])
        del data[:result_end]
