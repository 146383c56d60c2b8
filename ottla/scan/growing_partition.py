"""Reader of a growing partition: each update reads the headers of the batches appended since the last update. shell

It begins at the segment that holds the first offset of interest. From lower offsets it needs only the open
transactions, which that segment's producer snapshot has. Without a sound snapshot it begins at an earlier segment.
"""

from typing import Final

import numpy as np

from ottla.scan import events, headers, states
from ottla.scan.chunks import SegmentPiece, SegmentReader
from ottla.scan.compiled.kernels import Longs
from ottla.scan.damage_log import Damage, DamageLog
from ottla.scan.events import Follower
from ottla.scan.fates import ABORTED_COLUMNS, OpenTransaction, aborted_of, open_of
from ottla.scan.indexed_fates import read_snapshot, snapshot_offset
from ottla.scan.listing import PartitionLog, SegmentFile
from ottla.scan.partitions import entering

_NONE: Final = np.empty((0, ABORTED_COLUMNS), dtype=np.int64)


class GrowingPartition:
    """State of a growing partition. Call `update` before each query. Offsets below `from_offset` are ignored."""

    def __init__(self, from_offset: int, on_damage: str) -> None:
        self.log_start = 0
        self._from = from_offset
        self._damage = DamageLog(on_damage)
        self._reader = SegmentReader(self._damage, check_crc=True)
        self._follower: Follower | None = None
        self._segment = -1
        self._position = 0
        self._aborted = _NONE
        self._open = states.empty().rows
        # Times of markers that were read: the first, and the last of each producer.
        self.first_marker_ms = -1
        self.last_marker_ms: dict[int, int] = {}

    @property
    def log_end(self) -> int:
        """The offset after the last whole batch."""
        return max(self._follower.next_offset if self._follower else 0, self.log_start, self._segment)

    @property
    def last_stable_offset(self) -> int:
        """The first offset of the earliest open transaction, else the log end."""
        if len(self._open) == 0:
            return self.log_end
        return max(int(self._open[0, states.FIRST_OFFSET]), self.log_start)

    @property
    def open_transactions(self) -> list[OpenTransaction]:
        """The open transactions by first offset."""
        return [open_of(row) for row in self._open]

    @property
    def unread(self) -> tuple[Damage, ...]:
        """Damaged ranges. Whether their batches were aborted is unknown."""
        return tuple(self._damage.found)

    def find_aborted(self, first_offset: int, end_offset: int) -> Longs:
        """Return aborts that overlap the offsets: (producer id, first offset, marker offset), sorted."""
        found = self._aborted[(self._aborted[:, 2] >= first_offset) & (self._aborted[:, 1] < end_offset)]
        return found[np.lexsort((found[:, 1], found[:, 0]))]

    def covers(self, offset: int) -> bool:
        """Return whether the aborted ranges from `offset` on are known."""
        return offset >= self._from

    def forget_below(self, offset: int) -> None:
        """Drop the aborted ranges below `offset`. Later queries are at or above it."""
        self._from = max(self._from, offset)
        self._aborted = self._aborted[self._aborted[:, 2] >= offset].copy()

    def update(self, log: PartitionLog) -> None:
        """Read up to the end of `log`, a new listing. Raises DamagedSegment in mode `fail`, OSError."""
        self.log_start = log.log_start
        if self._follower is None or not self._continues_in(log):
            self._begin(log)
        for segment in log.segments:
            if segment.base_offset >= self._segment:
                self._read(segment, log.recovery_point)
        assert self._follower is not None
        self._open = self._follower.leaving().open_rows

    def _continues_in(self, log: PartitionLog) -> bool:
        """Return False if the log was truncated, or compaction replaced the segment that was read last."""
        assert self._follower is not None
        for segment in log.segments:
            if segment.base_offset == self._segment:
                return segment.size_bytes >= self._position
        # The segment was deleted: all of it was read, or the rest of the log begins after missing offsets.
        return bool(log.segments) and log.segments[0].base_offset >= self._follower.next_offset

    def _begin(self, log: PartitionLog) -> None:
        segments = log.segments[_first_to_read(log, self._from) :]
        start = entering(log._replace(segments=segments))
        self._follower = Follower(start, log.log_start, states.DEFAULT_EXPIRATION_MS, has_sequences=False)
        self._segment, self._position = (segments[0].base_offset if segments else log.log_start), 0
        self._aborted = _NONE
        self.first_marker_ms, self.last_marker_ms = -1, {}

    def _read(self, segment: SegmentFile, recovery_point: int) -> None:
        follower = self._follower
        assert follower is not None
        if segment.base_offset != self._segment:
            self._segment, self._position = segment.base_offset, 0
        size = segment.size_bytes
        piece = SegmentPiece(
            segment.path, segment.base_offset, self._position, size, size, segment.is_last, recovery_point
        )
        found = [self._aborted]
        for chunk in self._reader.chunks(piece, follower.next_offset):
            ended, _, _ = follower.follow(chunk.rows, chunk.file_position, segment.base_offset)
            found.append(aborted_of(ended))
            self._keep_times(ended)
            last = chunk.rows[-1]
            self._position = chunk.file_position + int(last[headers.POSITION] + last[headers.SIZE])
        self._aborted = np.concatenate(found)

    def _keep_times(self, ended: Longs) -> None:
        if len(ended):
            if self.first_marker_ms < 0:
                self.first_marker_ms = int(ended[0, events.ENDED_END_MS])
            columns = [events.ENDED_PRODUCER_ID, events.ENDED_END_MS]
            self.last_marker_ms.update(ended[:, columns].tolist())


def _first_to_read(log: PartitionLog, offset: int) -> int:
    """Return the index of the last segment at or below `offset` that has a sound snapshot; 0 without any."""
    snapshots = {snapshot_offset(path): path for path in log.snapshots}
    for index in range(len(log.segments) - 1, 0, -1):
        base = log.segments[index].base_offset
        if base <= offset and base in snapshots and read_snapshot(snapshots[base]) is not None:
            return index
    return 0
