"""The limit of bytes per second that all connections to a cluster share."""

from itertools import pairwise

import pytest

from ottla.wire import address
from ottla.wire.address import CATCH_UP_S, FETCH_BYTES, ByteRate, fetch_bytes

PER_SECOND = 1_000_000


@pytest.fixture
def clock(monkeypatch):
    """A clock that only `sleep` and the test move."""

    class Clock:
        now_s = 100.0

        def monotonic(self):
            return self.now_s

        def sleep(self, seconds):
            assert seconds >= 0
            self.now_s += seconds

    clock = Clock()
    monkeypatch.setattr(address, "time", clock)
    return clock


def test_readers_wait_for_the_bytes_before_theirs(clock):
    rate, received = ByteRate(PER_SECOND), []
    for _ in range(21):
        rate.spend(PER_SECOND // 2)
        received.append(clock.now_s)
    assert received[-1] - received[0] == pytest.approx(10, rel=0.05)


def test_a_reader_that_is_late_makes_up_for_little(clock):
    rate = ByteRate(PER_SECOND)
    rate.spend(PER_SECOND)
    clock.now_s += 60
    before = clock.now_s
    rate.spend(PER_SECOND)
    rate.spend(PER_SECOND)
    assert clock.now_s - before == pytest.approx(1 - CATCH_UP_S)


def test_without_a_limit_nothing_waits(clock):
    rate = ByteRate(0)
    rate.spend(2**40)
    assert clock.now_s == 100.0


def test_a_low_limit_asks_for_small_answers():
    sizes = [fetch_bytes(limit) for limit in (1_000, 10_000_000, 20_000_000, 2**40, 0)]
    assert all(0 < small <= large for small, large in pairwise(sizes))
    assert sizes[-1] == FETCH_BYTES and sizes[1] * 20 <= 10_000_000
