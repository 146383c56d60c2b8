"""A proxy as a test sees it: where clients connect, its faults, what has passed. free"""

from types import TracebackType
from typing import Any, Self

from ottla.testkit.history.events import events
from ottla.testkit.history.lines import checker_lines
from ottla.testkit.kit.desks import ProxyDesk
from ottla.testkit.kit.faults import Faults
from ottla.testkit.kit.ledger import LedgerEntry, read_ledger
from ottla.testkit.proxying import ProxyServer


class ProxiedBroker:
    """`with ProxiedBroker("kafka:9092") as proxy:`; clients connect to `proxy.bootstrap`."""

    def __init__(self, upstream: str) -> None:
        self.server = ProxyServer(upstream)
        self.faults = Faults(ProxyDesk(self.server))

    @property
    def bootstrap(self) -> str:
        """What clients take as `bootstrap.servers`."""
        return self.server.bootstrap

    def ledger(self) -> list[LedgerEntry]:
        """Every call of a transaction, and how it was answered, in the order of the requests."""
        return list(read_ledger(self.server.journal.since(0)))

    def history(self) -> list[dict[str, Any]]:
        """What the clients did, as lines for `ottla check-history`."""
        return checker_lines(self.server.journal.since(0))

    def events(self) -> list[dict[str, Any]]:
        """Every request and its reply, decoded."""
        return list(events(self.server.journal.since(0)))

    def __enter__(self) -> Self:
        self.server.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.server.__exit__(kind, error, trace)
