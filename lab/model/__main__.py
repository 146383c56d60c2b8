"""`python -m lab.model`: explore the model, play a trace again, try planted rule changes. shell

--level 0|1|2               transaction.version; the producers speak V1 at 0 and 1, V2 at 2 (--clients 1,2: A V1, B V2)
--bounds copies=1,crashes=1 what may happen, and how often: see `values.py`; everything that is not named is 0,
                            `transactions` (of A and of B, as 2/1) is 2/1
--plant NAME                with a rule of the broker turned off
--replay FILE               the lines of a trace (as printed, without numbers); where they end
"""

import argparse
import gc
import json
import sys
import time
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from lab.model.explore import Explorer, Result
from lab.model.plants import PLANTS
from lab.model.trace import replay
from lab.model.values import V1, V2, Bounds, Violation
from lab.model.world import World, partition_of
from ottla.testkit.usage import command_line

DEFAULT = "copies=1,crashes=1,transactions=1/1"
NUMBERS = ("copies", "give_ups", "crashes", "timeouts", "first_epoch")
FLAGS = ("old_clients", "keeps_fenced")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command. Return 0 if no rule is broken (with --plant: if one is), 1 otherwise, 2 for bad bounds."""
    parser = _parser()
    options = parser.parse_args(arguments)
    levels = [1, 2] if options.level is None else [options.level]
    try:
        runs = [parse_bounds(options.bounds, level, options.clients) for level in levels]
    except ValueError as error:
        parser.error(str(error))
    if options.replay:
        return _replay(runs[-1], options)
    status = 0
    for bounds in runs:
        with PLANTS[options.plant]() if options.plant else nullcontext():
            result, seconds = explore(bounds, options.states)
        status = max(status, int((result.finding is None) == bool(options.plant)))
        _print(json.dumps(_as_json(result, seconds)) if options.format == "json" else _as_text(result, seconds))
    return status


def explore(bounds: Bounds, most_states: int) -> tuple[Result, float]:
    """Explore and return the result and the CPU seconds. Nothing becomes garbage before the end, so GC is disabled."""
    enabled = gc.isenabled()
    gc.disable()
    began = time.process_time()
    try:
        result = Explorer(bounds, most_states).run()
    finally:
        if enabled:
            gc.enable()
    return result, time.process_time() - began


def parse_bounds(text: str, level: int, clients: str | None = None) -> Bounds:
    """Parse bounds such as `copies=1,transactions=2/1,...`. Raises ValueError."""
    values: dict[str, Any] = dict.fromkeys(("copies", "give_ups", "crashes", "timeouts"), 0)
    for part in filter(None, text.split(",")):
        name, _, value = part.partition("=")
        if name in NUMBERS:
            values[name] = int(value)
        elif name in FLAGS:
            values[name] = value in ("", "1", "true")
        elif name == "transactions":
            values[name] = _pair(value.split("/"))
        else:
            raise ValueError(f"there is no bound {name!r}")
    generation = V2 if level >= V2 else V1
    generations = _pair(clients.split(",")) if clients else (generation, generation)
    if level < V2 and V2 in generations:
        raise ValueError("clients speak V2 at level 2 only")
    return Bounds(level=level, generations=generations, **values)


def _pair(parts: Sequence[str]) -> tuple[int, int]:
    first, second = (int(part) for part in parts)
    return first, second


def _replay(bounds: Bounds, options: argparse.Namespace) -> int:
    lines = [line for line in Path(options.replay).read_text(encoding="utf-8").splitlines() if line]
    world = World(bounds)
    with PLANTS[options.plant]() if options.plant else nullcontext():
        try:
            state = replay(world, lines)
        except Violation as violation:
            _print(f"BROKEN {violation}")
            return 1
    _print(f"coordinator: {world.coordinators.known[state[0]].state}")
    for place in (0, 1):
        _print(f"partition {place}: {world.partitions.known[partition_of(state, place)].log}")
    return 0


def _print(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def _as_json(result: Result, seconds: float) -> dict[str, Any]:
    told = result._asdict()
    told["bounds"] = result.bounds._asdict()
    told["finding"] = None if result.finding is None else result.finding._asdict()
    return {**told, "cpu_seconds": round(seconds, 1)}


def _as_text(result: Result, seconds: float) -> str:
    bounds = result.bounds
    named = ", ".join(f"{name} {value}" for name, value in bounds._asdict().items())
    end = "complete" if result.complete else "NOT complete"
    lines = [
        named,
        f"  {result.states:,} states, {result.transitions:,} transitions, depth {result.depth}, "
        f"{result.rests:,} at rest, {end}, {seconds:.1f} s CPU",
    ]
    lines += [
        f"  shared with Kafka: {cause} hit another transaction {count:,} times"
        for cause, count in result.shared.items()
    ]
    lines += [f"  shared with Kafka: {what} in {count:,} states" for what, count in result.anomalies.items()]
    if result.finding is not None:
        lines.append(f"  BROKEN {result.finding.rule}: {result.finding.detail}")
        lines += [f"  {number:3} {line}" for number, line in enumerate(result.finding.trace)]
    return "\n".join(lines)


def _parser() -> argparse.ArgumentParser:
    parser = command_line(__doc__, "python -m lab.model")
    parser.add_argument("--level", type=int, choices=(0, 1, 2), help="transaction.version (1 and 2)")
    parser.add_argument("--clients", help="the generations of A and B, as 1,2")
    parser.add_argument("--bounds", default=DEFAULT, help=f"({DEFAULT})")
    parser.add_argument("--states", type=int, default=50_000_000, help="stop there")
    parser.add_argument("--plant", choices=sorted(PLANTS))
    parser.add_argument("--replay", metavar="FILE")
    parser.add_argument("--format", choices=("text", "json"), default="text")
    return parser


if __name__ == "__main__":
    sys.exit(main())
