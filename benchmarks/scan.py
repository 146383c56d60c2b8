"""What Spark makes of segments: records into a DataFrame, and the audit, on a log that this script writes. free

    python benchmarks/scan.py [--size-mib 1024] [--cores 2] [--rounds 3] [--directory DIR]

The log: 200-byte records in batches of about 14 KB, four partitions, eight interleaved transactional producers each,
every tenth transaction aborted. The page cache is warm: the log has just been written. Wall time of the best
round; CPU of this process, the JVM and all workers, of the most expensive one.
"""

import argparse
import os
import random
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from ottla.protocol.batch import assign_offsets, build_batch, build_marker, read_header, seal, write_header  # noqa: E402
from ottla.protocol.indexes import OFFSET_ENTRY  # noqa: E402

PARTITIONS = 4
PRODUCERS = 8
RECORDS_PER_BATCH = 64
BATCHES_PER_TRANSACTION = 10
ABORTED_EVERY = 10
VALUE_BYTES = 200
SEGMENT_BYTES = 256 * 1024 * 1024
INDEX_INTERVAL_BYTES = 4096

# Targets per second on two cores.
RECORDS_M = 2.0
AUDIT_GIB = 1.0

ALL_COLUMNS = None
FIVE_COLUMNS = "key binary, value binary, partition int, offset long, timestamp timestamp"
TWO_COLUMNS = "offset long, key binary"


class PartitionWriter:
    """Appends batches to segments that roll, with their offset indexes."""

    def __init__(self, folder, base_time_ms):
        folder.mkdir(parents=True)
        self._folder = folder
        self._time_ms = base_time_ms
        self._file = None
        self.next_offset = 0
        self.size = 0
        self._roll()

    def append(self, batch):
        if self._position + len(batch) > SEGMENT_BYTES:
            self._roll()
        assign_offsets(batch, self.next_offset, 0)
        last_offset = read_header(batch).last_offset
        if self._unindexed > INDEX_INTERVAL_BYTES:
            self._index += OFFSET_ENTRY.pack(last_offset - self._base, self._position)
            self._unindexed = 0
        self._file.write(batch)
        self._position += len(batch)
        self._unindexed += len(batch)
        self.size += len(batch)
        self.next_offset = last_offset + 1

    def _roll(self):
        self.close()
        self._base, self._position, self._unindexed, self._index = self.next_offset, 0, 0, bytearray()
        self._file = (self._folder / f"{self._base:020d}.log").open("wb")

    def close(self):
        if self._file:
            self._file.close()
            (self._folder / f"{self._base:020d}.index").write_bytes(self._index)


def write_log(root, size_bytes):
    """Write the log; returns (bytes, records)."""
    (root / "meta.properties").write_text("version=1\nnode.id=1\n")
    chance = random.Random(7)
    templates = [
        build_batch(
            [
                (b"Account-%08d" % chance.randrange(10**6), chance.randbytes(VALUE_BYTES))
                for _ in range(RECORDS_PER_BATCH)
            ],
            timestamp_ms=1_700_000_000_000,
            producer_id=1,
            producer_epoch=0,
            base_sequence=0,
            transactional=True,
        )
        for _ in range(16)
    ]
    written = records = 0
    for partition in range(PARTITIONS):
        writer = PartitionWriter(root / f"financial-ledger-{partition}", 1_700_000_000_000)
        sequences = [0] * PRODUCERS
        turns = 0
        while writer.size < size_bytes // PARTITIONS:
            turns += 1
            for _ in range(BATCHES_PER_TRANSACTION):
                for producer in range(PRODUCERS):
                    batch = bytearray(chance.choice(templates))
                    header = read_header(batch)
                    write_header(batch, header._replace(producer_id=producer, base_sequence=sequences[producer]))
                    seal(batch)
                    writer.append(batch)
                    sequences[producer] += RECORDS_PER_BATCH
                    records += RECORDS_PER_BATCH
            for producer in range(PRODUCERS):
                commit = (turns + producer) % ABORTED_EVERY != 0
                writer.append(build_marker(producer, 0, 0, commit, 1_700_000_001_000))
        writer.close()
        written += writer.size
    return written, records


def start_spark(cores):
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = (
        SparkSession.builder.master(f"local[{cores}]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.python.unix.domain.socket.enabled", "true")
        .config("spark.executorEnv.PYTHONPATH", str(ROOT))
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def cpu_of_tree():
    """CPU seconds of this process, the JVM and all workers so far; None where /proc is missing."""
    if not Path("/proc/self/stat").exists():
        return None
    ticks, parents = {}, {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        pid = int(path.parent.name)
        parents[pid] = int(fields[1])
        # Own and reaped children's, user and system.
        ticks[pid] = sum(map(int, fields[11:15]))
    mine = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in mine} - mine:
        mine |= more
    return sum(ticks[pid] for pid in mine) / os.sysconf("SC_CLK_TCK")


def best_of(rounds, run):
    """(least wall, largest CPU) seconds of `rounds`, after one round that loads what is loaded once.

    The largest CPU: a worker that ends without its parent's notice takes its share out of the sum.
    """
    run()
    walls, cpus = [], []
    for _ in range(rounds):
        start, before = time.perf_counter(), cpu_of_tree()
        run()
        walls.append(time.perf_counter() - start)
        if before is not None:
            cpus.append(cpu_of_tree() - before)
    return min(walls), max(cpus, default=None)


def measure(spark, root, size, records, rounds):
    """Rows (what, (wall, CPU), amount, unit, target per second)."""
    from ottla.spark_jobs.audit_scan import audit

    def read(schema, isolation):
        reader = spark.read.format("ottla").option("isolation.level", isolation)
        frame = (reader.schema(schema) if schema else reader).load(str(root))
        return lambda: frame.write.format("noop").mode("overwrite").save()

    committed = spark.read.format("ottla").schema("offset long").load(str(root)).count()
    print(f"{committed:,} of {records:,} records are committed\n")
    yield "audit, CRC checked", best_of(rounds, lambda: audit(spark, str(root), (), 0)), size / 2**30, "GiB", AUDIT_GIB
    for name, schema, isolation, count in (
        ("records, all 11 columns", ALL_COLUMNS, "read_committed", committed),
        ("records, all 11 columns, uncommitted", ALL_COLUMNS, "read_uncommitted", records),
        ("records, 5 columns", FIVE_COLUMNS, "read_committed", committed),
        ("records, offset and key", TWO_COLUMNS, "read_committed", committed),
    ):
        yield name, best_of(rounds, read(schema, isolation)), count / 1e6, "M", RECORDS_M


def line_of(name, times, amount, unit, target):
    wall, cpu = times
    core = "" if cpu is None else f"{cpu:8.2f} {amount / cpu:8.2f} {unit}/s"
    return f"{name:38} {wall:8.2f} {amount / wall:8.2f} {unit + '/s':6} x {amount / wall / target:.2f}  {core}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0].removesuffix(" free"))
    parser.add_argument("--size-mib", type=int, default=1024)
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--directory", help="keep the log here, and use it if it is there; default: a temporary one")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ottla-scan-") as scratch:
        root = Path(arguments.directory or scratch)
        root.mkdir(parents=True, exist_ok=True)
        start = time.perf_counter()
        if (root / "facts").exists():
            size, records = map(int, (root / "facts").read_text().split())
        else:
            size, records = write_log(root, arguments.size_mib * 2**20)
            (root / "facts").write_text(f"{size} {records}")
        print(
            f"{size / 2**30:.2f} GiB, {records:,} records of {VALUE_BYTES} bytes; {time.perf_counter() - start:.1f} s"
        )
        spark = start_spark(arguments.cores)
        where = f"local[{arguments.cores}]"
        print(f"{where:38} {'wall s':>8} {'speed':>12}    of target  CPU s  per CPU second")
        for row in measure(spark, root, size, records, arguments.rounds):
            print(line_of(*row), flush=True)
        spark.stop()


if __name__ == "__main__":
    main()
