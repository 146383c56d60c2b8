"""Connections that are accepted, wait, or are refused."""

import pytest

from ottla.broker.admission import FOR_EVER, Admission, Limits
from ottla.broker.log_limiter import LOG_AGAIN_MS, MOST_KEYS, LogLimiter

MANY = 2**31 - 1


def admission(most=MANY, per_ip=MANY, overrides=None, per_second=MANY, descriptors=MANY):
    return Admission(Limits(most, per_ip, overrides or {}, per_second, descriptors))


def test_all_connections_are_accepted_without_limits():
    door = admission()
    for _ in range(1000):
        assert door.wait_ms(0) == 0
        assert door.enter("a") is None
    assert door.count == 1000


def test_beyond_the_most_connections_others_wait_until_one_ends():
    door = admission(most=2)
    assert door.enter("a") is None and door.enter("b") is None
    assert door.wait_ms(0) == FOR_EVER
    door.remove_connection("a")
    assert door.wait_ms(0) == 0


def test_an_address_beyond_its_limit_is_refused_and_no_other():
    door = admission(per_ip=2, overrides={"b": 1, "c": 0})
    assert [door.enter("a") is None for _ in range(3)] == [True, True, False]
    assert [door.enter("b") is None for _ in range(2)] == [True, False]
    assert "c has 0 connections, which is its limit (max.connections.per.ip)" in door.enter("c")
    door.remove_connection("a")
    assert door.enter("a") is None
    assert door.count == 3


def test_a_refusal_for_lack_of_descriptors_names_rlimit_nofile():
    door = admission(descriptors=1)
    assert door.enter("a") is None
    assert door.wait_ms(0) == 0
    assert "RLIMIT_NOFILE" in door.enter("b")
    door.remove_connection("a")
    assert door.enter("b") is None


def test_the_connection_rate_allows_a_burst_of_one_second():
    door = admission(per_second=10)
    now_ms, came = 0.0, []
    while now_ms < 5000:
        wait_ms = door.wait_ms(now_ms)
        if not wait_ms:
            came.append(now_ms)
            assert door.enter("a") is None
        now_ms += wait_ms
    assert came[9] == 0 and came[10] == pytest.approx(100)
    assert 58 <= len(came) <= 60


def test_a_rate_of_none_keeps_all_out():
    assert admission(per_second=0).wait_ms(0) == FOR_EVER


def test_changed_limits_are_those_of_the_next_connection():
    limits = Limits(MANY, MANY, {}, MANY, MANY)
    here = Admission(limits)
    assert [here.enter("a") for _ in range(3)] == [None] * 3
    here.change(limits._replace(most=2, most_per_ip=1, per_second=1))
    assert here.wait_ms(0) == FOR_EVER
    here.change(limits._replace(most_per_ip=3, per_second=1))
    assert here.wait_ms(0) == 0
    assert "a has 3 connections" in here.enter("a")
    assert 0 < here.wait_ms(0) <= 1000
    here.change(limits)
    assert (here.wait_ms(0), here.enter("a"), here.count) == (0, None, 4)


def test_a_repeated_event_is_logged_once_a_minute_with_its_count():
    limiter = LogLimiter()
    assert limiter.count("a", 0) == 1
    assert [limiter.count("a", 1000) for _ in range(5)] == [0] * 5
    assert limiter.count("b", 1000) == 1
    assert limiter.count("a", LOG_AGAIN_MS) == 6


def test_a_line_of_the_oldest_key_is_logged_again_if_there_are_too_many():
    limiter = LogLimiter()
    assert all(limiter.count(number, 0.0) for number in range(MOST_KEYS + 1))
    assert not limiter.count(1, 1.0) and not limiter.count(MOST_KEYS, 1.0)
    assert limiter.count(0, 1.0)  # the one that was dropped
    assert limiter.count(3, LOG_AGAIN_MS)
