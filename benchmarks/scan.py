"""Speed of scans in Spark and in this process: fates, audits, records, exports, on a log of this script. free

    python benchmarks/scan.py [--size-mib 2150] [--copies 1] [--cores 2] [--rounds 3] [--only WORDS] [--format json]

The log is that of `make_log.py`; it has just been written, so the page cache is warm. Wall time is that of the best
round. CPU is that of this process, the JVM and all workers in the most expensive round.
"""

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path
from typing import NamedTuple

from parts.cpu_time import cpu_of_tree
from parts.kafka_source.dumped import scan_all
from parts.log import make_log
from parts.options import check_chosen, parse_count

from lab.usage import command_line

ROOT = Path(__file__).resolve().parents[1]
ALL_COLUMNS = None
FIVE_COLUMNS = "key binary, value binary, partition int, offset long, timestamp timestamp"
TWO_COLUMNS = "offset long, key binary"


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


def best_of(rounds, run):
    """Return the (least wall, largest CPU) seconds of `rounds`, after one round to warm up.

    The largest CPU, because the sum loses the time of a worker that its parent does not wait for. None if it is not
    known, or too small to be measured.
    """
    run()
    walls, cpus = [], []
    for _ in range(rounds):
        start, before = time.perf_counter(), cpu_of_tree()
        run()
        walls.append(time.perf_counter() - start)
        if before is not None:
            cpus.append(cpu_of_tree() - before)
    most = max(cpus, default=0.0)
    return min(walls), most if most > 0 else None


class Case(NamedTuple):
    """Row of the table: the work, its amount and unit, and the goal per second on two cores (None without a goal)."""

    name: str
    run: Callable[[], object]
    amount: float
    unit: str
    goal: float | None


def cases(spark, root, size, records, committed):
    """Yield everything that is measured, in order. Figures with `here` run in threads of this process."""
    from ottla.audit.pipeline import audit
    from ottla.audit.request import Request
    from ottla.audit.runner import ThreadRunner
    from ottla.spark_jobs import export
    from ottla.spark_jobs.spark_runner import SparkRunner

    gib, cores = size / 2**30, os.cpu_count() or 1
    request = Request((str(root),), (), 0)

    def fates(check_crc):
        return lambda: scan_all(root, check_crc=check_crc, threads=cores)

    def read(schema, isolation="read_committed"):
        reader = spark.read.format("ottla").option("isolation.level", isolation)
        frame = (reader.schema(schema) if schema else reader).load(str(root))
        return lambda: frame.write.format("noop").mode("overwrite").save()

    def export_here():
        with tempfile.TemporaryDirectory(prefix="ottla-export-") as out, redirect_stdout(sys.stderr):
            assert export.main([str(root), f"{out}/table", "--columns", "offset,timestamp,key,value,partition"]) == 0

    yield Case("headers and fates, here", fates(False), gib, "GiB", 2.0)
    yield Case("headers and fates with CRC, here", fates(True), gib, "GiB", 1.5)
    yield Case("audit, every check, here", lambda: audit(ThreadRunner(cores), request), gib, "GiB", 1.5)
    yield Case("audit, every check, on Spark", lambda: audit(SparkRunner(spark), request), gib, "GiB", 1.5)
    yield Case("records, offset and key", read(TWO_COLUMNS), committed / 1e6, "M", 6.0)
    yield Case("records, 5 columns", read(FIVE_COLUMNS), committed / 1e6, "M", None)
    yield Case("records, all columns", read(ALL_COLUMNS), committed / 1e6, "M", 3.7)
    yield Case("the same, read_uncommitted", read(ALL_COLUMNS, "read_uncommitted"), records / 1e6, "M", 3.7)
    yield Case("aggregated in tasks, key and value", lambda: aggregate(spark, root), committed / 1e6, "M", 11.5)
    yield Case("exported to Parquet, here", export_here, committed / 1e6, "M", 5.0)


def aggregate(spark, root):
    """Sum records and bytes of keys and values in tasks, each of which returns a row a range; return the records."""
    from ottla.spark_jobs.options import Options
    from ottla.spark_jobs.views.bounds import UNBOUNDED
    from ottla.spark_jobs.views.planning import plan_ranges

    tasks = plan_ranges(Options((str(root),)), UNBOUNDED, with_fates=True)
    rows = spark.sparkContext.parallelize(tasks, len(tasks)).flatMap(sum_task).collect()
    return sum(records for _, records, _, _ in rows)


def sum_task(task):
    import pyarrow.compute as pc

    from ottla.scan import schemas
    from ottla.scan.damage_log import DamageLog
    from ottla.scan.needs import check_worker
    from ottla.scan.records import RecordScan

    check_worker()
    scan = RecordScan(schemas.arrow_schema(schemas.RECORDS, [("key", True), ("value", True)]), DamageLog("fail"))
    for planned in task.ranges:
        records = keys = values = 0
        for batch in scan.read(planned.part, planned.visible, planned.read_filter):
            records += len(batch)
            keys += pc.sum(pc.binary_length(batch.column(0))).as_py() or 0
            values += pc.sum(pc.binary_length(batch.column(1))).as_py() or 0
        yield f"{planned.part.topic}-{planned.part.number}", records, keys, values


def row_of(case, rounds):
    wall, cpu = best_of(rounds, case.run)
    return {
        "what": case.name,
        "wall_s": round(wall, 3),
        "cpu_s": None if cpu is None else round(cpu, 2),
        "amount": round(case.amount, 3),
        "unit": case.unit,
        "per_second": round(case.amount / wall, 2),
        "per_cpu_second": None if cpu is None else round(case.amount / cpu, 2),
        "goal": case.goal,
        "of_goal": None if case.goal is None else round(case.amount / wall / case.goal, 2),
    }


def line_of(row):
    goal = "" if row["goal"] is None else f"x {row['of_goal']:.2f} of {row['goal']}"
    cpu = "" if row["cpu_s"] is None else f"{row['cpu_s']:7.2f} {row['per_cpu_second']:7.2f}"
    return f"{row['what']:36} {row['wall_s']:7.2f} {row['per_second']:7.2f} {row['unit']:3}/s  {cpu}   {goal}"


def main():
    parser = command_line(__doc__)
    parser.add_argument("--size-mib", type=parse_count, default=2150)
    parser.add_argument(
        "--copies", type=parse_count, default=1, help="topics, all but the first hard links; default: 1"
    )
    parser.add_argument("--cores", type=parse_count, default=2)
    parser.add_argument("--rounds", type=parse_count, default=3)
    parser.add_argument("--only", default="", help="the cases whose name has this in it")
    parser.add_argument("--directory", help="keep the log here, and use it if it is there; default: a temporary one")
    parser.add_argument("--format", choices=("text", "json"), default="text")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ottla-scan-") as scratch:
        root = Path(arguments.directory or scratch) / "log"
        facts = root.parent / "facts"
        if not facts.exists():
            made = make_log(root, arguments.size_mib * 2**20, copies=arguments.copies)
            facts.write_text(" ".join(map(str, made)))
        size, records, committed = map(int, facts.read_text().split())
        spark = start_spark(arguments.cores)
        told = f"{size / 2**30:.2f} GiB, {records:,} records, {committed:,} committed, local[{arguments.cores}]"
        print(f"{told}; load {os.getloadavg()[0]:.1f}", file=sys.stderr)
        if arguments.format == "text":
            print(f"{'':36} {'wall s':>7} {'':7}        {'CPU s':>7} {'per s':>7}   goal")
        chosen = [case for case in cases(spark, root, size, records, committed) if arguments.only in case.name]
        check_chosen(chosen, arguments.only)
        for case in chosen:
            row = row_of(case, arguments.rounds)
            print(json.dumps(row) if arguments.format == "json" else line_of(row), flush=True)
        spark.stop()


if __name__ == "__main__":
    main()
