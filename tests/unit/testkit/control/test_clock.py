"""The clock that tests control: it jumps, stops, and runs due timers in order."""

from ottla.testkit.control.clock import MovableClock
from ottla.testkit.in_memory.ports import PortCalls
from ottla.testkit.in_memory.schedule import Schedule, VirtualClock

DAY_MS = 86_400_000


class Stage:
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
    stage = Stage()
    stage.later("first", 5)
    stage.later("second", 10)
    assert stage.clock.now_ms() == stage.real.now_ms()
    stage.pass_ms(7)
    assert stage.ran == ["first"]
    stage.pass_ms(7)
    assert stage.ran == ["first", "second"]


def test_a_jump_runs_all_that_is_due_in_order_with_the_new_time_on_the_clock():
    stage = Stage()
    before_ms = stage.clock.now_ms()
    stage.later("in three days", 3 * DAY_MS)
    stage.later("in a day", DAY_MS)
    stage.later("in nine days", 9 * DAY_MS)
    stage.clock.call_later(2 * DAY_MS, lambda: stage.ran.append(stage.clock.now_ms() - before_ms))
    assert stage.clock.advance(7 * DAY_MS) == 3
    stage.pass_ms(1)
    assert stage.ran == ["in a day", 7 * DAY_MS, "in three days"]
    assert stage.clock.ahead_ms == 7 * DAY_MS


def test_a_timer_restarted_in_a_jump_counts_from_the_new_time():
    stage = Stage()

    def again():
        stage.ran.append(stage.clock.monotonic_ms())
        stage.clock.call_later(10_000, again)

    stage.clock.call_later(10_000, again)
    stage.clock.advance(DAY_MS)
    stage.pass_ms(1)
    assert len(stage.ran) == 1
    stage.pass_ms(10_000)
    assert len(stage.ran) == 2


def test_timers_of_a_frozen_clock_run_only_on_an_advance():
    stage = Stage()
    stage.later("due", 10)
    stage.clock.freeze()
    before = stage.clock.now_ms(), stage.clock.monotonic_ms()
    stage.pass_ms(1_000)
    assert (stage.clock.now_ms(), stage.clock.monotonic_ms()) == before
    assert stage.ran == []
    stage.clock.advance(10)
    stage.pass_ms(0.1)
    assert stage.ran == ["due"]


def test_a_resumed_clock_continues_from_where_it_was_frozen():
    stage = Stage()
    stage.later("due", 10)
    stage.pass_ms(4)
    stage.clock.freeze()
    stage.pass_ms(1_000)
    stage.clock.resume()
    stage.pass_ms(5)
    assert stage.ran == []
    stage.pass_ms(2)
    assert stage.ran == ["due"]
    assert stage.clock.ahead_ms == -1_000


def test_a_timer_that_is_cancelled_between_being_due_and_its_turn_does_not_run():
    stage = Stage()
    timer = stage.later("cancelled", 10)
    stage.clock.advance(20)
    timer.cancel()
    stage.pass_ms(50)
    assert stage.ran == []


def test_a_reset_brings_the_wall_clock_back_and_loses_no_timer():
    stage = Stage()
    stage.clock.advance(7 * DAY_MS)
    stage.clock.freeze()
    stage.later("due", 10)
    stage.clock.reset()
    assert (stage.clock.ahead_ms, stage.clock.frozen) == (0, False)
    stage.pass_ms(11)
    assert stage.ran == ["due"]
    before_ms = stage.clock.monotonic_ms()
    stage.pass_ms(1)
    assert stage.clock.monotonic_ms() > before_ms
