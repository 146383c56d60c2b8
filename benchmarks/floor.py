"""Least cost of the bytes of produce and consume in Python, and the cost that the walk over records adds. free

    python benchmarks/floor.py [--megabytes 1024] [--rounds 3] [--format json]

CPU seconds per GB: minimum, median and maximum of the rounds. The cases take turns. No broker in Python can be faster
than a floor: `recv + CRC + pwrite` receives, checks and writes batches of 1 MB; `pread + send` and `sendfile` send a
file from the page cache. The walk checks the frame of each record; it is machine code if the package was built with a
C compiler.
"""

import json
import statistics
import tempfile
import time

from parts import processes
from parts.figures import stands_on
from parts.floors import BATCH_BYTES, CASES
from parts.options import parse_count

from lab.usage import command_line
from ottla.protocol import walked
from ottla.protocol.batch import build_batch
from ottla.protocol.batch_header import HEADER_SIZE, read_header

RECORD_BYTES = (1024, 100, 10)


def walk(record_bytes, size_bytes, walk_compiled):
    """Return the CPU seconds per `size_bytes` of batches with values of `record_bytes`, measured on an eighth of it."""
    count = min(walked.SLICE_RECORDS, BATCH_BYTES // (record_bytes + 12))
    batch = build_batch([(b"key", bytes(record_bytes))] * count)
    raw, records = memoryview(batch)[HEADER_SIZE:], read_header(batch).record_count
    before, walked.walk_compiled = walked.walk_compiled, walk_compiled
    try:
        began = time.process_time()
        for _ in range(max(1, size_bytes // 8 // len(raw))):
            walked.walk_at_once(raw, records)
        return (time.process_time() - began) * size_bytes / (max(1, size_bytes // 8 // len(raw)) * len(raw))
    finally:
        walked.walk_compiled = before


def rows(size_bytes, rounds, file):
    """Return the CPU seconds per GB of each case in each round, by the name of the case."""
    cases = {name: lambda case=case: case(size_bytes, file) for name, case in CASES.items()}
    walks = {"Python": None} | ({"compiled": walked.walk_compiled} if walked.walk_compiled else {})
    for record_bytes in RECORD_BYTES:
        for name, one in walks.items():
            cases[f"walk, {record_bytes}-byte records, {name}"] = lambda record_bytes=record_bytes, one=one: walk(
                record_bytes, size_bytes, one
            )
    found = {name: [] for name in cases}
    for _ in range(rounds):
        for name, case in cases.items():
            found[name].append(case() / (size_bytes / 1e9))
    return found


def main():
    parser = command_line(__doc__)
    parser.add_argument("--megabytes", type=parse_count, default=1024)
    parser.add_argument("--rounds", type=parse_count, default=3)
    parser.add_argument("--format", choices=("text", "json"), default="text")
    arguments = parser.parse_args()
    machine = processes.machine()
    with tempfile.TemporaryFile(prefix="ottla-floor-") as file:
        found = rows(arguments.megabytes * 1_000_000, arguments.rounds, file.fileno())
    if arguments.format == "json":
        print(json.dumps({"machine": machine, "cpu_s_gb": found}))
        return
    print(stands_on(machine))
    print(f"{'CPU s/GB':36} {'min':>7} {'median':>7} {'max':>7}")
    for name, figures in found.items():
        print(f"{name:36} {min(figures):7.3f} {statistics.median(figures):7.3f} {max(figures):7.3f}")


if __name__ == "__main__":
    main()
