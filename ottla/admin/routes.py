"""Requests to the admin port as values, and the routes to their handlers. pure

A handler is `async def handler(request: AdminRequest) -> AdminResponse`, driven by hand like those of Kafka's APIs: it
suspends on a `turns.Wait` only, awaits `turns.yield_if_due()` during long work, and is discarded when its client has
disconnected. It raises an `AdminError` for a bad request.
"""

from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qsl, unquote

from ottla.broker.turns import Wait
from ottla.suggestion import did_you_mean

JSON: Final = "application/json"
MOST_QUERY_FIELDS: Final = 50
ENTRY: Final = "/"
"""The path of the page that users open. It loads all data by further requests."""

Headers = tuple[tuple[str, str], ...]

_ANY: Final = "{}"


class AdminRequest(NamedTuple):
    """A request: the values of the pattern's names in its path, its query, and its JSON body.

    Each name in `query` occurs once, and is one of the route's `query`.
    """

    method: str
    path: str
    parameters: Mapping[str, str]
    query: Mapping[str, str]
    body: Any


Send = Callable[[bytes], Coroutine[Wait[Any], None, None]]
Stream = Callable[[Send], Coroutine[Wait[Any], None, None]]
"""`async def stream(send)`: `await send(piece)` until the body is complete. The socket has taken a piece when `send`
returns. If the client does not read in time, its connection is closed, and the stream is discarded like a handler."""


def nothing() -> None:
    """Do nothing when the stream ends."""


class AdminResponse(NamedTuple):
    """A reply: bytes are sent unchanged, a function is a stream, anything else is written as JSON. None with status
    204 is no body at all. `ended` is called once after the reply, however it ends."""

    status: int = 200
    body: Any = None
    content_type: str = JSON
    headers: Headers = ()
    ended: Callable[[], None] = nothing


class AdminError(Exception):
    """The refusal of a request: a status from 400 on, and a sentence that its sender can act on."""

    def __init__(self, status: int, message: str, headers: Headers = ()) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.headers = headers

    def response(self) -> AdminResponse:
        """Return the reply to the client."""
        return AdminResponse(self.status, {"error": self.message}, headers=self.headers)


AdminHandler = Callable[[AdminRequest], Coroutine[Wait[Any], None, AdminResponse]]


@dataclass(frozen=True, slots=True)
class Route:
    """A method and a path with their handler: `Route("DELETE", "/v1/faults/{id}", remove, "Remove a fault")`.

    The schemas are JSON Schema (`fields.py` lists the supported part), and the description at `/openapi.json` contains
    them. A handler gets a body that `request_schema` allows, and none without a schema. `query` has the allowed names
    of the query, each with its meaning; others are refused. `status` is that of success. A route that `is_public` is
    answered without the token, so it must show nothing that needs the token.
    """

    method: str
    pattern: str
    handler: AdminHandler
    summary: str
    request_schema: Mapping[str, Any] | None = None
    response_schema: Mapping[str, Any] | None = None
    query: Mapping[str, str] = field(default_factory=dict)
    status: int = 200
    is_public: bool = False
    needs_place: bool = True
    """Whether its requests take one of the places that clients share; health checks do not."""

    @property
    def names(self) -> list[str]:
        """The names in the pattern, in order."""
        return [segment[1:-1] for segment in _segments_of(self.pattern) if _without_name(segment) == _ANY]


class Found(NamedTuple):
    """The route of a request, and the path, parameters and query of its target."""

    route: Route
    path: str
    parameters: Mapping[str, str]
    query: Mapping[str, str]


class Router:
    """The routes of one port. A literal segment of a pattern takes precedence over a named one."""

    def __init__(self, routes: Sequence[Route]) -> None:
        self.serve(routes)

    def serve(self, routes: Sequence[Route], elsewhere: AdminError | None = None) -> None:
        """Replace the routes by these. Any other path is refused with `elsewhere`.

        ValueError for two routes of one method that match the same paths.
        """
        self.routes = tuple(routes)
        self._elsewhere = elsewhere
        # By the pattern without its names.
        self._methods: dict[tuple[str, ...], dict[str, Route]] = {}
        for route in routes:
            methods = self._methods.setdefault(tuple(map(_without_name, _segments_of(route.pattern))), {})
            if route.method in methods:
                raise ValueError(f"{route.method} {route.pattern} occurs twice")
            methods[route.method] = route
        self._patterns = sorted(self._methods, key=lambda pattern: [segment == _ANY for segment in pattern])

    def match(self, method: str, target: str) -> Found:
        """Return the route for a request line; HEAD uses the route of GET. AdminError 400, 404 or 405."""
        path, _, query = target.partition("?")
        if not path.startswith("/"):
            raise AdminError(400, "The path must begin with /")
        segments = [_decode(segment) for segment in _segments_of(path)]
        pattern = self._pattern_of(segments)
        if pattern is None:
            if self._elsewhere is not None:
                raise self._elsewhere.with_traceback(None)  # otherwise its traceback grows each time it is raised
            raise AdminError(404, f"There is nothing at {path}: GET /openapi.json lists the paths")
        methods = self._methods[pattern]
        route = methods.get("GET" if method == "HEAD" else method)
        if route is None:
            allowed = ", ".join(sorted({*methods, *({"HEAD"} if "GET" in methods else ())}))
            raise AdminError(405, f"{path} takes {allowed}, not {method}", (("Allow", allowed),))
        named = zip(_segments_of(route.pattern), segments, strict=True)
        parameters = {name[1:-1]: segment for name, segment in named if _without_name(name) == _ANY}
        return Found(route, path, parameters, _read_query(query, route))

    def is_public(self, method: str, target: str) -> bool:
        """Return whether the route of this request needs no token."""
        segments = [unquote(segment) for segment in _segments_of(target.partition("?")[0])]
        route = self._methods.get(self._pattern_of(segments) or (), {}).get("GET" if method == "HEAD" else method)
        return route is not None and route.is_public

    def _pattern_of(self, segments: Sequence[str]) -> tuple[str, ...] | None:
        return next((pattern for pattern in self._patterns if _matches(pattern, segments)), None)


def _segments_of(path: str) -> list[str]:
    return path[1:].split("/")


def _without_name(segment: str) -> str:
    return _ANY if segment.startswith("{") else segment


def _matches(pattern: Sequence[str], segments: Sequence[str]) -> bool:
    return len(pattern) == len(segments) and all(
        given == expected or (expected == _ANY and given != "")
        for expected, given in zip(pattern, segments, strict=True)
    )


def _decode(segment: str) -> str:
    try:
        return unquote(segment, errors="strict")
    except UnicodeDecodeError:
        raise AdminError(400, "The path has %-escapes that are not UTF-8") from None


def _read_query(query: str, route: Route) -> dict[str, str]:
    try:
        pairs = parse_qsl(query, keep_blank_values=True, errors="strict", max_num_fields=MOST_QUERY_FIELDS)
    except ValueError as error:  # also for bytes that are not UTF-8
        raise AdminError(400, f"The query cannot be read: {error}") from None
    found: dict[str, str] = {}
    for name, value in pairs:
        if name not in route.query:
            raise AdminError(
                400, f"The query has an unknown parameter {name!r}: {did_you_mean(name, list(route.query))}"
            )
        if name in found:
            raise AdminError(400, f"The query has the parameter {name!r} twice")
        found[name] = value
    return found
