"""Write a log directory for the benchmarks of scans (`parts/log.py`). free

    python benchmarks/make_log.py DIR [--size-mib 2150] [--partitions 4] [--copies 1]

`--copies N` adds N - 1 topics, hard links to the files of the first. Scans plan, read and check all their partitions,
but the page cache holds the files once.
"""

import time
from pathlib import Path

from parts.log import VALUE_BYTES, make_log
from parts.options import parse_count

from lab.usage import command_line


def main():
    parser = command_line(__doc__)
    parser.add_argument("directory")
    parser.add_argument("--size-mib", type=parse_count, default=2150)
    parser.add_argument("--partitions", type=parse_count, default=4)
    parser.add_argument("--copies", type=parse_count, default=1)
    arguments = parser.parse_args()
    start = time.perf_counter()
    size, records, committed = make_log(
        Path(arguments.directory), arguments.size_mib * 2**20, arguments.partitions, arguments.copies
    )
    print(
        f"{size / 2**30:.2f} GiB, {records:,} records of {VALUE_BYTES} bytes, {committed:,} committed; "
        f"{time.perf_counter() - start:.1f} s"
    )


if __name__ == "__main__":
    main()
