"""Commands of `ottla` that the demo runs and quotes. shell"""

import subprocess
import sys

from ottla.demo.screen import Screen
from ottla.printable import shell_line

COMMAND_TIMEOUT_S = 120


def run_ottla(*arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run a command, with stdout and stderr in the result."""
    return subprocess.run(
        [sys.executable, "-m", "ottla", *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=COMMAND_TIMEOUT_S,
        check=False,
    )


def quote_ottla(screen: Screen, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run a command, and print it with its output."""
    done = run_ottla(*arguments)
    screen.quote(
        f"$ {shell_line(['ottla', *arguments])}\n{done.stdout if done.stdout.strip() else done.stderr[-2000:]}"
    )
    return done
