"""Routes of every broker's admin port: its identity, its log levels, request traces, `/openapi.json`. free"""

from collections.abc import Sequence
from typing import Final

from ottla import __version__
from ottla.admin.fields import NUMBER, TEXT, a_list, an_object
from ottla.admin.loglevel import LogLevels
from ottla.admin.openapi import make_document
from ottla.admin.routes import AdminError, AdminRequest, AdminResponse, Route
from ottla.admin.trace.listening import Trace
from ottla.broker.api.context import Broker
from ottla.broker.ports.clock import Clock

_BROKER: Final = an_object(
    {
        "version": TEXT,
        "node_id": NUMBER,
        "cluster_id": TEXT,
        "listeners": a_list(
            an_object({"name": TEXT, "host": TEXT, "port": NUMBER}),
            description="The advertised address of each listener.",
        ),
        "features": {
            "type": "object",
            "description": "Levels in force, such as transaction.version.",
            "additionalProperties": NUMBER,
        },
        "started_ms": {**NUMBER, "description": "Milliseconds since 1970."},
        "data_dir": TEXT,
    }
)


_PRODUCER_IDS: Final = an_object(
    {
        "source": {**TEXT, "description": "Where blocks of ids are counted: metadata or zookeeper."},
        "next_producer_id": {**NUMBER, "description": "The first id after all blocks that the metadata log knows."},
        "problem": {**TEXT, "description": "Why there are no new blocks now; empty if there are."},
        "brokers": a_list(an_object({"broker": NUMBER, "unused": NUMBER})),
    }
)
_THAWED: Final = an_object({"thawed": {"type": "boolean"}})


def own_routes(broker: Broker, clock: Clock, started_ms: int, data_dir: str) -> Sequence[Route]:
    """Return the routes of every broker's admin port, without its description; `clock` is the machine's."""

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

    async def show_ids(request: AdminRequest) -> AdminResponse:
        blocks = broker.id_blocks
        return AdminResponse(
            body={
                "source": "metadata" if blocks is None else "zookeeper",
                "next_producer_id": broker.cluster.controller.next_producer_id,
                "problem": "" if blocks is None else blocks.problem,
                "brokers": [
                    {"broker": each.cluster.node_id, "unused": each.cluster.producer_id_manager.unused_ids}
                    for each in broker.brokers
                ],
            }
        )

    async def thaw(request: AdminRequest) -> AdminResponse:
        if not broker.thaw():
            raise AdminError(409, "this broker is not frozen: it was started without --as-pulled, or has thawed")
        return AdminResponse(body={"thawed": True})

    return [
        Route("POST", "/v1/thaw", thaw, "End the frozen state of --as-pulled", response_schema=_THAWED),
        Route("GET", "/v1/producer-ids", show_ids, "Show the unused producer ids", response_schema=_PRODUCER_IDS),
        Route("GET", "/v1/broker", show, "Show the identity of this broker", response_schema=_BROKER),
        *LogLevels(clock).routes,
        *Trace(broker, clock).routes,
    ]


def with_description(routes: Sequence[Route], *, has_token: bool) -> Sequence[Route]:
    """Return these routes, and one that describes all of them."""

    async def describe(request: AdminRequest) -> AdminResponse:
        return AdminResponse(body=make_document(everything, __version__, has_token=has_token))

    everything = [*routes, Route("GET", "/openapi.json", describe, "Describe this port, as OpenAPI 3.1")]
    return everything
