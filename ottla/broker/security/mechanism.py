"""One login by one SASL mechanism, from the client's first token to the last. pure

Source: `javax.security.sasl.SaslServer` as `SaslServerAuthenticator` of Kafka 4.3.1 drives it.
"""

from dataclasses import dataclass
from typing import Final, Protocol

from ottla.broker.turns import Handler


class SaslFailed(Exception):
    """The client is not let in.

    `reason` is for the log alone; it names no secret and no token. `told` is what the client reads, where the mechanism
    has words of its own in Kafka. They must not tell whether a user is there. Without them the client reads Kafka's
    general sentence.
    """

    def __init__(self, reason: str, told: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.told = told


class SaslServer(Protocol):
    """The broker's side of one login. It is thrown away when it has failed, and when it is complete."""

    @property
    def complete(self) -> bool:
        """Whether the client is who it says; no token may come any more."""

    @property
    def principal(self) -> str:
        """Who it is, as TYPE:NAME; asked for when complete."""

    @property
    def expires_at_ms(self) -> float | None:
        """When what it has shown ends, in ms since 1970; None where it does not. Asked for when complete."""

    def evaluate(self, token: bytes) -> Handler[bytes]:
        """What to answer to the client's next token. SaslFailed.

        An `async def` that suspends on `Wait` alone: work of many milliseconds is done in shares or elsewhere. A token
        has at most sasl.server.max.receive.size bytes, and is charged for by the caller.
        """


@dataclass(slots=True)
class LoginCounts:
    """The logins of one listener since the start, by their end."""

    logged_in: int = 0
    failed: int = 0
    logged_in_again: int = 0
    failed_again: int = 0
    expired: int = 0
    """Connections that were closed because their client has not logged in anew in time."""


NO_LOGINS: Final = LoginCounts()
"""Of a listener without SASL."""


class Mechanisms(Protocol):
    """What begins logins on one listener: its settings, and who may log in."""

    @property
    def names(self) -> tuple[str, ...]:
        """The mechanisms that are enabled, in the order of sasl.enabled.mechanisms."""

    @property
    def max_receive_bytes(self) -> int:
        """The largest request of who has not logged in."""

    @property
    def counts(self) -> LoginCounts:
        """What has become of logins."""

    def max_reauth_ms(self, name: str) -> int:
        """How long a session by this mechanism lasts at most; 0 for ever."""

    def server(self, name: str) -> SaslServer:
        """Begin a login with one of `names`."""
