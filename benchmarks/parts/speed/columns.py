"""Brokers of the comparison: how each is started, and why one is left out. shell"""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import NamedTuple

from parts import processes
from parts.processes import Broker
from parts.speed.kfake import start
from parts.speed.rows import KFAKE

KAFKA = "Kafka 4.3.1"
SERVE = Path(__file__).resolve().parent / "serve.py"


class Column(NamedTuple):
    name: str
    start: Callable[[], AbstractContextManager[Broker]]
    ours: bool = False


class Compared(NamedTuple):
    columns: list[Column]
    notes: list[str]
    """Descriptions of the columns, and of what is left out."""


def compare(
    pythons: Sequence[str], checkouts: Sequence[Path], without: Sequence[str], kafka_script: Path, scratch: Path
) -> Compared:
    found = Compared([], [])
    _add_ours(found, sys.executable, "python-walk" not in without)
    for checkout in checkouts:
        _add_checkout(found, checkout)
    for python in pythons:  # without the Python walk: the first interpreter has shown its cost
        _add_ours(found, python, False)
    if KFAKE not in without:
        _add_kfake(found, scratch)
    if "kafka" not in without:
        lacking = [name for name in ("java", "mvn") if shutil.which(name) is None]
        if lacking:
            found.notes.append(f"Apache Kafka is left out: no {' and no '.join(lacking)} here")
        else:
            found.columns.append(Column(KAFKA, partial(processes.apache_kafka, kafka_script)))
    return found


def _add_ours(found: Compared, python: str, python_walk: bool) -> None:
    done = subprocess.run([python, str(SERVE), "about"], capture_output=True, text=True, cwd=processes.ROOT)
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["it says nothing"])[-1]
        raise SystemExit(f"{python} cannot run Ottla: {last}\nInstall it there: {python} -m pip install .")
    about = json.loads(done.stdout)
    title = f"Ottla, {about['short']}"
    if any(column.name.startswith(f"{title},") for column in found.columns):
        raise SystemExit(f"{about['short']} is there twice: give --python another interpreter")
    found.notes.append(f"{about['short']}: {about['python']}")
    if about["compiled"]:
        found.columns.append(_ours(f"{title}, compiled walk", python, "compiled"))
    else:
        found.notes.append(f"{about['short']} has no compiled walk: install Ottla there with OTTLA_COMPILE=1")
    if python_walk or not about["compiled"]:
        found.columns.append(_ours(f"{title}, Python walk", python, "python"))


def _add_checkout(found: Compared, checkout: Path) -> None:
    """Add another checkout of Ottla, on this interpreter, with the compiled walk if it has one."""
    serve = checkout.resolve() / SERVE.relative_to(processes.ROOT)
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, cwd=checkout)
    done = subprocess.run([sys.executable, str(serve), "about"], capture_output=True, text=True, cwd=checkout)
    if commit.returncode != 0 or done.returncode != 0:
        last = ((commit.stderr + done.stderr).strip().splitlines() or ["it says nothing"])[-1]
        raise SystemExit(f"{checkout} is no checkout of Ottla that can be measured: {last}")
    walk = "compiled" if json.loads(done.stdout)["compiled"] else "python"
    name = f"Ottla at {commit.stdout.strip()}"
    program = partial(processes.ottla, program=(str(serve), walk))
    found.notes.append(f"{name}: the same interpreter, {'compiled' if walk == 'compiled' else 'Python'} walk")
    found.columns.append(Column(name, program, ours=True))


def _ours(name: str, python: str, walk: str) -> Column:
    return Column(name, partial(processes.ottla, program=(str(SERVE), walk), python=python), ours=True)


def _add_kfake(found: Compared, scratch: Path) -> None:
    try:
        program = start.built()
    except start.Missing as missing:
        found.notes.append(f"kfake is left out: {missing}")
        return
    found.columns.append(Column(KFAKE, partial(start.kfake, program, scratch)))
    found.notes.append(f"kfake: franz-go's pkg/kfake {start.version()}, one broker, its log in memory")
