"""The run-to-completion core: order of work, suspension, discarding."""

import gc
import weakref
from functools import partial

import pytest

from ottla.broker.costs import RESUME_US
from ottla.broker.turns import OWN_US, SHARE_US, Gate, Turns, Wait
from tests.unit.broker.dropped import expect_no_garbage


class Loop:
    """A next-turn queue that the test runs."""

    def __init__(self):
        self.queue = []
        self.bugs = []
        self.turns = Turns(self.queue.append, self.bugs.append)

    def run(self):
        while self.queue:
            self.turns.event(self.queue.pop(0))


@pytest.fixture
def loop():
    return Loop()


def test_handler_that_does_not_wait_ends_inside_start(loop):
    results = []

    async def handler():
        return 7

    assert loop.turns.start(handler(), results.append, loop.bugs.append) is None
    assert results == [7]


def test_a_woken_handler_runs_after_its_waker(loop):
    seen = []
    wait = Wait(loop.turns)

    async def handler():
        seen.append(await wait)

    def waker():
        wait.wake("woken")
        seen.append("waker done")

    loop.turns.start(handler(), lambda _: None, loop.bugs.append)
    loop.turns.event(waker)
    assert seen == ["waker done", "woken"]


def test_first_wake_counts(loop):
    seen = []
    wait = Wait(loop.turns)

    async def handler():
        seen.append(await wait)

    loop.turns.start(handler(), lambda _: None, loop.bugs.append)
    loop.turns.event(lambda: (wait.wake(1), wait.wake(2)))
    assert seen == [1]


def test_wait_that_was_woken_before_it_is_awaited_does_not_suspend(loop):
    wait = Wait(loop.turns)
    wait.wake(3)
    results = []

    async def handler():
        return await wait

    assert loop.turns.start(handler(), results.append, loop.bugs.append) is None
    assert results == [3]


def test_end_hooks_run_after_all_woken_work(loop):
    seen = []

    def event():
        loop.turns.at_end(lambda: seen.append("flush"))
        loop.turns.later(lambda: seen.append("later"))
        seen.append("event")

    loop.turns.event(event)
    assert seen == ["event", "later", "flush"]


def test_event_raised_inside_a_turn_joins_it(loop):
    seen = []

    def outer():
        loop.turns.event(lambda: seen.append("inner"))
        seen.append("outer")

    loop.turns.event(outer)
    assert seen == ["outer", "inner"]


def test_discarded_handler_takes_back_what_it_registered_and_never_resumes(loop):
    registered = {"here"}
    wait = Wait(loop.turns, on_discard=registered.clear)
    seen = []

    async def handler():
        seen.append(await wait)

    activity = loop.turns.start(handler(), seen.append, loop.bugs.append)
    activity.discard()
    loop.turns.event(lambda: wait.wake(1))
    assert (registered, seen, loop.bugs) == (set(), [], [])


def test_handler_woken_and_discarded_in_one_turn_does_not_resume(loop):
    wait = Wait(loop.turns)
    seen = []

    async def handler():
        seen.append(await wait)

    activity = loop.turns.start(handler(), seen.append, loop.bugs.append)
    loop.turns.event(lambda: (wait.wake(1), activity.discard()))
    assert seen == []


def test_pause_lets_other_events_run_first(loop):
    seen = []

    async def handler():
        seen.append("first half")
        await loop.turns.pause()
        seen.append("second half")

    loop.turns.start(handler(), lambda _: None, loop.bugs.append)
    loop.turns.event(lambda: seen.append("other"))
    loop.run()
    assert seen == ["first half", "other", "second half"]


def test_bug_in_queued_work_does_not_stop_the_turn(loop):
    seen = []

    def event():
        loop.turns.later(lambda: 1 / 0)
        loop.turns.later(lambda: seen.append("still here"))

    loop.turns.event(event)
    assert seen == ["still here"]
    assert isinstance(loop.bugs[0], ZeroDivisionError)


def test_bug_in_a_handler_is_reported_and_not_a_result(loop):
    results, bugs = [], []

    async def handler():
        raise KeyError("x")

    loop.turns.start(handler(), results.append, bugs.append)
    assert results == [] and isinstance(bugs[0], KeyError)


def test_work_queued_outside_a_turn_runs_in_the_next(loop):
    seen = []
    loop.turns.later(lambda: seen.append(1))
    assert seen == []
    loop.run()
    assert seen == [1]


def test_gate_lets_one_in_at_a_time_in_order_even_when_one_is_discarded():
    later, bugs, trace = [], [], []
    turns = Turns(later.append, bugs.append)
    gate = Gate()

    async def handler(name):
        await gate.enter(turns)
        trace.append(f"{name} in")
        await turns.pause(gate.leave)
        trace.append(f"{name} out")
        gate.leave()

    def start(name):
        return turns.start(handler(name), lambda _: None, bugs.append)

    first, second, third, fourth = (start(name) for name in "abcd")
    second.discard()  # while it waits
    first.discard()  # while it is in: the third is woken
    third.discard()  # woken, but not yet on its way
    turns.event(lambda: None)
    assert trace == ["a in", "d in"]
    while later:
        turns.event(later.pop(0))
    assert trace == ["a in", "d in", "d out"]
    assert not gate.taken and not bugs and fourth is not None


def long_work(loop, name, seen, pieces):
    """A handler that spends half a turn budget on each piece."""

    async def handler():
        for piece in range(pieces):
            seen.append(f"{name}{piece}")
            loop.turns.charge(SHARE_US / 2)
            await loop.turns.yield_if_due()

    loop.turns.event(lambda: loop.turns.start(handler(), lambda _: None, loop.bugs.append))


def test_long_work_continues_at_once_within_the_turn_budget(loop):
    seen = []
    long_work(loop, "a", seen, 3)
    assert seen == ["a0", "a1"]
    loop.run()
    assert seen == ["a0", "a1", "a2"]


def test_yielded_handlers_share_the_budget_of_a_loop_pass(loop):
    seen = []
    for name in "abc":
        long_work(loop, name, seen, 3)
    assert seen == ["a0", "a1", "b0", "c0"]  # b and c begin, because they have just arrived
    passes = []
    while loop.queue:
        seen.clear()
        loop.turns.event(loop.queue.pop(0))
        passes.append(list(seen))
    assert [ran for ran in passes if ran] == [["a2", "b1"], ["c1", "c2", "b2"]]  # b has rested twice, and is owed


def test_a_new_event_runs_before_yielded_handlers(loop):
    seen = []
    long_work(loop, "a", seen, 3)
    loop.turns.event(lambda: seen.append("fresh"))
    loop.run()
    assert seen == ["a0", "a1", "fresh", "a2"]


def test_a_handler_discarded_while_paused_is_skipped(loop):
    seen = []

    async def handler():
        await loop.turns.pause()
        seen.append("went on")

    activity = loop.turns.start(handler(), lambda _: None, loop.bugs.append)
    loop.turns.run_later(lambda: seen.append("next"))
    activity.discard()
    loop.run()
    assert seen == ["next"]


def test_a_bug_in_postponed_work_does_not_stop_other_work(loop):
    seen = []

    def broken():
        raise ValueError("broken")

    loop.turns.run_later(broken)
    loop.turns.run_later(lambda: seen.append("next"))
    loop.run()
    assert seen == ["next"] and [str(bug) for bug in loop.bugs] == ["broken"]


def test_a_handler_that_pauses_without_a_charge_resumes_in_the_next_pass(loop):
    async def handler():
        for _ in range(3):
            await loop.turns.pause()

    loop.turns.event(lambda: loop.turns.start(handler(), lambda _: None, loop.bugs.append))
    passes = 0
    while loop.queue:
        loop.turns.event(loop.queue.pop(0))
        passes += 1
    assert passes == 3


def test_a_small_request_does_not_yield_because_of_large_ones(loop):
    seen = []
    long_work(loop, "a", seen, 3)

    async def small():
        loop.turns.charge(OWN_US / 2)
        await loop.turns.yield_if_due()
        seen.append("small")

    loop.turns.event(lambda: loop.turns.start(small(), lambda _: None, loop.bugs.append))
    assert seen == ["a0", "a1", "small"]


def test_a_woken_handler_yields_when_the_turn_budget_is_spent(loop):
    """Each of a thousand handlers that wait for one event is cheap, but all together are not."""
    seen, wait = [], Wait(loop.turns)

    async def handler():
        await wait
        await loop.turns.yield_if_due()
        seen.append("went on")

    loop.turns.start(handler(), lambda _: None, loop.bugs.append)
    loop.turns.charge(SHARE_US)
    loop.turns.event(lambda: wait.wake(None))
    assert seen == []
    loop.run()
    assert seen == ["went on"]


def test_handlers_that_one_event_wakes_resume_in_shares_and_in_order(loop):
    most = int(SHARE_US / RESUME_US)
    waits, seen = [Wait(loop.turns) for _ in range(5 * most)], []

    async def handler(number):
        await waits[number]
        seen.append(number)

    def wake_all():
        for wait in waits:
            wait.wake(None)

    for number in range(len(waits)):
        loop.turns.start(handler(number), lambda _: None, loop.bugs.append)
    loop.turns.event(wake_all)
    counts = [len(seen)]
    while loop.queue:
        loop.turns.event(loop.queue.pop(0))
        counts.append(len(seen))
    assert counts == [most * step for step in range(1, 6)]
    assert seen == list(range(len(waits)))
    assert loop.turns.charged_us == len(waits) * RESUME_US


def test_a_woken_handler_discarded_before_its_turn_does_not_resume(loop):
    wait, seen = Wait(loop.turns), []

    async def handler():
        await wait
        seen.append("resumed")

    activity = loop.turns.start(handler(), lambda _: None, loop.bugs.append)
    loop.turns.charge(SHARE_US)
    loop.turns.event(lambda: wait.wake(None))
    activity.discard()
    loop.run()
    assert seen == []


def test_a_handler_that_yielded_often_runs_after_newer_ones(loop):
    seen = []
    long_work(loop, "long", seen, 40)
    for _ in range(8):
        loop.turns.event(loop.queue.pop(0))
    for number in range(8):
        long_work(loop, f"new{number}-", seen, 2)
        seen.clear()
        loop.turns.event(loop.queue.pop(0))
        assert seen[0] == f"new{number}-1"  # it takes half of the turn budget
        assert seen[1].startswith("long")


def test_long_work_progresses_in_every_pass_despite_new_arrivals(loop):
    seen = []
    for name in ("long", "longer"):
        long_work(loop, name, seen, 60)
    for _ in range(20):
        loop.turns.event(loop.queue.pop(0))
    for number in range(10):
        for name in "abc":
            long_work(loop, f"new{number}{name}-", seen, 4)  # more than three turn budgets
        seen.clear()
        loop.turns.event(loop.queue.pop(0))
        assert any(name.startswith("long") for name in seen)


def test_the_ranks_leave_to_each_other_what_they_do_not_need(loop):
    seen = []
    long_work(loop, "a", seen, 4)
    long_work(loop, "b", seen, 4)
    seen.clear()
    loop.turns.event(loop.queue.pop(0))
    assert seen == ["a2", "a3"]  # the whole share is theirs


def test_a_handler_that_has_waited_at_a_gate_is_freed_when_it_ends(loop):
    class Large:
        pass

    async def handler(gate, large):
        await gate.enter(loop.turns)

    gate, large = Gate(), Large()
    freed = weakref.ref(large)
    gc.disable()  # a cycle would be found by it, later
    try:
        loop.turns.start(handler(gate, None), lambda _: None, loop.bugs.append)
        loop.turns.start(handler(gate, large), lambda _: None, loop.bugs.append)
        del large
        assert freed() is not None
        loop.turns.event(gate.leave)
        assert freed() is None
    finally:
        gc.enable()


@pytest.mark.slow
@pytest.mark.parametrize("woken", [False, True])
@pytest.mark.parametrize("awaited", [False, True])
def test_a_wait_that_is_over_ends_without_a_collection(loop, woken, awaited):
    """The discard callback refers to the wait. The wait may be woken before a handler is suspended in it."""

    async def handler(wait):
        await wait

    with expect_no_garbage():
        wait = Wait(loop.turns)
        wait.on_discard = lambda wait=wait: wait
        if awaited:
            activity = loop.turns.start(handler(wait), lambda result: None, loop.bugs.append)
            loop.turns.event(partial(wait.wake, None) if woken else activity.discard)
            del activity
        elif woken:
            wait.wake(None)
        else:
            wait.discard()
        del wait
