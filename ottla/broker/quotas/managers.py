"""Measure the usage of clients and compute how long to throttle those that exceed a quota. pure

Each user or client id that is limited has a sensor. A sensor is removed after an hour without use. The least recently
used sensor is removed when there are too many, because a client can invent any number of client ids.

Source: `ClientQuotaManager`, `ClientRequestQuotaManager`, `ControllerMutationQuotaManager` of Kafka 4.3.1.
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Final, Generic, TypeVar

from ottla.broker.quotas.limits import Limits, Owner
from ottla.broker.quotas.rates import Rate, TokenBucket, Window
from ottla.protocol.errors import ApiError, ErrorCode

EXPIRY_MS: Final = 3_600_000.0
"""`ClientQuotaManager.InactiveSensorExpirationTimeSeconds`."""
MOST_SENSORS: Final = 10_000
"""The maximum for one kind of quota. A sensor takes 1.7 KB if it is in use all the time, 0.5 KB if it was used once."""

QUOTA_EXCEEDED: Final = ApiError(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
"""The answer for a topic that the quota of its client does not allow to create or delete."""

Meter = TypeVar("Meter")


class _Sensor(Generic[Meter]):
    __slots__ = ("limit", "meter", "set_at", "used_ms")

    def __init__(self, meter: Meter) -> None:
        self.meter = meter
        self.limit = 0.0
        self.set_at = -1
        self.used_ms = 0.0


class Sensors(Generic[Meter]):
    """The sensors of one kind of quota, the least recently used first."""

    __slots__ = ("_by_owner", "_changes", "_limits", "_new")

    def __init__(self, new: Callable[[], Meter]) -> None:
        self._new = new
        self._limits = Limits()
        self._by_owner: OrderedDict[Owner, _Sensor[Meter]] = OrderedDict()
        self._changes = 0

    def __len__(self) -> int:
        return len(self._by_owner)

    @property
    def limited(self) -> bool:
        """Whether any quota of this kind is set."""
        return bool(self._limits)

    def set(self, entity: Mapping[str, str | None], limit: float | None) -> None:
        """Set a quota, or remove it (None). Earlier usage counts in the quota that applies now."""
        self._limits.set(entity, limit)
        self._changes += 1
        if not self._limits:
            self._by_owner.clear()

    def limit(self, user: str, client_id: str) -> float | None:
        """Return the limit per second of a client; None if it is not limited."""
        return self._limits.of(self._limits.owner(user, client_id)) if self._limits else None

    def find_sensor(self, user: str, client_id: str, now_ms: float) -> tuple[Meter, float] | None:
        """Return the meter of a client and its limit; None if it is not limited."""
        if not self._limits:
            return None
        owner = self._limits.owner(user, client_id)
        sensor = self._by_owner.get(owner)
        if sensor is not None and sensor.set_at == self._changes:
            limit: float | None = sensor.limit
        else:
            limit = self._limits.of(owner)
        if limit is None:
            self._by_owner.pop(owner, None)
            return None
        if sensor is None:
            self._drop_oldest(now_ms)
            sensor = self._by_owner[owner] = _Sensor(self._new())
        else:
            self._by_owner.move_to_end(owner)
        sensor.limit, sensor.set_at, sensor.used_ms = limit, self._changes, now_ms
        return sensor.meter, limit

    def _drop_oldest(self, now_ms: float) -> None:
        """Remove up to two sensors that are expired or too many. Each call adds one at most, so the number falls."""
        for _ in range(2):
            if not self._by_owner:
                return
            oldest = next(iter(self._by_owner.values()))
            if oldest.used_ms + EXPIRY_MS > now_ms and len(self._by_owner) < MOST_SENSORS:
                return
            self._by_owner.popitem(last=False)


class ClientQuotaManager:
    """Client rates of one kind: bytes produced, bytes fetched, or the percentage of request time.

    `most_ms` is the longest time for which one reply is throttled.
    """

    __slots__ = ("_most_ms", "_whole_s", "sensors")

    def __init__(self, window: Window, most_ms: int | None = None) -> None:
        self.sensors: Sensors[Rate] = Sensors(lambda: Rate(window))
        self._whole_s = window.whole_ms / 1_000
        self._most_ms = most_ms

    def record(self, user: str, client_id: str, value: float, now_ms: float) -> int:
        """Record the usage of a client and return its throttle time in milliseconds."""
        found = self.sensors.find_sensor(user, client_id, now_ms)
        if found is None:
            return 0
        rate, limit = found
        rate.record(value, now_ms)
        throttle_ms = rate.throttle_ms(limit, now_ms)
        return throttle_ms if self._most_ms is None else min(throttle_ms, self._most_ms)

    def take_back(self, user: str, client_id: str, value: float, now_ms: float) -> None:
        """Undo a `record` of the same moment, whose data is not sent."""
        found = self.sensors.find_sensor(user, client_id, now_ms)
        if found is not None:
            found[0].record(-value, now_ms)

    def most_at_once(self, user: str, client_id: str) -> float | None:
        """Return the largest amount that an idle client may use at once without being throttled; None if it is not
        limited."""
        limit = self.sensors.limit(user, client_id)
        return None if limit is None else limit * self._whole_s


class ControllerMutationQuotaManager:
    """The rates at which clients create and delete partitions."""

    __slots__ = ("sensors",)

    def __init__(self, window: Window) -> None:
        self.sensors: Sensors[TokenBucket] = Sensors(lambda: TokenBucket(window))

    def quota_of(
        self, user: str, client_id: str, now_ms: Callable[[], float], *, strict: bool
    ) -> "ControllerMutationQuota | None":
        """Return the quota for one request; None if it is not limited."""
        found = self.sensors.find_sensor(user, client_id, now_ms())
        return None if found is None else ControllerMutationQuota(*found, now_ms, strict)


class ControllerMutationQuota:
    """The controller mutation quota of one request (KIP-599).

    A strict quota refuses changes once it is exceeded, but allows a single large change to exceed it. Another allows
    all changes, and only throttles.
    """

    __slots__ = ("_bucket", "_limit", "_now_ms", "_strict", "_throttled_at_ms", "_throttled_ms")

    def __init__(self, bucket: TokenBucket, limit: float, now_ms: Callable[[], float], strict: bool) -> None:
        self._bucket = bucket
        self._limit = limit
        self._now_ms = now_ms
        self._strict = strict
        self._throttled_ms = 0
        self._throttled_at_ms = 0.0

    def takes(self, partitions: int) -> bool:
        """Count the partitions to create or delete and return True, or return False if a strict quota is exceeded."""
        now_ms = self._now_ms()
        if self._strict:
            throttle_ms = self._bucket.throttle_ms(self._limit, now_ms)
            if not throttle_ms:
                self._bucket.record(partitions, self._limit, now_ms)
        else:
            self._bucket.record(partitions, self._limit, now_ms)
            throttle_ms = self._bucket.throttle_ms(self._limit, now_ms)
        if throttle_ms:
            self._throttled_ms, self._throttled_at_ms = throttle_ms, now_ms
        return not (self._strict and throttle_ms)

    @property
    def throttle_ms(self) -> int:
        """The remaining throttle time of the client."""
        return max(0, round(self._throttled_ms - (self._now_ms() - self._throttled_at_ms)))
