"""Printing of a large `.log` file by several processes, in order. shell

Each process reads the file itself and makes the text of a run of batches. Only a few runs are underway or wait to be
printed, so memory is bounded even if the output is read slowly. The printing process itself makes the text of a run
with too much text, because of good compression.
"""

import os
import signal
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from typing import Final, NamedTuple

from ottla.broker.log.batches import iter_runs
from ottla.broker.ports.side_by_side import follow
from ottla.cli.dump.job import Found, PrintJob
from ottla.cli.dump.log import BatchRun, batches_of
from ottla.cli.read_only import ReadOnlyFile
from ottla.protocol.batch_header import BatchHeader

_MAX_OFFSET: Final = 2**63 - 1
_WAITING: Final = 1
_MOST_TEXT_BYTES: Final = 32 << 20


class _RangeText(NamedTuple):
    """The result of one process for a range of the file, without the text if it is too long."""

    text: bytes | None
    batch_count: int
    record_count: int
    damage: str | None
    unread: str | None


def print_spread(
    job: PrintJob,
    file: ReadOnlyFile,
    base_offset: int,
    write: Callable[[bytes], None],
    progress: Callable[[int], None] | None,
    count: int,
) -> Found:
    """Pass the text of the file, made by `count` processes, to `write`. Raises OSError, also if a process is killed."""
    batches = records = 0
    damage = unread = None
    for batch_run, text in _side_by_side(job, _batch_runs(file, base_offset), count):
        for chunk in job.dump().chunks(batches_of(file, batch_run)) if text.text is None else (text.text,):
            write(chunk)
        batches += text.batch_count
        records += text.record_count
        damage, unread = damage or text.damage, unread or text.unread
        if progress is not None:
            progress(batch_run.end)
    return Found(batches, records, file.size_bytes, damage, unread)


def _side_by_side(job: PrintJob, batch_runs: Iterator[BatchRun], count: int) -> Iterator[tuple[BatchRun, _RangeText]]:
    """Yield each run of batches with its text, in the order of the file."""
    underway: deque[tuple[BatchRun, Future[_RangeText]]] = deque()
    pool = ProcessPoolExecutor(count, get_context("fork"), _follow, (os.getpid(),))
    try:
        for batch_run in batch_runs:
            underway.append((batch_run, pool.submit(_print_run, job, batch_run)))
            if len(underway) >= count + _WAITING:
                first, text = underway.popleft()
                yield first, text.result()
        for batch_run, text in underway:
            yield batch_run, text.result()
    except BrokenProcessPool:
        raise ChildProcessError(None, "a process that read it was killed, maybe for lack of memory") from None
    finally:
        pool.shutdown(cancel_futures=True)


def _follow(parent: int) -> None:
    """End without output when the parent ends. Ignore Ctrl-C, which every process of a terminal gets."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    follow(parent)


def _print_run(job: PrintJob, batch_run: BatchRun) -> _RangeText:
    with ReadOnlyFile(job.path) as file:
        dump = job.dump()
        chunks: list[bytes] = []
        size_bytes = 0
        for chunk in dump.chunks(batches_of(file, batch_run)):
            size_bytes += len(chunk)
            if size_bytes <= _MOST_TEXT_BYTES:
                chunks.append(chunk)
            else:  # continue only for the counts
                chunks.clear()
        text = b"".join(chunks) if size_bytes <= _MOST_TEXT_BYTES else None
        return _RangeText(text, dump.batch_count, dump.record_count, dump.damage, dump.unread)


def _batch_runs(file: ReadOnlyFile, base_offset: int) -> Iterator[BatchRun]:
    """Yield runs of whole batches, a MiB each. The last run has the rest of the file, sound or not."""
    position, least_offset, size = 0, base_offset, file.size_bytes
    for run in iter_runs(file, 0, size, base_offset, _MAX_OFFSET, check_crc=False):
        if run.bad is not None:
            break
        end = run.position + len(run.data)
        yield BatchRun(position, end, least_offset)
        position, least_offset = end, BatchHeader._make(run.headers[-1]).next_offset
    if position < size:
        yield BatchRun(position, size, least_offset)
