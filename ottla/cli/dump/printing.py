"""Printing of one `.log` file, by this process or, if the file is large, by several. shell

Importing the code for several processes takes longer than printing a small file, so it is imported only if needed.
"""

from collections.abc import Callable
from typing import Final

from ottla.cli.dump.job import Found, PrintJob
from ottla.cli.dump.log import BatchRun, batches_of
from ottla.cli.read_only import ReadOnlyFile

SPREAD_FROM_BYTES: Final = 16 << 20
# One process prints the output of the others. More processes than this would wait for the printing.
_MOST_PROCESSES: Final = 8


def print_log(
    job: PrintJob,
    base_offset: int,
    write: Callable[[bytes], None],
    progress: Callable[[int, int], None] | None = None,
    *,
    spread_from_bytes: int = SPREAD_FROM_BYTES,
) -> Found:
    """Pass the text of the file to `write`. Several processes print the records of a large file.

    `progress` gets (position, size of the file). Raises OSError if the file cannot be read.
    """
    with ReadOnlyFile(job.path) as file:
        size = file.size_bytes
        report = None if progress is None else lambda position: progress(position, size)
        if job.records and size >= spread_from_bytes:
            from ottla.broker.ports.side_by_side import processors
            from ottla.cli.dump.parallel import print_spread

            count = min(processors(), _MOST_PROCESSES)
            if count > 1:
                return print_spread(job, file, base_offset, write, report, count)
        dump = job.dump()
        for chunk in dump.chunks(batches_of(file, BatchRun(0, size, base_offset)), report):
            write(chunk)
        return Found(dump.batch_count, dump.record_count, size, dump.damage, dump.unread)
