"""What the admin port says of the broker itself: `/v1/broker` and `/openapi.json`. free"""

from collections.abc import Sequence
from typing import Any, Final

from ottla import __version__
from ottla.broker.admin.openapi import described
from ottla.broker.admin.routes import AdminRequest, AdminResponse, Route
from ottla.broker.api.context import Broker

_TEXT: Final = {"type": "string"}
_BROKER: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "version": _TEXT,
        "node_id": {"type": "integer"},
        "cluster_id": _TEXT,
        "listeners": {
            "type": "array",
            "description": "The addresses that clients are given, a listener's each.",
            "items": {"type": "object", "properties": {"name": _TEXT, "host": _TEXT, "port": {"type": "integer"}}},
        },
        "features": {
            "type": "object",
            "description": "Levels in force, such as transaction.version.",
            "additionalProperties": {"type": "integer"},
        },
        "started_ms": {"type": "integer", "description": "Milliseconds since 1970."},
        "data_dir": _TEXT,
    },
}


def own_routes(broker: Broker, started_ms: int, data_dir: str) -> Sequence[Route]:
    """The routes that every admin port has, beside its description."""

    async def show(request: AdminRequest) -> AdminResponse:
        listeners = [
            {"name": name, "host": endpoint.host, "port": endpoint.port} for name, endpoint in broker.endpoints.items()
        ]
        return AdminResponse(
            body={
                "version": __version__,
                "node_id": broker.cluster.node_id,
                "cluster_id": broker.logs.properties.cluster_id,
                "listeners": listeners,
                "features": dict(broker.cluster.image.features),
                "started_ms": started_ms,
                "data_dir": data_dir,
            }
        )

    return [Route("GET", "/v1/broker", show, "Say which broker this is", response_schema=_BROKER)]


def with_description(routes: Sequence[Route], *, has_token: bool) -> Sequence[Route]:
    """These routes, and one that describes all of them."""

    async def describe(request: AdminRequest) -> AdminResponse:
        return AdminResponse(body=described(everything, __version__, has_token=has_token))

    everything = [*routes, Route("GET", "/openapi.json", describe, "Describe this port, as OpenAPI 3.1")]
    return everything
