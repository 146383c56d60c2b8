"""The price of a transaction: throughput and a reader's wait by its size, and where it pays to stop growing. shell

    python benchmarks/transaction_size.py --against kafka --svg docs/throughput.svg     five minutes; Java 17 and Maven
    python benchmarks/transaction_size.py --format json > figures.json                  Ottla alone
    python benchmarks/transaction_size.py --read figures.json --svg plot.svg            draws what was measured before

One producer writes transactions of 1 to 10,000 records, one after the other, to one partition: records of 1 KiB in
batches of 16 KiB at most, five requests in flight, transactions V2. Then a read_committed reader waits at the end while
it writes some more: how old is a transaction's first record when the reader has it? The client speaks the protocol with
requests that it has encoded before. The brokers take turns at each size; figures are medians of rounds, and
N T_write + O_tx is fitted to them.
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
from parts.transaction_size.clients import Pair
from parts.transaction_size.plot import plot
from parts.transaction_size.report import Measured, as_text

from ottla.testkit.usage import command_line

SIZES = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000)
MOST_AT_ONCE = 500
READ_AT_MOST = 20


def warm_up(pairs: Sequence[Pair]) -> None:
    """Small and large transactions, for the sake of the JVM."""
    for pair in pairs:
        for size, count in ((1, 2_000), (100, 500), (1000, 50)):
            pair.write(size, count)


def measure(pairs: Sequence[Pair], rounds: int, slice_s: float) -> list[Measured]:
    """Each size, each broker in turn, `slice_s` of writing and a few transactions that are read."""
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


def columns_of(samples: dict[tuple[str, int], list[tuple[float, float, float]]], name: str) -> list[list[list[float]]]:
    """[wall, CPU, oldest]: for each size its samples."""
    return [[[sample[column] for sample in samples[name, size]] for size in SIZES] for column in range(3)]


def sample(pair: Pair, size: int, slice_s: float) -> tuple[float, float, float]:
    """(wall, CPU of the broker, age of the first record), each of a transaction in ms."""
    once_ms, _ = pair.write(size, 1)
    count = max(1, min(MOST_AT_ONCE, int(slice_s * 1000 / once_ms)))
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
        warm_up(pairs)
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
    parser.add_argument("--record-bytes", type=int, default=1024, help="of a record's value")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=0.3, help="of writing at each size in each round")
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
