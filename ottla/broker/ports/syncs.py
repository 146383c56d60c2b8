"""The syncs of one disk: one job after the other, in a thread, which other threads help with many files. shell

Jobs run one after the other, because the kernel reports a lost write once per open file: of two parallel syncs of a
file the second could succeed, and end first. The files of one job are synced in parallel: then they share the flushes
of the device. Syncs that the event loop makes itself (`File.sync`, `sync_dir`) are not in this queue.

An open log is synced by the descriptor that wrote it. That descriptor was open before the write could be lost and no
other code syncs it, so it reports every loss. Directories, files that were written and closed (indexes, checkpoints)
and logs whose descriptor was closed are opened again. Such a new descriptor reports an earlier loss, unless another
descriptor has reported it before or the inode has left memory (`docs/decisions/flushing.md`).
"""

import fcntl
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from logging import getLogger
from queue import SimpleQueue
from typing import Final, TypeAlias

from ottla.broker.ports.descriptors import shortage

_log = getLogger(__name__)

_Queue: TypeAlias = "SimpleQueue[ThreadSyncJob | int | None]"

_NOT_YET: Final = -1
# How long to wait for a descriptor before the next try.
_WAIT_SECONDS: Final = 0.1
# Files that are synced in parallel: with more threads the device is hardly faster (`docs/decisions/flushing.md`).
_AT_ONCE: Final = 8
# Files that are opened again for a job at the same time.
_OPEN_AT_ONCE: Final = 64


class ThreadSyncJob:
    """A sync in the sync thread of a disk."""

    __slots__ = ("_on_end", "_paths", "descriptors", "done", "error")

    def __init__(self, descriptors: list[int], paths: list[str], on_end: Callable[[], None] | None) -> None:
        self.done = False
        self.error: OSError | None = None
        self.descriptors = descriptors
        self._paths = paths
        self._on_end = on_end

    def run(self, threads: "SyncThreads") -> None:
        """Sync, set `done` and call `on_end`."""
        try:
            self.error = threads.sync(self.descriptors) or sync_paths(self._paths, threads)
        except OSError as error:
            self.error = error
        on_end, self._on_end = self._on_end, None
        self.done = True
        if on_end is not None:
            on_end()


class Syncs:
    """The sync thread of a disk and its queue. The thread starts with the first sync and ends with `stop`."""

    __slots__ = ("_jobs", "_queue")

    def __init__(self) -> None:
        self._queue: _Queue | None = None
        self._jobs: list[ThreadSyncJob] = []

    def start(
        self, descriptors: list[int], paths: list[str], on_end: Callable[[], None] | None = None
    ) -> ThreadSyncJob:
        """Sync open files by their descriptors, and files and directories by their paths; missing paths are skipped.

        Until the job is done, the descriptors must be closed with `close`.
        """
        if self._queue is None:
            self._queue = SimpleQueue()
            threading.Thread(target=_run, args=(self._queue,), name="sync", daemon=True).start()
        job = ThreadSyncJob(descriptors, paths, on_end)
        self._jobs = [each for each in self._jobs if not each.done]
        self._jobs.append(job)
        self._queue.put(job)
        return job

    def close(self, descriptor: int) -> None:
        """Close a descriptor after the syncs that may still use it."""
        if self._queue is not None and any(descriptor in job.descriptors for job in self._jobs if not job.done):
            self._queue.put(descriptor)
        else:
            os.close(descriptor)

    def stop(self) -> None:
        """End the thread after its queued jobs."""
        if self._queue is not None:
            self._queue.put(None)


def _run(queue: _Queue) -> None:
    """Run the jobs of the queue, in the sync thread of a disk."""
    threads = SyncThreads()
    while (job := queue.get()) is not None:
        if isinstance(job, int):
            with suppress(OSError):  # the file is closed in any case, and its writes were synced or are lost already
                os.close(job)
        else:
            job.run(threads)
        del job  # otherwise it keeps its waiting callback alive
    threads.stop()


class SyncThreads:
    """The threads that help the sync thread with the files of a job. They start when a job needs them."""

    __slots__ = ("_count", "_errors", "_shares")

    def __init__(self) -> None:
        self._shares: SimpleQueue[tuple[Sequence[int], bool] | None] = SimpleQueue()
        self._errors: SimpleQueue[OSError | None] = SimpleQueue()
        self._count = 0

    def sync(self, descriptors: Sequence[int], *, data_only: bool = True) -> OSError | None:
        """Sync open files, each of them once, also after an error; return the first error of those that failed."""
        count = 1 + self._start(min(_AT_ONCE, len(descriptors)) - 1)
        for first in range(1, count):
            self._shares.put((descriptors[first::count], data_only))
        errors = [_sync_each(descriptors[::count], data_only), *(self._errors.get() for _ in range(1, count))]
        return next(filter(None, errors), None)

    def _start(self, count: int) -> int:
        """Start threads until there are `count`; return the number that can be used, fewer if the system refuses."""
        with suppress(RuntimeError):
            while self._count < count:
                threading.Thread(target=self._sync_shares, name="sync helper", daemon=True).start()
                self._count += 1
        return max(0, min(self._count, count))

    def _sync_shares(self) -> None:
        while (share := self._shares.get()) is not None:
            self._errors.put(_sync_each(*share))

    def stop(self) -> None:
        """End the threads."""
        for _ in range(self._count):
            self._shares.put(None)


def _sync_each(descriptors: Sequence[int], data_only: bool) -> OSError | None:
    """Sync files one after the other, each of them once; return the first error."""
    failed: OSError | None = None
    for descriptor in descriptors:
        try:
            sync_descriptor(descriptor, data_only)
        except OSError as error:
            failed = failed or error
    return failed


def sync_paths(paths: Sequence[str], threads: SyncThreads) -> OSError | None:
    """Sync files and directories; missing ones are skipped, as they have no data to lose. Return the first error.

    If there are too few free descriptors, sync a few files at a time, and wait if there is not even one.
    """
    failed: OSError | None = None
    left = list(reversed(paths))
    while left:
        opened: list[int] = []
        try:
            while left and len(opened) < _OPEN_AT_ONCE:
                descriptor = _open_descriptor(left[-1], wait=not opened)
                if descriptor == _NOT_YET:
                    break
                left.pop()
                if descriptor is not None:
                    opened.append(descriptor)
            # fdatasync is not enough: on ext4 it need not write a new name of a directory.
            failure = threads.sync(opened, data_only=False)
            failed = failed or failure
        finally:
            for descriptor in opened:
                os.close(descriptor)
    return failed


def _open_descriptor(path: str, wait: bool) -> int | None:
    """Open a path; None if it does not exist, -1 if no descriptor is free and the caller does not `wait`."""
    waited = False
    while True:
        try:
            return os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except FileNotFoundError:
            return None
        except OSError as error:
            limit = shortage(error)
            if limit is None:
                raise
            if not wait:
                return _NOT_YET
            if not waited:
                _log.warning("The sync of %s waits: %s", path, limit)
                waited = True
            time.sleep(_WAIT_SECONDS)


def sync_descriptor(descriptor: int, data_only: bool = True) -> None:
    """Wait until the content is on the device."""
    if sys.platform == "darwin":
        # fsync on macOS stops at the drive's cache.
        fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)
    elif data_only:
        os.fdatasync(descriptor)
    else:
        os.fsync(descriptor)
