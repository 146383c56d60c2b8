"""CPU time of processes and their children. Environments without our packages load it: standard library only. free"""

import os
import resource
from pathlib import Path


def cpu_of_tree() -> float | None:
    """Return the CPU seconds so far of this process, the JVM and all workers; None without /proc."""
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
        # User and system time of the process itself and of its reaped children.
        ticks[pid] = sum(map(int, fields[11:15]))
    mine = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in mine} - mine:
        mine |= more
    return sum(ticks[pid] for pid in mine) / os.sysconf("SC_CLK_TCK")


def cpu_of_ended_children() -> float:
    """Return the CPU seconds of all children that this process has waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
