"""`GET /v1/export`: the live picture of some minutes as one page that needs no broker and no network. free"""

from collections.abc import Mapping

from ottla.admin.history import WINDOW_QUERY, window, write_history
from ottla.admin.listing import MOST_ROWS, encode_json
from ottla.admin.overview import Overview
from ottla.admin.page_files import HTML, escape_json, exported_page
from ottla.admin.routes import AdminRequest, AdminResponse, Route, Send
from ottla.broker.api.context import Broker
from ottla.broker.costs import COPY_BYTE_US
from ottla.broker.events import Events


def export_route(broker: Broker, events: Events, overview: Overview, lists: Mapping[str, Route]) -> Route:
    """Return the route. `lists` are the routes whose first rows the page has, by the names of their data."""
    before, rest = exported_page()  # as long as two turns of the event loop

    async def export(request: AdminRequest) -> AdminResponse:
        from_ms, to_ms = window(broker, request)
        now_ms = broker.clock.now_ms()

        async def stream(send: Send) -> None:
            async def embed(piece: bytes) -> None:
                broker.turns.charge(2 * len(piece) * COPY_BYTE_US)
                await send(escape_json(piece))

            await send(before)
            seen = encode_json(await overview.build())
            await embed(b'{"exported_ms":%d,"overview":%b,"history":' % (now_ms, seen))
            await write_history(broker, events, from_ms, to_ms, embed)
            for name, route in lists.items():
                answer = await route.handler(_asking(route))
                await embed(b',"%b":' % name.encode())
                await embed(answer.body)
            await send(b"}" + rest)

        name = f'attachment; filename="ottla-{now_ms}.html"'
        return AdminResponse(body=stream, content_type=HTML, headers=(("Content-Disposition", name),))

    summary = "Export the page with its data as one HTML file, which needs no broker"
    return Route("GET", "/v1/export", export, summary, query=WINDOW_QUERY)


def _asking(route: Route) -> AdminRequest:
    query = {"limit": str(MOST_ROWS)} if "limit" in route.query else {}
    return AdminRequest(route.method, route.pattern, {}, query, None)
