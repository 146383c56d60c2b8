"""The interface of SASL mechanisms: one login, from the client's first token to the last. pure

Source: `javax.security.sasl.SaslServer` as `SaslServerAuthenticator` of Kafka 4.3.1 drives it.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Final

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


class SaslServer(ABC):
    """Broker's side of one login. It is dropped when the login has failed or is complete."""

    __slots__ = ("complete", "expires_at_ms", "name")

    def __init__(self) -> None:
        self.complete = False
        """Whether the client is authenticated; no more tokens may follow."""
        self.name = ""
        """Name of the user, set when the login is complete."""
        self.expires_at_ms: float | None = None
        """The expiration time of the credentials, in ms since 1970; None if they do not expire. Read when complete."""

    @property
    def principal(self) -> str:
        """The principal as TYPE:NAME; read when the login is complete."""
        return f"User:{self.name}"

    @abstractmethod
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
