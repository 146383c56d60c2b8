"""FIFOs, devices and others in the place of a file, and a file that is far larger than it can be. free"""

import os
import signal
import socket
from contextlib import contextmanager
from pathlib import Path

from ottla.testkit.corpus.case import write_case
from ottla.testkit.corpus.catalogue import CASES

CASE = "transactions-across-segments"
LOG = f"{CASE}-0/00000000000000000002"
TERABYTE = 1 << 40


def make_socket(path):
    """Bind a socket in its folder: a socket's path has 108 characters at most."""
    before = Path.cwd()
    os.chdir(path.parent)
    try:
        socket.socket(socket.AF_UNIX).bind(path.name)
    finally:
        os.chdir(before)


def make_sparse(path):
    path.touch()
    os.truncate(path, TERABYTE)


KINDS = {
    "fifo": os.mkfifo,
    "socket": make_socket,
    "device": lambda path: path.symlink_to("/dev/zero"),
    "directory": lambda path: path.mkdir(),
    "dangling": lambda path: path.symlink_to("no-such-file"),
    "circular": lambda path: path.symlink_to(path.name),
    "sparse": make_sparse,
}
WORDS = {
    "fifo": "is a FIFO",
    "socket": "is a socket",
    "device": "is a device",
    "directory": "is a directory",
    "dangling": "does not exist",
    "circular": "back to itself",
    "sparse": f"has {TERABYTE} bytes",
}


def write_log_directory(place):
    """Write a log directory with four segments in one partition, and return its path."""
    (case,) = (each for each in CASES if each.name == CASE)
    write_case(case, place)
    return place / CASE / "data"


def replace(path, kind):
    path.unlink(missing_ok=True)
    KINDS[kind](path)


@contextmanager
def failing_after(seconds):
    """Raise TimeoutError in the main thread if the body takes longer: no test waits for what never comes."""

    def fail(*_):
        raise TimeoutError("it waits for what never comes")

    before = signal.signal(signal.SIGALRM, fail)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
