"""TLS contexts of the listeners, and their renewal when options or files change. shell"""

import logging
import ssl
from collections.abc import Callable
from typing import Final

from ottla.broker.config import Config, Listener
from ottla.broker.config.principal_rules import mapped_name, parse_principal_rules
from ottla.broker.config.tls import TlsSettings, tls_settings
from ottla.broker.costs import HANDSHAKE_US
from ottla.broker.log_limiter import LogLimiter, LogLimiters, describe_repeats
from ottla.broker.non_kafka import describe_non_tls
from ottla.broker.ports.clock import Clock
from ottla.broker.ports.key_files import stamp
from ottla.broker.security.certificates import distinguished_name, why_not
from ottla.broker.security.session import ANONYMOUS
from ottla.broker.security.stores import TlsError
from ottla.broker.security.tls import ServerTls, server_tls
from ottla.broker.turns import Turns

log = logging.getLogger(__name__)

CHECK_MS: Final = 10_000.0
"""Interval after which a new connection makes the broker check whether the certificate files have changed."""

_Stamps = tuple[tuple[int, int], ...]


class ListenerTls:
    """TLS of one listener. A change that fails is logged, and the previous certificate stays in use."""

    def __init__(self, config: Config, listener: Listener, turns: Turns, clock: Clock, non_kafka: LogLimiters) -> None:
        """Load keys and certificates. Raises TlsError if that fails."""
        self._name = listener.name
        self._turns = turns
        self._clock = clock
        self._non_kafka = non_kafka
        self._limiter = LogLimiter()
        # On a listener with logins, the login determines the principal, not the certificate.
        self._names_clients = not config.has_logins(listener)
        self._settings = tls_settings(config, self._name)
        self._current = self._made(self._settings)
        self._rules = parse_principal_rules(self._settings.ssl_principal_mapping_rules)
        self._stamps = _stamps(self._settings)
        self._checked_ms = clock.monotonic_ms()

    def current_context(self) -> ssl.SSLContext:
        """Return the context for new connections. Changes of the files are noticed every `CHECK_MS`."""
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._checked_ms >= CHECK_MS:
            self._checked_ms = now_ms
            stamps = _stamps(self._settings)
            if stamps != self._stamps:
                self._stamps = stamps
                self._renew(self._settings)
        return self._current.context

    def principal(self, certificate: bytes | None) -> str:
        """Return the principal of a client's certificate, given in DER.

        Raises ValueError if no rule of ssl.principal.mapping.rules matches. Source:
        `DefaultKafkaPrincipalBuilder.applySslPrincipalMapper`.
        """
        if certificate is None or not self._names_clients:
            return ANONYMOUS
        name = distinguished_name(certificate)
        user = mapped_name(self._rules, name)
        if user is None:
            raise ValueError(f"no rule of ssl.principal.mapping.rules matches the name in its certificate, {name}")
        return f"User:{user}"

    def change(self, config: Config) -> None:
        """Apply changed options."""
        settings = tls_settings(config, self._name)
        stamps = _stamps(settings)
        if settings != self._settings or stamps != self._stamps:
            self._stamps = stamps
            self._renew(settings)

    def take(self) -> None:
        """Reload the stores, even if the files seem unchanged."""
        self._stamps = _stamps(self._settings)
        self._renew(self._settings)

    def problem(self, config: Config) -> str:
        """Return the reason why these options cannot be applied, or an empty string."""
        settings = tls_settings(config, self._name)
        if settings == self._settings:
            return ""
        try:
            self._load_renewal(settings)
        except TlsError as error:
            return str(error)
        return ""

    def begin(self, start: Callable[[], None]) -> None:
        """Start a handshake in its turn, so that many handshakes do not delay other work."""

        def run() -> None:
            self._turns.charge(HANDSHAKE_US)
            start()

        self._turns.run_later(run)

    def report_failure(self, peer: str, reason: str) -> None:
        """Log a failed handshake, at most once a minute."""
        times = self._limiter.count(self._clock.monotonic_ms())
        if times:
            explanation = _explain(reason)
            log.warning("Listener %s: no TLS with %s: %s%s", self._name, peer, explanation, describe_repeats(times))

    def report_non_tls(self, peer: str, first: bytes) -> None:
        """Log a client that does not speak TLS."""
        protocol = describe_non_tls(first)
        if self._non_kafka.count((peer.rpartition(":")[0], protocol), self._clock.monotonic_ms()):
            log.warning("Closing the connection of %s: %s", peer, protocol)

    def _renew(self, settings: TlsSettings) -> None:
        try:
            self._current = self._load_renewal(settings)
        except TlsError as error:
            log.error("%s; the previous certificate stays in use", error)
        else:
            self._settings = settings
            log.info("Listener %s uses its new keystore", self._name)

    def _load_renewal(self, settings: TlsSettings) -> ServerTls:
        """Load the TLS context that replaces the current one. Raises TlsError if the certificate may not be replaced
        by this one."""
        made = self._made(settings)
        problem = why_not(
            self._current.entry,
            made.entry,
            dn_may_change=settings.allows_dn_changes,
            san_may_change=settings.allows_san_changes,
        )
        if problem:
            raise TlsError(f"Listener {self._name}: {problem}")
        return made

    def _made(self, settings: TlsSettings) -> ServerTls:
        try:
            return server_tls(settings)
        except TlsError as error:
            raise TlsError(f"Listener {self._name}: {error}") from None


def _stamps(settings: TlsSettings) -> _Stamps:
    """Return the modification time and size of each file."""
    return tuple(map(stamp, settings.files))


_REASONS: Final = {
    "CERTIFICATE_UNKNOWN": "it does not trust the broker's certificate",
    "UNKNOWN_CA": "it does not trust the broker's certificate: its truststore lacks the CA",
    "BAD_CERTIFICATE": "it does not accept the broker's certificate: does that have the host name of the connection?",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "it presents no certificate, and ssl.client.auth is required",
    "CERTIFICATE_VERIFY_FAILED": "its certificate is not from a CA in the truststore, or has expired",
    "UNSUPPORTED_PROTOCOL": "it supports no version in ssl.enabled.protocols",
    "NO_SHARED_CIPHER": "it has no cipher suite in common with the broker",
}


def _explain(reason: str) -> str:
    return next((f"{words} ({reason})" for key, words in _REASONS.items() if key in reason), reason)
