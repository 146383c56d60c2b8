"""The stream of records: micro-batches bounded by the last stable offset. shell

The two positions of a batch and the files determine its records, so a batch that Spark runs again after a crash has
the same: below the last stable offset every transaction is decided, and a decision never changes.
"""

import logging
import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from ottla.protocol.values import TopicPartition
from ottla.scan import schemas, storage
from ottla.scan.narrowing import NO_OFFSET, narrowed_range, offset_for_time
from ottla.scan.needs import check_worker
from ottla.spark_jobs.brief import without_traceback
from ottla.spark_jobs.options import (
    EARLIEST_OFFSET,
    LATEST_OFFSET,
    LOSS_HINT,
    READ_COMMITTED,
    DataLost,
    check_partitions,
)
from ottla.spark_jobs.stream.offsets import Positions, from_json, limit_offsets, starting, to_json
from ottla.spark_jobs.stream.stream_options import EARLIEST, LATEST, StreamOptions
from ottla.spark_jobs.views.base import rename_columns
from ottla.spark_jobs.views.bounds import UNBOUNDED
from ottla.spark_jobs.views.planned_range import PlannedRange
from ottla.spark_jobs.views.planning import LARGEST_TASK_BYTES, log_damage, narrowed_log, selected_logs
from ottla.spark_jobs.views.query_tasks import RangeTask

if TYPE_CHECKING:
    from ottla.scan.listing import PartitionLog
    from ottla.scan.records import Visibility
    from ottla.spark_jobs.stream.growing_directory import GrowingDirectory

_log = logging.getLogger("ottla.spark_jobs")


class RecordStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Stream reader of the partitions that the options select; new ones are read from their log start."""

    def __init__(self, options: StreamOptions, fields: list[tuple[str, bool]]) -> None:
        self._options = options
        self._fields = fields
        self._directory: GrowingDirectory | None = None
        self._target: dict[TopicPartition, int] | None = None
        self.written: list[str] | None = None

    @without_traceback()
    def initialOffset(self) -> dict[str, Any]:
        """Return the start of a new query. Spark does not call this for a query that continues from a checkpoint."""
        logs = self._logs()
        return to_json(Positions(self._begin(logs), self._ids(logs)))

    def _begin(self, logs: "list[PartitionLog]") -> dict[TopicPartition, int]:
        """Return the first offset of each partition. Above the last stable offset, the query waits."""
        begin = self._options.starting
        if isinstance(begin, dict):
            check_partitions("startingOffsets", begin, {(log.topic, log.partition) for log in logs})
        ends = {} if begin == EARLIEST else self._ends_now(logs)
        found = {}
        for log in logs:
            place = log.topic, log.partition
            if isinstance(begin, int):
                offset = offset_for_time(log, begin)
            elif isinstance(begin, dict):
                offset = begin.get(place, EARLIEST_OFFSET)
            else:
                offset = LATEST_OFFSET if begin == LATEST else EARLIEST_OFFSET
            # If all records are older, Spark's source fails or begins at the end, depending on its strategy option.
            words = {EARLIEST_OFFSET: log.log_start, LATEST_OFFSET: ends.get(place, 0)}
            found[place] = self._log_end(place) if offset == NO_OFFSET else words.get(offset, offset)
            if found[place] < log.log_start:
                self._lost(f"{_name(place)} begins at {log.log_start}, startingOffsets names {offset}")
        return found

    def getDefaultReadLimit(self) -> ReadLimit:
        most = self._options.max_offsets
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    @without_traceback()
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return the end of the next micro-batch."""
        logs = self._logs()
        ids = self._ids(logs)
        before = self._still_there(from_json(start), ids)
        ends = self._ends(logs, before)
        for place in before.keys() - ends.keys():
            self._lost(f"{_name(place)} is gone")
        for place in ends:
            if (log_end := self._log_end(place)) < before.get(place, 0):
                self._lost(f"{_name(place)} ends at {log_end}, but the next offset is {before[place]}: the log was cut")
                before[place] = ends[place]
        if self._target is not None:
            ends = {place: min(end, self._target[place]) for place, end in ends.items() if place in self._target}
        # A query whose start is above the last stable offset waits.
        ends = {place: max(end, before.get(place, 0)) for place, end in ends.items()}
        if isinstance(limit, ReadMaxRows):
            ends = limit_offsets(before, ends, limit.max_rows)
        return to_json(Positions(ends, ids))

    @without_traceback()
    def prepareForTriggerAvailableNow(self) -> None:
        """Fix the end of Trigger.AvailableNow at the present last stable offsets."""
        self._target = self._ends_now(self._logs())

    def reportLatestOffset(self) -> dict[str, Any] | None:
        return None

    @without_traceback()
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return tasks for the offsets between two positions."""
        from ottla.scan.ranges import plan_tasks
        from ottla.scan.records import ReadFilter, visible_in

        first = starting(from_json(start), from_json(end))
        filters = {place: ReadFilter(first.get(place, 0), last) for place, last in from_json(end).offsets.items()}
        filters = {place: one for place, one in filters.items() if one.first_offset < one.end_offset}
        if not filters:
            return []
        logs = [log for log in self._logs() if (log.topic, log.partition) in filters]
        self._check_there(first, filters, logs)
        directory = self._follow(logs, {place: one.first_offset for place, one in filters.items()})
        chosen = [filters[log.topic, log.partition] for log in logs]
        narrowed = [narrowed_log(log, one, UNBOUNDED) for log, one in zip(logs, chosen, strict=True)]
        tasks: list[InputPartition] = []
        for parts in plan_tasks(narrowed, os.cpu_count() or 1, LARGEST_TASK_BYTES, self._options.read.min_partitions):
            planned = []
            for part in parts:
                log, one = logs[part.partition], chosen[part.partition]
                visible = self._visible(directory, log, one.first_offset, one.end_offset)
                planned.append(PlannedRange(narrowed_range(part, one), one, visible_in(visible, part, log)))
            tasks.append(InputPartition(RangeTask(planned)))
        return tasks

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Return the Arrow record batches of one task."""
        with without_traceback():
            yield from self._read_task(partition)

    def _read_task(self, partition: InputPartition) -> Iterator[Any]:
        check_worker()
        from ottla.scan.damage_log import DamageLog
        from ottla.scan.records import RecordScan

        damage = DamageLog(self._options.read.on_damage)
        scan = RecordScan(schemas.arrow_schema(schemas.RECORDS, self._fields), damage)
        for part, read_filter, visible, _ in partition.value.ranges if partition.value else ():
            assert visible is not None
            try:
                yield from rename_columns(scan.read(part, visible, read_filter), self.written)
            except FileNotFoundError as error:
                lost = f"{error.filename} was deleted while it was read"
                if self._options.read.fail_on_data_loss:
                    raise DataLost(f"{lost}; {LOSS_HINT}") from error
                _log.warning("%s", lost)
        log_damage(damage)

    def commit(self, end: dict[str, Any]) -> None:
        """Forget all state below `end`, which the sink has stored."""
        if self._directory is not None:
            for place, offset in from_json(end).offsets.items():
                if place in self._directory.partitions:
                    self._directory.partitions[place].forget_below(offset)

    def _logs(self) -> "list[PartitionLog]":
        check_worker()
        return selected_logs(self._options.read, UNBOUNDED, warn=self._directory is None)

    def _follow(self, logs: "list[PartitionLog]", needed: dict[TopicPartition, int]) -> "GrowingDirectory":
        from ottla.spark_jobs.stream.growing_directory import GrowingDirectory

        if self._directory is None:
            self._directory = GrowingDirectory(self._options.read.on_damage)
        self._directory.update(logs, needed)
        return self._directory

    def _ends_now(self, logs: "list[PartitionLog]") -> dict[TopicPartition, int]:
        from ottla.spark_jobs.stream.growing_directory import newest_segments

        return self._ends(logs, newest_segments(logs))

    def _ends(self, logs: "list[PartitionLog]", needed: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return the offset up to which each partition can be read."""
        committed = self._options.read.isolation_level == READ_COMMITTED
        partitions = self._follow(logs, needed).partitions
        return {
            place: growing.last_stable_offset if committed else growing.log_end for place, growing in partitions.items()
        }

    def _log_end(self, place: TopicPartition) -> int:
        """Return the offset after the last batch of a partition that is followed."""
        assert self._directory is not None
        return self._directory.partitions[place].log_end

    def _visible(self, directory: "GrowingDirectory", log: "PartitionLog", first: int, end: int) -> "Visibility":
        from ottla.scan.records import Visibility

        committed = self._options.read.isolation_level == READ_COMMITTED
        growing = directory.partitions[log.topic, log.partition]
        aborted = growing.find_aborted(first, end if committed else 0)
        return Visibility(committed, max(first, log.log_start), end, aborted, growing.unread if committed else ())

    def _ids(self, logs: "list[PartitionLog]") -> dict[str, str]:
        from ottla.spark_jobs.stream.growing_directory import topic_ids

        return topic_ids(logs)

    def _still_there(self, before: Positions, ids: dict[str, str]) -> dict[TopicPartition, int]:
        """Return the positions of topics that have not been created again since they were read."""
        for topic, topic_id in ids.items():
            if before.ids.get(topic, topic_id) != topic_id:
                self._lost(f"topic {topic} was deleted and created again")
        return starting(before, Positions({}, ids))

    def _check_there(
        self, first: dict[TopicPartition, int], filters: dict[TopicPartition, Any], logs: "list[PartitionLog]"
    ) -> None:
        """Check that the records of a micro-batch are in the files."""
        there = {(log.topic, log.partition): log for log in logs}
        for place in filters:
            if place not in there:
                self._lost(f"{_name(place)} is gone")
            elif place in first and there[place].log_start > first[place]:
                self._lost(f"{_name(place)} begins at {there[place].log_start}, but the next offset is {first[place]}")

    def _lost(self, text: str) -> None:
        if self._options.read.fail_on_data_loss:
            raise DataLost(f"{', '.join(map(storage.hide_secrets, self._options.read.paths))}: {text}; {LOSS_HINT}")
        _log.warning("%s", text)


def _name(place: TopicPartition) -> str:
    return f"{place[0]}-{place[1]}"
