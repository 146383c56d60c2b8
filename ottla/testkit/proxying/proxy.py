"""The proxy on an event loop, with a listener for each broker that a reply names. shell"""

import asyncio
import logging
import socket
import time
from collections import Counter
from collections.abc import Coroutine
from typing import Final

from ottla.printable import host_and_port
from ottla.testkit.control.journal import MOST_BYTES, Journal
from ottla.testkit.faults.exchange import Exchange
from ottla.testkit.faults.fault import OF_THE_BROKER, Fault, FaultError
from ottla.testkit.faults.names import TopicNames
from ottla.testkit.faults.plan import Plan
from ottla.testkit.faults.sessions import Sessions
from ottla.testkit.proxying.addresses import Address
from ottla.testkit.proxying.ends import End
from ottla.testkit.proxying.passing import Passing

log = logging.getLogger(__name__)

MOST_BROKERS: Final = 1_000
_WILDCARDS: Final = frozenset({"0.0.0.0", "::", ""})


class ProxyPlan(Plan):
    """A plan that refuses faults which only an Ottla broker supports."""

    def check(self, fault: Fault) -> None:
        """Raise FaultError for a fault inside a broker."""
        if fault.at in OF_THE_BROKER or fault.do == "crash":
            what = f"{fault.do!r} at {fault.at!r}"
            raise FaultError(f"{what} needs an Ottla broker: a proxy supports only faults of requests and replies")
        if "broker" in fault.where:
            raise FaultError("the condition 'broker' needs an Ottla broker: a proxy does not know the ids of brokers")


class _WallClock:
    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000


class Proxy:
    """A proxy for the cluster at `upstream`. Any thread may use `plan` and `journal` at any time.

    `listen` is the bootstrap address; port 0 chooses a free port. Each broker that a reply names gets the next higher
    port, or any free one. Replies name `advertised_host`, or by default the `listen` host; if that is a wildcard, the
    host at which the client reached the proxy.
    """

    def __init__(
        self,
        upstream: Address,
        listen: Address = ("127.0.0.1", 0),
        advertised_host: str | None = None,
        journal_bytes: int = MOST_BYTES,
    ) -> None:
        self.upstream = upstream
        self.plan = ProxyPlan()
        self.journal = Journal(_WallClock(), journal_bytes)
        self.names = TopicNames()
        self.sessions = Sessions()
        self.requests: Counter[str] = Counter()
        """Number of requests by API."""
        self.connections = 0
        """Number of accepted connections."""
        self._listen = listen
        self._advertised_host = advertised_host or (listen[0] if listen[0] not in _WILDCARDS else None)
        self._ports: dict[Address, int] = {}
        self._servers: list[asyncio.Server] = []
        self._opening: set[asyncio.Task[None]] = set()
        self._passing: set[asyncio.Task[None]] = set()
        self._away_until_s = 0.0
        self._connect_failures: set[Address] = set()

    async def start(self) -> None:
        """Start listening. Raises OSError if the port is not available."""
        await self._serve(self.upstream, self._bind(self._listen[1]))

    @property
    def bootstrap(self) -> str:
        """The bootstrap address for clients on this machine."""
        return host_and_port(self._advertised_host or "127.0.0.1", self._ports[self.upstream])

    @property
    def brokers(self) -> dict[Address, int]:
        """The proxy's port for each broker address of the cluster."""
        return dict(self._ports)

    def count(self, exchange: Exchange) -> None:
        """Count a request."""
        self.requests[exchange.title] += 1

    def replacement(self, address: Address, reached_at: str) -> Address:
        """Return the proxy's address for this broker, and open a listener if there is none."""
        port = self._ports.get(address)
        if port is None:
            if len(self._ports) >= MOST_BROKERS:
                raise OSError(
                    f"no listener for {address[0]}:{address[1]}: the proxy already has {MOST_BROKERS} brokers, the most"
                )
            opened = self._bind(self._next_port())
            port = self._ports[address] = opened.getsockname()[1]
            self._keep(self._serve(address, opened), self._opening)
            log.info("Port %d forwards to %s:%d", port, *address)
        return self._advertised_host or reached_at, port

    def hang_up(self, for_s: float = 0.0) -> None:
        """Close every connection, and each new one at once until `for_s` seconds have passed."""
        self._away_until_s = time.monotonic() + for_s
        for task in tuple(self._passing):
            task.cancel()

    async def close(self) -> None:
        """Close listeners and connections."""
        for server in self._servers:
            server.close()
        tasks = self._opening | self._passing
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _next_port(self) -> int:
        return self._listen[1] + len(self._ports) if self._listen[1] else 0

    def _bind(self, port: int) -> socket.socket:
        host = self._listen[0]
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            return socket.create_server((host, port), family=family, backlog=128)
        except OSError as error:
            if not self._ports:
                raise
            log.warning("Port %d is not available (%s): using a free port", port, error.strerror)
            return socket.create_server((host, 0), family=family, backlog=128)

    async def _serve(self, address: Address, opened: socket.socket) -> None:
        self._ports[address] = opened.getsockname()[1]
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: _Accepted(self, address), sock=opened)
        self._servers.append(server)

    def on_accept(self, client: End, address: Address) -> None:
        """Forward the connection of a client, or close it during `hang_up`."""
        self.connections += 1
        if time.monotonic() < self._away_until_s:
            client.abort()
            return
        self._keep(self._pass(client, address), self._passing)

    async def _pass(self, client: End, address: Address) -> None:
        loop = asyncio.get_running_loop()
        try:
            _, upstream = await loop.create_connection(End, *address)
        except OSError as error:
            if address not in self._connect_failures:  # log it once, until the broker is reachable
                log.warning("%s:%d cannot be reached: %s", *address, error)
            self._connect_failures.add(address)
            client.abort()
            return
        except asyncio.CancelledError:
            client.abort()
            raise
        self._connect_failures.discard(address)
        await Passing(client, upstream, self).run()

    def _keep(self, running: Coroutine[None, None, None], kept: set[asyncio.Task[None]]) -> None:
        task = asyncio.get_running_loop().create_task(running)
        kept.add(task)
        task.add_done_callback(kept.discard)


class _Accepted(End):
    """The client side of an accepted connection."""

    def __init__(self, proxy: Proxy, address: Address) -> None:
        super().__init__()
        self._proxy = proxy
        self._address = address

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._proxy.on_accept(self, self._address)
