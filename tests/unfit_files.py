"""FIFOs, devices and others in the place of a file, and a file that is far larger than it can be. free"""

import os
import socket
from pathlib import Path

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
