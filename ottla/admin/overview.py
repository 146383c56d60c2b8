"""`GET /v1/overview`: a broker at a glance. free"""

from typing import Any, Final

from ottla.admin.fields import NUMBER, NUMBER_OR_NULL, TEXT, an_object
from ottla.admin.recent import RATES, SAMPLE_US, TIMED, Recent
from ottla.admin.routes import AdminRequest, AdminResponse, Route
from ottla.broker.api.context import Broker
from ottla.broker.cluster.features import TRANSACTION_FEATURE
from ottla.broker.costs import LOOKUP_US
from ottla.broker.events import Events, Second
from ottla.broker.ports.clock import Clock
from ottla.broker.ports.machine import resident_bytes

LOGS_EVERY_MS: Final = 10_000.0

_FIGURE: Final = {"type": ["number", "null"]}
_BUCKET: Final = ("at_ms", "committed", "aborted", "open", "fenced", "left_out")
BUCKET_SCHEMA: Final = an_object(
    dict.fromkeys(_BUCKET, NUMBER),
    description="One second. left_out is the number of its events that were not kept.",
)
_OVER: Final = "The period of the rates and durations: ten seconds while a client reads them."
_LATENCY: Final = "From request to reply, waits included except those of Fetch for data; null without such a request."
_LOGS: Final = "Bytes of the segments of open logs, at most ten seconds old."
_DISK: Final = {
    "bytes": {**NUMBER, "description": _LOGS},
    "sync_p99_ms": _FIGURE,
    "offline": {"type": "boolean"},
}
SCHEMA: Final = an_object(
    {
        "now_ms": {**NUMBER, "description": "The broker's time, in milliseconds since 1970."},
        "started_ms": NUMBER,
        "node_id": NUMBER,
        "cluster_id": TEXT,
        "transaction_version": NUMBER,
        "over_ms": {**NUMBER, "description": _OVER},
        "rates": an_object({name: {"type": "number"} for name in RATES}, description="Per second."),
        "latency_ms": an_object(
            {name: an_object({"p50": _FIGURE, "p99": _FIGURE}) for name in TIMED}, description=_LATENCY
        ),
        "loop": an_object({"turn_p99_ms": _FIGURE}),
        "disk": an_object(_DISK),
        "memory_bytes": {**NUMBER_OR_NULL, "description": "Resident memory; null where the system does not report it."},
        "connections": NUMBER,
        "open_transactions": NUMBER,
        "oldest_open_ms": {**NUMBER_OR_NULL, "description": "How long the oldest one has been open."},
        "bucket": {**BUCKET_SCHEMA, "type": ["object", "null"]},
    }
)


class Overview:
    """The overview of a broker. `clock` is the real one, which measures rates."""

    def __init__(self, broker: Broker, events: Events, clock: Clock) -> None:
        self._broker = broker
        self._events = events
        self._started_ms = broker.clock.now_ms()
        self._clock = clock
        self._recent = Recent(broker.metrics, clock.monotonic_ms)
        self._logs_bytes = 0
        self._summed_ms: float | None = None

    def route(self) -> Route:
        """Return the route."""

        async def show(request: AdminRequest) -> AdminResponse:
            return AdminResponse(body=await self.build())

        return Route("GET", "/v1/overview", show, "Show this broker at a glance", response_schema=SCHEMA)

    async def build(self) -> dict[str, Any]:
        """Return the body of the reply: short, however large the broker's state is."""
        await self._sum_up_logs()
        broker = self._broker
        broker.turns.charge(SAMPLE_US)
        now_ms, began_ms = broker.clock.now_ms(), oldest_start_ms(broker)
        lately, second = self._recent.compute(), self._events.last_whole_second()
        return {
            "now_ms": now_ms,
            "started_ms": self._started_ms,
            "node_id": broker.cluster.node_id,
            "cluster_id": broker.logs.properties.cluster_id,
            "transaction_version": broker.cluster.feature(TRANSACTION_FEATURE),
            "over_ms": lately["over_ms"],
            "rates": lately["rates"],
            "latency_ms": lately["latency_ms"],
            "loop": {"turn_p99_ms": lately["turn_p99_ms"]},
            "disk": {
                "bytes": self._logs_bytes,
                "sync_p99_ms": lately["sync_p99_ms"],
                "offline": broker.logs.offline is not None,
            },
            "memory_bytes": resident_bytes() or None,
            "connections": len(broker.metrics.connections),
            "open_transactions": broker.count_open(),
            "oldest_open_ms": None if began_ms is None else max(0, now_ms - began_ms),
            "bucket": None if second is None else bucket(second),
        }

    async def _sum_up_logs(self) -> None:
        """Sum up the sizes of the open logs if the last sum is ten seconds old."""
        now_ms = self._clock.monotonic_ms()
        if self._summed_ms is not None and now_ms - self._summed_ms < LOGS_EVERY_MS:
            return
        self._summed_ms, total = now_ms, 0
        for partition in list(self._broker.cluster.partitions()):
            await self._broker.turns.spend(2 * LOOKUP_US)
            total += partition.log.size_bytes
        self._logs_bytes = total


def oldest_start_ms(broker: Broker) -> int | None:
    """Return the start of the oldest open transaction in ms since 1970; each shard has them ordered by start."""
    starts = []
    for shard in broker.transaction_shards():
        broker.turns.charge(LOOKUP_US)
        first = next(iter(shard.open), None)
        if first is not None:
            starts.append(shard.states[first].start_ms)
    return min(starts, default=None)


def bucket(second: Second) -> dict[str, int]:
    """Return a second as JSON fields."""
    return {name: getattr(second, name) for name in _BUCKET}
