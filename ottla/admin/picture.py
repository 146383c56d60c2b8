"""Routes of the live picture of a broker. free"""

from collections.abc import Sequence

from ottla.admin.event_stream import EventStreams
from ottla.admin.export import export_route
from ottla.admin.groups import groups_route
from ottla.admin.history import history_routes
from ottla.admin.overview import Overview
from ottla.admin.partitions import partitions_route
from ottla.admin.routes import Route
from ottla.admin.transactions import transactions_route
from ottla.admin.why import why_route
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
