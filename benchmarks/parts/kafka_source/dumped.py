"""Runs of `ottla dump`, `ottla audit`, scans in this process, and kafka-dump-log on segment files. shell"""

import hashlib
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from parts.cpu_time import cpu_of_ended_children
from parts.kafka_source.compared import Timing
from parts.processes import KAFKA_SCRIPT, ROOT

KAFKA_TOOL = ("bash", str(KAFKA_SCRIPT), "tool", "org.apache.kafka.tools.DumpLogSegments")
OTTLA = (sys.executable, "-m", "ottla.cli.main")
AUDIT_CODES = (0, 1)


def link(root: Path, place: Path, most_bytes: int | None = None) -> tuple[Path, int]:
    """Link the segments, or the first ones up to `most_bytes` (at least one); return the directory and their bytes."""
    size = 0
    for path in sorted(root.glob("*-[0-9]*/*.log")):
        if most_bytes is not None and size and size + path.stat().st_size > most_bytes:
            break
        (place / path.parent.name).mkdir(parents=True, exist_ok=True)
        (place / path.parent.name / path.name).symlink_to(path.resolve())
        size += path.stat().st_size
    return place, size


def kafka_dump(links: Path, *options: str) -> list[str]:
    """Return the command of kafka-dump-log for all linked segments, in one JVM."""
    files = ",".join(str(path) for path in sorted(links.glob("*/*.log")))
    return [*KAFKA_TOOL, "--files", files, *options]


def ottla_dump(links: Path, *options: str) -> list[str]:
    return [*OTTLA, "dump", str(links), *options]


def ottla_audit(root: Path) -> list[str]:
    return [*OTTLA, "audit", str(root)]


def time_process(command: Sequence[str], codes: Sequence[int] = (0,)) -> Callable[[], Timing]:
    """Return a function that runs `command`, drops its output, and returns the time from start to end."""

    def run() -> Timing:
        began, before = time.perf_counter(), cpu_of_ended_children()
        done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, cwd=ROOT)
        wall_s, cpu_s = time.perf_counter() - began, cpu_of_ended_children() - before
        if done.returncode not in codes:
            raise SystemExit(f"{' '.join(command[:5])} ... ended with {done.returncode}:\n{done.stderr[-2000:]}")
        return {"wall_s": wall_s, "cpu_s": cpu_s}

    return run


def scan_all(root: Path, *, check_crc: bool, threads: int) -> None:
    """Scan headers and fates of all partitions in threads (the kernels and reads release the GIL)."""
    from ottla.scan.listing import list_partitions
    from ottla.scan.partitions import scan_partition

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(partial(scan_partition, on_damage="fail", check_crc=check_crc), list_partitions(str(root))))


def time_fates(root: Path, threads: int) -> Callable[[], Timing]:
    """Return a function that scans headers, CRCs and fates of all partitions in this process, warm after one run."""

    def run() -> Timing:
        began, before = time.perf_counter(), time.process_time()
        scan_all(root, check_crc=True, threads=threads)
        return {"wall_s": time.perf_counter() - began, "cpu_s": time.process_time() - before}

    return run


def check_same(links: Path, *, with_records: bool) -> None:
    """Exit unless both tools print the same line for every batch and, `with_records`, one for each record."""
    ours = _read_output(ottla_dump(links, *(("--records",) if with_records else ())))
    theirs = _read_output(kafka_dump(links, *(("--print-data-log",) if with_records else ())))
    if ours != theirs or not ours[0]:
        raise SystemExit(f"ottla dump and kafka-dump-log do not agree (batches, digest, records): {ours}, {theirs}")


def _read_output(command: Sequence[str]) -> tuple[int, str, int]:
    """Return (batches, digest of their lines, records) of the output of a tool."""
    batches, records, digest = 0, 0, hashlib.sha256()
    # A random value may contain line ends, so one letter is not enough to recognize the line of a record.
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=ROOT) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith(b"baseOffset: "):
                batches += 1
                digest.update(line)
            records += line.startswith(b"| offset: ")
    return batches, digest.hexdigest()[:16], records
