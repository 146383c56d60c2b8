"""View `segments`: the files of every segment; its batches are read only when a column needs them. shell"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ottla.protocol.indexes import TXN_ENTRY
from ottla.scan import schemas, storage
from ottla.scan.arrow import micros
from ottla.scan.damage_log import DamageLog
from ottla.scan.listing import PartitionLog, SegmentFile
from ottla.spark_jobs.views.base import ViewReader
from ottla.spark_jobs.views.planning import filter_of, narrowed_log, selected_logs
from ottla.spark_jobs.views.query_tasks import PartitionTask

if TYPE_CHECKING:
    from ottla.scan.chunks import SegmentPiece, SegmentReader

_SCANNED = ("firstOffset", "lastOffset", "batches", "records", "maxTimestamp")
_COLUMNS_OF = {
    ".index": ("indexEntries",),
    ".timeindex": ("timeIndexEntries", "largestTimestamp"),
    ".txnindex": ("abortedTransactions",),
    ".snapshot": ("snapshotProducers",),
}
_SEGMENTS_PER_TASK = 1_000
_SCANNED_BYTES_PER_TASK = 256 * 1024 * 1024


class SegmentsReader(ViewReader):
    """Reader of index files if their columns are requested, of batch headers for `firstOffset` to `maxTimestamp`."""

    view = schemas.SEGMENTS

    def plan(self) -> list[PartitionTask]:
        """Return tasks of many segments each, or, if headers are needed, of about equal size."""
        tasks: list[PartitionTask] = []
        batch: list[PartitionLog] = []
        count = size = 0
        for log in selected_logs(self.options, self.bounds):
            for segment in narrowed_log(log, filter_of(log, self.options, self.bounds), self.bounds).segments:
                batch.append(log._replace(segments=(segment,)))
                count, size = count + 1, size + segment.size_bytes * self.wants(*_SCANNED)
                if count >= _SEGMENTS_PER_TASK or size >= _SCANNED_BYTES_PER_TASK:
                    tasks.append(PartitionTask(batch))
                    batch, count, size = [], 0, 0
        return [*tasks, PartitionTask(batch)] if batch else tasks

    def rows_or_batches(self, task: PartitionTask) -> Iterator[Any]:
        return self.to_arrow(self._rows(task))

    def _rows(self, task: PartitionTask) -> Iterator[dict[str, Any]]:
        from ottla.scan.chunks import SegmentReader

        damage = DamageLog(self.options.on_damage)
        reader = SegmentReader(damage, check_crc=False)
        files = storage.Upcoming(path for log in task.logs for path in self._files_of(log.segments[0]))
        if self.wants(*_SCANNED):
            reader.expect(piece for log in task.logs for piece in _pieces(log))
        for log in task.logs:
            (segment,) = log.segments
            row: dict[str, Any] = {
                "topic": log.topic,
                "partition": log.partition,
                "segment": segment.base_offset,
                "path": segment.path,
                "isActive": segment.is_last,
                "size": segment.size_bytes,
            }
            if self.wants("modified"):
                row["modified"] = storage.status(segment.path).modified_ms * 1000
            row.update(self._index_columns(segment, files))
            if self.wants(*_SCANNED):
                row.update(_scanned_columns(reader, log))
            yield row

    def _index_columns(self, segment: SegmentFile, files: storage.Upcoming) -> dict[str, Any]:
        """Return entries of the index files of the segment; null where a file is missing."""
        from ottla.scan.index_files import offset_entries, snapshot_entries, time_entries

        def read(suffix: str) -> bytes | None:
            return None if segment.lacks(suffix) else files.read(storage.with_suffix(segment.path, suffix))

        row: dict[str, Any] = {}
        if self.wants("indexEntries"):
            content = read(".index")
            row["indexEntries"] = None if content is None else len(offset_entries(content, segment.base_offset).rows)
        if self.wants("timeIndexEntries", "largestTimestamp"):
            content = read(".timeindex")
            entries = time_entries(content or b"", segment.base_offset).rows
            row["timeIndexEntries"] = None if content is None else len(entries)
            row["largestTimestamp"] = micros(int(entries[-1, 1])) if len(entries) else None
        if self.wants("abortedTransactions"):
            content = read(".txnindex")
            row["abortedTransactions"] = None if content is None else len(content) // TXN_ENTRY.size
        if self.wants("snapshotProducers"):
            content = read(".snapshot")
            states = snapshot_entries(content or b"")
            row["snapshotProducers"] = None if states.fault else len(states.rows)
        return row

    def _files_of(self, segment: SegmentFile) -> Iterator[str]:
        """Yield the files that `_index_columns` reads, in its order."""
        for suffix, columns in _COLUMNS_OF.items():
            if self.wants(*columns) and not segment.lacks(suffix):
                yield storage.with_suffix(segment.path, suffix)


def _pieces(log: PartitionLog) -> "Iterator[SegmentPiece]":
    from ottla.scan.ranges import cut_segment

    for segment in log.segments:
        yield from cut_segment(segment, segment.size_bytes + 1, log.recovery_point)


def _scanned_columns(reader: "SegmentReader", log: PartitionLog) -> dict[str, Any]:
    from ottla.scan import headers

    first = last = None
    batches = records = 0
    latest = -1
    for piece in _pieces(log):
        for chunk in reader.chunks(piece):
            first = int(chunk.rows[0, headers.BASE_OFFSET]) if first is None else first
            last = int(chunk.rows[-1, headers.LAST_OFFSET])
            batches += len(chunk.rows)
            records += int(chunk.rows[:, headers.RECORD_COUNT].sum())
            latest = max(latest, int(chunk.rows[:, headers.MAX_TIMESTAMP].max()))
    return {
        "firstOffset": first,
        "lastOffset": last,
        "batches": batches,
        "records": records,
        "maxTimestamp": micros(latest),
    }
