"""SASL login of one connection: the allowed order of requests, the principal, and the session lifetime. pure

    ApiVersions (once, if at all) -> SaslHandshake 1 -> SaslAuthenticate ... -> logged in
                                     SaslHandshake 0 -> frames that are tokens and nothing else ... -> logged in
    logged in, for a limited time  -> SaslHandshake -> ... -> logged in, as the same by the same mechanism

Every other request closes the connection. Source: `SaslServerAuthenticator`, `KafkaChannel` of Kafka 4.3.1; KIP-152 and
KIP-368.
"""

from collections.abc import Callable
from enum import Enum, auto
from typing import TYPE_CHECKING, Final

from ottla.broker.ports.clock import Clock
from ottla.broker.security.mechanism import SaslFailed, SaslServer
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.broker.security.logins import Logins

AGAIN_MS: Final = 1_000.0
"""Minimum time between two logins of a connection (`MIN_REAUTH_INTERVAL_ONE_SECOND_NANOS`)."""
_SHOWN: Final = 40
_API_VERSIONS: Final = ApiKey.API_VERSIONS.value
_HANDSHAKE: Final = ApiKey.SASL_HANDSHAKE.value
_AUTHENTICATE: Final = ApiKey.SASL_AUTHENTICATE.value


class _State(Enum):
    """States of Kafka, except those for GSSAPI tokens without a handshake and for replies that are being sent."""

    HANDSHAKE_OR_VERSIONS_REQUEST = auto()
    HANDSHAKE_REQUEST = auto()
    AUTHENTICATE = auto()
    COMPLETE = auto()
    REAUTH_BAD_MECHANISM = auto()
    FAILED = auto()


_TEXT: Final = {
    _State.HANDSHAKE_OR_VERSIONS_REQUEST: "handshake",
    _State.HANDSHAKE_REQUEST: "handshake",
    _State.AUTHENTICATE: "authentication",
}
_AWAITED: Final = {
    _State.HANDSHAKE_OR_VERSIONS_REQUEST: (_API_VERSIONS, _HANDSHAKE),
    _State.HANDSHAKE_REQUEST: (_HANDSHAKE,),
    # A second handshake is answered, and then the connection is closed.
    _State.AUTHENTICATE: (_AUTHENTICATE, _HANDSHAKE),
}


class Authenticator:
    """The SASL login of one connection."""

    __slots__ = (
        "_clock",
        "_expires_ms",
        "_has_headers",
        "_mechanism",
        "_mechanisms",
        "_renewed_ms",
        "_requested",
        "_server",
        "_state",
        "on_login",
        "principal",
    )

    def __init__(self, mechanisms: "Logins", clock: Clock) -> None:
        self._mechanisms = mechanisms
        self._clock = clock
        self._state = _State.HANDSHAKE_OR_VERSIONS_REQUEST
        # The mechanism of the complete login, and that of the login in progress.
        self._mechanism = self._requested = ""
        self._server: SaslServer | None = None
        self._has_headers = False
        self._expires_ms: float | None = None
        self._renewed_ms = -AGAIN_MS
        self.on_login: Callable[[], None] | None = None
        """Callback that runs when the first login is complete."""
        self.principal = ""
        """The principal of the last complete login."""

    @property
    def names(self) -> tuple[str, ...]:
        """Mechanisms from which a client may choose."""
        return self._mechanisms.names

    @property
    def takes_tokens(self) -> bool:
        """Whether the next frame is a token, without the header of a request."""
        return self._state is _State.AUTHENTICATE and not self._has_headers

    @property
    def has_ended(self) -> bool:
        """Whether the login has succeeded or failed, so that no token is expected."""
        return self._state is not _State.AUTHENTICATE

    def is_login(self, api_key: int) -> bool:
        """Return whether a request belongs to a login, the first or a later one."""
        return not self._mechanism or api_key in (_HANDSHAKE, _AUTHENTICATE)

    def objection(self, api_key: int) -> str:
        """Return the reason why this request must close the connection, or an empty string."""
        state = self._state
        if state is _State.COMPLETE:
            if self._expires_ms is None or self._clock.monotonic_ms() <= self._expires_ms:
                return ""
            if api_key == _HANDSHAKE and self._may_log_in_again():
                return ""
            self._mechanisms.counts.expired += 1
            return "the client did not log in again in time (connections.max.reauth.ms, or its token has expired)"
        if state is _State.REAUTH_BAD_MECHANISM:
            self._mechanisms.counts.failed_again += 1
            return (
                f"SASL mechanism '{self._requested}' requested by client is not supported for re-authentication of "
                f"mechanism '{self._mechanism}'"
            )
        if api_key in _AWAITED.get(state, ()):
            return ""
        self._count_failure()
        return (
            f"Unexpected Kafka request of type {_api_name(api_key)} during SASL {_TEXT.get(state, 'authentication')}."
        )

    def on_api_versions(self) -> None:
        """Record that ApiVersions was answered without an error, which is allowed once before a login."""
        if self._state is _State.HANDSHAKE_OR_VERSIONS_REQUEST:
            self._state = _State.HANDSHAKE_REQUEST

    def handshake(self, mechanism: str, version: int) -> tuple[ErrorCode, str]:
        """Choose a mechanism. Return the error for the client, and the reason to close the connection, if any."""
        if self._state is _State.AUTHENTICATE:
            self._fail()
            return (
                ErrorCode.ILLEGAL_SASL_STATE,
                "Unexpected Kafka request of type SASL_HANDSHAKE during SASL authentication.",
            )
        if self._state is _State.COMPLETE:
            if not self._may_log_in_again():
                return ErrorCode.ILLEGAL_SASL_STATE, ""
            self._renewed_ms = self._clock.monotonic_ms()
        if mechanism not in self.names:
            self._fail()
            return ErrorCode.UNSUPPORTED_SASL_MECHANISM, f"Unsupported SASL mechanism {mechanism[:_SHOWN]!r}"
        self._has_headers = version >= 1
        self._requested = mechanism
        if self._mechanism not in ("", mechanism):
            self._state = _State.REAUTH_BAD_MECHANISM
            return ErrorCode.NONE, ""
        self._server = self._mechanisms.server(mechanism)
        self._state = _State.AUTHENTICATE
        return ErrorCode.NONE, ""

    async def authenticate(self, token: bytes) -> tuple[bytes, int]:
        """Return the answer to the client's token, and the session lifetime in ms. `principal` is set by the last one.

        The lifetime is 0 without a limit, and before the login is complete. Raises SaslFailed with the error text for
        the client; the connection must then be closed.
        """
        server = self._server
        assert server is not None, "tokens follow a handshake"
        try:
            answer = await server.evaluate(token)
            if not server.complete:
                return answer, 0
            self._hold_to_principal(server.principal)
        except SaslFailed as failed:
            self._fail()
            raise SaslFailed(failed.reason, failed.message or self._general_sentence) from None
        return answer, self._complete(server)

    def _complete(self, server: SaslServer) -> int:
        counts = self._mechanisms.counts
        if self._mechanism:
            counts.logged_in_again += 1
        else:
            counts.logged_in += 1
        self.principal = server.principal
        self._mechanism = self._requested
        self._state = _State.COMPLETE
        self._server = None
        lifetime_ms = self._lifetime_ms(server)
        self._expires_ms = None if lifetime_ms is None else self._clock.monotonic_ms() + lifetime_ms
        on_login, self.on_login = self.on_login, None
        if on_login is not None:
            on_login()
        return int(lifetime_ms or 0)

    def _lifetime_ms(self, server: SaslServer) -> float | None:
        """Return the session lifetime, None without a limit.

        Source: `ReauthInfo.calcCompletionTimesAndReturnSessionLifetimeMs`.
        """
        most_ms = self._mechanisms.max_reauth_ms(self._mechanism)
        ends: list[float] = [most_ms] if most_ms > 0 else []
        if server.expires_at_ms is not None:
            ends.append(server.expires_at_ms - self._clock.now_ms())
        return max(0, min(ends)) if ends else None

    def _hold_to_principal(self, principal: str) -> None:
        if self.principal and self.principal != principal:
            names = f"{_format_principal(self.principal)}: {_format_principal(principal)}"
            message = f"Cannot change principals during re-authentication from {names}"
            raise SaslFailed(message, message)

    def _may_log_in_again(self) -> bool:
        return self._expires_ms is not None and self._clock.monotonic_ms() - self._renewed_ms >= AGAIN_MS

    def _fail(self) -> None:
        self._state = _State.FAILED
        self._server = None
        self._count_failure()

    def _count_failure(self) -> None:
        if self._mechanism:
            self._mechanisms.counts.failed_again += 1
        else:
            self._mechanisms.counts.failed += 1

    @property
    def _general_sentence(self) -> str:
        """Return the error text for the client. It does not reveal whether the user exists."""
        during = "re-authentication" if self._mechanism else "authentication"
        return f"Authentication failed during {during} due to invalid credentials with SASL mechanism {self._requested}"


def _api_name(api_key: int) -> str:
    try:
        return ApiKey(api_key).name
    except ValueError:
        return str(api_key)


def _format_principal(principal: str) -> str:
    return principal.replace(":", ".", 1)
