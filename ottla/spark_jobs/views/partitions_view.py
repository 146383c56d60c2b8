"""View `partitions`: one row per partition: offsets, sizes, and the fates of its records and transactions. shell"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ottla.protocol.checkpoints import HIGH_WATERMARKS
from ottla.scan import schemas, storage
from ottla.scan.listing import read_checkpoint
from ottla.spark_jobs.views.base import ViewReader
from ottla.spark_jobs.views.planning import fates_of, plan_partitions
from ottla.spark_jobs.views.query_tasks import PartitionTask
from ottla.wire import is_kafka_address

if TYPE_CHECKING:
    from ottla.scan.fates import PartitionFates

# Columns that need no fates, and columns that need no count of every batch.
_LISTED = {"topic", "partition", "segment", "path", "segments", "size", "logStart", "highWatermark"}
# Columns that brokers answer.
_ANSWERED = {"logEnd", "lastStableOffset"}
_INDEXED = _LISTED | {"logEnd", "lastStableOffset", "openTransactions"}


class PartitionReader(ViewReader):
    """Reader of partitions. Sizes are in the listing, the log end in indexes and tail; only counts need all headers."""

    view = schemas.PARTITIONS

    def plan(self) -> list[PartitionTask]:
        return plan_partitions(self.options, self.bounds)

    def rows_or_batches(self, task: PartitionTask) -> Iterator[Any]:
        return self.to_arrow(self._rows(task))

    def _rows(self, task: PartitionTask) -> Iterator[dict[str, Any]]:
        names = {name for name, _ in self.fields}
        watermarks = {}
        if "highWatermark" in names:
            for directory in {storage.parent(log.path) for log in task.logs}:
                if not is_kafka_address(directory):
                    watermarks[directory] = read_checkpoint(storage.join(directory, HIGH_WATERMARKS))
        for log in task.logs:
            known = watermarks.get(storage.parent(log.path), {})
            row = {
                "topic": log.topic,
                "partition": log.partition,
                "segment": log.segments[-1].base_offset if log.segments else None,
                "path": log.path,
                "segments": len(log.segments),
                "size": log.size_bytes,
                "logStart": log.log_start,
                "highWatermark": known.get((log.topic, log.partition)),
            }
            answered = set() if log.window is None else _ANSWERED
            if log.window is not None:
                row |= {
                    "logEnd": log.window.end_offset,
                    "highWatermark": log.window.end_offset,
                    "lastStableOffset": log.window.stable_offset,
                }
            if not names <= _LISTED | answered:
                (fates,) = fates_of([log], self.options, counted=not names <= _INDEXED)
                row |= _of_fates(fates)
            yield row


def _of_fates(fates: "PartitionFates") -> dict[str, int]:
    return {
        "logEnd": fates.log_end,
        "lastStableOffset": fates.last_stable_offset,
        "batches": fates.batches,
        "controlBatches": fates.control_batches,
        "plainRecords": fates.plain_records,
        "committedRecords": fates.committed.records,
        "abortedRecords": fates.aborted.records,
        "openRecords": fates.opened.records,
        "committedTransactions": fates.committed.transactions,
        "abortedTransactions": fates.aborted.transactions,
        "openTransactions": fates.opened.transactions,
    }
