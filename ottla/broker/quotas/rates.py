"""A rate over a window of samples, and a token bucket. pure

Source: `Rate`, `SampledStat`, `TokenBucket` and `QuotaUtils` of Kafka 4.3.1: the same values at the same times are
throttled for the same time.
"""

from typing import Final, NamedTuple

_SECOND_MS: Final = 1_000.0
_NEVER_MS: Final = 2**31 - 1
"""The longest throttle time that a reply can hold: 24 days."""


class Window(NamedTuple):
    """The number of samples, including the current one, and the duration of each."""

    samples: int
    sample_ms: float

    @property
    def whole_ms(self) -> float:
        """The duration of all samples without the current one."""
        return (self.samples - 1) * self.sample_ms


class _Sample:
    __slots__ = ("last_ms", "start_ms", "value")

    def __init__(self, now_ms: float) -> None:
        self.reset(now_ms)

    def reset(self, now_ms: float) -> None:
        self.start_ms = self.last_ms = now_ms
        self.value = 0.0


class Rate:
    """The sum of the values in the window, divided by the time since its oldest sample began.

    That time is at least the duration of all samples but one, so that a burst after an idle time is not a high rate.
    """

    __slots__ = ("_current", "_samples", "_window")

    def __init__(self, window: Window) -> None:
        self._window = window
        self._samples: list[_Sample] = []
        self._current = 0

    def record(self, value: float, now_ms: float) -> None:
        """Record a value; a negative value undoes an earlier one."""
        samples = self._samples
        if not samples:
            samples.append(_Sample(now_ms))
        sample = samples[self._current]
        if now_ms - sample.start_ms >= self._window.sample_ms:
            sample = self._advance(now_ms)
        sample.value += value
        sample.last_ms = now_ms

    def _advance(self, now_ms: float) -> _Sample:
        # One more than the window has: a sample that began before it may reach into it.
        self._current = (self._current + 1) % (self._window.samples + 1)
        if self._current == len(self._samples):
            self._samples.append(_Sample(now_ms))
        else:
            self._samples[self._current].reset(now_ms)
        return self._samples[self._current]

    def throttle_ms(self, limit: float, now_ms: float) -> int:
        """Return how long to wait until the rate is `limit` a second again; 0 if it is not above the limit.

        With a rate of O over W milliseconds that is X in O * W / (W + X) = limit.
        """
        total, window_ms = self._measure(now_ms)
        rate = total / window_ms * _SECOND_MS
        if rate <= limit:
            return 0
        return round_throttle((rate - limit) / limit * window_ms)

    def _measure(self, now_ms: float) -> tuple[float, float]:
        """Return the sum, and the milliseconds to divide it by."""
        samples, (count, sample_ms) = self._samples, self._window
        if not samples:
            samples.append(_Sample(now_ms))
        total, oldest_ms = 0.0, now_ms
        for sample in samples:
            if now_ms - sample.last_ms >= count * sample_ms:
                sample.reset(now_ms)
            total += sample.value
            oldest_ms = min(oldest_ms, sample.start_ms)
        elapsed_ms = now_ms - oldest_ms
        missing = count - 1 - int(elapsed_ms / sample_ms)
        if missing > 0:
            elapsed_ms += missing * sample_ms
        return total, max(elapsed_ms, 1.0)


class TokenBucket:
    """A token bucket that holds the tokens of a whole window at most. It begins full, and may be overdrawn."""

    __slots__ = ("_filled_ms", "_tokens", "_window")

    def __init__(self, window: Window) -> None:
        self._window = window
        self._tokens = float("inf")
        self._filled_ms = 0.0

    def record(self, value: float, limit: float, now_ms: float) -> None:
        """Take tokens, even more than the bucket holds; `limit` are added per second."""
        self._fill(limit, now_ms)
        self._tokens -= value

    def throttle_ms(self, limit: float, now_ms: float) -> int:
        """Return how long it takes until the bucket is not overdrawn; 0 if it is not."""
        self._fill(limit, now_ms)
        return round_throttle(-self._tokens / limit * _SECOND_MS) if self._tokens < 0 else 0

    def _fill(self, limit: float, now_ms: float) -> None:
        most = self._window.samples * self._window.sample_ms / _SECOND_MS * limit
        self._tokens = min(most, self._tokens + limit * (now_ms - self._filled_ms) / _SECOND_MS)
        self._filled_ms = now_ms


def round_throttle(throttle_ms: float) -> int:
    """Round a time to milliseconds, at most to the largest throttle time of a reply."""
    return _NEVER_MS if throttle_ms >= _NEVER_MS else round(throttle_ms)
