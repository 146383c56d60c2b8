"""The clock that tests control: it jumps, stops, and runs due timers in order."""

from ottla.testkit.control.clock import MovableClock
from ottla.testkit.in_memory.ports import PortCalls
from ottla.testkit.in_memory.schedule import Schedule, VirtualClock

DAY_MS = 86_400_000


class Rig:
    """A movable clock on top of one that a schedule moves."""

    def __init__(self):
        self.schedule = Schedule()
        self.real = VirtualClock(self.schedule, PortCalls(), 0.0, lambda work: work())
        self.real.enter = lambda work: work()
        self.clock = MovableClock(self.real)
        self.ran = []

    def later(self, name, delay_ms):
        return self.clock.call_later(delay_ms, lambda: self.ran.append(name))

    def pass_ms(self, for_ms):
        done = []
        self.schedule.at(self.schedule.now_ms + for_ms, lambda: done.append(True))
        while not done:
            self.schedule.run_next()


def test_untouched_it_is_the_clock_below():
    rig = Rig()
    rig.later("first", 5)
    rig.later("second", 10)
    assert rig.clock.now_ms() == rig.real.now_ms()
    rig.pass_ms(7)
    assert rig.ran == ["first"]
    rig.pass_ms(7)
    assert rig.ran == ["first", "second"]


def test_a_jump_runs_all_that_is_due_in_order_with_the_new_time_on_the_clock():
    rig = Rig()
    before_ms = rig.clock.now_ms()
    rig.later("in three days", 3 * DAY_MS)
    rig.later("in a day", DAY_MS)
    rig.later("in nine days", 9 * DAY_MS)
    rig.clock.call_later(2 * DAY_MS, lambda: rig.ran.append(rig.clock.now_ms() - before_ms))
    assert rig.clock.advance(7 * DAY_MS) == 3
    rig.pass_ms(1)
    assert rig.ran == ["in a day", 7 * DAY_MS, "in three days"]
    assert rig.clock.ahead_ms == 7 * DAY_MS


def test_a_timer_restarted_in_a_jump_counts_from_the_new_time():
    rig = Rig()

    def again():
        rig.ran.append(rig.clock.monotonic_ms())
        rig.clock.call_later(10_000, again)

    rig.clock.call_later(10_000, again)
    rig.clock.advance(DAY_MS)
    rig.pass_ms(1)
    assert len(rig.ran) == 1
    rig.pass_ms(10_000)
    assert len(rig.ran) == 2


def test_timers_of_a_frozen_clock_run_only_on_an_advance():
    rig = Rig()
    rig.later("due", 10)
    rig.clock.freeze()
    before = rig.clock.now_ms(), rig.clock.monotonic_ms()
    rig.pass_ms(1_000)
    assert (rig.clock.now_ms(), rig.clock.monotonic_ms()) == before
    assert rig.ran == []
    rig.clock.advance(10)
    rig.pass_ms(0.1)
    assert rig.ran == ["due"]


def test_a_resumed_clock_continues_from_where_it_was_frozen():
    rig = Rig()
    rig.later("due", 10)
    rig.pass_ms(4)
    rig.clock.freeze()
    rig.pass_ms(1_000)
    rig.clock.resume()
    rig.pass_ms(5)
    assert rig.ran == []
    rig.pass_ms(2)
    assert rig.ran == ["due"]
    assert rig.clock.ahead_ms == -1_000


def test_a_timer_that_is_cancelled_between_being_due_and_its_turn_does_not_run():
    rig = Rig()
    timer = rig.later("cancelled", 10)
    rig.clock.advance(20)
    timer.cancel()
    rig.pass_ms(50)
    assert rig.ran == []


def test_a_reset_brings_the_wall_clock_back_and_loses_no_timer():
    rig = Rig()
    rig.clock.advance(7 * DAY_MS)
    rig.clock.freeze()
    rig.later("due", 10)
    rig.clock.reset()
    assert (rig.clock.ahead_ms, rig.clock.frozen) == (0, False)
    rig.pass_ms(11)
    assert rig.ran == ["due"]
    before_ms = rig.clock.monotonic_ms()
    rig.pass_ms(1)
    assert rig.clock.monotonic_ms() > before_ms
