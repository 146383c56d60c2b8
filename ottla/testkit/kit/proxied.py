"""A proxy for a test: its address, its faults, its requests and replies. free"""

from typing import Any, Self

from ottla.testkit.history.events import events
from ottla.testkit.history.lines import checker_lines
from ottla.testkit.kit.fault_registries import ProxyFaultRegistry
from ottla.testkit.kit.faults import Faults
from ottla.testkit.kit.ledger import LedgerEntry, read_ledger
from ottla.testkit.proxying import ProxyServer


class ProxiedBroker:
    """A proxy to a broker, `with ProxiedBroker("kafka:9092") as proxy:`. Clients use `proxy.bootstrap`."""

    def __init__(self, upstream: str) -> None:
        self.server = ProxyServer(upstream)
        self.faults = Faults(ProxyFaultRegistry(self.server))

    @property
    def bootstrap(self) -> str:
        """The value for the `bootstrap.servers` of clients."""
        return self.server.bootstrap

    def ledger(self) -> list[LedgerEntry]:
        """Return every transactional request with its outcome, in the order of the requests."""
        return list(read_ledger(self.server.journal.since(0)))

    def history(self) -> list[dict[str, Any]]:
        """Return the operations of the clients, as lines for `ottla check-history`."""
        return checker_lines(self.server.journal.since(0))

    def events(self) -> list[dict[str, Any]]:
        """Return every request and its reply, decoded."""
        return list(events(self.server.journal.since(0)))

    def __enter__(self) -> Self:
        self.server.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self.server.__exit__()
