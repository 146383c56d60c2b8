"""View `transactions`: a row for every marker and for every transaction without one, per partition. shell"""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import InputPartition

from ottla.spark_jobs import schemas
from ottla.spark_jobs.scan.damage import DamageLog
from ottla.spark_jobs.scan.listing import PartitionLog
from ottla.spark_jobs.views.base import ViewReader, numbers, record_batch, times
from ottla.spark_jobs.views.internal import transactional_ids
from ottla.spark_jobs.views.planning import Task, plan_partitions, told_damage

if TYPE_CHECKING:
    import pyarrow as pa

    from ottla.spark_jobs.scan.kernels import Longs

# By the number of the marker's type; the last is for those without a marker.
FATES = ("aborted", "committed", "open")
_OPEN = 2


class TransactionReader(ViewReader):
    """Each partition is walked from its start in one task: a transaction may span any number of segments."""

    view = schemas.TRANSACTIONS

    def plan(self) -> list[InputPartition]:
        return plan_partitions(self.options, self.bounds)

    def rows_or_batches(self, task: Task) -> Iterator[Any]:
        from ottla.spark_jobs.scan import events
        from ottla.spark_jobs.views.walking import PartitionWalk

        damage = DamageLog(self.options.on_damage)
        for log in task.logs:
            walked = PartitionWalk(log, damage)
            for step in walked:
                ended = step.ended[step.ended[:, events.ENDED_MARKER_OFFSET] >= log.log_start]
                if len(ended):
                    yield self._table(log, _of_ended(ended))
            opened = _of_open(log, walked.leaving.open_rows)
            if len(opened["firstOffset"]):
                yield self._table(log, opened)
        told_damage(damage)

    def _table(self, log: PartitionLog, columns: "dict[str, Longs]") -> "pa.RecordBatch":
        return record_batch(self.arrow_schema(), {name: self._column(log, columns, name) for name, _ in self.fields})

    def _column(self, log: PartitionLog, columns: "dict[str, Longs]", name: str) -> Any:
        """-1 stands for what is not known or not there, which is null; producer ids and epochs are never so."""
        import numpy as np
        import pyarrow as pa

        rows = len(columns["firstOffset"])
        made: dict[str, Callable[[], Any]] = {
            "topic": lambda: pa.repeat(pa.scalar(log.topic, pa.string()), rows),
            "partition": lambda: np.full(rows, log.partition, dtype=np.int32),
            "fate": lambda: [FATES[fate] for fate in columns["fate"].tolist()],
            "transactionalId": lambda: self._names(columns["producerId"]),
            "durationMs": lambda: _durations(columns["startTime"], columns["endTime"]),
            "startTime": lambda: times(columns["startTime"]),
            "endTime": lambda: times(columns["endTime"]),
            "producerId": lambda: columns["producerId"],
        }
        return made[name]() if name in made else numbers(columns[name])

    def _names(self, producer_ids: "Longs") -> list[str | None]:
        names = transactional_ids(self.options.path, self.options.on_damage)
        return [names.get(producer_id) for producer_id in producer_ids.tolist()]


def _of_ended(ended: "Longs") -> "dict[str, Longs]":
    """A marker that ends nothing has its own row too, without the columns of data."""
    import numpy as np

    from ottla.spark_jobs.scan import events

    columns = {
        "segment": events.ENDED_SEGMENT,
        "producerId": events.ENDED_PRODUCER_ID,
        "producerEpoch": events.ENDED_EPOCH,
        "fate": events.ENDED_FATE,
        "firstOffset": events.ENDED_FIRST_OFFSET,
        "lastOffset": events.ENDED_LAST_OFFSET,
        "markerOffset": events.ENDED_MARKER_OFFSET,
        "markerPosition": events.ENDED_POSITION,
        "markerEpoch": events.ENDED_MARKER_EPOCH,
        "coordinatorEpoch": events.ENDED_COORDINATOR_EPOCH,
        "records": events.ENDED_RECORDS,
        "batches": events.ENDED_BATCHES,
        "size": events.ENDED_BYTES,
        "startTime": events.ENDED_START_MS,
        "endTime": events.ENDED_END_MS,
        "lastStableOffset": events.ENDED_LAST_STABLE_OFFSET,
    }
    found = {name: ended[:, column] for name, column in columns.items()}
    found["producerEpoch"] = np.where(found["firstOffset"] < 0, -1, found["producerEpoch"])
    return found


def _of_open(log: PartitionLog, rows: "Longs") -> "dict[str, Longs]":
    import numpy as np

    from ottla.spark_jobs.scan import states
    from ottla.spark_jobs.views.walking import segment_of

    none = np.full(len(rows), -1, dtype=np.int64)
    columns = {
        "producerId": states.PRODUCER_ID,
        "producerEpoch": states.OPEN_EPOCH,
        "firstOffset": states.FIRST_OFFSET,
        "lastOffset": states.OPEN_LAST_OFFSET,
        "records": states.OPEN_RECORDS,
        "batches": states.OPEN_BATCHES,
        "size": states.OPEN_BYTES,
        "startTime": states.OPEN_START_MS,
    }
    found = {name: rows[:, column] for name, column in columns.items()}
    found["fate"] = np.full(len(rows), _OPEN, dtype=np.int64)
    found["segment"] = segment_of(log, found["firstOffset"])
    for name in ("markerOffset", "markerPosition", "markerEpoch", "coordinatorEpoch", "endTime", "lastStableOffset"):
        found[name] = none
    return found


def _durations(starts: "Longs", ends: "Longs") -> Any:
    import pyarrow as pa

    return pa.array(ends - starts, pa.int64(), mask=(starts < 0) | (ends < 0))
