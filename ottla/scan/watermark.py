"""Partitions up to their high watermark: without batches that may be missing on an in-sync replica. shell

A consumer reads only below the high watermark (`FetchIsolation.HIGH_WATERMARK`), and a marker after it ends no
transaction yet. So Ottla reads the files as if they ended there. The high watermark is that of the last checkpoint,
`replication-offset-checkpoint`. A partition that is missing in it has 0 (`Partition.createLog`).
"""

from collections.abc import Sequence

from ottla.protocol.checkpoints import HIGH_WATERMARKS
from ottla.scan import storage
from ottla.scan.damage_log import DamageLog
from ottla.scan.listing import PartitionLog, SegmentFile, UnreadableDirectory, find_checkpoint, storage_path


def below_high_watermark(directory: str, logs: Sequence[PartitionLog], on_damage: str) -> list[PartitionLog]:
    """Return the partitions of `directory` up to their checkpointed high watermarks. Raises UnreadableDirectory."""
    watermarks = find_checkpoint(storage.join(storage_path(directory), HIGH_WATERMARKS))
    if watermarks is None:
        raise UnreadableDirectory(f"{storage.hide_secrets(directory)}: it has no readable {HIGH_WATERMARKS}")
    return [_cut(log, watermarks.get((log.topic, log.partition), 0), on_damage) for log in logs]


def _cut(log: PartitionLog, end: int, on_damage: str) -> PartitionLog:
    """Return `log` without the batches that have offsets at or after `end`."""
    kept = [segment for segment in log.segments if segment.base_offset <= end] or list(log.segments[:1])
    if not kept:
        return log
    *before, last = kept
    cut = last._replace(size_bytes=_bytes_below(log, last, end, on_damage), is_last=True)
    snapshots = tuple(path for path in log.snapshots if int(storage.stem_of(path)) <= end)
    return log._replace(segments=(*before, cut), snapshots=snapshots)


def _bytes_below(log: PartitionLog, segment: SegmentFile, end: int, on_damage: str) -> int:
    """Return the position of the first batch with offsets at or after `end`, else the end of the segment."""
    from ottla.scan import headers
    from ottla.scan.chunks import SegmentReader
    from ottla.scan.narrowing import narrowed_range
    from ottla.scan.ranges import cut_partition
    from ottla.scan.records import ReadFilter

    reader = SegmentReader(DamageLog(on_damage), check_crc=False)
    for part in cut_partition(0, log._replace(segments=(segment,)), segment.size_bytes + 1):
        for piece in narrowed_range(part, ReadFilter(first_offset=end)).segment_pieces:
            for chunk in reader.chunks(piece):
                reaching = chunk.rows[chunk.rows[:, headers.LAST_OFFSET] >= end]
                if len(reaching):
                    return chunk.file_position + int(reaching[0, headers.POSITION])
    return segment.size_bytes
