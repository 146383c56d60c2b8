"""An admin port: its sockets and its connections. shell"""

import logging
from collections.abc import Callable, Sequence
from typing import Final

from ottla.admin.about import with_description
from ottla.admin.access import Access
from ottla.admin.http import HttpConnection
from ottla.admin.routes import AdminError, Route, Router
from ottla.admin.settings import AdminSettings, address_text
from ottla.broker.costs import CONNECTION_US
from ottla.broker.log_limiter import LogLimiter, describe_repeats
from ottla.broker.ports.clock import Clock
from ottla.broker.ports.descriptors import descriptor_limit, shortage
from ottla.broker.ports.listener import Listener
from ottla.broker.ports.network import LoopNetwork, Sockets
from ottla.broker.turns import Turns

log = logging.getLogger(__name__)

MOST_PLACES: Final = 100
FEWEST_PLACES: Final = 8
NEWCOMER_MS: Final = 100.0
"""A new connection has this long to send a request before the next one may replace it."""
UNREAD_MS: Final = 1_000.0
"""A reply that its client has not read for this long is cut off when another connection needs its place."""
WAIT_MS: Final = 5.0
"""Time until the port checks again whether it can accept a connection."""
DESCRIPTORS_EACH: Final = 16
"""The port uses at most one of this many file descriptors of the process, because the logs need them too."""


class AdminPort:
    """The admin port: `bind` it, set its routes with `answer`, then `listen`. `answer` may set other routes later."""

    def __init__(self, settings: AdminSettings, network: LoopNetwork, clock: Clock) -> None:
        """Create a port that is not bound yet. `clock` is the real one, also where the broker's is simulated."""
        self._settings = settings
        self._network = network
        self._clock = clock
        # Connections without a place, which may send health checks only, and those with a place; each with its address.
        self._at_door: dict[HttpConnection, str] = {}
        self._placed: dict[HttpConnection, str] = {}
        self._sockets: Sockets = []
        self._listener: Listener | None = None
        self._limiter = LogLimiter()
        self._most = min(MOST_PLACES, max(FEWEST_PLACES, descriptor_limit() // DESCRIPTORS_EACH))
        self._most_at_door = self._most // 2
        self._router = Router(())
        self._turns: Turns
        self._access = Access(settings.host, settings.token)

    async def bind(self) -> None:
        """Bind the port. Clients that connect wait until it listens. Raises OSError."""
        host, port = self._settings.host, self._settings.port
        try:
            self._sockets = await self._network.bind(host, port)
        except OSError as error:
            raise OSError(f"Cannot listen on {address_text(host, port)}: {error.strerror}") from error

    def answer(self, routes: Sequence[Route], elsewhere: AdminError | None = None) -> None:
        """Serve these routes from now on, and a description of them. With `elsewhere`, serve these alone, and refuse
        any other path with that error."""
        if elsewhere is None:
            routes = with_description(routes, has_token=self._settings.token is not None)
        self._router.serve(routes, elsewhere)

    def listen(self, turns: Turns) -> None:
        """Accept connections, and serve them in events of these turns."""
        self._turns = turns
        self._listener = self._network.accept(self._sockets, self)
        log.info("The admin port is %s", self.address)

    @property
    def address(self) -> str:
        """The port's HTTP address; the loopback address if the port is bound to an empty host."""
        return address_text(self._settings.host or "127.0.0.1", self._network.port_of(self._sockets))

    def close(self) -> None:
        """Stop listening, and discard requests in progress."""
        if self._listener is not None:
            self._listener.close()
        else:
            self._network.close(self._sockets)
        for connection in [*self._at_door, *self._placed]:
            connection.close()

    # The methods that the listener calls.

    def wait_ms(self) -> float:
        """Return 0 if a connection may be accepted, else the time until the next check. Clients wait in the queue."""
        at_door = self._at_door
        if len(at_door) < self._most_at_door:
            return 0.0
        before_ms = self._clock.monotonic_ms() - NEWCOMER_MS
        known = [each for each in at_door if each.came_ms <= before_ms]
        return 0.0 if _close_one(at_door, known, 0.0) else WAIT_MS

    def accept(self, ip: str, port: int) -> HttpConnection:
        """Return the protocol of a new connection from this address."""
        turns = self._turns
        turns.charge(CONNECTION_US)
        connection = HttpConnection(
            self._router, self._access, turns, self._clock, self._lost, self._log_refusal, self._take_place
        )
        self._at_door[connection] = ip
        return connection

    def _take_place(self, connection: HttpConnection) -> bool:
        """Give a connection a place for requests; return whether it has one. An address may have half of the places.
        If none is free, it replaces a connection that is idle, or whose client does not read.
        """
        if connection in self._placed:
            return True
        ip, placed = self._at_door.get(connection, ""), self._placed
        of_address = [each for each, address in placed.items() if address == ip]
        if len(of_address) >= self._most // 2:
            free = _close_one(placed, of_address, UNREAD_MS)
        else:
            free = len(placed) < self._most or _close_one(placed, list(placed), UNREAD_MS)
        if not free:
            self._log(
                "requests", f"{connection.peer}: all of the {self._most} places are in use, or the half for one address"
            )
            return False
        self._at_door.pop(connection, None)
        placed[connection] = ip
        return True

    def _lost(self, connection: HttpConnection) -> None:
        self._at_door.pop(connection, None)
        self._placed.pop(connection, None)

    def report_failure(self, error: OSError) -> None:
        """Log that no connection could be accepted."""
        self._log("connections", str(shortage(error) or error))

    def defer(self, go_on: Callable[[], None]) -> bool:
        """Return False if another connection may be accepted at once; else call `go_on` after other work."""
        turns = self._turns
        if turns.is_spent:
            turns.run_later(go_on)
            return True
        return False

    def _log_refusal(self, peer: str, reason: str) -> None:
        self._log("requests", f"{peer}: {reason}")

    def _log(self, what: str, reason: str) -> None:
        times = self._limiter.count(what, self._clock.monotonic_ms())
        if times:
            log.warning(
                "Refused %s to the admin port, the last one: %s%s",
                what,
                reason,
                describe_repeats(times),
            )


def _close_one(places: dict[HttpConnection, str], some: Sequence[HttpConnection], unread_ms: float) -> bool:
    """Close the connection of `some` that has been silent longest among the idle ones, else among those with a reply
    unread for this long. Return False if there is none."""
    silent = [each for each in some if each.may_be_closed]
    unread = [each for each in some if each.has_unread and each.unread_ms >= unread_ms]
    if not silent and not unread:
        return False
    oldest = min(silent or unread, key=lambda connection: connection.arrived_ms)
    del places[oldest]
    oldest.close()
    return True
