"""Long work runs in order within a memory limit, and releases everything even if its caller ends early."""

import gc
import weakref
from array import array

import pytest

from ottla.broker.log.long_work import LARGE_BYTES, SLOW_US, LongWork
from ottla.broker.memory import RequestMemory
from ottla.broker.turns import SHARE_US, Turns
from ottla.protocol.steps import SHORT_BYTES, SHORT_US, Work

MIB = 1 << 20
LIMIT = 8 * MIB


class Job:
    def __init__(self, call, on_end, slow):
        self.call, self.on_end, self.slow = call, on_end, slow
        self.begun = self.cancelled = False

    def cancel(self):
        self.cancelled = not self.begun
        return self.cancelled


class Rig:
    """Workers and turns that the test runs by hand."""

    least_us = SHORT_US

    def __init__(self):
        self.later, self.bugs, self.jobs, self.found = [], [], [], []
        self.turns = Turns(self.later.append, self.bugs.append)
        self.work = LongWork(self.turns, self, LIMIT)

    def start(self, call, on_end, *, slow):
        self.jobs.append(Job(call, on_end, slow))
        return self.jobs[-1]

    def drive(self, steps, slow=False):
        began = []
        handler = self.work.drive(steps, slow=slow)
        self.turns.event(lambda: began.append(self.turns.start(handler, self.found.append, self.bugs.append)))
        return began[0]

    def end(self, answer=None, failure=None):
        job = self.jobs.pop(0)
        job.begun = True
        self.turns.event(lambda: job.on_end(answer, failure))
        return job

    def run(self):
        while self.later:
            self.turns.event(self.later.pop(0))


@pytest.fixture
def rig():
    return Rig()


def long_call(memory_bytes=MIB, cost_us=SHORT_US + 1):
    return Work(lambda: None, cost_us, memory_bytes)


def holding(memory_bytes, cost_us=SHORT_US + 1):
    return (yield long_call(memory_bytes, cost_us))


def test_short_calls_run_in_the_calling_turn_and_are_charged(rig):
    def steps():
        answer = yield Work(lambda: 7, 5.0, SHORT_BYTES)
        yield 3.0
        return answer

    assert rig.drive(steps()) is None
    assert rig.found == [7] and rig.turns.charged_us == 8.0 and not rig.jobs


def test_steps_continue_in_a_later_turn_when_the_share_is_spent(rig):
    def steps():
        for _ in range(4):
            yield SHARE_US / 2

    rig.drive(steps())
    assert not rig.found
    rig.run()
    assert rig.found == [None]


def test_long_calls_run_in_workers_and_are_marked_slow_by_their_cost(rig):
    rig.drive(holding(MIB))
    rig.drive(holding(MIB, SLOW_US + 1))
    assert [job.slow for job in rig.jobs] == [False, True]
    rig.end("first")
    assert rig.found == ["first"]
    rig.end("second")
    assert rig.found == ["first", "second"] and rig.work.is_idle


def test_a_result_is_freed_as_soon_as_its_receiver_drops_it(rig):
    """An answer may hold tens of MiB, and the garbage collector runs rarely."""
    rig.drive(holding(MIB))
    answer = array("b", bytes(10))
    seen = weakref.ref(answer)
    gc.disable()
    try:
        rig.end(answer)
        rig.found.clear()
        del answer
        assert seen() is None
    finally:
        gc.enable()


def test_an_exception_in_a_call_is_raised_in_the_requesting_generator(rig):
    def steps():
        for work in (long_call(), Work(lambda: 1 / 0, 1.0, 0)):
            try:
                yield work
            except ArithmeticError as error:
                yield 1.0
                seen.append(type(error))
        raise MemoryError

    seen = []
    rig.drive(steps())
    rig.end(failure=OverflowError())
    assert seen == [OverflowError, ZeroDivisionError]
    assert [type(bug) for bug in rig.bugs] == [MemoryError]
    assert rig.work.is_idle


def test_scratch_memory_is_counted_for_large_batches_only(rig):
    def compressing(size_bytes):
        yield Work(lambda: None, SLOW_US + 1, size_bytes, 3 * MIB)

    rig.drive(compressing(LARGE_BYTES), slow=True)
    assert rig.work._memory.held_bytes == 2 * LARGE_BYTES
    rig.end()
    rig.drive(compressing(LARGE_BYTES + 1), slow=True)
    assert rig.work._memory.held_bytes == 2 * (LARGE_BYTES + 1) + 3 * MIB
    rig.end()
    assert rig.work.is_idle


def test_work_beyond_the_allowance_waits_in_order(rig):
    rig.drive(holding(5 * MIB))
    rig.drive(holding(5 * MIB))
    rig.drive(holding(1 * MIB))  # there is memory, but the first caller goes first
    assert len(rig.jobs) == 1
    rig.end()
    assert len(rig.jobs) == 2
    rig.end()
    rig.end()
    assert len(rig.found) == 3 and rig.work.is_idle


def test_work_larger_than_the_memory_limit_runs_alone(rig):
    rig.drive(holding(MIB))
    rig.drive(holding(2 * LIMIT))
    rig.drive(holding(MIB))
    assert len(rig.jobs) == 1
    rig.end()
    assert len(rig.jobs) == 1
    rig.end()
    rig.end()
    assert len(rig.found) == 3 and rig.work.is_idle


def test_held_memory_is_released_before_more_is_reserved(rig):
    def steps():
        yield long_call(2 * MIB)
        return (yield long_call(7 * MIB))

    rig.drive(steps())
    rig.drive(steps())
    for _ in range(4):
        rig.end()
    assert len(rig.found) == 2 and rig.work.is_idle


def test_large_recompressions_run_one_at_a_time_next_to_other_work(rig):
    for _ in range(2):
        rig.drive(holding(LARGE_BYTES + 1, SLOW_US + 1), slow=True)
    rig.drive(holding(LARGE_BYTES + 1))
    assert [job.slow for job in rig.jobs] == [True, False]
    rig.end()
    assert [job.slow for job in rig.jobs] == [False, True]
    rig.end()
    rig.end()
    assert rig.work.is_idle


def test_work_that_was_not_begun_is_taken_back_from_the_worker(rig):
    activity = rig.drive(holding(LARGE_BYTES + 1), slow=True)
    activity.discard()
    assert rig.jobs[0].cancelled and rig.work.is_idle


def test_memory_of_discarded_work_is_freed_when_its_worker_ends(rig):
    activity = rig.drive(holding(LARGE_BYTES + 1), slow=True)
    rig.jobs[0].begun = True
    activity.discard()
    assert not rig.work.is_idle
    rig.end()
    assert rig.work.is_idle and not rig.found


def test_memory_of_work_discarded_after_its_call_ended_is_freed(rig):
    activity = rig.drive(holding(LARGE_BYTES + 1), slow=True)

    def end_and_discard():
        rig.jobs[0].begun = True
        rig.jobs[0].on_end(None, None)
        activity.discard()

    rig.turns.event(end_and_discard)
    assert rig.work.is_idle and not rig.found


@pytest.mark.parametrize("slow", [False, True])
def test_work_discarded_while_waiting_does_not_block_the_next(rig, slow):
    rig.drive(holding(LIMIT), slow=slow)
    waiting = rig.drive(holding(LIMIT), slow=slow)
    rig.drive(holding(LIMIT), slow=slow)
    waiting.discard()
    rig.end()
    rig.end()
    assert len(rig.found) == 2 and rig.work.is_idle


def test_work_discarded_between_slices_holds_no_memory(rig):
    def steps():
        yield Work(lambda: None, 1.0, MIB)
        yield SHARE_US
        yield SHARE_US

    activity = rig.drive(steps())
    assert not rig.work.is_idle
    activity.discard()
    rig.run()
    assert rig.work.is_idle and not rig.found


def test_a_handler_discarded_after_its_memory_is_granted_releases_it(rig):
    memory = RequestMemory(rig.turns, 10)
    first = memory.reserve(10, lambda: None)
    found = []
    activity = rig.turns.start(memory.enter(10), found.append, rig.bugs.append)

    def let_in_and_gone():
        first.release()
        assert memory.held_bytes == 10
        activity.discard()

    rig.turns.event(let_in_and_gone)
    assert memory.held_bytes == 0 and not found
