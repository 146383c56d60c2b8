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
from ottla.broker.ports.clock import Clock
from ottla.broker.ports.descriptors import allowed, shortage
from ottla.broker.ports.listener import Listener
from ottla.broker.ports.network import LoopNetwork, Sockets
from ottla.broker.seldom import Seldom
from ottla.broker.turns import Turns

log = logging.getLogger(__name__)

MOST_CONNECTIONS: Final = 100
FEWEST_CONNECTIONS: Final = 8
DESCRIPTORS_EACH: Final = 16
"""Of so many descriptors that the system allows, one is for a connection of this port, as the logs need theirs."""


class AdminPort:
    """A port that is bound, is told what to answer, and listens; it may have to answer more later."""

    def __init__(self, settings: AdminSettings, network: LoopNetwork, clock: Clock) -> None:
        """`clock` is the real one, also where the broker's is moved."""
        self._settings = settings
        self._network = network
        self._clock = clock
        self._connections: set[HttpConnection] = set()
        self._sockets: Sockets = []
        self._listener: Listener | None = None
        self._seldom = {"connections": Seldom(), "requests": Seldom()}
        self._most = min(MOST_CONNECTIONS, max(FEWEST_CONNECTIONS, allowed() // DESCRIPTORS_EACH))
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
        for connection in list(self._connections):
            connection.close()

    # What the listener asks of a door.

    def wait_ms(self) -> float:
        """Nobody has to wait: who comes when all places are taken has that of another, or is refused."""
        return 0.0

    def accept(self, ip: str) -> HttpConnection | None:
        """What serves a connection from this address; None to refuse it."""
        turns = self._turns
        turns.charge(CONNECTION_US)
        if len(self._connections) >= self._most and not self._make_room():
            self._tell("connections", f"there are {self._most}, and all wait for their answers")
            return None
        connection = HttpConnection(
            self._router, self._access, turns, self._clock, self._connections.discard, self._refused
        )
        self._connections.add(connection)
        return connection

    def failed(self, error: OSError) -> None:
        """No connection could be accepted."""
        self._tell("connections", str(shortage(error) or error))

    def rest(self, go_on: Callable[[], None]) -> bool:
        """False if one more may be accepted at once; else `go_on` is called when others have been served."""
        turns = self._turns
        if turns.over:
            turns.rest(go_on)
            return True
        return False

    def _make_room(self) -> bool:
        """Close the connection that has been silent longest, of those that have asked nothing."""
        silent = [connection for connection in self._connections if connection.gives_way]
        if not silent:
            return False
        oldest = min(silent, key=lambda connection: connection.arrived_ms)
        self._connections.discard(oldest)
        oldest.close()
        return True

    def _refused(self, peer: str, reason: str) -> None:
        self._tell("requests", f"{peer}: {reason}")

    def _tell(self, what: str, reason: str) -> None:
        times = self._seldom[what].times(self._clock.monotonic_ms())
        if times:
            log.warning(
                "Refused %s to the admin port, the last one: %s (%d times since this was said last)",
                what,
                reason,
                times,
            )
