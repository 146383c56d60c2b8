"""The admin port of a proxy: its faults, its journal and its connections, for programs in any language. shell"""

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

from ottla import __version__
from ottla.admin.fields import NUMBER, TEXT, a_list, an_object
from ottla.admin.loglevel import LogLevels
from ottla.admin.port import AdminPort
from ottla.admin.routes import AdminRequest, AdminResponse, Route
from ottla.admin.settings import AdminSettings
from ottla.broker.ports.clock import LoopClock
from ottla.broker.ports.network import LoopNetwork
from ottla.broker.turns import Turns
from ottla.printable import host_and_port
from ottla.testkit.control.fault_routes import fault_routes
from ottla.testkit.control.journal_routes import journal_routes
from ottla.testkit.proxying.proxy import Proxy

log = logging.getLogger(__name__)

MOST_AWAY_MS: Final = 86_400_000
_PROXY: Final = an_object(
    {
        "version": TEXT,
        "upstream": {**TEXT, "description": "The address of the cluster that the proxy forwards to."},
        "bootstrap": {**TEXT, "description": "The bootstrap address for clients on this machine."},
        "brokers": a_list(
            an_object({"address": TEXT, "port": NUMBER}),
            description="The port of the proxy for each address of the cluster.",
        ),
        "connections": {**NUMBER, "description": "The number of accepted connections."},
        "requests": {
            "type": "object",
            "description": "The number of requests by Kafka's name of the API.",
            "additionalProperties": NUMBER,
        },
    }
)
_HANG_UP: Final = an_object({"for_ms": {"type": "number", "minimum": 0, "maximum": MOST_AWAY_MS}})


async def open_admin(proxy: Proxy, settings: AdminSettings) -> AdminPort:
    """Open the admin port on the proxy's event loop. Raises OSError if the port is not available."""
    loop = asyncio.get_running_loop()
    clock = LoopClock(loop)
    turns = Turns(clock.next_turn, _log_bug)
    clock.enter = turns.event
    port = AdminPort(settings, LoopNetwork(loop), clock)
    await port.bind()
    steering = [*fault_routes(proxy.plan, turns, clock), *journal_routes(proxy.journal, turns)]
    port.answer([*_own_routes(proxy), *steering, *LogLevels(clock).routes])
    port.listen(turns)
    return port


def _own_routes(proxy: Proxy) -> Sequence[Route]:
    async def show(request: AdminRequest) -> AdminResponse:
        return AdminResponse(
            body={
                "version": __version__,
                "upstream": host_and_port(*proxy.upstream),
                "bootstrap": proxy.bootstrap,
                "brokers": [
                    {"address": host_and_port(*address), "port": port} for address, port in proxy.brokers.items()
                ],
                "connections": proxy.connections,
                "requests": dict(proxy.requests),
            }
        )

    async def hang_up(request: AdminRequest) -> AdminResponse:
        proxy.hang_up(request.body.get("for_ms", 0) / 1000)
        return await show(request)

    return (
        Route("GET", "/v1/proxy", show, "Show the addresses and counters of the proxy", response_schema=_PROXY),
        Route(
            "POST",
            "/v1/proxy/hang-up",
            hang_up,
            "Close all client connections, and new ones at once until `for_ms` have passed",
            _HANG_UP,
            _PROXY,
        ),
    )


def _log_bug(error: Exception) -> None:
    log.error("A step on the admin port failed", exc_info=error)
