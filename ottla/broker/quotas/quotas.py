"""The quotas of one broker, and their use by one request. pure

Quotas apply to the user of the connection and the client id of the request. A request percentage is measured in the
broker's own account of work (`turns.py`): 100 is the whole time of its only event loop.

Source: `QuotaFactory.QuotaManagers`, `RequestHandlerHelper`, `KafkaApis` of Kafka 4.3.1.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple

from ottla.broker.config import Config
from ottla.broker.costs import LOOKUP_US, MEASURE_US
from ottla.broker.quotas.connection_rates import ConnectionRates
from ottla.broker.quotas.limits import IP
from ottla.broker.quotas.managers import (
    ClientQuotaManager,
    ControllerMutationQuota,
    ControllerMutationQuotaManager,
    Sensors,
)
from ottla.broker.quotas.rates import Window
from ottla.broker.turns import Turns, Wait
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.internal_topics.security_records import ClientQuotaRecord, QuotaEntity, SecurityRecord

log = logging.getLogger(__name__)

PRODUCER_BYTE_RATE: Final = "producer_byte_rate"
CONSUMER_BYTE_RATE: Final = "consumer_byte_rate"
REQUEST_PERCENTAGE: Final = "request_percentage"
CONTROLLER_MUTATION_RATE: Final = "controller_mutation_rate"
CONNECTION_CREATION_RATE: Final = "connection_creation_rate"

_PERCENT_OF_US: Final = 100 / 1_000_000
"""Converts microseconds per second to a percentage."""
_PRODUCE: Final = ApiKey.PRODUCE.value
_EXEMPT: Final = frozenset((ApiKey.WRITE_TXN_MARKERS.value,))
"""Requests between brokers."""


class Windows(NamedTuple):
    """The windows of client rates, and of the token buckets for partitions."""

    client: Window = Window(11, 1_000.0)
    controller: Window = Window(11, 1_000.0)


DEFAULT_WINDOWS: Final = Windows()


def windows_of(config: Config) -> Windows:
    """Return the windows that the options configure."""
    return Windows(
        Window(config.quota_window_num, config.quota_window_size_seconds * 1_000.0),
        Window(config.controller_quota_window_num, config.controller_quota_window_size_seconds * 1_000.0),
    )


class Throttled:
    """The number of throttled requests, and their total throttle time in milliseconds."""

    __slots__ = ("ms", "times")

    def __init__(self) -> None:
        self.times = self.ms = 0

    def count(self, throttle_ms: int) -> None:
        """Count a throttled request."""
        self.times += 1
        self.ms += throttle_ms


class QuotaManagers:
    """All quotas of one broker. `enabled` is whether any quota applies to requests."""

    __slots__ = (
        "_by_key",
        "_now_ms",
        "_turns",
        "connections",
        "controller_mutation",
        "enabled",
        "fetch",
        "produce",
        "request",
        "throttled",
    )

    def __init__(self, turns: Turns, now_ms: Callable[[], float], windows: Windows = DEFAULT_WINDOWS) -> None:
        self._turns = turns
        self._now_ms = now_ms
        self.enabled = False
        self.produce = ClientQuotaManager(windows.client)
        self.fetch = ClientQuotaManager(windows.client)
        self.request = ClientQuotaManager(windows.client, most_ms=round(windows.client.sample_ms))
        self.controller_mutation = ControllerMutationQuotaManager(windows.controller)
        self.connections = ConnectionRates(windows.client)
        self._by_key: dict[str, Sensors[Any]] = {
            PRODUCER_BYTE_RATE: self.produce.sensors,
            CONSUMER_BYTE_RATE: self.fetch.sensors,
            REQUEST_PERCENTAGE: self.request.sensors,
            CONTROLLER_MUTATION_RATE: self.controller_mutation.sensors,
        }
        self.throttled = {key: Throttled() for key in self._by_key}
        """Throttled requests by the key of the quota."""

    def load_quotas(self, quotas: Mapping[QuotaEntity, Mapping[str, float]]) -> None:
        """Set the quotas of a data directory."""
        for entity, values in quotas.items():
            for key, value in values.items():
                self.set(entity, key, value)

    def apply_changes(self, records: Iterable[SecurityRecord]) -> None:
        """Apply changed quotas; other records are ignored."""
        for record in records:
            if isinstance(record, ClientQuotaRecord):
                self._turns.charged_us += LOOKUP_US
                self.set(record.entity, record.key, None if record.remove else record.value)

    def set(self, entity: Iterable[tuple[str, str | None]], key: str, value: float | None) -> None:
        """Set a quota of an entity, or remove it (None).

        `entity` has the (type, name) pairs of a user, a client id, both, or an address.
        """
        names = dict(entity)
        if IP in names:
            if key == CONNECTION_CREATION_RATE:
                self.connections.set(names[IP], value)
            return
        sensors = self._by_key.get(key)
        if sensors is None or not names:
            log.warning("Ignoring unexpected quota key %s for entity %s", key, names)  # in Kafka's words
            return
        if value is not None and not value > 0:
            log.warning("Ignoring the quota %s of %s for entity %s", key, value, names)
            return
        sensors.set(names, value)
        self.enabled = any(each.limited for each in self._by_key.values())

    def begin(self, api_key: int, principal: str, client_id: str, size_bytes: int) -> "RequestQuota":
        """Return the quota of a request of `size_bytes` bytes."""
        self._turns.charged_us += MEASURE_US
        return RequestQuota(
            self, self._turns, self._now_ms, api_key, principal.partition(":")[2], client_id, size_bytes
        )


class RequestQuota:
    """The use of its client's quotas by one request."""

    __slots__ = (
        "_api_key",
        "_began_us",
        "_client_id",
        "_managers",
        "_now_ms",
        "_size_bytes",
        "_throttle_ms",
        "_turns",
        "_us",
        "_user",
        "_worst",
        "mutation",
    )

    def __init__(
        self,
        managers: QuotaManagers,
        turns: Turns,
        now_ms: Callable[[], float],
        api_key: int,
        user: str,
        client_id: str,
        size_bytes: int,
    ) -> None:
        self._managers = managers
        self._turns = turns
        self._now_ms = now_ms
        self._api_key = api_key
        self._user = user
        self._client_id = client_id
        self._size_bytes = size_bytes
        self._us = 0.0
        self._began_us = turns.charged_us
        self._throttle_ms: int | None = None
        self.mutation: ControllerMutationQuota | None = None

    # --- request time ---------------------------------------------------------------------------------------------

    def start_measuring(self) -> None:
        """Start the measurement: the handler runs."""
        self._began_us = self._turns.charged_us

    def stop_measuring(self) -> None:
        """Add the work since the handler was resumed. Called when it waits or has ended."""
        self._us += self._turns.charged_us - self._began_us
        self._began_us = self._turns.charged_us

    # --- for handlers ---------------------------------------------------------------------------------------------

    def unthrottled_fetch_bytes(self) -> float | None:
        """Return the number of bytes that a fetch may certainly return without being throttled; None if it is not
        limited."""
        return self._managers.fetch.most_at_once(self._user, self._client_id)

    def may_fetch(self, size_bytes: int) -> bool:
        """Return whether a Fetch may return so many bytes; if not, it returns none and the client is throttled.

        A single batch that is larger than the whole window allows is returned, and throttled afterwards. Otherwise the
        client would never get it.
        """
        self.stop_measuring()
        now_ms = self._now_ms()
        user, client_id, managers = self._user, self._client_id, self._managers
        request_ms = managers.request.record(user, client_id, self._us * _PERCENT_OF_US, now_ms)
        taken_ms = managers.fetch.record(user, client_id, size_bytes, now_ms)
        self._set_throttle_ms(request_ms, taken_ms, CONSUMER_BYTE_RATE)
        if not self._throttle_ms:
            return True
        most = managers.fetch.most_at_once(user, client_id)
        if taken_ms and most is not None and size_bytes > most:
            return True
        managers.fetch.take_back(user, client_id, size_bytes, now_ms)
        return False

    def controller_mutation(self, *, strict: bool) -> ControllerMutationQuota | None:
        """Return the quota for creating and deleting partitions; None if it is not limited."""
        manager = self._managers.controller_mutation
        self.mutation = manager.quota_of(self._user, self._client_id, self._now_ms, strict=strict)
        return self.mutation

    # --- the throttle time ----------------------------------------------------------------------------------------

    def finish_measuring(self, *, answered: bool) -> int:
        """Return the throttle time in milliseconds.

        A request without a reply (Produce with acks=0) does not count in the request percentage: `answered` is False.
        """
        if self._throttle_ms is None:
            now_ms = self._now_ms()
            user, client_id, managers = self._user, self._client_id, self._managers
            taken_ms, key = 0, PRODUCER_BYTE_RATE
            if self._api_key == _PRODUCE:
                taken_ms = managers.produce.record(user, client_id, self._size_bytes, now_ms)
            elif self.mutation is not None:
                taken_ms, key = self.mutation.throttle_ms, CONTROLLER_MUTATION_RATE
            request_ms = 0
            if answered and self._api_key not in _EXEMPT:
                request_ms = managers.request.record(user, client_id, self._us * _PERCENT_OF_US, now_ms)
            self._set_throttle_ms(request_ms, taken_ms, key)
        return self._throttle_ms or 0

    def _set_throttle_ms(self, request_ms: int, taken_ms: int, key: str) -> None:
        self._throttle_ms = max(request_ms, taken_ms)
        if self._throttle_ms:
            self._managers.throttled[key if taken_ms > request_ms else REQUEST_PERCENTAGE].count(self._throttle_ms)


class Measured:
    """A handler whose work counts in the quota of its request. It is driven like the handler itself."""

    __slots__ = ("_handler", "_quota")

    def __init__(self, handler: Any, quota: RequestQuota) -> None:
        self._handler = handler
        self._quota = quota
        quota.stop_measuring()

    def send(self, value: None) -> Wait[Any]:
        """Resume the handler until its next wait; StopIteration has the result."""
        quota = self._quota
        quota.start_measuring()
        try:
            wait: Wait[Any] = self._handler.send(value)
        finally:
            quota.stop_measuring()
        return wait

    def close(self) -> None:
        """Close the handler."""
        self._handler.close()
