"""Durations and times in UTC as text."""

import pytest

from ottla.protocol.times import at_time, difference, duration, utc


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (None, "unknown"),
        (-1, "in the future"),
        (0, "0 ms"),
        (0.2, "0.2 ms"),
        (999, "999 ms"),
        (1_500, "1.5 s"),
        (59_999, "59 s"),
        (60_000, "1 min"),
        (200_000, "3 min 20 s"),
        (7_500_000, "2 h 5 min"),
        (86_400_000 * 3 + 3_600_000 * 4, "3 d 4 h"),
    ],
)
def test_duration_has_two_units_at_most(milliseconds, text):
    assert duration(milliseconds) == text


def test_a_difference_has_a_sign():
    assert difference(-200_000) == "-3 min 20 s"
    assert difference(200_000) == "3 min 20 s"


def test_a_time_is_in_utc():
    assert utc(1_795_515_303_999) == "2026-11-24 10:15:03 UTC"
    assert at_time(1_000) == "at 1970-01-01 00:00:01.000 UTC"


def test_a_time_that_no_calendar_has_is_a_number():
    assert at_time(2**62) == f"at {2**62} ms"
    assert utc(2**62) == f"{2**62} ms"
