"""Routes of the live picture of a broker. free"""

from collections.abc import Sequence

from ottla.broker.admin.event_stream import EventStreams
from ottla.broker.admin.export import export_route
from ottla.broker.admin.groups import groups_route
from ottla.broker.admin.history import history_routes
from ottla.broker.admin.overview import Overview
from ottla.broker.admin.partitions import partitions_route
from ottla.broker.admin.routes import Route
from ottla.broker.admin.transactions import transactions_route
from ottla.broker.admin.why import why_route
from ottla.broker.api.context import Broker
from ottla.broker.ports.clock import Clock


def picture_routes(broker: Broker, clock: Clock) -> Sequence[Route]:
    """Return the routes. From now on the broker keeps its events. `clock` is the real one."""
    events = broker.watch()
    overview = Overview(broker, events, clock)
    history, refusals = history_routes(broker, events)
    lists = {
        "transactions": transactions_route(broker, events),
        "partitions": partitions_route(broker),
        "groups": groups_route(broker),
        "refusals": refusals,
    }
    return [
        overview.route(),
        *lists.values(),
        why_route(broker),
        history,
        EventStreams(broker, events, clock, overview).route(),
        export_route(broker, events, overview, lists),
    ]
