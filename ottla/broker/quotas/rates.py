"""What a client took a second, over a window of samples; and a bucket of tokens. pure

Source: `Rate`, `SampledStat`, `TokenBucket` and `QuotaUtils` of Kafka 4.3.1: the same values at the same times are
throttled for the same time.
"""

from typing import Final, NamedTuple

_SECOND_MS: Final = 1_000.0
_NEVER_MS: Final = 2**31 - 1
"""What a reply has room for: 24 days."""


class Window(NamedTuple):
    """How many samples are kept, the one that is being filled included, and how long each of them lasts."""

    samples: int
    sample_ms: float

    @property
    def whole_ms(self) -> float:
        """What all samples but the last one last together."""
        return (self.samples - 1) * self.sample_ms


class _Sample:
    __slots__ = ("last_ms", "start_ms", "value")

    def __init__(self, now_ms: float) -> None:
        self.reset(now_ms)

    def reset(self, now_ms: float) -> None:
        self.start_ms = self.last_ms = now_ms
        self.value = 0.0


class Rate:
    """The sum of what was recorded in the window, by the time since its oldest sample began.

    That time is taken to be all samples but one at least, so that a burst after silence is no rate yet.
    """

    __slots__ = ("_current", "_samples", "_window")

    def __init__(self, window: Window) -> None:
        self._window = window
        self._samples: list[_Sample] = []
        self._current = 0

    def record(self, value: float, now_ms: float) -> None:
        """Something was taken; less than nothing takes it back."""
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
        """For how long nothing may be taken until the rate is `limit` a second again: 0 if it is not above it.

        With a rate of O over W milliseconds that is X in O * W / (W + X) = limit.
        """
        total, window_ms = self._measure(now_ms)
        rate = total / window_ms * _SECOND_MS
        if rate <= limit:
            return 0
        return bounded((rate - limit) / limit * window_ms)

    def _measure(self, now_ms: float) -> tuple[float, float]:
        """The sum, and the milliseconds that it is of."""
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
    """Tokens that come at a rate, as many as a whole window brings at most. It may owe some, and begins full."""

    __slots__ = ("_filled_ms", "_tokens", "_window")

    def __init__(self, window: Window) -> None:
        self._window = window
        self._tokens = float("inf")
        self._filled_ms = 0.0

    def record(self, value: float, limit: float, now_ms: float) -> None:
        """Take tokens, more than there are if need be; `limit` come a second."""
        self._fill(limit, now_ms)
        self._tokens -= value

    def throttle_ms(self, limit: float, now_ms: float) -> int:
        """How long until nothing is owed; 0 if that is so."""
        self._fill(limit, now_ms)
        return bounded(-self._tokens / limit * _SECOND_MS) if self._tokens < 0 else 0

    def _fill(self, limit: float, now_ms: float) -> None:
        most = self._window.samples * self._window.sample_ms / _SECOND_MS * limit
        self._tokens = min(most, self._tokens + limit * (now_ms - self._filled_ms) / _SECOND_MS)
        self._filled_ms = now_ms


def bounded(throttle_ms: float) -> int:
    """A time as a reply has room for."""
    return _NEVER_MS if throttle_ms >= _NEVER_MS else round(throttle_ms)
