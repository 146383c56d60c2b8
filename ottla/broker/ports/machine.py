"""What the machine has. shell"""

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

_LIMITS: Final = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def machine_bytes() -> int:
    """The memory of the machine, or of the container that this process is in."""
    found = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for path in _LIMITS:
        with suppress(OSError, ValueError):  # there is no such file, or it says "max"
            found = min(found, int(Path(path).read_text()))
    return found
