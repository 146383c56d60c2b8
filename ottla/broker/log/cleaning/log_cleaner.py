"""Selection of the next compacted log to clean, over many turns between the requests. shell

Of the logs with enough dirty bytes, or whose dirty records have waited too long, it selects the one with the largest
ratio of dirty bytes; `cleaner.py` cleans it. The event loop does the work of Kafka's cleaner threads.

Source: Kafka's `LogCleaner`, `LogCleanerManager` (4.3.1).
"""

from logging import getLogger

from ottla.broker.config.option import INT64_MAX
from ottla.broker.costs import LOOKUP_US, ROW_US
from ottla.broker.log.cleaning.cleaner import Cleaner, LogCleaningAborted, LogToClean
from ottla.broker.log.cleaning.compaction import KEY_BYTES, CleanableOffsets, SegmentSizes, cleanable_offsets
from ottla.broker.log.log_manager import LogManager
from ottla.broker.log.long_work import LongWork
from ottla.broker.log.partition import Partition
from ottla.broker.ports.clock import Clock
from ottla.broker.ports.descriptors import Shortage
from ottla.broker.ports.disk import Disk
from ottla.broker.ports.workers import DeferredWorkers
from ottla.broker.turns import OneAtATime, Turns
from ottla.protocol.compression import TooLarge
from ottla.protocol.errors import ProtocolError

_log = getLogger(__name__)


class LogCleaner:
    """Cleans the compacted logs of one directory. `start` is called every `log.cleaner.backoff.ms`."""

    def __init__(
        self,
        logs: LogManager,
        disk: Disk,
        clock: Clock,
        turns: Turns,
        dedupe_buffer_bytes: int,
        long_work: LongWork | None = None,
    ) -> None:
        """Create the cleaner. Without `long_work` all work runs on the event loop."""
        self._logs = logs
        self._clock = clock
        self._turns = turns
        long_work = long_work or LongWork(turns, DeferredWorkers(turns.next_turn), dedupe_buffer_bytes)
        self._cleaner = Cleaner(logs.deleter, disk, clock, turns, long_work)
        self.set_dedupe_buffer(dedupe_buffer_bytes)
        self._cleaning = OneAtATime(turns, self._log_failure)
        # Damaged logs are not tried again; logs whose cleaning was aborted are tried again after the next `start`.
        self._uncleanable: set[Partition] = set()
        self._postponed: set[Partition] = set()

    def set_dedupe_buffer(self, size_bytes: int) -> None:
        """Set the memory for the keys of the next log to clean."""
        self._keys_max = max(1, size_bytes // KEY_BYTES)

    def start(self) -> None:
        """Start to clean the logs that are dirty enough. No effect while a cleaning is running."""
        if self._uncleanable:
            self._uncleanable.intersection_update(self._logs)  # without those that were deleted
        if not self._cleaning.under_way and self._logs.offline is None and self._has_work():
            self._postponed.clear()
            self._cleaning.start(self._clean_filthiest_logs)

    def stop(self) -> None:
        """Abort the running cleaning. The next start of the broker removes or completes its files."""
        self._cleaning.discard()

    def _has_work(self) -> bool:
        logs = (partition.log for partition in self._logs)
        return any(log.config.cleanup_compact and len(log.segments) > 1 for log in logs)

    def _log_failure(self, error: Exception) -> None:
        _log.error("The log cleaner failed; its next run tries again", exc_info=error)

    async def _clean_filthiest_logs(self) -> None:
        try:
            while (log := await self._grab_filthiest_compacted_log()) is not None:
                await self._clean_log(log)
        except OSError as error:
            self._logs.fail(error)

    async def _clean_log(self, log: LogToClean) -> None:
        partition = log.partition
        try:
            end_offset = await self._cleaner.clean(log, self._keys_max)
            self._logs.done_cleaning(partition, end_offset)
        except (LogCleaningAborted, Shortage) as why:
            _log.info("%(topic)s-%(partition)d is not cleaned now: %(why)s", partition.about | {"why": why})
            self._postponed.add(partition)
        except ProtocolError as damage:
            self._mark_uncleanable(partition, damage)

    def _mark_uncleanable(self, partition: Partition, damage: ProtocolError) -> None:
        why = str(damage) if isinstance(damage, TooLarge) else f"it is damaged: {damage}"
        _log.error("%(topic)s-%(partition)d is not cleaned any more, %(why)s", partition.about | {"why": why})
        self._uncleanable.add(partition)

    # --- which log ------------------------------------------------------------------------------------------------

    async def _grab_filthiest_compacted_log(self) -> LogToClean | None:
        """Return the log with the largest dirty ratio, of those that are dirty enough or for too long; else None."""
        now_ms = self._clock.now_ms()
        best: LogToClean | None = None
        for partition in list(self._logs):
            await self._turns.spend(LOOKUP_US)
            settings = partition.log.config
            if not settings.cleanup_compact or partition.offline is not None or len(partition.log.segments) < 2:
                continue
            if partition in self._uncleanable or partition in self._postponed:
                continue
            self._turns.charge(len(partition.log.segments) * ROW_US)
            try:
                offsets = self._cleanable_offsets(partition, now_ms)
                due = offsets.cleanable_bytes > 0 and self._needs_compaction_now(partition, offsets, now_ms)
            except ProtocolError as damage:
                self._mark_uncleanable(partition, damage)
                continue
            except Shortage:
                continue
            ratio = offsets.cleanable_ratio
            if (due or ratio > settings.min_cleanable_dirty_ratio) and (
                best is None or ratio > best.offsets.cleanable_ratio
            ):
                best = LogToClean(partition, offsets)
        return best

    def _cleanable_offsets(self, partition: Partition, now_ms: int) -> CleanableOffsets:
        first_dirty = self._logs.first_dirty_offset(partition)
        if not partition.log_start_offset <= first_dirty <= partition.log_end_offset:
            first_dirty = partition.log_start_offset
        uncleanable_offset = partition.last_stable_offset
        lag_ms = partition.log.config.min_compaction_lag_ms
        if lag_ms > 0:
            for segment in partition.log.segments.segments_from(first_dirty)[:-1]:
                largest_ms = segment.index.max_timestamp_ms
                if (largest_ms if largest_ms >= 0 else segment.created_ms) > now_ms - lag_ms:
                    uncleanable_offset = min(uncleanable_offset, segment.base_offset)
                    break
        sizes = [SegmentSizes(segment.base_offset, segment.size_bytes) for segment in partition.log.segments]
        return cleanable_offsets(sizes, first_dirty, uncleanable_offset)

    def _needs_compaction_now(self, partition: Partition, offsets: CleanableOffsets, now_ms: int) -> bool:
        lag_ms = partition.log.config.max_compaction_lag_ms
        if lag_ms == INT64_MAX:
            return False
        for segment in partition.log.segments.segments_from(offsets.first_dirty)[:-1]:
            if segment.size_bytes and 0 < segment.first_timestamp_ms() < now_ms - lag_ms:
                return True
        return False
