"""Plan the read of a query: partitions, segments, positions in segments, and tasks for these. shell

Base offsets and indexes show which segments can be left out; indexes also show it for parts (`scan.narrowing`).
"""

import logging
import os
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, TypeVar

from ottla.protocol.checkpoints import CLEANER_OFFSETS
from ottla.scan import ahead, storage
from ottla.scan.damage_log import FAIL, DamageLog
from ottla.scan.listing import PartitionLog, are_remote, read_checkpoint, storage_path, topic_patterns
from ottla.scan.narrowing import narrowed_range, not_before, offset_for_time, with_ends
from ottla.scan.needs import check_worker
from ottla.scan.watermark import below_high_watermark
from ottla.spark_jobs.options import HIGH_WATERMARK, LOSS_HINT, DataLost, Options, check_places
from ottla.spark_jobs.views.bounds import Bounds
from ottla.spark_jobs.views.deferred_fates import TASKS_OF_A_WALK, are_for_tasks, defer_fates, is_walked_whole
from ottla.spark_jobs.views.directories import in_order, partitions_of
from ottla.spark_jobs.views.planned_range import PlannedRange
from ottla.spark_jobs.views.query_tasks import PartitionTask, RangeTask, WalkTask
from ottla.wire import is_kafka_address

if TYPE_CHECKING:
    from ottla.scan.fates import PartitionFates
    from ottla.scan.ranges import LogRange
    from ottla.scan.records import ReadFilter

LARGEST_TASK_BYTES = 256 * 1024 * 1024
SNAPSHOT_RANGE_BYTES = 256 * 1024 * 1024
# Whole partitions and walked ranges share a task up to this size.
SMALL_TASK_BYTES = 64 * 1024 * 1024
_MOST_TOGETHER = 200
# These threads mostly wait, but each may hold some ranges of a segment in memory.
REMOTE_THREADS = 8
T = TypeVar("T")

_log = logging.getLogger("ottla.spark_jobs")


def selected_logs(options: Options, bounds: Bounds, topic: str = "", *, warn: bool = True) -> list[PartitionLog]:
    """Return the partitions that options and filters select, or those of `topic` if given. Raises OptionError.

    `warn`: log the patterns of `topics` that match no topic; streams do this once.
    """
    patterns = (topic,) if topic else topic_patterns(options.topics)
    found = partitions_of(options, patterns, warn=warn and not topic)
    logs = in_order(found)
    check_places(options, {(log.topic, log.partition) for log in logs})
    _check_starts(options, logs)
    if options.fetch_isolation == HIGH_WATERMARK and not is_kafka_address(options.paths[0]):  # brokers send no more
        check_worker()
        for directory, some in found.items():
            allowed = [log for log in some if bounds.allows(log.topic, log.partition)]
            found[directory] = below_high_watermark(directory, allowed, options.on_damage)
        return in_order(found)
    return [log for log in logs if bounds.allows(log.topic, log.partition)]


def _check_starts(options: Options, logs: Sequence[PartitionLog]) -> None:
    """Check for start offsets below the log start, as Spark's Kafka source does. Raises DataLost, or logs it."""
    for log in logs:
        first = (options.starting_offsets or {}).get((log.topic, log.partition), log.log_start)
        if first < log.log_start:
            directory = storage.hide_secrets(storage.parent(log.path))
            message = f"{directory}: {log.name} begins at {log.log_start}, startingOffsets names {first}"
            if options.fail_on_data_loss:
                raise DataLost(f"{message}; {LOSS_HINT}")
            _log.warning("%s", message)


def filter_of(log: PartitionLog, options: Options, bounds: Bounds) -> "ReadFilter":
    """Return the filter for one partition, from the options and Spark's filters."""
    from ottla.scan.records import ReadFilter

    first, end = bounds.offset.first, bounds.offset.last_end
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
    return ReadFilter(max(first, 0), end, bounds.time_ms.first, None if producers is None else tuple(sorted(producers)))


def narrowed_log(log: PartitionLog, filters: "ReadFilter", bounds: Bounds) -> PartitionLog:
    """Return `log` with only the segments, or the part of its window, that can have matching records."""
    if log.window is not None:
        end = 0 if filters.producer_ids == () else filters.end_offset
        return log._replace(window=log.window.narrow(filters.first_offset, end))
    if filters.producer_ids == () or filters.first_offset >= filters.end_offset:
        return log._replace(segments=())
    kept = [
        segment
        for segment, next_base in with_ends(log)
        if segment.base_offset < filters.end_offset
        and filters.first_offset < next_base
        and segment.base_offset in bounds.segment
    ]
    return log._replace(segments=tuple(not_before(kept, filters.since_ms)))


def plan_ranges(
    options: Options, bounds: Bounds, *, with_fates: bool = False, to_log_end: bool = False
) -> list[RangeTask]:
    """Return tasks of about equal size over the ranges that have to be read.

    `to_log_end`: fates are needed after the last stable offset as well.
    """
    logs = selected_logs(options, bounds)
    filters, narrowed = _plan_filters(logs, options, bounds)
    if is_kafka_address(options.paths[0]):
        from ottla.spark_jobs.views.windows import plan_windows  # and the connection, which directories do not need

        find = partial(fates_of, options=options) if with_fates else None
        return plan_windows(options, logs, narrowed, filters, find, to_log_end=to_log_end)
    needed = [index for index, log in enumerate(narrowed) if log.segments]
    by_tasks = with_fates and are_for_tasks([logs[index] for index in needed], options)
    fates: dict[int, PartitionFates] = {}
    if with_fates and not by_tasks:
        fates = dict(zip(needed, fates_of([logs[index] for index in needed], options), strict=True))
    tasks: list[RangeTask] = []
    query = uuid.uuid4().hex
    walked = [log for log in logs if by_tasks and is_walked_whole(log, options)]
    cut = _cut(narrowed, walked, options.min_partitions)
    ranges = iter(_narrowed_ranges([part for parts in cut for part in parts], filters))
    for parts in cut:
        planned = []
        for part in islice(ranges, len(parts)):
            index = part.partition
            one = PlannedRange(part, filters[index])
            planned.append(one.with_fates(logs[index], fates[index], to_log_end=to_log_end) if index in fates else one)
        places = {part.partition for part in parts} if by_tasks else ()
        left = {index: defer_fates(query, logs[index], options, to_log_end=to_log_end) for index in places}
        tasks.append(RangeTask(planned, left))
    return tasks


def _plan_filters(
    logs: Sequence[PartitionLog], options: Options, bounds: Bounds
) -> "tuple[list[ReadFilter], list[PartitionLog]]":
    """Return the filter of each partition, and its segments that can have matching records."""

    def narrow(log: PartitionLog) -> "tuple[ReadFilter, PartitionLog]":
        filters = filter_of(log, options, bounds)
        return filters, narrowed_log(log, filters, bounds)

    # Looking up times reads files, which takes long on a remote store.
    with ThreadPoolExecutor(REMOTE_THREADS if are_remote(logs) else 1) as threads:
        found = list(threads.map(narrow, logs))
    return [filters for filters, _ in found], [log for _, log in found]


def _cut(
    logs: Sequence[PartitionLog], walked: Sequence[PartitionLog], least_tasks: int
) -> "list[tuple[LogRange, ...]]":
    """Group ranges into tasks of about equal size; partitions in `walked`, which each task walks, get few tasks."""
    from ottla.scan.ranges import cut_partition, pack, plan_tasks

    whole = {(log.topic, log.partition) for log in walked}
    some = [log._replace(segments=()) if (log.topic, log.partition) in whole else log for log in logs]
    tasks = plan_tasks(some, os.cpu_count() or 1, LARGEST_TASK_BYTES, least_tasks)
    for index, log in enumerate(logs):
        if (log.topic, log.partition) in whole:
            target = max(LARGEST_TASK_BYTES, -(-log.size_bytes // TASKS_OF_A_WALK))
            tasks += pack(cut_partition(index, log, target), target)
    return tasks


def _narrowed_ranges(parts: "Sequence[LogRange]", filters: "Sequence[ReadFilter]") -> "list[LogRange]":
    def narrow(part: "LogRange") -> "LogRange":
        return narrowed_range(part, filters[part.partition])

    # Of remote segments, many indexes are read at once.
    is_remote = any(storage.is_remote(part.pieces[0].path) for part in parts)
    return ahead.each(narrow, parts) if is_remote else [narrow(part) for part in parts]


def plan_partitions(options: Options, bounds: Bounds) -> list[PartitionTask]:
    """Return tasks of whole partitions, small ones together."""
    together = _together(selected_logs(options, bounds), lambda log: log.size_bytes)
    return [PartitionTask(logs) for logs in together]


def plan_walks(options: Options, bounds: Bounds) -> list[WalkTask]:
    """Return tasks of snapshot ranges, small ones together.

    A partition that was compacted stays one range, because a snapshot has more than the log. All partitions stay one
    range if damage is skipped, or with `verify`, which uses only the batches.
    """
    from ottla.scan.snapshot_ranges import SnapshotRange, cut_at_snapshots

    logs = selected_logs(options, bounds)
    ranges = [SnapshotRange(log) for log in logs]
    if options.on_damage == FAIL and not options.verify and not is_kafka_address(options.paths[0]):
        paths = [storage.join(storage_path(directory), CLEANER_OFFSETS) for directory in options.paths]
        cleaned = {place for path in paths for place in read_checkpoint(path)}
        ranges = []
        for log in logs:
            is_cleaned = (log.topic, log.partition) in cleaned
            ranges += [SnapshotRange(log)] if is_cleaned else cut_at_snapshots(log, SNAPSHOT_RANGE_BYTES)
    return [WalkTask(some) for some in _together(ranges, lambda one: one.log.size_bytes)]


def _together(ones: Iterable[T], size_bytes: Callable[[T], int]) -> Iterator[list[T]]:
    """Yield groups of consecutive items, each large enough for a task."""
    group: list[T] = []
    size = 0
    for one in ones:
        group.append(one)
        size += size_bytes(one)
        if size >= SMALL_TASK_BYTES or len(group) >= _MOST_TOGETHER:
            yield group
            group, size = [], 0
    if group:
        yield group


def fates_of(logs: Sequence[PartitionLog], options: Options, *, counted: bool = False) -> "list[PartitionFates]":
    """Return the fates of whole partitions: from their indexes, or from a scan if these are not enough.

    When damage is reported, fates must not come from batches that the tasks will skip, so CRCs are checked here too.
    """
    check_worker()
    from ottla.scan.partitions import visible_partitions

    threads = REMOTE_THREADS if are_remote(logs) else min(os.cpu_count() or 1, 8)
    return visible_partitions(logs, on_damage=options.on_damage, verify=options.verify or counted, threads=threads)


def log_damage(log: DamageLog) -> None:
    """Log the damage that a task could not read."""
    for damage in log.found:
        _log.warning("%s, not read: %s", "large batch" if damage.is_too_large else "damaged segment", damage)
