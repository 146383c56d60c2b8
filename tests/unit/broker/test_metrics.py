"""Counters and the values that they report: `ottla/broker/metrics.py`."""

import pytest

from ottla.broker.metrics import ApiMetrics, Histogram, Metrics, TurnTimer
from ottla.broker.turns import Turns


class TestHistogram:
    def test_a_value_on_a_bound_belongs_below_it(self):
        histogram = Histogram((1, 10))
        for value in (0.5, 1, 1.5, 10, 11):
            histogram.observe(value)
        assert histogram.counts == [2, 2, 1]
        assert (histogram.count, histogram.sum) == (5, 24)

    def test_a_quantile_is_interpolated_between_two_bounds(self):
        histogram = Histogram((1, 10, 100))
        for _ in range(10):
            histogram.observe(5)
        assert histogram.quantile(0.5) == pytest.approx(1 + 9 * 0.5)
        assert histogram.quantile(1.0) == 10

    def test_a_quantile_above_the_last_bound_is_that_bound(self):
        histogram = Histogram((1, 10))
        histogram.observe(1_000_000)
        assert histogram.quantile(0.99) == 10

    def test_of_no_values_every_quantile_is_nothing(self):
        assert Histogram((1, 10)).quantile(0.5) == 0


class TestApi:
    def test_requests_are_those_of_all_versions(self):
        api = ApiMetrics()
        api.versions[3] += 2
        api.versions[9] += 1
        assert api.requests == 3

    def test_each_error_is_counted_by_its_code(self):
        api = ApiMetrics()
        for code in (3, 3, 47):
            api.count_error(code)
        assert api.errors == {3: 2, 47: 1}


class TestDurations:
    def test_waits_are_counted_but_not_timed_before_measuring_starts(self):
        metrics = Metrics()
        began_ms = metrics.waits["sync"].begin()
        metrics.waits["sync"].end(began_ms)
        assert (metrics.waits["sync"].begun, metrics.waits["sync"].ms) == (1, 0.0)
        assert not metrics.measured

    def test_all_metrics_use_the_clock_given_to_measure(self):
        metrics, now = Metrics(), [100.0]
        metrics.measure(lambda: now[0])
        began_ms = metrics.waits["markers"].begin()
        now[0] = 130.0
        metrics.waits["markers"].end(began_ms)
        assert metrics.transactions.waits.ms == 30.0
        assert metrics.syncs.now_ms() == metrics.transactions.now_ms() == 130.0

    def test_a_turn_is_timed_with_all_that_it_woke(self):
        now = [0.0]
        turns = Turns([].append, [].append)
        timer = turns.meter = TurnTimer(lambda: now[0])

        def work():
            now[0] += 3
            turns.later(lambda: now.__setitem__(0, now[0] + 4))
            turns.event(lambda: now.__setitem__(0, now[0] + 1))  # joins the turn

        turns.event(work)
        assert (timer.time.count, timer.time.sum) == (1, 8)
