"""Memory of the machine, and resource usage of this process. shell"""

import os
import resource
import time
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

_LIMITS: Final = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


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
