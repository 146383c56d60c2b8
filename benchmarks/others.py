"""Latency of other clients while one client is greedy: a pinger runs during an attack or ordinary load. shell

    python benchmarks/others.py                                  every attack, about five minutes
    python benchmarks/others.py --only offset-fetch-20 idle
    python benchmarks/others.py --against kafka                  Apache Kafka beside it (Java 17 and Maven)
    python benchmarks/others.py --walk                           the greediest requests of every API, twenty minutes
    python benchmarks/others.py --walk --only Metadata Fetch
    python benchmarks/others.py --walk --only Fetch --match "rows topics.partitions"
    python benchmarks/others.py --load                           beside sound clients, and the broker's own work
    python benchmarks/others.py --hour 3600                      ten hostile clients beside sound ones

The pinger (parts/others/pinger.py) sends small requests, one after another. Its waits are reported in wall time, and in
CPU time of the broker, which does not depend on other load: of all its threads, and of its event loop alone.
An attack without an answer after `--seconds` is stopped, and its figures until then are reported.
"""

import argparse
import contextlib
import json
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from parts import processes
from parts.descriptors import all_descriptors
from parts.figures import machine, stands_on
from parts.options import parse_amount, parse_count
from parts.others import hour, stage, walk
from parts.others.attacks import ATTACKS, Attack
from parts.others.felt import heading, line_of
from parts.others.ordinary import LOADS
from parts.others.stage import Figures

from lab.usage import command_line
from ottla.broker.api.table import TABLE

MOST_CPU_MS = 20.0


def run(attack: Attack, seconds: float, kafka_script: Path | None) -> dict[str, Figures]:
    """Return the figures of one attack by broker."""
    results = {}
    with contextlib.ExitStack() as stack:
        data_dir = None
        if attack.data is not None:
            data_dir = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ottla-others-")))
            attack.data(data_dir)
        program = stage.limit_descriptors(attack.limit) if attack.limit is not None else ("-m", "ottla.cli.main")
        contexts = [processes.ottla(data_dir, attack.overrides, program, admin=attack.admin)]
        if kafka_script is not None and attack.kafka:
            contexts.append(processes.apache_kafka(kafka_script))
        for context in contexts:
            with context as broker, stage.open_stage(broker, seconds) as scene:
                attack.prepare(scene)
                results[broker.name] = stage.measure(scene, attack.strike)
    return results


def arguments() -> argparse.Namespace:
    parser = command_line(__doc__)
    parser.add_argument("--only", nargs="+", metavar="NAME", help="attacks, or with --walk APIs")
    parser.add_argument("--walk", action="store_true", help="every API served, from its schema, on a large state")
    parser.add_argument("--match", default="", metavar="TEXT", help="requests of the walk whose titles contain this")
    parser.add_argument("--load", action="store_true", help="ordinary load in place of attacks")
    parser.add_argument(
        "--hour", type=parse_amount, metavar="SECONDS", help="hostile clients beside sound ones, for so long"
    )
    parser.add_argument("--scale", type=float, default=1.0, help="of the state that is walked")
    parser.add_argument("--times", type=parse_count, default=3, help="how often each request of the walk is pipelined")
    parser.add_argument("--against", choices=["kafka"], help="try Apache Kafka too")
    parser.add_argument(
        "--kafka-script", type=Path, default=Path(os.environ.get("KAFKA_SCRIPT", processes.KAFKA_SCRIPT))
    )
    parser.add_argument("--seconds", type=parse_amount, default=60, help="after which attacks and load are cut off")
    parser.add_argument("--format", choices=["text", "json"], default="text")
    options = parser.parse_args()
    strikes = LOADS if options.load else ATTACKS
    known = [api.title for api in TABLE.values()] if options.walk else [strike.name for strike in strikes]
    for name in options.only or ():
        if name not in known:
            parser.error(f"{name} is none of {', '.join(known)}")
    return options


def strike_all(attacks: Sequence[Attack], options: argparse.Namespace) -> dict[str, dict[str, Figures]]:
    """Run the attacks and return their figures by attack and broker."""
    results: dict[str, dict[str, Figures]] = {}
    if options.format == "text":
        print(heading())
    for attack in attacks:
        if options.only and attack.name not in options.only:
            continue
        found = run(attack, options.seconds, options.kafka_script if options.against else None)
        results[attack.name] = found
        if options.format == "text":
            for broker, row in found.items():
                print(line_of(attack.title, broker, row), flush=True)
    return results


def main() -> None:
    options = arguments()
    all_descriptors()
    conditions = machine()
    if options.format == "text":
        print(f"{stands_on(conditions)}\n")
    results: dict[str, Any] = {"machine": conditions, "goal_cpu_ms": MOST_CPU_MS}
    if options.hour:
        results["hour"] = hour.run(options)
    elif options.walk:
        results["walk"] = walk.run(options)
    else:
        results["attacks"] = strike_all(LOADS if options.load else ATTACKS, options)
    if options.format == "json":
        print(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
