"""Comparison of runs that take turns, and the table of their rates and ratios. pure"""

import statistics
from collections.abc import Callable
from typing import Any

Timing = dict[str, float | None]
Run = Callable[[], Timing]


def turns(runs: dict[str, Run], rounds: int) -> dict[str, Timing]:
    """Return the least wall and median CPU seconds of each run. They take turns; the first round is not counted."""
    found: dict[str, list[Timing]] = {name: [] for name in runs}
    for turn in range(rounds + 1):
        for name, run in runs.items():
            timing = run()
            if turn:
                found[name].append(timing)
    return {name: _sum_up(timings) for name, timings in found.items()}


def _sum_up(timings: list[Timing]) -> Timing:
    summed: Timing = {}
    for key in timings[0]:
        values = [value for timing in timings if (value := timing[key]) is not None]
        summed[key] = (min if key == "wall_s" else statistics.median)(values) if values else None
    return summed


def row_of(what: str, against: str, amount: float, unit: str, ours: Timing, theirs: Timing) -> dict[str, Any]:
    """Return a line of the table. Ratios are our rate divided by theirs, per wall second and per CPU second."""
    wall_s, other_s = ours["wall_s"], theirs["wall_s"]
    assert wall_s is not None and other_s is not None
    own, cpu, broker = ours["cpu_s"], theirs["cpu_s"], theirs.get("broker_cpu_s")
    return {
        "what": what,
        "against": against,
        "amount": round(amount, 4),
        "unit": unit,
        "ours": ours,
        "theirs": theirs,
        "ours_per_s": round(amount / wall_s, 3),
        "theirs_per_s": round(amount / other_s, 3),
        "ratio": round(other_s / wall_s, 2),
        "cpu_ratio": round((cpu + (broker or 0.0)) / own, 2) if own and cpu else None,
    }


def line_of(row: dict[str, Any]) -> str:
    ours, theirs = row["ours"], row["theirs"]
    rates = f"{row['ours_per_s']:7.2f} {row['theirs_per_s']:7.2f} {row['unit']:3}/s {row['ratio']:6.1f} x"
    line = f"{row['what']:39} {row['against']:31} {rates}"
    if row["cpu_ratio"] is None:
        return line
    broker = theirs.get("broker_cpu_s")
    told = "" if broker is None else f"{broker:6.1f}"
    return f"{line} {ours['cpu_s']:9.2f} {theirs['cpu_s']:7.2f} {told:6} {row['cpu_ratio']:6.1f} x"


def heading() -> str:
    rates = f"{'ours':>7} {'theirs':>7} {'':5} {'ratio':>8}"
    return f"{'':39} {'against':31} {rates} {'CPU s':>9} {'theirs':>7} {'broker':6} {'ratio':>8}"
