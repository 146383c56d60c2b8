"""`python -m lab.simulate`: run seeds, replay one, make a failing one smaller, try planted bugs. shell

--seed 7                        run one seed and say what came of it (--history FILE writes it for the checker)
--seed 7 --steps 400 --drop 0,2 --clients p0,feed     a schedule that was made smaller
--seeds 0-9999 --jobs 2         run many; the failing ones are printed, made smaller
--seeds 0-999 --plant NAME      with a bug planted: how many seeds notice (NAME may be "all")
"""

import argparse
import gc
import json
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from multiprocessing import get_context
from pathlib import Path

from lab.simulation.faults import PROFILES
from lab.simulation.outcome import Outcome, judge, run_seed
from lab.simulation.plants import PLANTS
from lab.simulation.shrink import shrink
from lab.simulation.world import World
from lab.usage import command_line
from ottla.audit.runner import Progress

SHRUNK_MOST = 3
MOST_LISTED = 20
CHUNK = 20
"""The number of seeds that a process gets at once."""


class Tally:
    """Results of many seeds."""

    def __init__(self) -> None:
        self.seeds = 0
        self.steps = 0
        self.kills = 0
        self.failing: list[Outcome] = []
        self.known: Counter[str] = Counter()
        self.lost: Counter[str] = Counter()
        self.met: Counter[str] = Counter()

    def add(self, outcome: Outcome) -> None:
        self.seeds += 1
        self.steps += outcome.steps
        self.kills += outcome.kills
        if outcome.problems:
            self.failing.append(outcome)
        self.known.update(f"{line.partition(':')[0]} {line[line.rindex('(by') :]}" for line in outcome.known)
        self.met.update(outcome.met)
        if outcome.lost:
            self.lost[outcome.profile] += 1


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command. Return 0 if nothing was found, 1 otherwise; with --plant 0 if every plant was detected."""
    options = _parser().parse_args(arguments)
    if options.seed is not None:
        return _run_one(options)
    first, _, last = options.seeds.partition("-")
    seeds = range(int(first), int(last or first) + 1)
    if options.plant:
        names = list(PLANTS) if options.plant == "all" else [options.plant]
        return max(_try_plant(name, seeds, options) for name in names)
    return _run_many(seeds, options)


def _parser() -> argparse.ArgumentParser:
    parser = command_line(__doc__, "python -m lab.simulate")
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--seed", type=int)
    which.add_argument("--seeds", metavar="FIRST-LAST")
    parser.add_argument(
        "--profile", choices=sorted(PROFILES), help="use this profile instead of the one that the seed draws"
    )
    parser.add_argument("--steps", type=int, help="end the working part after this many steps")
    parser.add_argument("--drop", type=_numbers, default=[], metavar="N,N", help="faults of the plan to leave out")
    parser.add_argument("--clients", type=lambda text: text.split(","), help="the only clients that take part")
    parser.add_argument("--history", type=Path, help="write the history of --seed as JSON lines")
    parser.add_argument("--plant", choices=["all", *PLANTS], help="turn off a rule of the broker")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--no-shrink", action="store_true")
    return parser


def _numbers(text: str) -> list[int]:
    return [int(each) for each in text.split(",") if each]


def _run_one(options: argparse.Namespace) -> int:
    profile = PROFILES[options.profile] if options.profile else None
    choice = {"dropped": options.drop, "clients": options.clients, "steps": options.steps}
    with PLANTS[options.plant]() if options.plant else nullcontext():
        world = World(options.seed, profile, **choice)
        world.run()
        outcome = judge(world)
        if options.history is not None:
            lines = "".join(f"{json.dumps(entry)}\n" for entry in world.history.entries)
            options.history.write_text(lines, encoding="utf-8")
    print(f"seed {outcome.seed}, profile {outcome.profile}, {outcome.steps} steps, {outcome.kills} kills")
    print(f"  trace: {outcome.trace}")
    for index, fault in enumerate(outcome.plan):
        left_out = " (left out)" if index in options.drop else ""
        print(f"  fault {index}{left_out}: {fault.kind} at {fault.at}, {fault.value}")
    print(f"  clients: {', '.join(outcome.clients)}")
    print(f"  met: {', '.join(f'{name} {count}' for name, count in sorted(outcome.met.items())) or 'nothing rare'}")
    found = (("known", outcome.known), ("power loss", outcome.lost), ("PROBLEM", outcome.problems))
    for title, texts in found:
        for text in texts:
            print(f"  {title}: {text}")
    return 1 if outcome.problems else 0


def _run_many(seeds: range, options: argparse.Namespace) -> int:
    began = time.perf_counter()
    tally = Tally()
    for outcome in _show_progress(outcomes(seeds, options.profile, None, options.jobs), len(seeds)):
        tally.add(outcome)
        if outcome.problems and len(tally.failing) <= MOST_LISTED:
            print(f"seed {outcome.seed} ({outcome.profile}): {outcome.problems[0]}", flush=True)
    seconds = time.perf_counter() - began
    print(
        f"{tally.seeds} seeds, {tally.steps} steps, {tally.kills} kills in {seconds:.0f} s "
        f"({1000 * seconds * options.jobs / max(1, tally.seeds):.1f} ms a seed and process): {len(tally.failing)} fail"
    )
    for line, count in sorted(tally.known.items()):
        print(f"  shared with Kafka: {line} {count}")
    for name, count in sorted(tally.lost.items()):
        print(f"  power loss without flushes: {count} seeds of {name} lost transactions or logs")
    if tally.met:
        print(f"  met: {', '.join(f'{name} {count}' for name, count in sorted(tally.met.items()))}")
    if not options.no_shrink:
        profile = PROFILES[options.profile] if options.profile else None
        for outcome in tally.failing[:SHRUNK_MOST]:
            print(shrink(outcome, profile).command(options.profile), flush=True)
    return 1 if tally.failing else 0


def _try_plant(name: str, seeds: range, options: argparse.Namespace) -> int:
    tried = list(_show_progress(outcomes(seeds, options.profile, name, options.jobs), len(seeds)))
    found = [outcome for outcome in tried if outcome.problems]
    kinds = Counter(outcome.signature for outcome in found)
    named = ", ".join(f"{kind} {count}" for kind, count in kinds.most_common(4))
    first = found[0].seed if found else None
    rate = 100 * len(found) / len(tried)
    print(f"{name}: {len(found)} of {len(tried)} seeds ({rate:.1f} %), first {first}: {named}")
    return 0 if found else 1


def _show_progress(found: Iterator[Outcome], total: int) -> Iterator[Outcome]:
    """Yield the outcomes, and show on a terminal how many seeds have run and how long the others will take."""
    progress, began, failing = Progress(sys.stderr), time.perf_counter(), 0
    for count, outcome in enumerate(found, 1):
        failing += bool(outcome.problems)
        progress.clear()
        yield outcome
        left_s = (time.perf_counter() - began) / count * (total - count)
        progress.show(f"{count:,} of {total:,} seeds, {failing} fail, {left_s / 60:.0f} minutes left")
    progress.clear()


def outcomes(seeds: range, profile: str | None, plant: str | None, jobs: int) -> Iterator[Outcome]:
    """Run the seeds in `jobs` processes and return their outcomes in order. Without a profile each seed draws one."""
    tasks = [(seed, profile, plant) for seed in seeds]
    if jobs <= 1:
        yield from map(_run_task, tasks)
        return
    with get_context("spawn").Pool(jobs, initializer=_collect_seldom) as pool:
        yield from pool.imap(_run_task, tasks, chunksize=CHUNK)


def _collect_seldom() -> None:
    """Disable GC: a world becomes garbage only after its seed has run, and `_run_task` collects it then."""
    gc.freeze()
    gc.disable()


def _run_task(task: tuple[int, str | None, str | None]) -> Outcome:
    seed, profile, plant = task
    if not gc.isenabled():
        gc.collect()
    with PLANTS[plant]() if plant else nullcontext():
        return run_seed(seed, PROFILES[profile] if profile else None)


if __name__ == "__main__":
    sys.exit(main())
