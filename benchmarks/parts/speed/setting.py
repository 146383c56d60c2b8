"""Description of the machine and the run, without host names and paths. shell"""

import datetime
import os
import platform
import resource
from pathlib import Path


def processor() -> str:
    """Return the model of the processor; without /proc/cpuinfo what `platform` knows."""
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()
    return platform.processor() or platform.machine()


def describe_run(load_before: float, rounds: int) -> str:
    """Return a paragraph about the run, the machine and its load."""
    now = datetime.datetime.now(datetime.UTC)
    system = f"{platform.system()} {platform.release().partition('-')[0]}"
    load = f"load {load_before:.1f} before and {os.getloadavg()[0]:.1f} after, with the brokers and clients themselves"
    descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return (
        f"{now:%Y-%m-%d}, {rounds} rounds; {os.cpu_count()} cores, {processor()}, {system}; {load}; "
        f"{descriptors:,} descriptors"
    )
