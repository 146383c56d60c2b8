"""Rates and buckets give the values of Kafka's: the expected ones are computed from `Rate` and `TokenBucket`."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.broker.quotas.rates import Rate, TokenBucket, Window

WINDOW = Window(11, 1_000.0)


def test_usage_up_to_the_limit_is_not_throttled():
    rate = Rate(WINDOW)
    rate.record(10_000, 0.0)
    assert rate.throttle_ms(1_000, 0.0) == 0


def test_twice_the_allowed_usage_is_throttled_for_one_window():
    rate = Rate(WINDOW)
    rate.record(20_000, 0.0)
    # 20,000 in ten seconds are 2,000 a second. Ten more seconds reduce it to the 1,000 that are allowed.
    assert rate.throttle_ms(1_000, 0.0) == 10_000


def test_the_window_grows_with_the_time_of_the_sample_that_is_filled():
    rate = Rate(WINDOW)
    rate.record(20_000, 0.0)
    assert rate.throttle_ms(1_000, 500.0) == 9_500
    assert rate.throttle_ms(1_000, 10_500.0) == 9_500


def test_a_sample_counts_until_nothing_came_to_it_for_a_window():
    rate = Rate(WINDOW)
    rate.record(20_000, 0.0)
    assert rate.throttle_ms(1_000, 10_999.0) > 0
    assert rate.throttle_ms(1_000, 11_000.0) == 0


def test_a_negative_record_cancels_earlier_usage():
    rate = Rate(WINDOW)
    rate.record(20_000, 0.0)
    rate.record(-20_000, 0.0)
    assert rate.throttle_ms(1_000, 0.0) == 0


def test_samples_are_used_again():
    rate = Rate(WINDOW)
    for second in range(100):
        rate.record(1_000, second * 1_000.0)
        assert rate.throttle_ms(1_200, second * 1_000.0) == 0
    assert rate.throttle_ms(900, 99_000.0) > 0


@given(takes=st.lists(st.tuples(st.floats(0, 1e5), st.floats(0, 3_000)), min_size=1, max_size=80))
def test_a_client_that_obeys_its_throttle_times_stays_near_the_limit(takes):
    rate, now_ms, limit, taken = Rate(WINDOW), 0.0, 10_000.0, 0.0
    for value, pause_ms in takes:
        now_ms += pause_ms
        rate.record(value, now_ms)
        taken += value
        now_ms += rate.throttle_ms(limit, now_ms)
    assert taken <= limit * (now_ms + 2 * 11_000) / 1_000 + 1e5


def test_a_bucket_begins_full():
    bucket = TokenBucket(WINDOW)
    bucket.record(55, 5.0, 1_000.0)
    assert bucket.throttle_ms(5.0, 1_000.0) == 0


def test_a_bucket_in_debt_throttles_until_it_is_refilled():
    bucket = TokenBucket(WINDOW)
    bucket.record(65, 5.0, 1_000.0)
    assert bucket.throttle_ms(5.0, 1_000.0) == 2_000
    assert bucket.throttle_ms(5.0, 2_500.0) == 500
    assert bucket.throttle_ms(5.0, 3_000.0) == 0


def test_a_bucket_holds_no_more_than_a_window():
    bucket = TokenBucket(WINDOW)
    bucket.record(0, 5.0, 1e9)
    bucket.record(60, 5.0, 1e9)
    assert bucket.throttle_ms(5.0, 1e9) == 1_000


def test_throttle_times_are_capped_at_the_largest_int32():
    rate = Rate(WINDOW)
    rate.record(1e18, 0.0)
    assert rate.throttle_ms(1.0, 0.0) == 2**31 - 1


@pytest.mark.parametrize("samples", [1, 2])
def test_a_window_may_be_short(samples):
    rate = Rate(Window(samples, 1_000.0))
    rate.record(1_000, 0.0)
    assert rate.throttle_ms(2_000_000, 0.0) == 0
    assert rate.throttle_ms(1, 500.0) > 0
