"""Timers after a stall: the broker reads the sockets before it declares a client dead."""

import heapq
import itertools

import pytest

from ottla.broker.deadline import Deadline
from ottla.broker.turns import MOST_READS, Turns
from tests.unit.broker.dropped import expect_no_garbage


class Timer:
    def __init__(self, callback):
        self.callback = callback

    def cancel(self):
        self.callback = None


class Loop:
    """An event loop that runs one iteration at a time. libuv runs timers, queued callbacks, then the sockets. asyncio
    polls the sockets first, and finds nothing if it was stopped while it waited for them."""

    def __init__(self, kind):
        self.kind = kind
        self.ms = 0.0
        self.sockets = []
        self._timers = []
        self._queue = []
        self._order = itertools.count()
        self.turns = Turns(self._queue.append, self.bug)

    def bug(self, error):
        raise error

    def call_later(self, delay_ms, callback):
        timer = Timer(callback)
        heapq.heappush(self._timers, (self.ms + delay_ms, next(self._order), timer))
        return timer

    def iterate(self, interrupted=False):
        if self.kind == "asyncio" and not interrupted:
            self._poll()
        while self._timers and self._timers[0][0] <= self.ms:
            callback = heapq.heappop(self._timers)[2].callback
            if callback is not None:
                self.turns.event(callback)
        queue, self._queue[:] = self._queue[:], []
        for callback in queue:
            self.turns.event(callback)
        if self.kind == "libuv":
            self._poll()

    def _poll(self):
        arrived, self.sockets = self.sockets, []
        for read in arrived:
            self.turns.event(read)

    def stall(self, ms):
        """Stop the process while it waits for the sockets, and continue it."""
        self.ms += ms
        self.iterate(interrupted=True)

    def settle(self):
        for _ in range(2 * MOST_READS):
            self.iterate()


@pytest.fixture(params=["libuv", "asyncio"])
def loop(request):
    return Loop(request.param)


def test_a_deadline_fires_on_time_without_a_stall(loop):
    told = []
    Deadline(loop, loop.turns, 100.0, lambda: told.append(loop.ms))
    loop.ms = 99.0
    loop.settle()
    assert told == []
    loop.ms = 100.0
    loop.settle()
    assert told == [100.0]


def test_input_that_arrived_during_a_stall_is_read_before_the_deadline(loop):
    told = []
    Deadline(loop, loop.turns, 100.0, lambda: told.append("dead"))
    loop.sockets += [lambda: told.append("alive")] * 1_000
    loop.stall(10_000.0)
    loop.settle()
    assert told == ["alive"] * 1_000 + ["dead"]


def test_input_that_takes_several_reads_is_read_before_the_deadline(loop):
    """A connection is read in pieces, and a client that is admitted sends more."""
    told = []

    def read(left):
        told.append("alive")
        if left:
            loop.sockets.append(lambda: read(left - 1))

    Deadline(loop, loop.turns, 100.0, lambda: told.append("dead"))
    loop.sockets.append(lambda: read(MOST_READS - 2))
    loop.stall(10_000.0)
    loop.settle()
    assert told == ["alive"] * (MOST_READS - 1) + ["dead"]


def test_a_broker_that_is_never_out_of_input_ends_sessions_all_the_same(loop):
    told = []

    def busy():
        told.append("busy")
        loop.sockets.append(busy)

    loop.sockets.append(busy)
    Deadline(loop, loop.turns, 100.0, lambda: told.append("dead"))
    loop.stall(10_000.0)
    loop.settle()
    assert MOST_READS - 1 <= told.index("dead") <= MOST_READS + 1


def test_a_deadline_is_cancelled_also_while_the_sockets_are_read(loop):
    told = []
    deadline = Deadline(loop, loop.turns, 100.0, lambda: told.append("dead"))
    loop.sockets.append(deadline.cancel)
    loop.stall(10_000.0)
    loop.settle()
    deadline.cancel()
    assert told == []


@pytest.mark.parametrize("cancelled", [False, True])
def test_a_deadline_that_is_over_ends_without_a_collection(loop, cancelled):
    """A timer keeps a reference to its callback, as uvloop's does without a delay."""
    kept = []
    with expect_no_garbage():
        deadline = Deadline(loop, loop.turns, 0.0, lambda: None)
        kept.append(loop._timers[0][2])
        if cancelled:
            deadline.cancel()
        loop.settle()
        del deadline
        kept.clear()
