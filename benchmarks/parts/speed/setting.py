"""What the figures stand on, in sentences: no name of a host, no path. shell"""

import datetime
import os
import platform
import resource
from pathlib import Path


def processor() -> str:
    """Its model, where the system tells it."""
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()
    return platform.processor() or platform.machine()


def described(load_before: float, rounds: int) -> str:
    """One paragraph."""
    now = datetime.datetime.now(datetime.UTC)
    system = f"{platform.system()} {platform.release().partition('-')[0]}"
    load = f"load {load_before:.1f} before and {os.getloadavg()[0]:.1f} after, with the brokers and clients themselves"
    descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return (
        f"{now:%Y-%m-%d}, {rounds} rounds; {os.cpu_count()} cores, {processor()}, {system}; {load}; "
        f"{descriptors:,} descriptors"
    )
