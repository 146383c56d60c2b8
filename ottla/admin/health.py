"""Whether the broker lives and serves: `/livez`, `/readyz`, and `/v1/status/ready` as Redpanda has it. free

These answer every client, also without the token, because the health check of a container has none. They show counts,
and no names. They answer from the first step of a start on.
"""

from collections.abc import Sequence
from typing import Any, Final

from ottla.admin.fields import NUMBER, TEXT, an_object
from ottla.admin.routes import AdminError, AdminHandler, AdminRequest, AdminResponse, Route
from ottla.broker.health import Health

UNAVAILABLE: Final = 503
RETRY_LATER: Final = (("Retry-After", "1"),)
STARTING: Final = AdminError(UNAVAILABLE, "The broker is starting: GET /readyz shows what is left to do", RETRY_LATER)
"""The reply to any other request before the broker has started."""

_STATUS: Final = an_object({"status": TEXT})
_LOGS: Final = "Partitions that are still to be recovered after a crash."
_COORDINATORS: Final = "Partitions of __transaction_state and __consumer_offsets that are being loaded."
_READINESS: Final = an_object(
    {
        "status": {**TEXT, "description": "ready, or not ready with status 503."},
        "error": {**TEXT, "description": "Why it is not ready."},
        "broker_state": {**TEXT, "description": "Kafka's BrokerState."},
        "remaining_logs_to_recover": {**NUMBER, "description": _LOGS},
        "remaining_bytes_to_recover": {**NUMBER, "description": "The bytes of them that are still to be read, about."},
        "remaining_coordinators_to_load": {**NUMBER, "description": _COORDINATORS},
    }
)


def health_routes(health: Health) -> Sequence[Route]:
    """Return the routes of every broker's admin port that need no token."""

    async def live(request: AdminRequest) -> AdminResponse:
        return AdminResponse(body={"status": "live"})

    async def ready(request: AdminRequest) -> AdminResponse:
        problem = health.problem()
        counts = {"broker_state": health.state.name, **health.remaining()}
        if problem is None:
            return AdminResponse(body={"status": "ready", **counts})
        return AdminResponse(UNAVAILABLE, {"status": "not ready", "error": problem, **counts}, headers=RETRY_LATER)

    async def status(request: AdminRequest) -> AdminResponse:
        if health.problem() is None:
            return AdminResponse(body={"status": "ready"})
        return AdminResponse(UNAVAILABLE, {"status": "booting"}, headers=RETRY_LATER)

    return [
        _route("/livez", live, "Return 200 while the broker runs", _STATUS),
        _route("/readyz", ready, "Show whether the broker serves clients", _READINESS),
        # Redpanda answers 200 to both; a client that checks only the status would take a booting broker for ready.
        _route("/v1/status/ready", status, "Show whether the broker serves clients, for Redpanda's tools", _STATUS),
    ]


def _route(path: str, handler: AdminHandler, summary: str, schema: dict[str, Any]) -> Route:
    return Route("GET", path, handler, summary, response_schema=schema, is_public=True, needs_place=False)
