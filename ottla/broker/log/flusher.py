"""Group commit: one sync at a time covers everything that was appended before it began. shell

A partition asks for a flush when it has appended what must be on the device. Behind the requests that have arrived by
then, or when the sync that is under way has ended, one sync starts for all of them; then their high watermarks move. So
the cost of a sync is shared by all who wait for it, and nobody waits for more than two.

A sync that failed is never tried again: the kernel may have dropped the pages and called them clean.
"""

from collections.abc import Callable

from ottla.broker.log.partition import Partition
from ottla.broker.metrics import SyncMetrics
from ottla.broker.ports.clock import Clock
from ottla.broker.ports.disk import Disk, SyncJob


class Flusher:
    """The flushes of one log directory; `failed` hears of the first that fails, and it was the last.

    `busy`: a flush is under way or asked for.
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
        """Raises the OSError of the sync that was under way, if it has failed and that was not heard yet."""
        if self._job is not None and self._job.done and self._job.error is not None:
            raise self._job.error

    def flush(self, partition: Partition) -> None:
        """Put what the partition holds now on the device, then tell it (`Partition.flushed`)."""
        self._dirty[partition] = None
        self._appends += 1
        self._schedule()

    def start(self) -> None:
        """Start the sync that is asked for, if none is under way: at the next turn, or when nobody else will come."""
        if self._scheduled:
            self._start()

    def _schedule(self) -> None:
        if not self._scheduled and self._job is None:
            self._scheduled = self.busy = True
            # Not at the end of this turn: who has sent something meanwhile has a turn of its own, and would have to
            # wait for a sync of this one's alone.
            self._clock.next_turn(self.start)

    def _start(self) -> None:
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
            self._job = self._disk.start_sync([*paths], lambda: self._clock.from_thread(self._ended))
            self.busy = True

    def _ended(self) -> None:
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
            partition.flushed(end_offset)
        self._appends = appends  # who asks once more there has appended nothing
        if self._dirty:
            self._schedule()
