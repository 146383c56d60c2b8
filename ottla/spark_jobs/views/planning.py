"""What of a log directory a query has to read: partitions, segments, positions in them, and tasks of these. shell

Segments are left out by their base offsets and, for times, by the last entry of their `.timeindex`, which a broker
completes when it rolls the segment (`LogSegment.onBecomeInactiveSegment`). Inside a segment reading starts and ends at
positions of its `.index`, each held against the batch that stands there.
"""

import logging
import os
import uuid
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice, pairwise
from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql.datasource import InputPartition

from ottla.scan import ahead, storage
from ottla.scan.damage_log import FAIL, REPORT, DamageLog
from ottla.scan.listing import PartitionLog, SegmentFile, list_partitions, select_topics, topic_patterns
from ottla.scan.needs import check_worker
from ottla.spark_jobs.options import Options, check_places
from ottla.spark_jobs.views.bounds import Bounds
from ottla.spark_jobs.views.deciding import (
    TASKS_OF_A_WALK,
    Undecided,
    are_for_tasks,
    is_walked_whole,
    seen_in,
    undecided,
)

if TYPE_CHECKING:
    from ottla.scan.chunks import Piece
    from ottla.scan.fates import PartitionFates
    from ottla.scan.plan import Range
    from ottla.scan.records import Visibility, Wanted

LARGEST_TASK_BYTES = 256 * 1024 * 1024
_SMALL_TASK_BYTES = 64 * 1024 * 1024
_PARTITIONS_PER_TASK = 200
# They wait more than they compute, but each may hold some ranges of a segment.
REMOTE_THREADS = 8
# Behind all offsets.
NO_OFFSET = 2**63 - 1

_log = logging.getLogger("ottla.spark_jobs")


class Reading(NamedTuple):
    """One range of a task, what is asked of it and, for the views that need fates, what is visible or open in it.

    `opened`: (producer id, first offset) of the open transactions, by producer id.
    """

    part: "Range"
    wanted: "Wanted"
    visible: "Visibility | None" = None
    opened: tuple[tuple[int, int], ...] = ()


class Task(InputPartition):
    """What one Spark task reads: ranges, or whole partitions."""

    def __init__(
        self,
        readings: Sequence[Reading] = (),
        logs: Sequence[PartitionLog] = (),
        undecided: Mapping[int, Undecided] | None = None,
    ) -> None:
        """`undecided`: by `part.partition`, what the task must find out before it reads its ranges there."""
        super().__init__(None)
        self.logs = tuple(logs)
        self._readings = tuple(readings)
        self._undecided = undecided or {}

    @property
    def readings(self) -> Iterator[Reading]:
        """Each decided when it is its turn. Raises DamagedSegment in mode `fail`, OSError."""
        for one in self._readings:
            undecided = self._undecided.get(one.part.partition)
            if undecided is None:
                yield one
            else:
                visible, opened = undecided.seen_in(one.part)
                yield one._replace(visible=visible, opened=opened)


def selected_logs(options: Options, bounds: Bounds, topic: str = "") -> list[PartitionLog]:
    """The partitions that options and filters leave; those of `topic` if it is given. Raises OptionError."""
    logs = select_topics(list_partitions(options.path), (topic,) if topic else topic_patterns(options.topics))
    logs = [log for log in logs if options.partitions is None or log.partition in options.partitions]
    check_places(options, {(log.topic, log.partition) for log in logs})
    return [log for log in logs if bounds.allows(log.topic, log.partition)]


def wanted_of(log: PartitionLog, options: Options, bounds: Bounds) -> "Wanted":
    """What options and filters ask of one partition."""
    from ottla.scan.records import Wanted

    first, end = bounds.offset.first, bounds.offset.behind
    place = log.topic, log.partition
    if options.starting_offsets:
        first = max(first, options.starting_offsets.get(place, 0))
    if options.ending_offsets:
        end = min(end, options.ending_offsets.get(place, end))
    if options.starting_ms is not None:
        first = max(first, offset_for_time(log, options.starting_ms))
    if options.ending_ms is not None:
        end = min(end, offset_for_time(log, options.ending_ms))
    producers = bounds.producer_id.values
    if options.producer_ids is not None:
        producers = frozenset(options.producer_ids) & (producers or frozenset(options.producer_ids))
    return Wanted(max(first, 0), end, bounds.time_ms.first, None if producers is None else tuple(sorted(producers)))


def narrowed_log(log: PartitionLog, wanted: "Wanted", bounds: Bounds) -> PartitionLog:
    """`log` with the segments alone that can hold what is wanted."""
    if wanted.producer_ids == () or wanted.first_offset >= wanted.end_offset:
        return log._replace(segments=())
    kept = [
        segment
        for segment, next_base in with_ends(log)
        if segment.base_offset < wanted.end_offset
        and wanted.first_offset < next_base
        and segment.base_offset in bounds.segment
    ]
    return log._replace(segments=tuple(_not_before(kept, wanted.since_ms)))


def plan_readings(
    options: Options, bounds: Bounds, *, with_fates: bool = False, undecided_too: bool = False
) -> list[InputPartition]:
    """Tasks of about equal size over the ranges that have to be read.

    `undecided_too`: fates are needed behind the last stable offset as well.
    """
    logs = selected_logs(options, bounds)
    wanted, narrowed = _wanted(logs, options, bounds)
    needed = [index for index, log in enumerate(narrowed) if log.segments]
    by_tasks = with_fates and are_for_tasks([logs[index] for index in needed], options)
    fates: dict[int, PartitionFates] = {}
    if with_fates and not by_tasks:
        fates = dict(zip(needed, fates_of([logs[index] for index in needed], options), strict=True))
    tasks: list[InputPartition] = []
    query = uuid.uuid4().hex
    cut = _cut(narrowed, [log for log in logs if by_tasks and is_walked_whole(log, options)])
    ranges = iter(_narrowed_ranges([part for parts in cut for part in parts], wanted))
    for parts in cut:
        readings = []
        for part in islice(ranges, len(parts)):
            index = part.partition
            reading = Reading(part, wanted[index])
            if index in fates:
                visible, opened = seen_in(logs[index], fates[index], part, undecided_too=undecided_too)
                reading = reading._replace(visible=visible, opened=opened)
            readings.append(reading)
        places = {part.partition for part in parts} if by_tasks else ()
        left = {index: undecided(query, logs[index], options, undecided_too=undecided_too) for index in places}
        tasks.append(Task(readings, undecided=left))
    return tasks


def _wanted(
    logs: Sequence[PartitionLog], options: Options, bounds: Bounds
) -> "tuple[list[Wanted], list[PartitionLog]]":
    """What is asked of each partition, and its segments that can hold it."""

    def narrowed(log: PartitionLog) -> "tuple[Wanted, PartitionLog]":
        wanted = wanted_of(log, options, bounds)
        return wanted, narrowed_log(log, wanted, bounds)

    # Times are looked up in files, for which a store lets one wait.
    with ThreadPoolExecutor(REMOTE_THREADS if storage.is_remote(options.path) else 1) as threads:
        found = list(threads.map(narrowed, logs))
    return [wanted for wanted, _ in found], [log for _, log in found]


def _cut(logs: Sequence[PartitionLog], walked: Sequence[PartitionLog]) -> "list[tuple[Range, ...]]":
    """Ranges in tasks of about equal size; those that are `walked` by each of their tasks in few tasks."""
    from ottla.scan.plan import cut_partition, pack, plan_tasks

    whole = {(log.topic, log.partition) for log in walked}
    some = [log._replace(segments=()) if (log.topic, log.partition) in whole else log for log in logs]
    tasks = plan_tasks(some, os.cpu_count() or 1, LARGEST_TASK_BYTES)
    for index, log in enumerate(logs):
        if (log.topic, log.partition) in whole:
            target = max(LARGEST_TASK_BYTES, -(-log.size_bytes // TASKS_OF_A_WALK))
            tasks += pack(cut_partition(index, log, target), target)
    return tasks


def _narrowed_ranges(parts: "Sequence[Range]", wanted: "Sequence[Wanted]") -> "list[Range]":
    def narrowed(part: "Range") -> "Range":
        return narrowed_range(part, wanted[part.partition])

    # Of remote ones, many indexes are asked for at once.
    is_remote = any(storage.is_remote(part.pieces[0].path) for part in parts)
    return ahead.each(narrowed, parts) if is_remote else [narrowed(part) for part in parts]


def plan_partitions(options: Options, bounds: Bounds) -> list[InputPartition]:
    """Tasks of whole partitions, small ones together."""
    tasks: list[InputPartition] = []
    together: list[PartitionLog] = []
    for log in selected_logs(options, bounds):
        together.append(log)
        if sum(one.size_bytes for one in together) >= _SMALL_TASK_BYTES or len(together) >= _PARTITIONS_PER_TASK:
            tasks.append(Task(logs=together))
            together = []
    return [*tasks, Task(logs=together)] if together else tasks


def fates_of(logs: Sequence[PartitionLog], options: Options, *, counted: bool = False) -> "list[PartitionFates]":
    """The fates of whole partitions: from their indexes, or from a scan where these do not do.

    When damage is reported, they must not rest on batches that the tasks will skip, so CRCs are checked here too.
    """
    check_worker()
    from ottla.scan.partitions import visible_partitions

    threads = REMOTE_THREADS if storage.is_remote(options.path) else min(os.cpu_count() or 1, 8)
    return visible_partitions(logs, on_damage=options.on_damage, verify=options.verify or counted, threads=threads)


def told_damage(log: DamageLog) -> None:
    """Log what a task could not read."""
    for damage in log.found:
        _log.warning("damaged segment, not read: %s", damage)


def narrowed_range(part: "Range", wanted: "Wanted") -> "Range":
    """`part` with pieces cut to the positions between which the wanted offsets lie."""
    return part._replace(pieces=tuple(_narrowed_piece(piece, wanted) for piece in part.pieces))


def _narrowed_piece(piece: "Piece", wanted: "Wanted") -> "Piece":
    """An entry that does not hold leaves the piece as it is: the index spares reading, it decides nothing."""
    import numpy as np

    from ottla.scan.index_files import batch_positions
    from ottla.scan.plan import is_batch_start

    if wanted.first_offset <= piece.base_offset and wanted.end_offset >= piece.offset_limit:
        return piece
    try:
        entries = batch_positions(piece.path, piece.base_offset, piece.file_bytes)
        file = storage.open_file(piece.path)
    except FileNotFoundError:
        return piece
    try:
        last_offsets = entries[:, 0]

        def position(index: int, otherwise: int) -> int:
            at = int(entries[index, 1])
            sound = piece.start <= at <= piece.end and is_batch_start(file, at, int(last_offsets[index]))
            return at if sound else otherwise

        before = int(np.searchsorted(last_offsets, wanted.first_offset)) - 1
        # The batch of the first entry at or above the end may begin below it, that of the next entry cannot.
        behind = int(np.searchsorted(last_offsets, wanted.end_offset)) + 1
        start = position(before, piece.start) if before >= 0 else piece.start
        end = position(behind, piece.end) if behind < len(entries) else piece.end
        return piece._replace(start=start, end=max(start, end))
    finally:
        file.close()


def _not_before(segments: Sequence[SegmentFile], time_ms: int) -> list[SegmentFile]:
    """Without the rolled segments whose `.timeindex` says that nothing in them is as late as `time_ms`."""
    if time_ms <= 0:
        return list(segments)
    rolled = [segment for segment in segments if not (segment.is_last or segment.lacks(".timeindex"))]
    found = storage.each(_largest_timestamp, [storage.beside(segment.path, ".timeindex") for segment in rolled])
    largest = dict(zip(rolled, found, strict=True))
    return [segment for segment in segments if (latest := largest.get(segment)) is None or latest >= time_ms]


def _largest_timestamp(path: str) -> int | None:
    """The last entry of a `.timeindex` in ms; None if there is none."""
    from ottla.scan.index_files import time_entries

    entries = time_entries(storage.read_if_there(path) or b"", 0).rows
    return int(entries[-1, 1]) if len(entries) else None


def offset_for_time(log: PartitionLog, time_ms: int) -> int:
    """The first offset with a timestamp of at least `time_ms`, as ListOffsets finds it; NO_OFFSET if there is none.

    Source: `FileRecords.searchForTimestamp`: batches that are late enough are searched record by record.
    """
    check_worker()
    from ottla.scan import headers
    from ottla.scan.chunks import SegmentReader
    from ottla.scan.plan import cut_segment

    reader = SegmentReader(DamageLog(REPORT), check_crc=False)
    for segment in _not_before(log.segments, time_ms):
        for piece in cut_segment(segment, segment.size_bytes + 1, log.recovery_point):
            for chunk in reader.chunks(piece):
                for row in chunk.rows[chunk.rows[:, headers.MAX_TIMESTAMP] >= time_ms]:
                    if row[headers.LAST_OFFSET] < log.log_start:
                        continue
                    if row[headers.CONTROL_TYPE] != headers.NOT_CONTROL:
                        return int(row[headers.BASE_OFFSET])
                    start = chunk.file_position + int(row[headers.POSITION])
                    batch = piece._replace(start=start, end=start + int(row[headers.SIZE]))
                    if (offset := _offset_in(log, batch, time_ms)) is not None:
                        return offset
    return NO_OFFSET


def _offset_in(log: PartitionLog, batch: "Piece", time_ms: int) -> int | None:
    """The first offset in `batch` whose record is as late."""
    from ottla.scan import schemas
    from ottla.scan.plan import Range
    from ottla.scan.records import RecordScan, uncommitted

    scan = RecordScan(schemas.arrow_schema(schemas.RECORDS, [("offset", True), ("timestamp", True)]), DamageLog(FAIL))
    part = Range(0, 0, log.topic, log.partition, log.log_start, (batch,))
    for table in scan.read(part, uncommitted(log.log_start)):
        for offset, moment in zip(table.column(0).to_pylist(), table.column(1).cast("int64").to_pylist(), strict=True):
            if moment >= time_ms * 1000:
                return int(offset)
    return None


def with_ends(log: PartitionLog) -> Iterator[tuple[SegmentFile, int]]:
    """Each segment with the base offset of the one behind it; 2^63-1 for the last."""
    for segment, following in pairwise([*log.segments, None]):
        assert segment is not None
        yield segment, following.base_offset if following else 2**63 - 1
