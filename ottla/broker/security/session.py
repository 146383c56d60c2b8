"""The session of a connection. pure

Source: `RequestContext`, `KafkaPrincipal` of Kafka 4.3.1.
"""

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ottla.broker.security.sasl import Authenticator

ANONYMOUS: Final = "User:ANONYMOUS"
"""The principal of clients that are not authenticated."""
DEFAULT_LISTENER: Final = "PLAINTEXT"
LOGIN_MS: Final = 60_000.0
"""Time in which a client must log in, or its connection is closed. Kafka only closes connections that are idle long."""


class Session:
    """Client of a connection. `principal` is TYPE:NAME, as in ACLs."""

    __slots__ = ("authenticator", "is_peer", "listener_name", "node_id", "peer", "principal", "throttle_ms")

    def __init__(self, listener_name: str = DEFAULT_LISTENER, peer: str = "?", principal: str = ANONYMOUS) -> None:
        self.listener_name = listener_name
        self.node_id = -1
        """The broker whose listener accepted the connection; -1 if it is not known."""
        self.peer = peer
        """HOST:PORT of the client."""
        self.principal = principal
        self.throttle_ms = 0
        """The time for which no further request is served after the next reply."""
        self.is_peer = False
        """Whether the client is another broker of this process: it has the right to write markers, and no quotas."""
        self.authenticator: Authenticator | None = None
        """Login of the client; None on a listener without SASL."""

    @property
    def host(self) -> str:
        """Address of the client without the port."""
        return self.peer.rpartition(":")[0]

    @property
    def sends_tokens(self) -> bool:
        """Return whether the next frame is a token, which is not a request and may contain a password."""
        return self.authenticator is not None and self.authenticator.takes_tokens
