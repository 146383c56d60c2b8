"""Settings of the admin port: its address, its token, and routes added to the broker's own. pure"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from ottla.admin.access import is_loopback
from ottla.admin.routes import Route
from ottla.broker.api.context import Broker
from ottla.broker.config.listeners import parse_listeners
from ottla.printable import host_and_port


def no_routes(broker: Broker) -> Sequence[Route]:
    """Add no routes to the broker's own."""
    return ()


class AdminSettings(NamedTuple):
    """An address to listen on (port 0 takes a free one), the token that clients must send, and more routes.

    A broker calls `routes` once, with itself when it is open, before the port serves them.
    """

    host: str
    port: int
    token: str | None = None
    routes: Callable[[Broker], Sequence[Route]] = no_routes


def parse_address(text: str) -> tuple[str, int]:
    """Return host and port of `HOST:PORT` or `[ADDRESS]:PORT`. Raises ValueError."""
    try:
        (listener,) = parse_listeners(f"ADMIN://{text}")
    except ValueError:
        raise ValueError("must be HOST:PORT, such as 127.0.0.1:9644 or [::1]:0") from None
    return listener.host, listener.port


def address_problem(host: str, token: str | None) -> str | None:
    """Return the reason why a port on this host may not be opened; None if it may."""
    if token is None and not is_loopback(host):
        return "other machines can reach this address: set --admin-token-file"
    return None


def address_text(host: str, port: int) -> str:
    """Return the HTTP address of this host and port."""
    return f"http://{host_and_port(host, port)}"
