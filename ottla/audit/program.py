"""How a program starts and ends: from its arguments, at Ctrl-C, at closed pipes. shell"""

import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, NoReturn, TypeVar

if TYPE_CHECKING:
    import click

COULD_NOT_RUN, INTERRUPTED = 2, 130

Arguments = TypeVar("Arguments")


def run_command(command: "click.Command", argv: list[str] | None) -> int:
    """The exit code of `ottla COMMAND` with `argv` (without the program's name; None: that of this process)."""
    try:
        command.main(argv, prog_name=f"ottla {command.name}")
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else COULD_NOT_RUN


def run_job(name: str, job: Callable[[Arguments], int], arguments: Arguments) -> NoReturn:
    """Do what `ottla NAME` is for, and exit with the code that `job` returns."""
    try:
        code = job(arguments)
    except KeyboardInterrupt:
        sys.stderr.write(f"ottla {name}: interrupted\n")
        code = INTERRUPTED
    sys.exit(code)


def show(text: str) -> bool:
    """Text on stdout; False if nobody reads it any more, as behind `| head`: no reason to fail, nor to go on."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        # What the interpreter flushes at its end goes nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return False
    return True
