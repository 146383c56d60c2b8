"""Memory of the machine; resource usage, allocator and terminal of this process. shell"""

import ctypes
import os
import resource
import time
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

_LIMITS: Final = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # malloc.h
MAPPED_BYTES: Final = 128 * 1024
"""Blocks above this size get a mapping of their own. It is glibc's initial value; setting it makes it fixed."""
TRIMMED_BYTES: Final = 1024 * 1024
"""Bytes that may stay free at the end of the heap. Returning them is a system call, too much for each small block."""


def machine_bytes() -> int:
    """Return the memory of the machine, or the memory limit of the container of this process."""
    found = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for path in _LIMITS:
        with suppress(OSError, ValueError):  # the file does not exist, or contains "max"
            found = min(found, int(Path(path).read_text()))
    return found


class Usage(NamedTuple):
    """Resource usage of this process; 0 for values that the system does not report."""

    cpu_seconds: float
    resident_bytes: int
    descriptors: int
    most_descriptors: int


def usage() -> Usage:
    """Return the current resource usage of this process."""
    descriptors = 0
    with suppress(OSError):
        descriptors = sum(1 for _ in Path("/proc/self/fd").iterdir())
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return Usage(time.process_time(), resident_bytes(), descriptors, most)


def resident_bytes() -> int:
    """Return the resident memory of this process; 0 where the system does not report it."""
    with suppress(OSError, ValueError, IndexError):
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0


def return_freed_memory() -> bool:
    """Make the allocator of this process return freed memory; False if it is not glibc's: others lack the settings.

    glibc maps large blocks one by one and unmaps them when they are freed. But each freed block raises the size that
    glibc calls large, up to 32 MiB. After a while glibc puts requests of ten megabytes into its heap, between small
    blocks that stay. The heap does not return their memory: more than a hundred megabytes after a hundred large
    requests.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return False
    return bool(mallopt(_M_MMAP_THRESHOLD, MAPPED_BYTES) and mallopt(_M_TRIM_THRESHOLD, TRIMMED_BYTES))


def has_terminal() -> bool:
    """Return whether the process has a controlling terminal. A daemon has none; closing the terminal window takes it
    away."""
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY))
    except OSError:
        return False
    return True
