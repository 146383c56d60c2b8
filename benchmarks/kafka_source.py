"""Our data source against Spark's own Kafka source, our dump against kafka-dump-log: one log, one run, ratios. shell

    python benchmarks/kafka_source.py [--size-mib 2150] [--rounds 3] [--only WORDS] [--format json] [--same-spark]

Needs Java 17 and Maven. The log is that of `make_log.py`. We read its files; Spark's Kafka source reads the same
records from a broker that serves a copy of them: `ottla serve`, then Apache Kafka 4.3.1. Both give the same columns to
a sink that drops the rows, on as many cores, with read_committed. They must first agree on every record, by sums over
partitions. They take turns. Rates are of the best round. CPU is the median: that of Spark, its JVM and workers, and in
addition the broker's. Spark's Kafka source runs on the Spark of its own version, in an environment that is made on the
first run and kept in `--cache`; with `--same-spark` it runs on our Spark.
"""

import argparse
import contextlib
import json
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from parts import processes
from parts.figures import machine
from parts.kafka_source import dumped
from parts.kafka_source.compared import Timing, heading, line_of, row_of, turns
from parts.kafka_source.connector import connector, need_java_and_maven
from parts.kafka_source.spark_process import SparkReader, spark_reader, theirs_of, wait_for_leaders
from parts.log import make_log
from parts.options import check_chosen, parse_count

from lab.usage import command_line

COLUMNS = {
    "offset and key": {"offset": "long", "key": "binary"},
    "five columns": {
        "key": "binary",
        "value": "binary",
        "partition": "int",
        "offset": "long",
        "timestamp": "timestamp",
    },
}


def ours_of(root: Path, columns: dict[str, str]) -> dict[str, Any]:
    schema = ", ".join(f"{name} {kind}" for name, kind in columns.items())
    options = {"isolation.level": "read_committed"}
    return {"format": "ottla", "options": options, "load": str(root), "schema": schema, "columns": [*columns]}


class Comparison:
    """Measurements on one log. Each row is passed to `show` as soon as it is measured."""

    def __init__(self, arguments: argparse.Namespace, scratch: Path, show: Callable[[dict[str, Any]], None]) -> None:
        self._arguments, self._scratch, self._show = arguments, scratch, show
        self.versions: dict[str, str] = {}
        self._root = scratch / "log"
        self.size, self.records, self._committed = make_log(self._root, arguments.size_mib * 2**20)

    def _is_wanted(self, what: str) -> bool:
        return self._arguments.only in what

    def sources(self) -> None:
        """Compare with Spark's Kafka source on `ottla serve` and Apache Kafka, which serve the same copy in turn."""
        names = [name for name in ("ottla serve", "Apache Kafka") if self._is_wanted(f"Kafka source on {name}")]
        if not names:
            return
        source = connector(self._arguments.cache, self._arguments.connector, same_spark=self._arguments.same_spark)
        copy = self._scratch / "served"
        shutil.copytree(self._root, copy, copy_function=shutil.copyfile)
        with contextlib.ExitStack() as running:
            ours = running.enter_context(
                spark_reader("our data source", sys.executable, self._arguments.cores, (), self._scratch)
            )
            theirs = running.enter_context(
                spark_reader("its Kafka source", source.python, self._arguments.cores, source.jars, self._scratch)
            )
            self.versions = {
                "our data source on Spark": ours.version,
                "Spark's Kafka source": source.version,
                "that on Spark": theirs.version,
            }
            checked = ours.ask({"do": "check", **ours_of(self._root, COLUMNS["five columns"])})
            # Ottla always serves the copy first, because it writes the metadata that Kafka needs.
            with processes.ottla(copy) as broker:
                if "ottla serve" in names:
                    self._against(broker, "ottla serve", ours, theirs, checked)
            if "Apache Kafka" in names:
                with processes.apache_kafka(processes.KAFKA_SCRIPT, copy) as broker:
                    self._against(broker, "Apache Kafka", ours, theirs, checked)

    def _against(
        self, broker: processes.Broker, name: str, ours: SparkReader, theirs: SparkReader, checked: list[list[int]]
    ) -> None:
        wait_for_leaders(broker.bootstrap)
        _tell(f"checking what Spark's Kafka source reads from {name}")
        found = theirs.ask({"do": "check", **theirs_of(broker.bootstrap, COLUMNS["five columns"])})
        if found != checked or sum(row[1] for row in found) != self._committed:
            raise SystemExit(f"the sources read different records; ours: {checked}, Kafka's from {name}: {found}")
        for what, columns in COLUMNS.items():
            _tell(f"reading {what}")

            def our_run(columns: dict[str, str] = columns) -> Timing:
                timing: Timing = ours.ask({"do": "read", **ours_of(self._root, columns)})
                return timing

            def their_run(columns: dict[str, str] = columns) -> Timing:
                before = broker.cpu_s()
                timing: Timing = theirs.ask({"do": "read", **theirs_of(broker.bootstrap, columns)})
                after = broker.cpu_s()
                return timing | {"broker_cpu_s": None if before is None or after is None else after - before}

            timings = turns({"ours": our_run, "theirs": their_run}, self._arguments.rounds)
            amount = self._committed / 1e6
            self._show(
                row_of(f"records, {what}", f"Kafka source on {name}", amount, "M", timings["ours"], timings["theirs"])
            )

    def dumps(self) -> None:
        """Compare dumps of headers and records, and audits, with Kafka's tool, process against process."""
        if not self._is_wanted("kafka-dump-log"):
            return
        headers, header_bytes = dumped.link(self._root, self._scratch / "all-segments")
        some, some_bytes = dumped.link(self._root, self._scratch / "some-segments", self._arguments.dump_mib * 2**20)
        _tell("checking what kafka-dump-log and ottla dump print")
        dumped.check_same(headers, with_records=False)
        dumped.check_same(some, with_records=True)
        cores = self._arguments.cores
        _tell("headers")
        runs = {
            "headers and CRCs, a line a batch": dumped.time_process(dumped.ottla_dump(headers)),
            "headers, CRCs, fates, in a warm process": dumped.time_fates(self._root, cores),
            "audit, every check": dumped.time_process(dumped.ottla_audit(self._root), dumped.AUDIT_CODES),
            "kafka-dump-log": dumped.time_process(dumped.kafka_dump(headers)),
        }
        timings = turns(runs, self._arguments.rounds)
        theirs = timings.pop("kafka-dump-log")
        for what, ours in timings.items():
            self._show(row_of(what, "kafka-dump-log", header_bytes / 2**30, "GiB", ours, theirs))
        _tell("records")
        timings = turns(
            {
                "ours": dumped.time_process(dumped.ottla_dump(some, "--records")),
                "theirs": dumped.time_process(dumped.kafka_dump(some, "--print-data-log")),
            },
            self._arguments.rounds,
        )
        amount = some_bytes / 2**30
        what = f"records, a line each, {amount:.2f} GiB of it"
        self._show(row_of(what, "kafka-dump-log --print-data-log", amount, "GiB", timings["ours"], timings["theirs"]))


def _tell(line: str) -> None:
    print(f"{line} ...", file=sys.stderr, flush=True)


def parse() -> argparse.Namespace:
    parser = command_line(__doc__)
    parser.add_argument("--size-mib", type=parse_count, default=2150)
    parser.add_argument("--dump-mib", type=parse_count, default=256, help="of segments whose records are printed")
    parser.add_argument("--cores", type=parse_count, default=os.cpu_count() or 1)
    parser.add_argument("--rounds", type=parse_count, default=3)
    parser.add_argument("--only", default="", help="what is compared with something that has this in its name")
    parser.add_argument("--connector", metavar="VERSION", help="of Spark's Kafka source; default: the newest")
    parser.add_argument("--same-spark", action="store_true", help="run it on our Spark, whatever its version")
    cache = Path(tempfile.gettempdir()) / "ottla-spark-kafka"
    parser.add_argument("--cache", type=Path, default=cache, help="for its jars and its Spark; default: %(default)s")
    parser.add_argument("--format", choices=("text", "json"), default="text")
    return parser.parse_args()


def main() -> None:
    arguments = parse()
    need_java_and_maven()
    # SIGTERM stops the started processes, as Ctrl-C does.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    stands_on = machine()
    rows: list[dict[str, Any]] = []

    def show(row: dict[str, Any]) -> None:
        rows.append(row)
        if arguments.format == "text":
            print(line_of(row), flush=True)

    with tempfile.TemporaryDirectory(prefix="ottla-kafka-source-") as scratch:
        compared = Comparison(arguments, Path(scratch), show)
        told = f"{compared.size / 2**30:.2f} GiB, {compared.records:,} records, {arguments.cores} cores"
        _tell(f"{told}, load {stands_on['load_1_min']:.1f}, {stands_on['python']}")
        if arguments.format == "text":
            print(heading())
        compared.dumps()
        compared.sources()
    check_chosen(rows, arguments.only)
    if arguments.format == "json":
        size = {"size_bytes": compared.size, "records": compared.records}
        print(json.dumps({"machine": stands_on, "versions": compared.versions, **size, "rows": rows}, indent=2))
    elif compared.versions:
        print(", ".join(f"{name} {version}" for name, version in compared.versions.items()))


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
