"""What the other clients feel while one is greedy: a pinger beside an attack, and beside ordinary load. shell

    python benchmarks/others.py                                  every attack, about five minutes
    python benchmarks/others.py --only offset-fetch-20 idle
    python benchmarks/others.py --against kafka                  Apache Kafka beside it (Java 17 and Maven)

The pinger (pinger.py) asks for small things, one after another. What it waits is told on the clock, and in CPU time of
the broker, which does not depend on what else runs on the machine: of all its threads, and of its event loop's alone.
An attack that has no answer after `--seconds` is cut off, and what it had until then is told.
"""

import argparse
import contextlib
import json
import os
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

import processes  # noqa: E402
import stage  # noqa: E402
from attacks import ATTACKS, Attack  # noqa: E402
from felt import heading, line_of  # noqa: E402
from figures import machine  # noqa: E402
from stage import Figures  # noqa: E402

MOST_CPU_MS = 20.0


def brokers_for(attack: Attack, kafka_script: Path | None) -> list[contextlib.AbstractContextManager[processes.Broker]]:
    program = stage.limited(attack.limit) if attack.limit is not None else ("-m", "ottla.cli.main")
    ours = processes.ottla(None, attack.overrides, program)
    return [ours, processes.apache_kafka(kafka_script)] if kafka_script is not None and attack.kafka else [ours]


def run(attack: Attack, seconds: float, kafka_script: Path | None) -> dict[str, Figures]:
    """Figures by broker."""
    results = {}
    for context in brokers_for(attack, kafka_script):
        with context as broker, stage.staged(broker, seconds) as scene:
            attack.prepare(scene)
            results[broker.name] = stage.measure(scene, attack.strike)
    return results


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=[attack.name for attack in ATTACKS], metavar="NAME")
    parser.add_argument("--against", choices=["kafka"], help="try Apache Kafka too")
    parser.add_argument(
        "--kafka-script", type=Path, default=Path(os.environ.get("KAFKA_SCRIPT", processes.KAFKA_SCRIPT))
    )
    parser.add_argument("--seconds", type=float, default=60, help="after which an attack is cut off")
    parser.add_argument("--format", choices=["text", "json"], default="text")
    return parser.parse_args()


def main() -> None:
    options = arguments()
    stage.all_descriptors()
    conditions = machine()
    results: dict[str, dict[str, Figures]] = {}
    if options.format == "text":
        print(f"{conditions['cores']} cores, load {conditions['load_1_min']:.1f} before the start\n\n{heading()}")
    for attack in ATTACKS:
        if options.only and attack.name not in options.only:
            continue
        found = run(attack, options.seconds, options.kafka_script if options.against else None)
        results[attack.name] = found
        if options.format == "text":
            for broker, row in found.items():
                print(line_of(attack.title, broker, row), flush=True)
    if options.format == "json":
        print(json.dumps({"machine": conditions, "goal_cpu_ms": MOST_CPU_MS, "attacks": results}, indent=2))


if __name__ == "__main__":
    main()
