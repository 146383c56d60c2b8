"""A partition as its high watermark has it: without what is not known to be on all in-sync replicas. shell

A consumer is given nothing behind the high watermark (`FetchIsolation.HIGH_WATERMARK`), and a marker behind it ends no
transaction yet. So the files are taken as if they ended there, and everything else follows. What is known is the last
checkpoint, `replication-offset-checkpoint`, in which a partition that is missing has 0 (`Partition.createLog`).
"""

from collections.abc import Sequence

from ottla.protocol.checkpoints import HIGH_WATERMARKS
from ottla.scan import storage
from ottla.scan.damage_log import DamageLog
from ottla.scan.listing import PartitionLog, SegmentFile, UnreadableDirectory, find_checkpoint, storage_path


def below_high_watermark(directory: str, logs: Sequence[PartitionLog], on_damage: str) -> list[PartitionLog]:
    """The partitions of `directory`, each as far as its checkpointed high watermark. Raises UnreadableDirectory."""
    watermarks = find_checkpoint(storage.join(storage_path(directory), HIGH_WATERMARKS))
    if watermarks is None:
        raise UnreadableDirectory(f"{storage.hide_secrets(directory)}: it has no readable {HIGH_WATERMARKS}")
    return [_cut(log, watermarks.get((log.topic, log.partition), 0), on_damage) for log in logs]


def _cut(log: PartitionLog, end: int, on_damage: str) -> PartitionLog:
    """`log` without the batches that reach to `end` or behind it."""
    kept = [segment for segment in log.segments if segment.base_offset <= end] or list(log.segments[:1])
    if not kept:
        return log
    *before, last = kept
    cut = last._replace(size_bytes=_bytes_below(log, last, end, on_damage), is_last=True)
    snapshots = tuple(path for path in log.snapshots if int(storage.stem_of(path)) <= end)
    return log._replace(segments=(*before, cut), snapshots=snapshots)


def _bytes_below(log: PartitionLog, segment: SegmentFile, end: int, on_damage: str) -> int:
    """Return the position of the first batch that reaches to `end`, or the end of the segment if there is none."""
    from ottla.scan import headers
    from ottla.scan.chunks import SegmentReader
    from ottla.scan.narrowing import narrowed_range
    from ottla.scan.ranges import cut_partition
    from ottla.scan.records import ReadFilter

    reader = SegmentReader(DamageLog(on_damage), check_crc=False)
    for part in cut_partition(0, log._replace(segments=(segment,)), segment.size_bytes + 1):
        for piece in narrowed_range(part, ReadFilter(first_offset=end)).pieces:
            for chunk in reader.chunks(piece):
                reaching = chunk.rows[chunk.rows[:, headers.LAST_OFFSET] >= end]
                if len(reaching):
                    return chunk.file_position + int(reaching[0, headers.POSITION])
    return segment.size_bytes
