"""The admin port of a broker, from the start of the broker to its end. shell"""

import logging
from collections.abc import Sequence
from pathlib import Path

from ottla.admin.about import own_routes
from ottla.admin.event_stream import EventStreams
from ottla.admin.export import export_route
from ottla.admin.groups import groups_route
from ottla.admin.health import STARTING, health_routes
from ottla.admin.history import history_routes
from ottla.admin.metrics.page import MetricsPage
from ottla.admin.overview import Overview
from ottla.admin.page_files import page_routes
from ottla.admin.partitions import partitions_route
from ottla.admin.port import AdminPort
from ottla.admin.routes import Route
from ottla.admin.settings import AdminSettings
from ottla.admin.topics.records import records_route
from ottla.admin.topics.topics import topic_route, topics_route
from ottla.admin.transactions import transactions_route
from ottla.admin.why import why_route
from ottla.broker.api.context import Broker
from ottla.broker.health import Health
from ottla.broker.ports.clock import Clock
from ottla.broker.ports.network import LoopNetwork
from ottla.broker.turns import Turns

log = logging.getLogger(__name__)


class BrokerAdmin:
    """`AdminServer` of `ottla.broker.server`."""

    def __init__(self, settings: AdminSettings) -> None:
        self._settings = settings
        self._health: Health
        self._clock: Clock
        self._port: AdminPort | None = None

    async def start(self, network: LoopNetwork, clock: Clock, turns: Turns, health: Health) -> None:
        """Bind the port and serve only the health pages. Raises OSError."""
        self._clock, self._health = clock, health
        port = AdminPort(self._settings, network, clock)
        await port.bind()
        port.answer(health_routes(health), STARTING)
        port.listen(turns)
        self._port = port

    def serve(self, broker: Broker, started_ms: int) -> None:
        """Serve all pages of a broker that has opened its logs."""
        settings, clock = self._settings, self._clock
        if broker.authorizer is not None and settings.token is None:
            log.warning("The admin port shows every user of this machine what ACLs protect: set --admin-token-file")
        data_dir = str(Path(broker.config.log_dirs).absolute())
        about = own_routes(broker, clock, started_ms, data_dir)
        metrics = MetricsPage(broker, clock, started_ms)
        health = health_routes(self._health)
        picture = picture_routes(broker, clock, has_token=settings.token is not None)
        assert self._port is not None
        self._port.answer([*health, *about, metrics.route, *page_routes(), *picture, *settings.routes(broker)])

    @property
    def address(self) -> str | None:
        """The port's HTTP address, None before the start."""
        return None if self._port is None else self._port.address

    def close(self) -> None:
        """Stop listening and close all connections."""
        if self._port is not None:
            self._port.close()


def picture_routes(broker: Broker, clock: Clock, *, has_token: bool = False) -> Sequence[Route]:
    """Return the routes of the live picture. From now on the broker keeps its events. `clock` is the real one.

    `has_token`: no client without the token gets an answer.
    """
    events = broker.watch()
    overview = Overview(broker, events, clock)
    history, refusals = history_routes(broker, events)
    lists = {
        "transactions": transactions_route(broker, events),
        "partitions": partitions_route(broker),
        "topics": topics_route(broker),
        "groups": groups_route(broker),
        "refusals": refusals,
    }
    return [
        overview.route(),
        *lists.values(),
        topic_route(broker),
        records_route(broker, _reason_to_withhold(broker, has_token=has_token)),
        why_route(broker),
        history,
        EventStreams(broker, events, clock, overview).route(),
        export_route(broker, events, overview, lists),
    ]


def _reason_to_withhold(broker: Broker, *, has_token: bool) -> str | None:
    """Return why the port shows no keys, values and headers; None if it shows them."""
    if not broker.config.admin_show_records:
        return "admin.show.records is false"
    if broker.authorizer is not None and not has_token:
        return "the broker has ACLs and the admin port has no token: set --admin-token-file"
    return None
