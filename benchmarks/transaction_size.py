"""Throughput of transactions and a reader's wait by the size of a transaction. shell

    python benchmarks/transaction_size.py --against kafka --svg docs/throughput.svg     five minutes; Java 17 and Maven
    python benchmarks/transaction_size.py --format json > figures.json                  Ottla alone
    python benchmarks/transaction_size.py --read figures.json --svg plot.svg            draws what was measured before

One producer writes transactions of 1 to 10,000 records, one after the other, to one partition: records of 1 KiB in
batches of 16 KiB at most, five requests in flight, transactions V2. Then a read_committed reader waits at the end of
the partition while it writes more: the figure is the age of a transaction's first record when the reader receives it.
The client sends requests that it has encoded before. The brokers take turns at each size. Figures are medians of
rounds, and N T_write + O_tx is fitted to them. The plot marks the size that reaches nine tenths of the highest rate.
"""

import argparse
import contextlib
import json
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from parts import processes
from parts.figures import machine
from parts.options import parse_amount, parse_count
from parts.transaction_size.clients import Pair
from parts.transaction_size.plot import plot
from parts.transaction_size.report import Measured, as_text

from lab.usage import command_line

SIZES = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000)
MOST_AT_ONCE = 500
READ_AT_MOST = 20
WARM_UP_SLICES = 5


def warm_up(pairs: Sequence[Pair], slice_s: float) -> None:
    """Write small and large transactions, so that a JVM compiles its code."""
    for pair in pairs:
        for size in (1, 100, 1000):
            for _ in range(WARM_UP_SLICES):
                pair.write(size, fitting(pair, size, slice_s))


def measure(pairs: Sequence[Pair], rounds: int, slice_s: float) -> list[Measured]:
    """Measure each size on each broker in turn: `slice_s` of writing, and a few transactions that are read."""
    samples: dict[tuple[str, int], list[tuple[float, float, float]]] = {}
    for number in range(rounds):
        print(f"round {number + 1} of {rounds} ...", file=sys.stderr, flush=True)
        for size in SIZES:
            for pair in pairs[:: -1 if number % 2 else 1]:
                samples.setdefault((pair.name, size), []).append(sample(pair, size, slice_s))
    return [
        Measured(
            pair.name,
            list(SIZES),
            *([statistics.median(of) for of in columns] for columns in columns_of(samples, pair.name)),
        )
        for pair in pairs
    ]


def fitting(pair: Pair, size: int, slice_s: float) -> int:
    """Write one transaction, and return the number of such ones that fit into the slice, at least one."""
    once_ms, _ = pair.write(size, 1)
    return max(1, min(MOST_AT_ONCE, int(slice_s * 1000 / once_ms)))


def columns_of(samples: dict[tuple[str, int], list[tuple[float, float, float]]], name: str) -> list[list[list[float]]]:
    """Return [wall, CPU, oldest], each the samples of every size."""
    return [[[sample[column] for sample in samples[name, size]] for size in SIZES] for column in range(3)]


def sample(pair: Pair, size: int, slice_s: float) -> tuple[float, float, float]:
    """Return the (wall time, broker's CPU time, age of the first record) of a transaction, all in ms."""
    count = fitting(pair, size, slice_s)
    wall_ms, cpu_ms = pair.write(size, count)
    return wall_ms, cpu_ms, pair.oldest_ms(size, min(count, READ_AT_MOST))


def run(options: argparse.Namespace) -> dict[str, Any]:
    stands_on = machine()
    with contextlib.ExitStack() as stack:
        contexts = [processes.ottla()]
        if options.against:
            contexts.append(processes.apache_kafka(options.kafka_script))
        pairs = []
        for context in contexts:
            broker = stack.enter_context(context)
            pairs.append(stack.enter_context(contextlib.closing(Pair(broker, "sizes", options.record_bytes))))
        warm_up(pairs, options.seconds)
        found = measure(pairs, options.rounds, options.seconds)
        retries = {pair.name: pair.producer.retries for pair in pairs}
    after = machine()["load_1_min"]
    return {
        "machine": stands_on | {"load_1_min_after": after},
        "record_bytes": options.record_bytes,
        "rounds": options.rounds,
        "retries": retries,
        "brokers": [measured._asdict() for measured in found],
    }


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("--against", choices=["kafka"], help="measure Apache Kafka too")
    parser.add_argument("--kafka-script", type=Path, default=processes.KAFKA_SCRIPT)
    parser.add_argument("--record-bytes", type=parse_count, default=1024, help="of a record's value")
    parser.add_argument("--rounds", type=parse_count, default=7)
    parser.add_argument("--seconds", type=parse_amount, default=0.3, help="of writing at each size in each round")
    parser.add_argument("--read", type=Path, metavar="FILE", help="what --format json printed, instead of measuring")
    parser.add_argument("--svg", type=Path, metavar="FILE", help="write a plot there")
    parser.add_argument("--format", choices=["text", "json"], default="text")
    options = parser.parse_args()
    document = json.loads(options.read.read_text()) if options.read else run(options)
    brokers = [Measured(**broker) for broker in document["brokers"]]
    if options.svg:
        options.svg.write_text(plot(brokers, document["record_bytes"]), encoding="utf-8")
    print(json.dumps(document, indent=2) if options.format == "json" else as_text(brokers, document))


if __name__ == "__main__":
    main()
