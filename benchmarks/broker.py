"""Throughput, latency, CPU time and memory of the broker, alone or side by side with Apache Kafka. shell

    python benchmarks/broker.py                       our broker, started here
    python benchmarks/broker.py --against kafka       both, and the ratios (Java 17 and Maven; Kafka's jars are cached)
    python benchmarks/broker.py --bootstrap 127.0.0.1:9092 --pid 4711

The clients are librdkafka (confluent-kafka) in separate processes. CPU is the broker's user and system time.
"""

import contextlib
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

from parts import processes
from parts.broker import report
from parts.broker.runs import create_topics, run
from parts.options import parse_amount, parse_count
from parts.processes import Broker

from lab.usage import command_line

MANY = 16


def ratio(numerator: float | None, denominator: float) -> float | None:
    return None if numerator is None else numerator / denominator


def measure_bytes(broker: Broker, prefix: str, megabytes: int) -> dict[str, float | None]:
    figures: dict[str, float | None] = {}
    for name, batch_size_bytes, linger_ms, size_mb in (
        ("large", 1_000_000, 50, megabytes),
        ("16k", 16_384, 5, max(1, megabytes // 2)),
    ):
        topic = f"{prefix}-{name}"
        sent = run(
            broker, "produce", topic=topic, megabytes=size_mb, batch_size_bytes=batch_size_bytes, linger_ms=linger_ms
        )
        figures[f"produce_{name}_mb_s"] = sent["bytes"] / 1e6 / sent["seconds"]
        figures[f"produce_{name}_cpu_s_gb"] = ratio(sent["cpu_s"], sent["bytes"] / 1e9)
    count = megabytes * 1_000_000 // 1024
    read = run(broker, "consume", topic=f"{prefix}-large", count=count)
    figures["consume_mb_s"] = read["bytes"] / 1e6 / read["seconds"]
    figures["consume_cpu_s_gb"] = ratio(read["cpu_s"], read["bytes"] / 1e9)
    return figures


def measure_transactions(broker: Broker, prefix: str, seconds: float) -> dict[str, float | None]:
    figures: dict[str, float | None] = {}
    for producers in (1, MANY):
        done = run(broker, "transactions", topic=f"{prefix}-tx", producers=producers, seconds=seconds)
        figures[f"tx{producers}_per_s"] = done["count"] / done["seconds"]
        figures[f"tx{producers}_cpu_ms"] = ratio(done["cpu_s"], done["count"] / 1000)
        for name in ("commit_p50_ms", "commit_p99_ms", "transaction_p50_ms", "transaction_p99_ms"):
            figures[f"tx{producers}_{name}"] = done[name]
    return figures


def measure(broker: Broker, megabytes: int, seconds: float) -> dict[str, float | None]:
    """Return every figure of one broker. A smaller load warms it up first, because a JVM needs that."""
    time.sleep(0.5)
    figures: dict[str, float | None] = {"ready_s": broker.ready_s, "idle_mb": broker.resident_mb()}
    warm, prefix = (f"{name}-{os.getpid()}-{time.time_ns() % 10**6}" for name in ("warm", "bench"))
    for name in (warm, prefix):
        create_topics(broker, {f"{name}-large": 1, f"{name}-16k": 1, f"{name}-tx": MANY, f"{name}-ping": 1})
    measure_bytes(broker, warm, max(1, megabytes // 8))
    measure_transactions(broker, warm, seconds / 3)
    figures |= measure_transactions(broker, prefix, seconds)
    ping = run(broker, "round_trip", topic=f"{prefix}-ping", count=1000)
    figures |= {name: ping[name] for name in ("round_trip_p50_ms", "round_trip_p99_ms")}
    figures |= measure_bytes(broker, prefix, megabytes)
    figures["loaded_mb"] = broker.resident_mb()
    return figures


def measure_help() -> float:
    """Return the seconds that `ottla --help` takes, the median of five runs."""
    samples_s = []
    for _ in range(5):
        began = time.perf_counter()
        subprocess.run(
            [sys.executable, "-m", "ottla.cli.main", "--help"], check=True, capture_output=True, cwd=processes.ROOT
        )
        samples_s.append(time.perf_counter() - began)
    return statistics.median(samples_s)


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("--bootstrap", help="measure a running broker at HOST:PORT instead of starting ours")
    parser.add_argument("--pid", type=int, help="its process id; without it there are no CPU times and no memory")
    parser.add_argument("--against", choices=["kafka"], help="measure Apache Kafka too and print the ratios")
    parser.add_argument(
        "--kafka-script", type=Path, default=Path(os.environ.get("KAFKA_SCRIPT", processes.KAFKA_SCRIPT))
    )
    parser.add_argument(
        "--megabytes", type=parse_count, default=512, help="produced in large batches, half of it in 16 KB batches"
    )
    parser.add_argument(
        "--seconds", type=parse_amount, default=5, help="of transactions, with one and with 16 producers"
    )
    parser.add_argument("--format", choices=["text", "json"], default="text")
    options = parser.parse_args()
    if options.bootstrap and not processes.is_answering(options.bootstrap):
        parser.error(f"no broker answers at {options.bootstrap}: give HOST:PORT of one that runs")
    machine = processes.machine()
    results: dict[str, dict[str, float | None]] = {}
    if options.bootstrap:
        contexts = [processes.attach(options.bootstrap, options.pid)]
    else:
        contexts = [processes.ottla()]
    if options.against:
        contexts.append(processes.apache_kafka(options.kafka_script))
    for context in contexts:
        with contextlib.ExitStack() as stack:
            broker = stack.enter_context(context)
            print(f"measuring {broker.name} at {broker.bootstrap} ...", file=sys.stderr, flush=True)
            results[broker.name] = measure(broker, options.megabytes, options.seconds)
    if "ottla" in results:
        results["ottla"]["help_s"] = measure_help()
    print(report.as_json(results, machine) if options.format == "json" else report.as_text(results, machine))


if __name__ == "__main__":
    main()
