"""Time until the first answer of the broker, audits and a query, each in a new process, compiled or not. free

    python benchmarks/first_answer.py [--rounds 3] [--size-mib 1000] [--only WORDS] [--drop-caches] [--format json]
    python benchmarks/first_answer.py --only "ottla serve" --rounds 9 --checkout ../before --python /opt/pgo/bin/python

The broker is started with and without bytecode (`parts/starts.py`), also another state of it, and on other
interpreters. The rest is about audits and the query.

Wall seconds from the start of the process to its end, the median of the rounds. The small directory is the one of the
tests that Apache Kafka 4.3.1 wrote; `make_log.py` makes the other. "Compiled" kernels are in numba's cache from an
earlier run; "first" is the first run on a machine, with an empty cache. The small directory needs no kernel.
Programs and files are in the page cache; `--drop-caches` (as root; it slows down everything else on the machine)
drops them before each start. All rows except those of `ottla audit` need Java 17.
"""

import argparse
import gzip
import json
import os
import shutil
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from parts import starts
from parts.cpu_time import cpu_of_ended_children
from parts.figures import Figures, Row, machine, show
from parts.log import make_log
from parts.options import check_chosen, parse_count
from parts.starts import Subject

from lab.usage import command_line

ROOT = Path(__file__).resolve().parents[1]
REFERENCE = ROOT / "tests" / "data" / "kafka-4.3.1"
DROP_CACHES = Path("/proc/sys/vm/drop_caches")
AUDIT_CODES = (0, 1)
TIMEOUT_S = 600
SERVE = "ottla serve"

COUNT = """
import sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[*]").config("spark.ui.showConsoleProgress", "false").getOrCreate()
print(spark.read.format("ottla").load(sys.argv[1]).count())
"""


def cases(small: Path, large: Path) -> Iterator[tuple[str, str, float, Sequence[str], Callable[[str, int], bool]]]:
    """Yield (key, title, goal in seconds, command, function that checks its output and exit code)."""
    expected = _committed_records()

    def is_audit(said: str, code: int) -> bool:
        return code in AUDIT_CODES and bool(said.strip())

    def is_count(said: str, code: int) -> bool:
        return code == 0 and said.split() == [str(expected)]

    audit = [sys.executable, "-m", "ottla.cli.main", "audit"]
    yield "audit_small", "ottla audit, small directory", 3.0, [*audit, str(small)], is_audit
    yield "audit_large", "ottla audit, --size-mib", 2.0, [*audit, str(large)], is_audit
    submit = [_spark_submit(), str(ROOT / "ottla" / "spark_jobs" / "audit.py"), str(small)]
    yield "submit", "spark-submit audit.py, small directory", 20.0, submit, is_audit
    yield "count", 'format("ottla").count(), small directory', 20.0, [sys.executable, "-c", COUNT, str(small)], is_count


def rows(selected: Sequence[tuple[str, str, float]]) -> list[Row]:
    found = []
    for key, label, goal in selected:
        for kernels in ("compiled", "first"):
            found.append(Row(f"{key}_{kernels}_s", f"{label}, kernels {kernels}", "s", goal))
            found.append(Row(f"{key}_{kernels}_cpu_s", "  CPU", "s"))
    return found


def _spark_submit() -> str:
    import pyspark

    return str(Path(pyspark.__file__).parent / "bin" / "spark-submit")


def _committed_records() -> int:
    """Return the number of records that Kafka's own read_committed consumer returned from the reference directory."""
    with gzip.open(REFERENCE / "consumed.jsonl.gz", "rt") as lines:
        found = (json.loads(line) for line in lines)
        return sum(row["isolation"] == "read_committed" and "end" not in row for row in found)


def _unpack(place: Path) -> Path:
    import zstandard

    with (REFERENCE / "unclean.tar.zst").open("rb") as packed:
        reader = zstandard.ZstdDecompressor().stream_reader(packed)
        with tarfile.open(fileobj=reader, mode="r|") as archive:
            archive.extractall(place, filter="data")
    return place / "unclean"


def run(
    command: Sequence[str], is_right: Callable[[str, int], bool], cache: Path, *, drop_caches: bool
) -> tuple[float, float]:
    """Return the (wall, CPU) seconds of one process with its kernels in `cache`. Exits if the answer is wrong."""
    environment = dict(os.environ)
    environment |= {"NUMBA_CACHE_DIR": str(cache), "PYTHONPATH": str(ROOT)}
    environment |= {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    if drop_caches:
        os.sync()
        DROP_CACHES.write_text("3")
    began, before = time.perf_counter(), cpu_of_ended_children()
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=TIMEOUT_S, cwd=cache)
    wall_s, cpu_s = time.perf_counter() - began, cpu_of_ended_children() - before
    if not is_right(done.stdout, done.returncode):
        said = (done.stdout + done.stderr)[-2000:]
        raise SystemExit(f"{' '.join(command[:3])} ... gave a wrong answer, exit code {done.returncode}:\n{said}")
    return wall_s, cpu_s


def measure(
    command: Sequence[str], is_right: Callable[[str, int], bool], rounds: int, scratch: Path, *, drop_caches: bool
) -> Figures:
    """Return medians by kernels and figure. Each round runs with an empty cache, then with the cache that it filled."""
    found: dict[str, list[tuple[float, float]]] = {"first": [], "compiled": []}
    for _ in range(rounds):
        with tempfile.TemporaryDirectory(dir=scratch, prefix="kernels-") as cache:
            for kernels in found:
                found[kernels].append(run(command, is_right, Path(cache), drop_caches=drop_caches))
    figures: Figures = {}
    for kernels, timings in found.items():
        figures[f"{kernels}_s"] = statistics.median(wall_s for wall_s, _ in timings)
        figures[f"{kernels}_cpu_s"] = statistics.median(cpu_s for _, cpu_s in timings)
    return figures


def _known(key: str, figures: Figures) -> Figures:
    """Return the figures without the CPU time of the query: its JVM outlives the process, so that time is not known."""
    return {name: value for name, value in figures.items() if key != "count" or "cpu" not in name}


def parse() -> argparse.Namespace:
    parser = command_line(__doc__)
    parser.add_argument("--rounds", type=parse_count, default=3)
    parser.add_argument("--size-mib", type=parse_count, default=1000, help="of the log that make_log.py makes")
    parser.add_argument("--only", default="", help="what has this in its name")
    parser.add_argument(
        "--checkout", action="append", default=[], type=Path, metavar="DIR", help="start another state of Ottla too"
    )
    parser.add_argument(
        "--python", action="append", default=[], metavar="PATH", help="start it on another interpreter too"
    )
    parser.add_argument("--drop-caches", action="store_true")
    parser.add_argument("--format", choices=("text", "json"), default="text")
    return parser.parse_args()


def main() -> None:
    arguments = parse()
    if arguments.drop_caches and not os.access(DROP_CACHES, os.W_OK):
        raise SystemExit(f"--drop-caches needs to write to {DROP_CACHES}: run as root, or without it")
    stands_on = machine()
    figures: Figures = {}
    measured = []
    subjects = _subjects(arguments) if arguments.only in SERVE else []
    with tempfile.TemporaryDirectory(prefix="ottla-first-answer-") as name:
        scratch = Path(name)
        figures |= starts.measure(subjects, arguments.rounds, scratch)
        small, large = _unpack(scratch), scratch / "log"
        for key, label, goal, command, is_right in cases(small, large):
            told = label.replace("--size-mib", f"{arguments.size_mib} MiB")
            if arguments.only not in told:
                continue
            if "audit.py" in told or "count" in told:
                _need_java()
            if str(large) in command and not large.exists():
                make_log(large, arguments.size_mib * 2**20)
            print(f"{told} ...", file=sys.stderr, flush=True)
            taken = measure(command, is_right, arguments.rounds, scratch, drop_caches=arguments.drop_caches)
            figures |= {f"{key}_{figure}": value for figure, value in _known(key, taken).items()}
            measured.append((key, told, goal))
    check_chosen([*subjects, *measured], arguments.only)
    show([*starts.rows(subjects), *rows(measured)], figures, stands_on, arguments.format)


def _subjects(arguments: argparse.Namespace) -> list[Subject]:
    """Return the brokers to start: this one, other states, and this one on other interpreters."""
    others = [Subject(str(each), sys.executable, each.resolve()) for each in arguments.checkout]
    return [Subject("here", sys.executable, ROOT), *others, *(Subject(each, each, ROOT) for each in arguments.python)]


def _need_java() -> None:
    if shutil.which("java") is None and not os.environ.get("JAVA_HOME"):
        raise SystemExit('this needs Java 17: no java on the path and no JAVA_HOME; --only "ottla audit" does without')


if __name__ == "__main__":
    main()
