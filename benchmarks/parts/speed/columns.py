"""Brokers of the comparison: how each is started, and why one is left out. shell"""

import argparse
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
from parts.speed.rows import FLOOR, KFAKE

KAFKA = "Kafka 4.3.1"
SERVE = Path(__file__).resolve().parent / "serve.py"


class Form(NamedTuple):
    """Ottla in one form: the directory that contains its package, and the interpreter that runs it."""

    label: str
    directory: Path
    python: str


THIS = Form("Ottla", processes.ROOT, sys.executable)


class Column(NamedTuple):
    name: str
    start: Callable[[], AbstractContextManager[Broker]]
    ours: bool = False


class Compared(NamedTuple):
    columns: list[Column]
    notes: list[str]
    """Descriptions of the columns, and of what is left out."""


def parse_form(text: str) -> Form:
    """Return the form of LABEL=DIR or LABEL=DIR:PYTHON, as the type of an argument."""
    label, _, place = text.partition("=")
    directory, _, python = place.partition(":")
    program = shutil.which(python or sys.executable)
    if not label or not directory:
        raise argparse.ArgumentTypeError(f"{text!r} is not LABEL=DIR or LABEL=DIR:PYTHON")
    if "|" in label or label in (FLOOR, KFAKE, KAFKA):
        raise argparse.ArgumentTypeError(f"{label!r} cannot be a label: take another one")
    if not Path(directory, "ottla", "__init__.py").exists():
        raise argparse.ArgumentTypeError(f"{directory} has no ottla: give the directory that contains the package")
    if program is None:
        raise argparse.ArgumentTypeError(f"{python} is no program: give the path of a Python")
    return Form(label, Path(directory).resolve(), str(Path(program).absolute()))


def compare(forms: Sequence[Form], without: Sequence[str], kafka_script: Path, scratch: Path) -> Compared:
    found = Compared([], [])
    for form in forms:
        _add_form(found, form)
    if KFAKE not in without:
        _add_kfake(found, scratch)
    if "kafka" not in without:
        lacking = [name for name in ("java", "mvn") if shutil.which(name) is None]
        if lacking:
            found.notes.append(f"Apache Kafka is left out: no {' and no '.join(lacking)} here")
        else:
            found.columns.append(Column(KAFKA, partial(processes.apache_kafka, kafka_script)))
    return found


def _add_form(found: Compared, form: Form) -> None:
    program = (str(SERVE), str(form.directory))
    done = subprocess.run([form.python, *program, "about"], capture_output=True, text=True, cwd=processes.ROOT)
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["it printed nothing"])[-1]
        raise SystemExit(
            f"{form.python} cannot run the Ottla of {form.label}: {last}\n"
            f"Install its dependencies there: {form.python} -m pip install {processes.ROOT}"
        )
    interpreter, version = done.stdout.splitlines()
    found.notes.append(f"{form.label}: {'; '.join([version, interpreter, *_commit_of(form.directory)])}")
    found.columns.append(Column(form.label, partial(processes.ottla, program=program, python=form.python), ours=True))


def _commit_of(directory: Path) -> list[str]:
    """Return the commit of the package in a directory; an empty list if Git does not have the package."""
    command = ["git", "rev-parse", "HEAD", "HEAD:./ottla"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=directory)
    return [f"commit {done.stdout[:8]}"] if done.returncode == 0 else []


def _add_kfake(found: Compared, scratch: Path) -> None:
    try:
        program = start.built()
    except start.Missing as missing:
        found.notes.append(f"kfake is left out: {missing}")
        return
    found.columns.append(Column(KFAKE, partial(start.kfake, program, scratch)))
    found.notes.append(f"kfake: franz-go's pkg/kfake {start.version()}, one broker, its log in memory")
