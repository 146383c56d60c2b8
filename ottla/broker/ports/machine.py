"""What the machine has, and what this process takes of it. shell"""

import os
import resource
import time
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

_LIMITS: Final = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def machine_bytes() -> int:
    """The memory of the machine, or of the container that this process is in."""
    found = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for path in _LIMITS:
        with suppress(OSError, ValueError):  # there is no such file, or it says "max"
            found = min(found, int(Path(path).read_text()))
    return found


class Usage(NamedTuple):
    """What this process takes; 0 for what the system does not tell."""

    cpu_seconds: float
    resident_bytes: int
    descriptors: int
    most_descriptors: int


def usage() -> Usage:
    """What this process takes now."""
    descriptors = 0
    with suppress(OSError):
        descriptors = sum(1 for _ in Path("/proc/self/fd").iterdir())
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return Usage(time.process_time(), resident_bytes(), descriptors, most)


def resident_bytes() -> int:
    """The memory that this process has in use; 0 where the system does not tell."""
    with suppress(OSError, ValueError, IndexError):
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0
