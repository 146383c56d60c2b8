"""`python -m lab.crash`: all the damages, crash states and failing calls that the tests sample. shell

states --states 20000     crash states of the scripted workload, by kill and by power loss
damage                    every truncation of a 256 KiB segment, every bit of a 16 KiB one, lost pages, other files
failures --every 1        every (so many'th) call of the disk fails once, in three ways
"""

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from multiprocessing import get_context
from typing import Any

from lab.crash.damages import Kind, sweep_file
from lab.crash.failures import sweep as sweep_failures
from lab.crash.logs import Shape
from lab.crash.states import Tally, sample
from lab.usage import command_line

MOST_LISTED = 20
LARGE = Shape(262_144, 1_500)
SMALL = Shape(16_384, 300)
FEWER = 8
"""With a recovery point above 0 only one bit in 8 is flipped, because no start reads below it."""
ROLLED = Shape(16_384, 300, segment_bytes=6_000)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the chosen test. Return 0 without problems, 1 otherwise."""
    parser = command_line(__doc__, "python -m lab.crash")
    parser.add_argument("what", choices=["states", "damage", "failures"])
    parser.add_argument("--states", type=int, default=20_000, help="check at least this many crash states")
    parser.add_argument("--every", type=int, default=1, help="check only every Nth damage or failing call")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    options = parser.parse_args(arguments)
    began = time.perf_counter()
    if options.what == "states":
        problems = _crash_states(options.states, options.jobs)
    elif options.what == "damage":
        problems = _damages(options.every, options.jobs)
    else:
        problems = _failures(options.every, options.jobs)
    for problem in problems[:MOST_LISTED]:
        _print(f"PROBLEM {problem}")
    _print(f"{len(problems)} problems in {time.perf_counter() - began:.0f} s")
    return 1 if problems else 0


def _crash_states(most: int, jobs: int) -> list[str]:
    tally = Tally()
    runs = ((seed, flushing) for seed in count(1) for flushing in (True, False))
    for found in _in_processes(sample, runs, jobs):
        tally.merge(found)
        _print(f"{tally.states.total()} states, {len(tally.problems)} problems")
        if tally.states.total() >= most:
            break
    _print(f"{tally.states.total()} states: " + ", ".join(f"{name} {n}" for name, n in sorted(tally.states.items())))
    lost = ", ".join(f"{name} {n}" for name, n in sorted(tally.losses.items()))
    _print(f"states that lost something, by power losses without flushes: {lost or 'none'}")
    return tally.problems


def _damages(every: int, jobs: int) -> list[str]:
    problems = []
    for title, met, wrong in _in_processes(sweep_file, _damage_tasks(every, jobs), jobs):
        outcomes = ", ".join(f"{outcome} {count}" for outcome, count in met.items())
        _print(f"{title}: {sum(met.values())} damages: {outcomes}; {len(wrong)} wrong")
        problems += wrong
    return problems


def _damage_tasks(every: int, jobs: int) -> Iterator[tuple[Any, ...]]:
    for kind in (Kind.CUT, Kind.HOLE):
        for part in range(jobs):
            yield LARGE, 0, "log", kind, every, part, jobs
    for part in range(jobs):
        yield SMALL, 0, "log", Kind.FLIP, every, part, jobs
    for recovery_point in (0, 40, None):
        for kind in (Kind.CUT, Kind.HOLE):
            yield SMALL, recovery_point, "log", kind, every, 0, 1
        if recovery_point != 0:
            yield SMALL, recovery_point, "log", Kind.FLIP, every * FEWER, 0, 1
        for name in ("index", "timeindex", "txnindex", "snapshot", "leader-epoch-checkpoint", "partition.metadata"):
            if recovery_point is not None or "index" not in name:
                yield SMALL, recovery_point, name, Kind.CUT, every, 0, 1
                yield SMALL, recovery_point, name, Kind.FLIP, every, 0, 1
    for kind in (Kind.CUT, Kind.FLIP):
        yield ROLLED, 0, "log", kind, every, 0, 1


def _failures(every: int, jobs: int) -> list[str]:
    problems: list[str] = []
    met: Counter[str] = Counter()
    tasks = ((flushing, every * jobs, 1 + every * part) for flushing in (True, False) for part in range(jobs))
    for found, wrong in _in_processes(sweep_failures, tasks, jobs):
        met.update(found)
        problems += wrong
    _print(f"{met.total()} failures: " + ", ".join(f"{name} {n}" for name, n in sorted(met.items())))
    return problems


def _in_processes(work: Callable[..., Any], tasks: Iterator[tuple[Any, ...]], jobs: int) -> Iterator[Any]:
    """Run `work` for each task and return the results in order.

    `tasks` may be endless: with several processes, at most `jobs` tasks are taken ahead.
    """
    if jobs <= 1:
        yield from (work(*task) for task in tasks)
        return
    with get_context("spawn").Pool(jobs) as pool:
        ahead = [pool.apply_async(work, next(tasks)) for _ in range(jobs)]
        while ahead:
            done = ahead.pop(0).get()
            ahead += [pool.apply_async(work, task) for _, task in zip(range(1), tasks, strict=False)]
            yield done


def _print(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
