"""The listeners of a broker: bound addresses, advertised addresses, and accepted connections. shell

All listeners share one count of connections (`docs/decisions/connection-limits.md`).
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from itertools import cycle
from typing import TYPE_CHECKING, NamedTuple, cast

from ottla.broker.admission import Admission, Limits
from ottla.broker.api.context import Broker
from ottla.broker.assembly import Assembly
from ottla.broker.config import Config, Listener
from ottla.broker.config.listeners import parse_connections_per_ip
from ottla.broker.connection import Connection
from ottla.broker.costs import CONNECTION_US
from ottla.broker.log_limiter import LogLimiter, describe_repeats
from ottla.broker.ports.descriptors import connection_share, descriptor_limit, shortage
from ottla.broker.ports.listener import BoundAddress, BufferedProtocol
from ottla.broker.ports.listener import Listener as SocketListener
from ottla.broker.ports.network import LoopNetwork, Sockets
from ottla.broker.quotas.quotas import CONNECTION_CREATION_RATE
from ottla.broker.turns import Turns
from ottla.protocol.primitives import NodeEndpoint

if TYPE_CHECKING:
    from ottla.broker.ports.peers import LoopPeers
    from ottla.broker.security.listeners import ListenerTls

log = logging.getLogger(__name__)


async def try_ports(network: LoopNetwork, listeners: Sequence[Listener], broker_count: int) -> None:
    """Bind each listener of each broker and close it again. Raises the OSError of a port that is taken, before anything
    is written."""
    for number in range(broker_count):
        for listener in listeners:
            network.close(await _bind(network, _shift(listener, number)))


def _shift(listener: Listener, number: int) -> Listener:
    """Return the listener of the broker of this number: brokers have consecutive ports, or free ones (port 0)."""
    return listener._replace(port=listener.port + number) if listener.port else listener


async def _bind(network: LoopNetwork, listener: Listener) -> Sockets:
    try:
        return await network.bind(listener.host, listener.port)
    except OSError as error:
        raise OSError(f"Cannot listen on {listener}: {error.strerror}") from error


class Listeners:
    """The sockets of all listeners, and the connections that they accept."""

    def __init__(
        self, assembly: Assembly, turns: Turns, network: LoopNetwork, peers: "LoopPeers | None" = None
    ) -> None:
        """Read the limits and the keystores. Raises OSError if a limit names an unknown host, or if a listener's
        keystore cannot be used. Several brokers have `peers`."""
        self._assembly = assembly
        self._peers = peers
        self._turns = turns
        self._network = network
        self._clock = assembly.broker.clock
        self._config = assembly.config
        self._overrides = self._overrides_of(assembly.config, resolve=True)
        self._admission = Admission(_limits(assembly.config, self._overrides))
        self._listeners: list[_BoundListener] = []
        self._tls = {
            listener.name: self._tls_of(listener)
            for listener in assembly.config.listeners
            if assembly.config.is_encrypted(listener)
        }
        self._limiter = LogLimiter()
        assembly.on_config_changed = self._change
        for broker in (assembly.broker, *assembly.broker.brokers):
            broker.tls_problem = self._tls_problem

    def _tls_of(self, listener: Listener) -> "ListenerTls":
        from ottla.broker.security.listeners import ListenerTls

        return ListenerTls(self._config, listener, self._turns, self._clock, self._assembly.broker.non_kafka)

    async def open(self) -> list[Listener]:
        """Listen, and return the advertised addresses in order. OSError: no listener has accepted a connection."""
        brokers, bound = self._assembly.broker.brokers, dict[tuple[int, str], Sockets]()
        try:
            for number in range(len(brokers)):
                for listener in self._config.listeners:
                    bound[number, listener.name] = await _bind(self._network, _shift(listener, number))
            if self._peers is not None:
                self._peers.listen(self._accept_peer, self._report_foreign, self.report_failure, self.defer)
        except OSError:
            for sockets in bound.values():
                self._network.close(sockets)
            raise
        addresses: list[Listener] = []
        for number, broker in enumerate(brokers):
            broker.endpoints = self._endpoints(broker, number, bound)
            addresses += [Listener(name, to.host, to.port) for name, to in broker.endpoints.items()]
        self._assembly.broker.endpoints = brokers[0].endpoints
        for (number, name), sockets in bound.items():
            self._listeners.append(self._accept(number, name, sockets))
        self._assembly.on_broker_stopped, self._assembly.on_broker_started = self._close_ports, self._open_ports
        return addresses

    def _accept(self, number: int, name: str, sockets: Sockets) -> "_BoundListener":
        listener = self._network.accept(sockets, _ListenerCallbacks(self, name, number), self._tls.get(name))
        return _BoundListener(number, name, listener, listener.addresses)

    def _close_ports(self, number: int) -> None:
        """Stop listening for the broker of this number."""
        for bound in self._listeners:
            if bound.number == number:
                bound.listener.close()

    def _open_ports(self, number: int) -> None:
        """Listen again on the ports of a broker. Raises OSError if one is taken; all are closed then."""
        opened: dict[int, Sockets] = {}
        for at, bound in enumerate(self._listeners):
            if bound.number == number:
                try:
                    opened[at] = self._network.bind_again(bound.addresses)
                except OSError as error:
                    for sockets in opened.values():
                        self._network.close(sockets)
                    where = f"{bound.addresses[0][1][0]}:{bound.addresses[0][1][1]}"
                    node_id = self._assembly.broker.brokers[number].cluster.node_id
                    raise OSError(f"Broker {node_id} cannot listen on {where} again: {error.strerror}") from error
        for at, sockets in opened.items():
            bound = self._listeners[at]
            self._listeners[at] = self._accept(bound.number, bound.name, sockets)

    def take_keystores(self) -> None:
        """Read keystores and truststores again, for connections from now on."""
        for tls in self._tls.values():
            tls.take()

    def close(self) -> None:
        """Stop listening. Accepted connections stay."""
        for bound in self._listeners:
            bound.listener.close()
        if self._peers is not None:
            self._peers.close()

    def describe(self) -> str:
        """Return the bound addresses, with the advertised ones where they differ."""
        described = []
        for listener, bound in zip(cycle(self._config.listeners), self._listeners, strict=False):
            where = listener._replace(port=bound.listener.port)
            advertised = self._assembly.broker.brokers[bound.number].endpoints.get(listener.name)
            if advertised is None:
                described.append(f"{where} (not advertised to clients: advertised.listeners)")
            elif (advertised.port, listener.host or advertised.host) != (where.port, advertised.host):
                address = Listener(listener.name, advertised.host, advertised.port)
                described.append(f"{where}, advertised as {address} (advertised.listeners)")
            else:
                described.append(str(where))
        return "; ".join(described)

    def _endpoints(
        self, broker: Broker, number: int, bound: Mapping[tuple[int, str], Sockets]
    ) -> dict[str, NodeEndpoint]:
        """Return the advertised addresses of a broker by listener name."""
        endpoints: dict[str, NodeEndpoint] = {}
        for listener in self._config.listeners:
            advertised = self._config.advertised_address(listener)
            if advertised is not None:
                host = advertised.host or self._network.host_name()
                port = _shift(advertised, number).port or self._network.port_of(bound[number, listener.name])
                endpoints[listener.name] = NodeEndpoint(broker.cluster.node_id, host, port)
        return endpoints

    def wait_ms(self) -> float:
        """Return the milliseconds that the next connection has to wait, on any listener."""
        wait_ms = self._admission.wait_ms(self._clock.monotonic_ms())
        if wait_ms:
            self._log("waits", "New connections wait because of %s", "max.connections or max.connection.creation.rate")
        return wait_ms

    def accept(self, listener_name: str, ip: str, broker: int) -> Connection | None:
        """Return the protocol object of a new connection on this listener of a broker, or None to refuse it."""
        self._turns.charge(CONNECTION_US)
        if not self._assembly.broker.quotas.connections.enter(ip, self._clock.monotonic_ms()):
            self._log("refused", "Refused connections: %s", f"{ip} has reached its quota {CONNECTION_CREATION_RATE}")
            return None
        reason = self._admission.enter(ip)
        if reason is not None:
            self._log("refused", "Refused connections: %s", reason)
            return None
        connection = self._assembly.accept(lambda: self._left(ip), listener_name, broker)
        tls = self._tls.get(listener_name)
        if tls is not None:
            connection.principal_of = tls.principal
        return connection

    def _accept_peer(self, node_id: int) -> BufferedProtocol | None:
        self._turns.charge(CONNECTION_US)
        return self._assembly.accept_peer(node_id)

    def _report_foreign(self, address: str) -> None:
        self._log("foreign", "Closed the connection of %s: only the brokers of this process may use its port", address)

    def defer(self, go_on: Callable[[], None]) -> bool:
        """Return False if the next connection can be accepted at once. Else call `go_on` when other work was done."""
        if self._turns.is_spent:
            self._turns.run_later(go_on)
            return True
        return False

    def report_failure(self, error: OSError) -> None:
        """Log that no connection could be accepted."""
        self._log("failed", "Connections cannot be accepted: %s", shortage(error) or error)

    def _change(self, config: Config) -> None:
        """Apply changed limits while the broker runs. Hosts must be addresses then: no name is resolved."""
        if config.max_connections_per_ip_overrides != self._config.max_connections_per_ip_overrides:
            self._overrides = self._overrides_of(config, resolve=False)
        self._config = config
        for tls in self._tls.values():
            tls.change(config)
        self._admission.change(_limits(config, self._overrides))
        self._resume()

    def _tls_problem(self, config: Config) -> str:
        return next(filter(None, (tls.problem(config) for tls in self._tls.values())), "")

    def _overrides_of(self, config: Config, *, resolve: bool) -> dict[str, int]:
        """Return the limits of single addresses. OSError if a host of `max.connections.per.ip.overrides` is unknown."""
        overrides: dict[str, int] = {}
        for host, number in parse_connections_per_ip(config.max_connections_per_ip_overrides).items():
            try:
                addresses = self._network.addresses_of(host, resolve=resolve)
            except OSError as error:
                raise OSError(f"max.connections.per.ip.overrides: {host}: {error.strerror}") from error
            overrides |= dict.fromkeys(addresses, number)
        return overrides

    def _left(self, ip: str) -> None:
        self._admission.remove_connection(ip)
        self._resume()

    def _resume(self) -> None:
        for bound in self._listeners:
            bound.listener.resume()

    def _log(self, what: str, line: str, reason: object) -> None:
        times = self._limiter.count(what, self._clock.monotonic_ms())
        if times:
            log.warning(line + "%s", reason, describe_repeats(times))


class _BoundListener(NamedTuple):
    """A listener of one of the brokers, whose number is its place in `Broker.brokers`."""

    number: int
    name: str
    listener: SocketListener
    addresses: Sequence[BoundAddress]


class _ListenerCallbacks:
    """The callbacks of one listener, with the same limits as all others."""

    def __init__(self, listening: Listeners, name: str, broker: int) -> None:
        self._listening = listening
        self._name = name
        self._broker = broker
        self.wait_ms = listening.wait_ms
        self.defer = listening.defer
        self.report_failure = listening.report_failure

    def accept(self, ip: str, port: int) -> BufferedProtocol | None:
        return cast(BufferedProtocol | None, self._listening.accept(self._name, ip, self._broker))


def _limits(config: Config, overrides: Mapping[str, int]) -> Limits:
    return Limits(
        config.max_connections,
        config.max_connections_per_ip,
        overrides,
        config.max_connection_creation_rate,
        connection_share(descriptor_limit(), config.max_open_log_files),
    )
