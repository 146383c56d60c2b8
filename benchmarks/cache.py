"""Reads of a log by `ottla.spark_jobs.cached`, the data source, as Parquet, and by Spark's Kafka source. shell

    python benchmarks/cache.py [--size-mib 1024] [--rounds 5] [--against kafka] [--format json]

Needs Java 17. `--against ottla` (our broker serves the log) and `--against kafka` (Apache Kafka serves it) also need
Maven. The log is that of `make_log.py`, but values rarely repeat; `--values json` makes them text, in compressed
batches. All readers must first agree on every record. Then they take turns: the first query of a cache, which fills
it; queries whose files are in the page cache (warm); and queries whose files were dropped from it (cold). Times include
the planning. CPU is that of Spark, its JVM and workers; for Kafka's source also that of the broker. Spark itself wrote
the plain Parquet from the same records.
"""

import argparse
import contextlib
import json
import os
import shutil
import signal
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from parts import processes
from parts.figures import machine
from parts.kafka_source.connector import connector, need_java_and_maven
from parts.kafka_source.spark_process import SparkReader, spark_reader, theirs_of, wait_for_leaders
from parts.log import json_value, make_log
from parts.options import parse_count

from lab.usage import command_line
from ottla.protocol.compression import ZSTD

Timing = dict[str, float | None]
COLUMNS = {"key": "binary", "value": "binary", "partition": "int", "offset": "long", "timestamp": "timestamp"}
SCHEMA = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
NARROW_SCHEMA = "partition int, offset long, timestamp timestamp"
# Arguments of make_log for each choice of `--values`: the maker of values, and the codec of the batches.
VALUES: dict[str, dict[str, Any]] = {"random": {}, "json": {"value": json_value, "codec": ZSTD}}
# Number of different batches. Their values take many megabytes, more than any dictionary or window of a codec holds.
TEMPLATES = 4096
NARROW = ("partition", "offset", "timestamp")
WORDS = {
    "read": "five columns, kept nowhere",
    "sum": "sums over five columns",
    "count": "counts, and the last offset and time, by partition",
}


class Contest:
    """Files of one log in every form, and their readers."""

    def __init__(self, scratch: Path, arguments: argparse.Namespace) -> None:
        self._scratch, self.log, self.cache, self.plain = scratch, scratch / "log", scratch / "cache", scratch / "plain"
        self.size, self.records, self.committed = make_log(
            self.log, arguments.size_mib * 2**20, arguments.partitions, templates=TEMPLATES, **VALUES[arguments.values]
        )
        self._arguments = arguments
        self.requests: dict[str, dict[str, Any]] = {
            "data source": self._request("ottla", self.log, schema=SCHEMA),
            "cached": self._request("cached", self.log, cache=str(self.cache)),
            "Parquet": self._request("parquet", self.plain),
        }

    def _request(self, form: str, path: Path, schema: str | None = None, **more: str) -> dict[str, Any]:
        return {"format": form, "options": {}, "load": str(path), "schema": schema, "columns": [*COLUMNS], **more}

    def write_plain(self, spark: SparkReader) -> None:
        every = ["topic", "timestampType", "headers", "producerId", "producerEpoch", "sequence", "segment"]
        request = self._request("ottla", self.log)
        spark.ask({"do": "write", **request, "columns": [*COLUMNS, *every], "to": str(self.plain)})

    def drop_cache(self) -> None:
        shutil.rmtree(self.cache, ignore_errors=True)

    def forget_pages(self) -> None:
        """Ask the kernel to drop the files from its page cache. It may keep some."""
        os.sync()
        for path in self._scratch.rglob("*"):
            if path.is_file():
                file = os.open(path, os.O_RDONLY)
                os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
                os.close(file)

    def bytes_of(self, path: Path) -> int:
        return sum(one.stat().st_size for one in path.rglob("*.parquet"))

    @contextlib.contextmanager
    def kafka_source(self) -> Iterator[Callable[[str], Timing] | None]:
        """Yield a function that sends a request to Spark's Kafka source, or None if no broker serves the log."""
        against = self._arguments.against
        if against == "nothing":
            yield None
            return
        source = connector(self._arguments.connectors, None, same_spark=False)
        copy = self._scratch / "served"
        shutil.copytree(self.log, copy)
        with contextlib.ExitStack() as running:
            jars, cores = source.jars, self._arguments.cores
            theirs = running.enter_context(spark_reader("its Kafka source", source.python, cores, jars, self._scratch))
            with contextlib.ExitStack() as ours:
                broker = ours.enter_context(processes.ottla(copy))
                wait_for_leaders(broker.bootstrap)
                if against == "ottla":
                    running.enter_context(ours.pop_all())
            if against == "kafka":
                broker = running.enter_context(processes.apache_kafka(processes.KAFKA_SCRIPT, copy))
                wait_for_leaders(broker.bootstrap)

            def ask(do: str) -> Any:
                request = theirs_of(broker.bootstrap, dict.fromkeys(NARROW, "") if do == "count" else COLUMNS)
                if do == "check":
                    return theirs.ask({"do": do, **request})
                before = broker.cpu_s()
                timing: Timing = theirs.ask({"do": do, **request})
                after, own = broker.cpu_s(), timing["cpu_s"]
                known = before is not None and after is not None and own is not None
                return timing | {"cpu_s": own + after - before if known else None}

            yield ask


def run(contest: Contest, spark: SparkReader, kafka: Any, rounds: int, show: Callable[[dict[str, Any]], None]) -> None:
    _tell("writing the plain Parquet, and checking that all read the same")
    contest.write_plain(spark)
    read = {name: spark.ask({"do": "check", **request}) for name, request in contest.requests.items()}
    if kafka is not None:
        read["Kafka source"] = kafka("check")
    if len({json.dumps(rows) for rows in read.values()}) > 1:
        raise SystemExit(f"they read different records: {read}")

    def ask(name: str, do: str) -> Timing:
        request = contest.requests[name]
        if do == "count":
            request = request | {"columns": [*NARROW], "schema": request["schema"] and NARROW_SCHEMA}
        timing: Timing = spark.ask({"do": do, **request})
        return timing

    def first() -> Timing:
        contest.drop_cache()
        return ask("cached", "read")

    def cold(name: str) -> Timing:
        contest.forget_pages()
        return ask(name, "read")

    def by_all(do: str) -> dict[str, Callable[[], Timing]]:
        runs = {name: lambda name=name: ask(name, do) for name in contest.requests}
        return runs if kafka is None else {**runs, "Kafka source": lambda: kafka(do)}

    _tell("the first query")
    show(
        _turns(
            "first query, which fills the cache",
            {"cached": first, "data source": by_all("read")["data source"]},
            rounds,
        )
    )
    for do, words in WORDS.items():
        _tell(f"warm, {words}")
        show(_turns(f"warm, {words}", by_all(do), rounds))
    _tell("cold")
    show(
        _turns(
            "cold, five columns, kept nowhere",
            {name: lambda name=name: cold(name) for name in contest.requests},
            rounds,
        )
    )


def _turns(what: str, runs: dict[str, Callable[[], Timing]], rounds: int) -> dict[str, Any]:
    """Run each once per round, starting with a different one each time. The first round warms up and is not counted."""
    found: dict[str, list[Timing]] = {name: [] for name in runs}
    names = [*runs]
    for turn in range(rounds + 1):
        # A run also collects the garbage of the run before it.
        for name in (*names[turn % len(names) :], *names[: turn % len(names)]):
            timing = runs[name]()
            if turn:
                found[name].append(timing)
    return {"what": what, "by": {name: _spread(timings) for name, timings in found.items()}}


def _spread(timings: list[Timing]) -> dict[str, list[float]]:
    """Return the minimum, median and maximum of the wall and of the CPU seconds."""
    spread = {}
    for key in ("wall_s", "cpu_s"):
        values = [value for timing in timings if (value := timing[key]) is not None]
        spread[key] = [round(f(values), 3) for f in (min, statistics.median, max)] if values else []
    return spread


def _text_of(row: dict[str, Any]) -> str:
    lines = [row["what"]]
    reference = row["by"].get("Parquet", row["by"]["data source"])
    for name, spread in row["by"].items():
        wall, cpu = ("".join(f"{value:8.2f}" for value in spread[key]) for key in ("wall_s", "cpu_s"))
        ratios = [
            spread[key][1] / reference[key][1] if spread[key] and reference[key] and reference[key][1] else float("nan")
            for key in ("wall_s", "cpu_s")
        ]
        lines.append(f"  {name:14} wall s{wall}   CPU s{cpu}   {ratios[0]:6.2f} x {ratios[1]:6.2f} x")
    return "\n".join(lines)


def _tell(line: str) -> None:
    print(f"{line} ...", file=sys.stderr, flush=True)


def parse() -> argparse.Namespace:
    parser = command_line(__doc__)
    parser.add_argument("--size-mib", type=parse_count, default=1024)
    parser.add_argument("--values", choices=(*VALUES,), default="random", help="json: in batches compressed by zstd")
    parser.add_argument("--partitions", type=parse_count, default=4)
    parser.add_argument("--cores", type=parse_count, default=os.cpu_count() or 1)
    parser.add_argument("--rounds", type=parse_count, default=5)
    parser.add_argument(
        "--against", choices=("nothing", "ottla", "kafka"), default="nothing", help="who serves the log"
    )
    kept = Path(tempfile.gettempdir()) / "ottla-spark-kafka"
    parser.add_argument("--connectors", type=Path, default=kept, help="for jars and Spark of its source; %(default)s")
    parser.add_argument("--format", choices=("text", "json"), default="text")
    return parser.parse_args()


def main() -> None:
    arguments = parse()
    if arguments.against != "nothing":
        need_java_and_maven()
    # SIGTERM stops the started processes, as Ctrl-C does.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    stands_on = machine()
    rows: list[dict[str, Any]] = []

    def show(row: dict[str, Any]) -> None:
        rows.append(row)
        if arguments.format == "text":
            print(_text_of(row), flush=True)

    with tempfile.TemporaryDirectory(prefix="ottla-cache-") as scratch:
        contest = Contest(Path(scratch), arguments)
        if arguments.format == "text":
            print(f"values: {arguments.values}; ", end="")
            load = f"load {stands_on['load_1_min']:.1f}"
            print(f"{contest.size / 2**30:.2f} GiB, {contest.committed:,} records, {arguments.cores} cores, {load}")
            print("seconds: least, median, most; beside them the median by that of Parquet, or of the data source")
        with (
            spark_reader("ours", sys.executable, arguments.cores, (), Path(scratch)) as spark,
            contest.kafka_source() as kafka,
        ):
            run(contest, spark, kafka, arguments.rounds, show)
        sizes = {
            "log": contest.size,
            "cache": contest.bytes_of(contest.cache),
            "Parquet": contest.bytes_of(contest.plain),
        }
    if arguments.format == "json":
        found = {"machine": stands_on, "size_bytes": sizes, "records": contest.committed, "rows": rows}
        print(json.dumps(found, indent=2))
    else:
        print("MiB: " + ", ".join(f"{name} {size / 2**20:,.0f}" for name, size in sizes.items()))


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
