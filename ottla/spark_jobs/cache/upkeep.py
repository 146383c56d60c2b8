"""Bring a cache up to date with a log directory, and divide a read between the cache and the log. shell

The caller passes the function that runs the writing tasks: this module needs no Spark.
"""

import json
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ottla.scan.listing import list_partitions
from ottla.spark_jobs.cache.filling import Filled
from ottla.spark_jobs.cache.names import Piece
from ottla.spark_jobs.cache.partition_cache import PartitionCache, forget_partitions
from ottla.spark_jobs.options import READ_COMMITTED, Options
from ottla.spark_jobs.views.bounds import UNBOUNDED
from ottla.spark_jobs.views.planning import fates_of, filter_of, narrowed_log, selected_logs

if TYPE_CHECKING:
    from ottla.spark_jobs.cache.filling import Fill

# A function that writes ranges, and returns the result of each, in order.
Run = Callable[[Sequence["Fill"]], list[Filled]]


class CacheFailed(Exception):
    """The cache cannot be used; the text is one line that says what to do."""


class Part(NamedTuple):
    """Files of a cache, and the offsets to read from them, if not all."""

    topic: str
    partition: int
    files: tuple[str, ...]
    bounds: tuple[int, int] | None


def up_to_date(root: Path, options: Options, run: Run) -> list[PartitionCache]:
    """Return the partitions that `options` name, after writing their settled records to the cache.

    Raises CacheFailed, and the errors of planning a read.
    """
    logs = selected_logs(options, UNBOUNDED)
    everything = [log for directory in options.paths for log in list_partitions(directory)]
    fates = fates_of(logs, options)
    read_filter = [filter_of(log, options, UNBOUNDED) for log in logs]
    narrowed = [narrowed_log(log, some, UNBOUNDED) for log, some in zip(logs, read_filter, strict=True)]
    try:
        root.mkdir(parents=True, exist_ok=True)
        caches = [PartitionCache(root, *one) for one in zip(logs, narrowed, read_filter, fates, strict=True)]
        with ThreadPoolExecutor(os.cpu_count() or 1) as threads:
            list(threads.map(lambda one: one.lay_out(verify=options.verify), caches))
        _fill(caches, run)
        for one in caches:
            one.finish()
        forget_partitions(root, everything)
    except OSError as error:
        why = error.strerror or error
        raise CacheFailed(f"{error.filename or root}: the cache cannot be written or read: {why}") from error
    return caches


def _fill(caches: Sequence[PartitionCache], run: Run) -> None:
    """Write the missing pieces. Raises CacheFailed, OSError."""
    fills = [(cache, one) for cache in caches for one in cache.to_fill()]
    if not fills:
        return
    for (cache, _), written in zip(fills, run([one for _, one in fills]), strict=True):
        if written.error:
            raise CacheFailed(f"the cache cannot be written: {written.error}")
        if written.piece is not None:
            _add(cache, written.piece)


def _add(cache: PartitionCache, piece: Piece) -> None:
    try:
        cache.add(piece)
    except FileNotFoundError as error:
        raise CacheFailed(
            f"{cache.folder} is not the folder that a task wrote to: name one on a disk that all machines share"
        ) from error


def parts(caches: Sequence[PartitionCache], *, committed_only: bool) -> Iterator[Part]:
    """Yield the files that a query reads from the cache."""
    for cache in caches:
        first, end = max(cache.read_filter.first_offset, cache.log.log_start), cache.read_filter.end_offset
        for settled_range, piece in cache.valid():
            if settled_range.end_offset <= first or settled_range.first_offset >= end:
                continue
            names = [piece.name] if committed_only else piece.sizes
            files = tuple(str(cache.folder / name) for name in names)
            is_whole = first <= settled_range.first_offset and settled_range.end_offset <= end
            yield Part(cache.log.topic, cache.log.partition, files, None if is_whole else (first, end))


def live_options(caches: Sequence[PartitionCache], options: Options) -> dict[str, str] | None:
    """Return options of the data source for the records that are not in the cache, up to the listed end of the log.

    None if the cache has all records.
    """
    starts: dict[str, dict[str, int]] = {}
    ends: dict[str, dict[str, int]] = {}
    is_needed = False
    for cache in caches:
        fates, place = cache.fates, str(cache.log.partition)
        visible_end = fates.last_stable_offset if options.isolation_level == READ_COMMITTED else fates.log_end
        end = min(cache.read_filter.end_offset, visible_end)
        first = max(cache.read_filter.first_offset, cache.log.log_start, cache.covered)
        is_needed = is_needed or first < end
        starts.setdefault(cache.log.topic, {})[place] = max(first, 0)
        ends.setdefault(cache.log.topic, {})[place] = max(end, 0)
    if not is_needed:
        return None
    return {
        "isolation.level": options.isolation_level,
        "on.damage": options.on_damage,
        "topics": options.topics,
        "partitions": ",".join(map(str, options.partitions)) if options.partitions is not None else "",
        "producerIds": ",".join(map(str, options.producer_ids)) if options.producer_ids is not None else "",
        "verify": str(options.verify).lower(),
        "failOnDataLoss": str(options.fail_on_data_loss).lower(),
        "startingOffsets": json.dumps(starts),
        "endingOffsets": json.dumps(ends),
    }
