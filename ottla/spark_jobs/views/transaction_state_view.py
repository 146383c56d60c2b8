"""View `transaction_state`: the last record of each transactional id at the coordinator, or all. shell"""

from collections.abc import Iterator
from typing import Any

from ottla.protocol.internal_topics.transaction_records import TransactionValue
from ottla.scan import schemas
from ottla.scan.arrow import micros
from ottla.scan.listing import PartitionLog
from ottla.spark_jobs.views.base import ViewReader
from ottla.spark_jobs.views.internal import TRANSACTION_STATE, StoredRecord, row_at, transaction_states
from ottla.spark_jobs.views.planning import selected_logs
from ottla.spark_jobs.views.query_tasks import PartitionTask

# Names of states as Kafka's tools print them, by the number in the record.
STATES = ("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort")


class TransactionStateReader(ViewReader):
    """Reader with a task per partition of the topic: an id is always in the same one."""

    view = schemas.TRANSACTION_STATE

    def plan(self) -> list[PartitionTask]:
        return [PartitionTask([log]) for log in selected_logs(self.options, self.bounds, TRANSACTION_STATE)]

    def rows_or_batches(self, task: PartitionTask) -> Iterator[Any]:
        (log,) = task.logs
        found = transaction_states(log, self.options.on_damage)
        if not self.options.history:
            last = {each[1]: each for each in found}
            found = (each for each in sorted(last.values(), key=lambda each: each[0].offset) if each[2] is not None)
        return self.to_arrow(_row(log, *each) for each in found)


def _row(
    log: PartitionLog, record: StoredRecord, transactional_id: str, value: TransactionValue | None
) -> dict[str, Any]:
    row = row_at(schemas.TRANSACTION_STATE, log, record)
    row["transactionalId"] = transactional_id
    if value is not None:
        row.update(
            producerId=value.producer_id,
            producerEpoch=value.producer_epoch,
            previousProducerId=_known(value.previous_producer_id),
            nextProducerId=_known(value.next_producer_id),
            state=STATES[value.status] if 0 <= value.status < len(STATES) else str(value.status),
            timeoutMs=value.timeout_ms,
            partitions=[{"topic": topic, "partitions": numbers} for topic, numbers in value.partitions or ()],
            startTime=micros(value.start_ms),
            updateTime=micros(value.last_update_ms),
            clientVersion=value.client_version,
        )
    return row


def _known(producer_id: int) -> int | None:
    return None if producer_id < 0 else producer_id
