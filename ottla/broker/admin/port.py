"""An admin port: its sockets, and the connections that come in there. shell"""

import logging
from collections.abc import Callable, Sequence
from typing import Final

from ottla.broker.admin.about import with_description
from ottla.broker.admin.access import Access
from ottla.broker.admin.http import HttpConnection
from ottla.broker.admin.routes import AdminError, Route, Router
from ottla.broker.admin.settings import AdminSettings, address_text
from ottla.broker.costs import CONNECTION_US
from ottla.broker.log_limiter import LogLimiter
from ottla.broker.ports.clock import Clock
from ottla.broker.ports.descriptors import descriptor_limit, shortage
from ottla.broker.ports.listener import Listener
from ottla.broker.ports.network import LoopNetwork, Sockets
from ottla.broker.turns import Turns

log = logging.getLogger(__name__)

MOST_PLACES: Final = 100
FEWEST_PLACES: Final = 8
NEWCOMER_MS: Final = 100.0
"""A new connection has so long to ask something before it gives way to the next."""
UNREAD_MS: Final = 1_000.0
"""A reply that nobody has read for so long is cut off when another needs its place."""
WAIT_MS: Final = 5.0
"""Until it is looked again for a place at the door."""
DESCRIPTORS_EACH: Final = 16
"""Of so many descriptors that the system allows, one is for a connection of this port, as the logs need theirs."""


class AdminPort:
    """A port that is bound, is told what to answer, and listens; it may have to answer more later."""

    def __init__(self, settings: AdminSettings, network: LoopNetwork, clock: Clock) -> None:
        """`clock` is the real one, also where the broker's is moved."""
        self._settings = settings
        self._network = network
        self._clock = clock
        # Who has asked nothing but for the broker's health, and who has a place, each with its address.
        self._at_door: dict[HttpConnection, str] = {}
        self._placed: dict[HttpConnection, str] = {}
        self._sockets: Sockets = []
        self._listener: Listener | None = None
        self._limiters = {"connections": LogLimiter(), "requests": LogLimiter()}
        self._most = min(MOST_PLACES, max(FEWEST_PLACES, descriptor_limit() // DESCRIPTORS_EACH))
        self._most_at_door = self._most // 2
        self._router = Router(())
        self._turns: Turns
        self._access = Access(settings.host, settings.token)

    async def bind(self) -> None:
        """Take the port: who comes waits until it listens. OSError if it cannot be had."""
        host, port = self._settings.host, self._settings.port
        try:
            self._sockets = await self._network.bind(host, port)
        except OSError as error:
            raise OSError(f"Cannot listen on {address_text(host, port)}: {error.strerror}") from error

    def answer(self, routes: Sequence[Route], elsewhere: AdminError | None = None) -> None:
        """Have these routes from now on, and a description of them; or, with `elsewhere`, these alone, and refuse any
        other path so."""
        if elsewhere is None:
            routes = with_description(routes, has_token=self._settings.token is not None)
        self._router.serve(routes, elsewhere)

    def listen(self, turns: Turns) -> None:
        """Let them come in, and answer in events of these turns."""
        self._turns = turns
        self._listener = self._network.accept(self._sockets, self)
        log.info("The admin port is %s", self.address)

    @property
    def address(self) -> str:
        """Where it is, for a client on this machine if that is possible."""
        return address_text(self._settings.host or "127.0.0.1", self._network.port_of(self._sockets))

    def close(self) -> None:
        """Listen no more, and discard what is in progress."""
        if self._listener is not None:
            self._listener.close()
        else:
            self._network.close(self._sockets)
        for connection in [*self._at_door, *self._placed]:
            connection.close()

    # What the listener asks of a door.

    def wait_ms(self) -> float:
        """0, or a moment when all at the door are being served: who comes waits in the queue of the socket."""
        at_door = self._at_door
        if len(at_door) < self._most_at_door:
            return 0.0
        before_ms = self._clock.monotonic_ms() - NEWCOMER_MS
        known = [each for each in at_door if each.came_ms <= before_ms]
        return 0.0 if _close_one(at_door, known, 0.0) else WAIT_MS

    def accept(self, ip: str) -> HttpConnection:
        """Return the protocol of a new connection from this address."""
        turns = self._turns
        turns.charge(CONNECTION_US)
        connection = HttpConnection(
            self._router, self._access, turns, self._clock, self._lost, self._refused, self._take_place
        )
        self._at_door[connection] = ip
        return connection

    def _take_place(self, connection: HttpConnection) -> bool:
        """Give a connection one of the places for requests, of which an address may have half; False if it gets none.

        It takes the place of one that asks nothing, or whose client does not read.
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
            self._tell("requests", f"{connection.peer}: there are {self._most} places, half of them for one address")
            return False
        self._at_door.pop(connection, None)
        placed[connection] = ip
        return True

    def _lost(self, connection: HttpConnection) -> None:
        self._at_door.pop(connection, None)
        self._placed.pop(connection, None)

    def report_failure(self, error: OSError) -> None:
        """No connection could be accepted."""
        self._tell("connections", str(shortage(error) or error))

    def defer(self, go_on: Callable[[], None]) -> bool:
        """False if one more may be accepted at once; else `go_on` is called when others have been served."""
        turns = self._turns
        if turns.over:
            turns.rest(go_on)
            return True
        return False

    def _refused(self, peer: str, reason: str) -> None:
        self._tell("requests", f"{peer}: {reason}")

    def _tell(self, what: str, reason: str) -> None:
        times = self._limiters[what].count(self._clock.monotonic_ms())
        if times:
            log.warning(
                "Refused %s to the admin port, the last one: %s (%d times since this was said last)",
                what,
                reason,
                times,
            )


def _close_one(places: dict[HttpConnection, str], some: Sequence[HttpConnection], unread_ms: float) -> bool:
    """Free a place: that of the one of `some` that has been silent longest, or has not read for so long; False if none
    gives way."""
    silent = [each for each in some if each.gives_way]
    unread = [each for each in some if each.has_unread and each.unread_ms >= unread_ms]
    if not silent and not unread:
        return False
    oldest = min(silent or unread, key=lambda connection: connection.arrived_ms)
    del places[oldest]
    oldest.close()
    return True
