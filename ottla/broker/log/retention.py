"""Deletion of the oldest segments of a log: by log start offset, by size, by age. shell

A segment is deleted when all of it is below the high watermark and one of these holds: all its records are below the
log start offset (DeleteRecords); without the segment the log still has `retention.bytes`; its youngest record, or its
file if no record has a timestamp, is older than `retention.ms`. The active segment is deleted too, after it is rolled.
Size and age count where `cleanup.policy` contains delete.

Source: Kafka's `UnifiedLog.deleteOldSegments`, `LocalLog.removeAndDeleteSegments`, `LogManager.cleanupLogs`.
"""

from collections.abc import Callable, Iterable
from itertools import islice
from logging import getLogger
from typing import Final

from ottla.broker.costs import LOOKUP_US, ROW_US
from ottla.broker.log.file_deleter import FileDeleter
from ottla.broker.log.partition import Partition
from ottla.broker.log.segments.log_segment import LogSegment
from ottla.broker.log.swap import add_deleted_suffix
from ottla.broker.ports.clock import Clock
from ottla.broker.ports.disk import Disk
from ottla.broker.turns import Turns
from ottla.protocol.errors import ProtocolError

_log = getLogger(__name__)

SEGMENTS_PER_STEP: Final = 8


def count_deletable(partition: Partition, now_ms: int, modified_ms: Callable[[LogSegment], int], most: int) -> int:
    """Return how many of the oldest segments can be deleted now, at most `most`."""
    settings = partition.log.config
    by_size = settings.cleanup_delete and settings.retention_bytes >= 0
    by_age = settings.cleanup_delete and settings.retention_ms >= 0
    excess_bytes = partition.log.size_bytes - settings.retention_bytes if by_size else -1
    segments = list(islice(partition.log.segments, most + 1))
    count = 0
    for position, segment in enumerate(segments[:most]):
        active = position == len(segments) - 1
        end_offset = partition.log_end_offset if active else segments[position + 1].base_offset
        if end_offset > partition.high_watermark or (active and segment.size_bytes == 0):
            break
        if not (
            (not active and end_offset <= partition.log_start_offset)
            or excess_bytes >= segment.size_bytes
            or (by_age and now_ms - _youngest_ms(segment, modified_ms) > settings.retention_ms)
        ):
            break
        excess_bytes -= segment.size_bytes
        count += 1
    return count


def _youngest_ms(segment: LogSegment, modified_ms: Callable[[LogSegment], int]) -> int:
    """Return the largest timestamp in a segment, or the modification time of its file if no record has one."""
    timestamp_ms = segment.index.max_timestamp_ms
    return timestamp_ms if timestamp_ms >= 0 else modified_ms(segment)


class Retention:
    """The retention of all partitions of a log directory."""

    def __init__(
        self,
        partitions: Callable[[], Iterable[Partition]],
        disk: Disk,
        clock: Clock,
        turns: Turns,
        deleter: FileDeleter,
        failed: Callable[[OSError], None],
    ) -> None:
        """Create the retention. `failed` is called with the error of failed IO; it takes the log directory offline."""
        self._partitions = partitions
        self._disk = disk
        self._clock = clock
        self._turns = turns
        self._deleter = deleter
        self._failed = failed

    async def run(self) -> None:
        """Apply retention to every partition once, over many turns."""
        for partition in list(self._partitions()):
            await self.delete_old_segments(partition)

    async def delete_old_segments(self, partition: Partition) -> None:
        """Delete the segments of one partition that can be deleted, over many turns."""
        more = True
        while more:
            self._turns.charge(ROW_US + len(partition.log.segments) * LOOKUP_US)
            more = partition.offline is None and self._delete_some(partition)
            await self._turns.yield_if_due()

    def _delete_some(self, partition: Partition) -> bool:
        """Delete a few of the oldest segments; return whether there may be more to delete."""

        def modified_ms(segment: LogSegment) -> int:
            return self._disk.modified_ms(segment.log_path)

        try:
            # The age of a segment may need its index files: examine only segments of this step and one more.
            count = count_deletable(partition, self._clock.now_ms(), modified_ms, SEGMENTS_PER_STEP + 1)
            step = min(count, SEGMENTS_PER_STEP)
            return step > 0 and self._delete(partition, step) and count > step
        except OSError as error:
            self._failed(error)
        except ProtocolError as bad:
            _log.error(
                "%(topic)s-%(partition)d: nothing is deleted by age or size: %(why)s", partition.about | {"why": bad}
            )
        return False

    def _delete(self, partition: Partition, count: int) -> bool:
        """Delete the oldest `count` segments; return whether they were removed."""
        removed = partition.drop_oldest(count)
        for segment in removed:  # all of them first: a failed rename must not leave some open
            segment.close()
        deleted: list[str] = []
        for segment in removed:
            deleted += add_deleted_suffix(self._disk, segment.log_path.removesuffix(".log"), with_snapshot=True)
        self._deleter.delete_later(deleted, partition.log.config.file_delete_delay_ms)
        if removed:
            _log.info(
                "%(topic)s-%(partition)d: deleted %(count)d segments, the log begins at %(offset)d",
                partition.about | {"count": count, "offset": partition.log_start_offset},
            )
        return bool(removed)
