"""The interface of SASL mechanisms: one login, from the client's first token to the last. pure

Source: `javax.security.sasl.SaslServer` as `SaslServerAuthenticator` of Kafka 4.3.1 drives it.
"""

from dataclasses import dataclass
from typing import Final, Protocol

from ottla.broker.turns import Handler


class SaslFailed(Exception):
    """A failed login.

    `reason` is for the log only; it holds no secret and no token. The error for the client (`message`) is that of the
    mechanism where Kafka has one, otherwise Kafka's general one. It must not reveal whether a user exists.
    """

    def __init__(self, reason: str, message: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.message = message


class SaslServer(Protocol):
    """Broker's side of one login. It is dropped when the login has failed or is complete."""

    @property
    def complete(self) -> bool:
        """Return whether the client is authenticated; no more tokens may follow."""

    @property
    def principal(self) -> str:
        """The principal as TYPE:NAME; read when the login is complete."""

    @property
    def expires_at_ms(self) -> float | None:
        """The expiration time of the credentials, in ms since 1970; None if they do not expire. Read when complete."""

    def evaluate(self, token: bytes) -> Handler[bytes]:
        """Return the answer to the client's next token. Raises SaslFailed.

        An `async def` that suspends on `Wait` only: work of many milliseconds is done in shares or in a thread. A token
        has at most sasl.server.max.receive.size bytes, and is charged by the caller.
        """


@dataclass(slots=True)
class LoginCounts:
    """The numbers of logins of one listener since the start, by result."""

    logged_in: int = 0
    failed: int = 0
    logged_in_again: int = 0
    failed_again: int = 0
    expired: int = 0
    """Connections that were closed because their client did not log in again in time."""


NO_LOGINS: Final = LoginCounts()
"""Counts of a listener without SASL."""


class Mechanisms(Protocol):
    """The mechanisms of one listener, with its settings and users."""

    @property
    def names(self) -> tuple[str, ...]:
        """The mechanisms that are enabled, in the order of sasl.enabled.mechanisms."""

    @property
    def max_receive_bytes(self) -> int:
        """Maximum size of a request from a client that is not logged in."""

    @property
    def counts(self) -> LoginCounts:
        """The numbers of logins."""

    def max_reauth_ms(self, name: str) -> int:
        """Return the longest session of a mechanism; 0 for no limit."""

    def server(self, name: str) -> SaslServer:
        """Begin a login with one of `names`."""
