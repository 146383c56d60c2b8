"""Start and end of a program: its arguments, Ctrl-C, closed pipes. shell"""

import os
import sys
from importlib import import_module
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    import click

COULD_NOT_RUN, INTERRUPTED = 2, 130


def run_command(command: "click.Command", argv: list[str] | None) -> int:
    """Run `ottla COMMAND` with `argv` and return the exit code.

    `argv` has no program name; None: the arguments of this process.
    """
    try:
        command.main(argv, prog_name=f"ottla {command.name}")
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else COULD_NOT_RUN


def run_job(name: str, module: str, arguments: object) -> NoReturn:
    """Run the function `run` of the module as `ottla NAME`, and exit with the code that it returns.

    The module is imported only now: help and completion need no extra.
    """
    job = import_module(module)
    try:
        code = job.run(arguments)
    except KeyboardInterrupt:
        sys.stderr.write(f"ottla {name}: interrupted\n")
        code = INTERRUPTED
    sys.exit(code)


def show(text: str) -> bool:
    """Write text to stdout. Return False if the pipe is closed, as by `| head`: stop then, without an error."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        # The interpreter flushes stdout at its end, which must not fail.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return False
    return True
