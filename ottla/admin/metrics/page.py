"""`GET /metrics`: all counts of the broker, collected when Prometheus sends the request. free

A page is sent while it is written, and writing yields to other work, so its numbers are from a span of some
milliseconds. Its size is bounded, whatever clients name their topics and groups: the excess is left out and counted.
"""

from collections import Counter
from typing import Final

from ottla.admin.metrics import families as f
from ottla.admin.metrics.exposition import CONTENT_TYPE, Exposition, labels
from ottla.admin.metrics.groups import Groups
from ottla.admin.metrics.partitions import MOST_PARTITIONS, Ages, Partitions
from ottla.admin.metrics.recent import Meters, Recent
from ottla.admin.metrics.whole import write_broker, write_loop, write_requests, write_transactions
from ottla.admin.routes import AdminRequest, AdminResponse, Route, Send
from ottla.broker.api.context import Broker
from ottla.broker.costs import LOOKUP_US
from ottla.broker.ports.clock import Clock

AT_ONCE: Final = 1_000
"""Connections that are counted before yielding to other work."""


class MetricsPage:
    """The metrics page of one broker, with its state between two scrapes. `clock` is the machine's."""

    def __init__(self, broker: Broker, clock: Clock, started_ms: int) -> None:
        self._broker = broker
        self._clock = clock
        self._started_ms = started_ms
        self._recent: Recent | None = None
        self._meters = Meters(3 * MOST_PARTITIONS)
        self._ages = Ages()

    @property
    def route(self) -> Route:
        """Return the route."""
        return Route("GET", "/metrics", self._show, "All metrics, as text for Prometheus")

    async def _show(self, request: AdminRequest) -> AdminResponse:
        return AdminResponse(body=self._write, content_type=CONTENT_TYPE)

    async def _write(self, send: Send) -> None:
        broker, at_ms = self._broker, self._clock.monotonic_ms()
        page = Exposition(broker.turns, send)
        if self._recent is None:
            self._recent = Recent(broker.metrics, at_ms)
        self._recent.begin_scrape(at_ms)
        partitions, groups = Partitions(), Groups()
        await partitions.collect(broker)
        await groups.collect(broker)
        await write_broker(page, broker, partitions, await self._connections())
        await partitions.write(page, broker, self._ages, self._meters, at_ms)
        await groups.write(page, broker)
        left_out = (
            ("partitions", partitions.left_out),
            ("groups", groups.left_out),
            ("offsets", groups.offsets_left_out),
        )
        await page.write(f.LEFT_OUT, ((labels(of=name), count) for name, count in left_out))
        await write_transactions(page, broker)
        await write_requests(page, broker, self._recent, at_ms)
        await write_loop(page, broker, self._started_ms)
        await page.finish()

    async def _connections(self) -> Counter[str]:
        """Count the connections by listener."""
        turns, found = self._broker.turns, Counter[str]()
        for done, connection in enumerate([*self._broker.metrics.connections]):
            found[connection.session.listener_name] += 1
            if not done % AT_ONCE:
                await turns.spend(AT_ONCE * LOOKUP_US)
        return found
