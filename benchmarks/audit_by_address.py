"""An audit and a pull of the address of a broker, against an audit of its directory and consumers of its records. shell

    python benchmarks/audit_by_address.py [--size-mib 400] [--rounds 2] [--without-consumers] [--format json]
    python benchmarks/audit_by_address.py --partitions 1000 [--partition-kib 256]

Needs Java 17 and Maven. Apache Kafka 4.3.1 serves a log of records of 180 bytes in batches of 64, about 13 KB. The
audits, `ottla pull` into a new directory and into one that lacks nothing, librdkafka's consumer (confluent-kafka) and
Kafka's console consumer take turns, each in a fresh process. The consumers read with read_committed and drop the
records. CPU is the median, of the program and of the broker; compare it rather than the wall time, which is the best
round. Memory is the peak of the program.

With `--partitions` the audits of a topic with many small partitions, and of one partition with as many bytes, take
turns, and so does the audit of the open transactions of the many.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from parts import processes
from parts.figures import machine, stands_on
from parts.kafka_source.compared import Timing, turns
from parts.kafka_source.connector import need_java_and_maven
from parts.kafka_source.spark_process import wait_for_leaders
from parts.log import TOPIC, make_log
from parts.options import parse_count

from lab.usage import command_line

VALUE_BYTES = 180
RECORD_BYTES = 190  # with its part of the batch
AUDIT_CODES = (0, 1)
OTTLA = (sys.executable, "-m", "ottla.cli.main", "audit")
PULL = (sys.executable, "-m", "ottla.cli.main", "pull")
FRESH = "NEW DIRECTORY"
CONSOLE = ("bash", str(processes.KAFKA_SCRIPT), "tool", "org.apache.kafka.tools.consumer.ConsoleConsumer")
CONSUMER = """
import sys
from confluent_kafka import Consumer, TopicPartition, OFFSET_BEGINNING
bootstrap, topic, wanted = sys.argv[1], sys.argv[2], int(sys.argv[3])
consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "b", "isolation.level": "read_committed"})
consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in range(4)])
found = 0
while found < wanted:
    found += sum(one.error() is None for one in consumer.consume(10_000, 1.0))
"""


def commands(root: Path, copy: Path, bootstrap: str, committed: int) -> dict[str, Sequence[str]]:
    """Return the programs to compare. Consumers end after the last committed record. `copy` lacks nothing."""
    console = ("--bootstrap-server", bootstrap, "--topic", TOPIC, "--from-beginning")
    isolation = ("--isolation-level", "read_committed", "--max-messages", str(committed))
    return {
        "ottla audit DIR": (*OTTLA, str(root)),
        "ottla audit kafka://": (*OTTLA, f"kafka://{bootstrap}"),
        "ottla pull": pull(bootstrap, FRESH),
        "ottla pull, nothing new": pull(bootstrap, str(copy)),
        "confluent-kafka consumer": (sys.executable, "-c", CONSUMER, bootstrap, TOPIC, str(committed)),
        "kafka-console-consumer": (*CONSOLE, *console, *isolation),
    }


def pull(bootstrap: str, directory: str) -> Sequence[str]:
    return (*PULL, f"kafka://{bootstrap}", directory, "--topics", TOPIC)


PRODUCER = """
import random, sys
from confluent_kafka import Producer
bootstrap, topic, partitions, records = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
producer = Producer({"bootstrap.servers": bootstrap, "batch.size": 13_000, "linger.ms": 50})
values = [random.randbytes(180) for _ in range(500)]
for number in range(records):
    producer.produce(topic, values[number % 500], partition=number // 64 % partitions)
    if number % 10_000 == 0:
        producer.flush()
producer.flush()
"""


def write_topics(bootstrap: str, partitions: int, partition_bytes: int) -> None:
    """Write `many`, a topic with small partitions, and `one`, a partition with as many bytes."""
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": bootstrap})
    for done in admin.create_topics([NewTopic("many", partitions, 1), NewTopic("one", 1, 1)]).values():
        done.result()
    records = partition_bytes * partitions // RECORD_BYTES
    for topic, count in (("many", partitions), ("one", 1)):
        subprocess.run([sys.executable, "-c", PRODUCER, bootstrap, topic, str(count), str(records)], check=True)


def measure_partitions(partitions: int, partition_bytes: int, rounds: int) -> dict[str, Timing]:
    with processes.apache_kafka(processes.KAFKA_SCRIPT) as broker:
        write_topics(broker.bootstrap, partitions, partition_bytes)
        audits = {
            "one partition": ("--topics", "one"),
            f"{partitions} partitions": ("--topics", "many"),
            "--checks hanging": ("--topics", "many", "--checks", "hanging"),
        }
        address = f"kafka://{broker.bootstrap}"
        return turns({name: measure((*OTTLA, address, *words), broker) for name, words in audits.items()}, rounds)


def measure(command: Sequence[str], broker: processes.Broker) -> Callable[[], Timing]:
    """Return a function that runs `command` and returns its times, its peak memory and the CPU time of the broker."""

    def run() -> Timing:
        began, before = time.perf_counter(), broker.cpu_s()
        with tempfile.TemporaryFile() as errors, tempfile.TemporaryDirectory(prefix="ottla-pull-") as fresh:
            words = [fresh if word == FRESH else word for word in command]
            process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=errors, cwd=processes.ROOT)
            _, status, usage = os.wait4(process.pid, 0)
            wall_s, after = time.perf_counter() - began, broker.cpu_s()
            process.returncode = os.waitstatus_to_exitcode(status)
            if process.returncode not in AUDIT_CODES:
                errors.seek(0)
                raise SystemExit(f"{' '.join(command[:4])} ... ended with {process.returncode}:\n{errors.read()!r}")
        return {
            "wall_s": wall_s,
            "cpu_s": usage.ru_utime + usage.ru_stime,
            "broker_cpu_s": None if before is None or after is None else after - before,
            "peak_mib": usage.ru_maxrss / 1024,
        }

    return run


def show(timings: dict[str, Timing], size_mib: float) -> None:
    base = timings.get("ottla audit kafka://", next(iter(timings.values())))["cpu_s"] or 1.0
    print(f"{'':26} {'wall s':>7} {'MiB/s':>7} {'CPU s':>7} {'x':>6} {'broker CPU s':>13} {'peak MiB':>9}")
    for name, one in timings.items():
        wall_s, cpu_s = one["wall_s"] or 0.0, one["cpu_s"] or 0.0
        told = f"{wall_s:7.2f} {size_mib / wall_s:7.1f} {cpu_s:7.2f} {cpu_s / base:6.2f}"
        print(f"{name:26} {told} {one['broker_cpu_s'] or 0.0:13.2f} {one['peak_mib'] or 0.0:9.0f}")


def parse() -> argparse.Namespace:
    parser = command_line(__doc__)
    parser.add_argument("--size-mib", type=parse_count, default=400)
    parser.add_argument("--partitions", type=int, default=0)
    parser.add_argument("--partition-kib", type=parse_count, default=256)
    parser.add_argument("--rounds", type=parse_count, default=2)
    parser.add_argument("--without-consumers", action="store_true")
    parser.add_argument("--format", choices=("text", "json"), default="text")
    return parser.parse_args()


def measure_log(size_bytes: int, rounds: int, with_consumers: bool) -> tuple[int, int, dict[str, Timing]]:
    """Return the bytes and the records of the log, and the measured programs."""
    with tempfile.TemporaryDirectory(prefix="ottla-audit-") as scratch:
        root = Path(scratch) / "log"
        size, records, committed = make_log(root, size_bytes, value=lambda chance: chance.randbytes(VALUE_BYTES))
        # Ottla serves the log first, because it writes the metadata that Kafka needs.
        with processes.ottla(root) as broker:
            wait_for_leaders(broker.bootstrap)
        with processes.apache_kafka(processes.KAFKA_SCRIPT, root) as broker:
            wait_for_leaders(broker.bootstrap)
            copy = Path(scratch) / "copy"
            subprocess.run(pull(broker.bootstrap, str(copy)), check=True, stdout=subprocess.DEVNULL, cwd=processes.ROOT)
            compared = commands(root, copy, broker.bootstrap, committed)
            if not with_consumers:
                compared = {name: words for name, words in compared.items() if "consumer" not in name}
            return size, records, turns({name: measure(one, broker) for name, one in compared.items()}, rounds)


def main() -> None:
    arguments = parse()
    need_java_and_maven()
    facts: dict[str, Any] = machine()
    if arguments.partitions:
        partition_bytes = arguments.partition_kib * 1024
        size = arguments.partitions * partition_bytes
        records = size // RECORD_BYTES
        timings = measure_partitions(arguments.partitions, partition_bytes, arguments.rounds)
    else:
        size, records, timings = measure_log(
            arguments.size_mib * 2**20, arguments.rounds, not arguments.without_consumers
        )
    if arguments.format == "json":
        print(json.dumps({"machine": facts, "size_bytes": size, "records": records, "programs": timings}, indent=2))
    else:
        print(f"{size / 2**20:.0f} MiB, {records:,} records, {stands_on(facts)}")
        show(timings, size / 2**20)


if __name__ == "__main__":
    main()
