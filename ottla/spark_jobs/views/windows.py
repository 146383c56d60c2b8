"""Plan the read of a query from brokers: windows of offsets, and tasks for these. shell

Brokers know the fates of the transactions below the last stable offset, and name them with the records. So each byte is
sent once, and a partition is cut where it suits. Only what follows the last stable offset is walked first, for the view
`batches`, and with `verify` everything.
"""

import os
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import numpy as np

from ottla.scan.cluster.offset_window import OffsetWindow
from ottla.scan.fates import ABORTED_COLUMNS, PartitionFates
from ottla.scan.listing import PartitionLog
from ottla.scan.narrowing import NO_OFFSET
from ottla.scan.ranges import LogRange, plan_tasks
from ottla.scan.records import ReadFilter, Visibility
from ottla.spark_jobs.options import Options
from ottla.spark_jobs.views.planned_range import PlannedRange
from ottla.spark_jobs.views.query_tasks import RangeTask

LARGEST_TASK_BYTES: Final = 256 * 1024 * 1024
# Of a partition whose size the user may not ask for.
_BYTES_OF_AN_OFFSET: Final = 256

FindFates = Callable[[Sequence[PartitionLog]], Sequence[PartitionFates]]


class _Part(NamedTuple):
    """A part of a partition. `fates`: from a walk; None if the broker names them, or no fates are needed."""

    log: PartitionLog
    read_filter: ReadFilter
    fates: PartitionFates | None = None


def plan_windows(
    options: Options,
    logs: Sequence[PartitionLog],
    narrowed: Sequence[PartitionLog],
    filters: Sequence[ReadFilter],
    find_fates: FindFates | None,
    *,
    to_log_end: bool,
) -> list[RangeTask]:
    """Return tasks of about equal size. `narrowed`: the partitions with the part of their windows to read.

    `find_fates` walks over partitions; None if no fates are needed. `to_log_end`: also after the last stable offset.
    """
    parts: list[_Part] = []
    for log, some, read_filter in zip(logs, narrowed, filters, strict=True):
        whole, window = log.window, some.window
        assert whole is not None and window is not None
        if window.first_offset >= window.end_offset:
            continue
        if find_fates is None:
            parts.append(_Part(some, read_filter))
            continue
        stable_offset = window.first_offset if options.verify else whole.stable_offset
        committed = window.narrow(0, stable_offset)._replace(is_committed=True)
        parts.append(_Part(some._replace(window=committed), read_filter))
        rest = window.narrow(stable_offset, NO_OFFSET)
        if (to_log_end or options.verify) and rest.first_offset < rest.end_offset:
            unknown = whole if options.verify else whole.narrow(whole.stable_offset, NO_OFFSET)
            (fates,) = find_fates([log._replace(window=unknown)])
            parts.append(_Part(some._replace(window=rest), read_filter, fates))
    sized = [part.log._replace(window=_with_size(part.log.window)) for part in parts]
    tasks = plan_tasks(sized, os.cpu_count() or 1, LARGEST_TASK_BYTES, options.min_partitions, cuts_windows=True)
    return [RangeTask([_plan(one, parts[one.partition], to_log_end=to_log_end) for one in task]) for task in tasks]


def _plan(one: LogRange, part: _Part, *, to_log_end: bool) -> PlannedRange:
    planned = PlannedRange(one, part.read_filter)
    window = part.log.window
    assert window is not None
    if part.fates is not None:
        return planned.with_fates(part.log, part.fates, to_log_end=to_log_end)
    if not window.is_committed:
        return planned
    nothing = np.empty((0, ABORTED_COLUMNS), dtype=np.int64)
    return planned._replace(visible=Visibility(True, part.log.log_start, window.end_offset, nothing))


def _with_size(window: OffsetWindow | None) -> OffsetWindow:
    assert window is not None
    estimate = (window.end_offset - window.first_offset) * _BYTES_OF_AN_OFFSET
    return window if window.size_bytes else window._replace(size_bytes=max(estimate, 0))
