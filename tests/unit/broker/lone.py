"""A broker in memory with one client, whose every event is weighed."""

import sys
from random import Random
from typing import NamedTuple

from ottla.broker.api.table import TABLE
from ottla.broker.assembly import Assembly
from ottla.broker.config import Config
from ottla.broker.dispatch import Dispatcher
from ottla.broker.ports.disk import Volume
from ottla.protocol import codec
from ottla.testkit.simulation.charged import ChargedTurns
from ottla.testkit.simulation.disk import VOLUME_BYTES, MemoryDisk
from ottla.testkit.simulation.network import Link, Weather
from ottla.testkit.simulation.ports import PortCalls
from ottla.testkit.simulation.schedule import Schedule, VirtualClock

STILL = Weather(delay_ms=0.0, stall=0.0, split=0.0, reset=0.0)
METADATA_LOG = "/data/__cluster_metadata-0/00000000000000000000.log"
CALLS_PER_US = 30
"""So many calls of the interpreter a charged microsecond pays for; twice of what it takes, for costs are rounded up."""


class Weight(NamedTuple):
    """What the dearest event was charged, and the most calls of one event that nobody charged for."""

    us: float
    uncharged_calls: float


class WeighedTurns(ChargedTurns):
    """Counts the calls of Python's interpreter in each event too: work that is not charged is seen by them."""

    __slots__ = ("_calls", "uncharged_calls", "weighing")

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.weighing = False
        self.uncharged_calls = self._calls = 0

    def event(self, work):
        if self._running or not self.weighing:
            super().event(work)
            return
        self._calls, before_us = 0, self.charged_us
        sys.setprofile(self._count)
        try:
            super().event(work)
        finally:
            sys.setprofile(None)
        uncharged = self._calls - (self.charged_us - before_us) * CALLS_PER_US
        self.uncharged_calls = max(self.uncharged_calls, uncharged)

    def _count(self, frame, event, argument):
        if event in ("call", "c_call"):
            self._calls += 1


class _Disk(MemoryDisk):
    def volume(self, path):
        """One call of a real system; to sum up all files is not the broker's work."""
        return Volume(path, VOLUME_BYTES, VOLUME_BYTES)


class Lone:
    """The broker, and `ask` to send it a request and run everything that follows."""

    def __init__(self, **options):
        self.bugs = []
        self.schedule = Schedule()
        self.random = Random(1)
        self.weather = STILL
        self.clock = VirtualClock(self.schedule, PortCalls(), 0.0, lambda work: work())
        self.turns = WeighedTurns(self.clock.next_turn, self.bugs.append, lambda what, cost_us: None)
        self.clock.enter = self.turns.event
        self.disk = _Disk(PortCalls(), Random(1), lambda work: self.schedule.after(1.0, work))
        self.assembly = Assembly(Config(log_dirs="/data", **options), self.clock, self.disk, self.turns)
        self.replies = []
        self.link = None
        self.rest()

    # What a link asks of its world and of its client.

    def note(self, what, data):
        """Nobody compares runs."""

    def guarded(self, work):
        work()

    def received(self, link, data):
        self.replies.append(data)

    def lost(self, link):
        self.link = None

    # What tests use.

    def rest(self, for_ms=2.0):
        """Run what is due, and what follows from it."""
        until_ms = self.schedule.now_ms + for_ms
        done = []
        self.schedule.at(until_ms, lambda: done.append(True))
        while not done:
            self.schedule.run_next()

    def serve(self, message, version):
        """The frame of the reply; None when the connection was closed instead."""
        if self.link is None:
            self.link = Link(self, self, self.assembly.accept(), "client")
        self.replies.clear()
        self.link.send(codec.encode_request(message, version, 1, "client"))
        for _ in range(1_000):
            self.rest()
            frame = b"".join(self.replies)
            if self.link is None:
                return None
            if len(frame) >= 4 and len(frame) >= 4 + int.from_bytes(frame[:4], "big"):
                return frame
        return None

    def weigh(self, message, version):
        """How much the others have to wait for, while it is served and in what follows."""
        self.turns.most_us, self.turns.uncharged_calls, self.turns.weighing = 0.0, 0, True
        try:
            self.serve(message, version)
            self.rest(100.0)
        finally:
            self.turns.weighing = False
        return Weight(self.turns.most_us, self.turns.uncharged_calls)

    def serve_with(self, api_key, handler):
        """Let one API be served by another handler, on a connection of its own."""
        table = {api_key: TABLE[api_key]._replace(handle=handler)}
        self.assembly.dispatcher = Dispatcher(self.assembly.broker, table)
        self.link = None

    def mark(self):
        """The state is as it should be."""
        self._metadata_bytes = self.disk.size_bytes(METADATA_LOG)

    def spoiled(self):
        """Whether topics have come or gone since."""
        return self.disk.size_bytes(METADATA_LOG) != self._metadata_bytes

    def ask(self, api_key, version, message):
        return codec.decode_response(api_key, version, self.serve(message, version)[4:])[1]
