"""Figures with their goals: a table for people, JSON for programs. shell"""

import json
import os
from collections.abc import Sequence
from typing import Any, NamedTuple

from parts import interpreter

Figures = dict[str, float]


class Row(NamedTuple):
    """Figure by its key. `goal` is its upper limit, or its lower limit if `higher_is_better`."""

    key: str
    label: str
    unit: str
    goal: float | None = None
    higher_is_better: bool = False


def machine() -> dict[str, Any]:
    """Return the cores, load and Python of the machine. Call it before the measurements, which add to the load."""
    return {"cores": os.cpu_count() or 1, "load_1_min": os.getloadavg()[0], "python": interpreter.describe()}


def stands_on(machine: dict[str, Any]) -> str:
    """Return the first line of a table, which describes the machine."""
    return f"{machine['python']}; {machine['cores']} cores, load {machine['load_1_min']:.1f} before the start"


def show(rows: Sequence[Row], figures: Figures, machine: dict[str, Any], form: str) -> None:
    """Print the measured figures in the order of `rows`; `form` is text or json."""
    if form == "json":
        goals = {row.key: row.goal for row in rows if row.goal is not None}
        print(json.dumps({"machine": machine, "figures": figures, "goals": goals}, indent=2))
    else:
        print(_as_text(rows, figures, machine))


def _as_text(rows: Sequence[Row], figures: Figures, machine: dict[str, Any]) -> str:
    lines = [stands_on(machine), ""]
    for row in rows:
        value = figures.get(row.key)
        if value is not None:
            goal = "" if row.goal is None else f"{'>=' if row.higher_is_better else '<='} {row.goal:g}"
            verdict = "" if row.goal is None else "reached" if _is_reached(row.goal, row, value) else "MISSED"
            lines.append(f"{row.label:68} {value:12,.3f} {row.unit:5} {goal:8} {verdict}".rstrip())
    return "\n".join(lines)


def _is_reached(goal: float, row: Row, value: float) -> bool:
    return value >= goal if row.higher_is_better else value <= goal
