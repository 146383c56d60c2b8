"""CPU time of processes and their children; other environments load it too, so it imports nothing else. free"""

import os
import resource
from pathlib import Path


def cpu_of_tree() -> float | None:
    """CPU seconds of this process, the JVM and all workers so far; None where /proc is missing."""
    if not Path("/proc/self/stat").exists():
        return None
    ticks: dict[int, int] = {}
    parents: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        pid = int(path.parent.name)
        parents[pid] = int(fields[1])
        # Own and reaped children's, user and system.
        ticks[pid] = sum(map(int, fields[11:15]))
    mine = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in mine} - mine:
        mine |= more
    return sum(ticks[pid] for pid in mine) / os.sysconf("SC_CLK_TCK")


def cpu_of_ended_children() -> float:
    """CPU seconds of all children that this process has waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
