"""The live view of `ottla top`: rich draws, a thread polls the cluster, keys are read from the terminal. shell"""

import os
import re
import select
import sys
import termios
import threading
import tty
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.live import Live

from ottla.cli.top.screen import Screen
from ottla.cli.top.watch import Watch
from ottla.wire import Unanswered

KEYS = {
    b"\x1b[A": "up",
    b"\x1b[B": "down",
    b"\x1b[C": "right",
    b"\x1b[D": "left",
    b"\x1bOA": "up",
    b"\x1bOB": "down",
    b"\x1bOC": "right",
    b"\x1bOD": "left",
    b"\t": "right",
    b"\x1b[Z": "left",
    b"\x1b[5~": "page up",
    b"\x1b[6~": "page down",
    b"\x1b": "escape",
    b"\r": "enter",
    b"\n": "enter",
    b"\x7f": "backspace",
    b"\x08": "backspace",
    b"\x03": "quit",
    b"\x04": "quit",
}
_UNKNOWN = re.compile(rb"^\x1b\[(?![ABCDZ]|[56]~)[0-9;?]*[A-Za-z~]")
"""Escape sequences of other keys, which are ignored."""
KEY_S = 0.1
"""Longest delay until a pressed key or a new result is drawn."""


def run(watch: Watch, interval_s: float) -> None:
    """Poll the cluster and draw until the user quits. Raises Unanswered if the first poll fails."""
    screen = Screen(watch.poll())
    ended = threading.Event()

    def keep_looking() -> None:
        while not ended.wait(interval_s):
            try:
                screen.picture = watch.poll()
                screen.problem = None
            except Unanswered as error:
                screen.problem = str(error)

    looking = threading.Thread(target=keep_looking, daemon=True)
    console = Console()
    with _keys() as descriptor, Live(console=console, screen=True, auto_refresh=False) as live:
        looking.start()
        while not screen.ended:
            live.update(screen.drawn(console.width, console.height), refresh=True)
            for key in _read_keys(descriptor):
                screen.press(key)
    ended.set()


@contextmanager
def _keys() -> Iterator[int]:
    """Set the terminal to deliver single keys without echo, and restore it at the end. Yield the descriptor."""
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    tty.setraw(descriptor, termios.TCSANOW)
    try:
        yield descriptor
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def _read_keys(descriptor: int) -> Iterator[str]:
    """Yield the pressed keys, after waiting a short time for one."""
    readable, _, _ = select.select([descriptor], [], [], KEY_S)
    data = os.read(descriptor, 1024) if readable else None
    if data == b"":
        yield "quit"  # the terminal is gone
    while data:
        data = _UNKNOWN.sub(b"", data)
        known = next((each for each in sorted(KEYS, key=len, reverse=True) if data.startswith(each)), None)
        if known is not None:
            yield KEYS[known]
            data = data[len(known) :]
        else:
            text, escape, rest = data.partition(b"\x1b")
            yield from (character for character in text.decode("utf-8", "ignore") if character.isprintable())
            data = escape + rest
