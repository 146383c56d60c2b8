"""How a program starts and ends: from its arguments, at Ctrl-C, at closed pipes. shell"""

import argparse
import os
import sys
from collections.abc import Callable

COULD_NOT_RUN, INTERRUPTED = 2, 130


def run_job(parser: argparse.ArgumentParser, argv: list[str] | None, job: Callable[[argparse.Namespace], int]) -> int:
    """The exit code of a job that `argv` (without the program's name) describes."""
    try:
        arguments = parser.parse_args(argv)
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else COULD_NOT_RUN
    try:
        return job(arguments)
    except KeyboardInterrupt:
        sys.stderr.write(f"{parser.prog}: interrupted\n")
        return INTERRUPTED


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
