"""Group commit: one sync at a time covers everything that was appended before it began. shell

A partition requests a flush after an append that must be on the device. One sync starts for all partitions with a
request, when the requests that have arrived by then are handled or the running sync has ended. After it, their high
watermarks advance. So all waiting requests share the cost of a sync, and each waits for at most two.

A failed sync is never tried again: the kernel may have dropped the pages and marked them clean.
"""

from collections.abc import Callable

from ottla.broker.log.partition import Partition
from ottla.broker.metrics import SyncMetrics
from ottla.broker.ports.clock import Clock
from ottla.broker.ports.disk import Disk, SyncJob


class Flusher:
    """The flushes of one log directory. `failed` is called with the first error; no flush follows it.

    `busy`: a flush is running or requested.
    """

    def __init__(self, disk: Disk, clock: Clock, failed: Callable[[OSError], None]) -> None:
        self._disk = disk
        self._clock = clock
        self._failed = failed
        self._dirty: dict[Partition, None] = {}
        self._covered: list[tuple[Partition, int]] = []
        self._job: SyncJob | None = None
        self._scheduled = False
        self._appends = 0
        self._began_ms = 0.0
        self.busy = False
        self.metrics = SyncMetrics()

    def raise_sync_error(self) -> None:
        """Raise the OSError of the running sync, if it has failed and the error was not handled yet."""
        if self._job is not None and self._job.done and self._job.error is not None:
            raise self._job.error

    def flush(self, partition: Partition) -> None:
        """Flush the partition up to its current end, then call `Partition.complete_flush`."""
        self._dirty[partition] = None
        self._appends += 1
        self._schedule()

    def start(self) -> None:
        """Start the requested sync, if there is one: at the next turn, or earlier if no other request is coming."""
        if self._scheduled:
            self._start_sync()

    def _schedule(self) -> None:
        if not self._scheduled and self._job is None:
            self._scheduled = self.busy = True
            # Not at the end of this turn: requests that have arrived meanwhile have turns of their own, and would have
            # to wait for a sync without them.
            self._clock.next_turn(self.start)

    def _start_sync(self) -> None:
        self._scheduled = self.busy = False
        dirty, self._dirty = self._dirty, {}
        paths: dict[str, None] = {}
        for partition in dirty:
            log = partition.log
            if partition.offline is None and log.flushed_offset < log.log_end_offset:
                self._covered.append((partition, log.log_end_offset))
                paths.update(dict.fromkeys(log.files_to_flush()))
        appends, self._appends = self._appends, 0
        if paths:
            self.metrics.batches.observe(appends)
            self._began_ms = self.metrics.now_ms()
            self._job = self._disk.start_sync([*paths], lambda: self._clock.from_thread(self._end))
            self.busy = True

    def _end(self) -> None:
        job, self._job = self._job, None
        self.busy = False
        covered, self._covered = self._covered, []
        self.metrics.time.observe(self.metrics.now_ms() - self._began_ms)
        if job is not None and job.error is not None:
            self.metrics.failed += 1
            self._failed(job.error)
            return
        appends = self._appends
        for partition, end_offset in covered:
            partition.complete_flush(end_offset)
        self._appends = appends  # partitions that request another flush there have appended nothing
        if self._dirty:
            self._schedule()
