"""Whole brokers on disks in memory whose syncs take a while."""

from random import Random

import pytest

from lab.crash.life import Life
from lab.crash.log_directory import DIRECTORY
from lab.in_memory.disk import MemoryDisk
from ottla.testkit.in_memory.ports import PortCalls
from ottla.testkit.in_memory.schedule import Schedule
from tests.api.callers import coordinating
from tests.memory_broker import MemoryBroker

SYNC_MS = 5.0
SLOW_SYNC_MS = 50.0


@pytest.fixture
def begin_life():
    """Start a broker; `flushing`: every append is flushed."""

    def begin(flushing):
        schedule = Schedule()
        disk = MemoryDisk(PortCalls(), Random(1), lambda end: schedule.after(SYNC_MS, end))
        disk.make_dirs(DIRECTORY)
        return Life(disk, schedule, flushing=flushing)

    return begin


class Flushed:
    """A broker that flushes every append, to a slow disk."""

    def __init__(self):
        self.broker = MemoryBroker(sync_ms=SLOW_SYNC_MS, log_flush_interval_messages=1)

    def ask(self, api_key, version, **fields):
        """Send a request and return the response, which must not arrive before the disk has synced what it reports."""
        client = self.broker.client()
        self.broker.advance(10 * SLOW_SYNC_MS)  # nothing of before is under way
        client.send(api_key, version, **fields)
        self.broker.advance(SLOW_SYNC_MS - 1.0)
        assert client.replies == [], "it is answered before it is durable"
        self.broker.advance(3 * SLOW_SYNC_MS)
        (reply,) = client.replies
        assert self.broker.bugs == []
        return reply


@pytest.fixture
def flushing():
    return Flushed()


@pytest.fixture
def broker():
    """A broker with the topics `ledger`, of four partitions, and `orders`, of one; its coordinators are ready."""
    made = coordinating()
    yield made
    assert made.bugs == []
