"""`python -m ottla.testkit.crash`: all the damages, crash states and failing calls that the tests sample. shell

states --states 20000     crash states of the scripted workload, by kill and by power loss
damage                    every truncation of a 256 KiB segment, every bit of a 16 KiB one, every file beside them
"""

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from multiprocessing import get_context
from typing import Any

from ottla.testkit.crash.states import Tally, sample

SHOWN_MOST = 20


def main(arguments: Sequence[str] | None = None) -> int:
    """0 when nothing was found, 1 otherwise."""
    parser = argparse.ArgumentParser(prog="python -m ottla.testkit.crash", description=__doc__.partition("\n")[0])
    parser.add_argument("what", choices=["states"])
    parser.add_argument("--states", type=int, default=20_000, help="how many crash states at least")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    options = parser.parse_args(arguments)
    began = time.perf_counter()
    problems = _crash_states(options.states, options.jobs)
    for problem in problems[:SHOWN_MOST]:
        _print(f"PROBLEM {problem}")
    _print(f"{len(problems)} problems in {time.perf_counter() - began:.0f} s")
    return 1 if problems else 0


def _crash_states(wanted: int, jobs: int) -> list[str]:
    tally = Tally()
    runs = ((seed, flushing) for seed in count(1) for flushing in (True, False))
    for found in _in_processes(sample, runs, jobs):
        tally.merge(found)
        if tally.states.total() >= wanted:
            break
    _print(f"{tally.states.total()} states: " + ", ".join(f"{name} {n}" for name, n in sorted(tally.states.items())))
    lost = ", ".join(f"{name} {n}" for name, n in sorted(tally.losses.items()))
    _print(f"states that lost something, by power losses without flushes: {lost or 'none'}")
    return tally.problems


def _in_processes(work: Callable[..., Any], tasks: Iterator[tuple[Any, ...]], jobs: int) -> Iterator[Any]:
    """What `work` returns for each task, in order. `tasks` may be endless: no more than two a process are ahead."""
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
