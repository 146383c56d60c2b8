"""A whole broker on a disk in memory whose syncs take a while."""

from random import Random

import pytest

from ottla.testkit.crash.life import Life
from ottla.testkit.crash.stage import DIRECTORY
from ottla.testkit.simulation.disk import MemoryDisk
from ottla.testkit.simulation.ports import PortCalls
from ottla.testkit.simulation.schedule import Schedule

SYNC_MS = 5.0


@pytest.fixture
def begin_life():
    """Start one; `flushing`: every append is flushed."""

    def begin(flushing):
        schedule = Schedule()
        disk = MemoryDisk(PortCalls(), Random(1), lambda end: schedule.after(SYNC_MS, end))
        disk.make_dirs(DIRECTORY)
        return Life(disk, schedule, flushing=flushing)

    return begin
