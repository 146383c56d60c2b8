"""TLS contexts of the listeners, and their renewal when options or files change. shell"""

import logging
import ssl
from collections.abc import Callable
from typing import Any, Final

from ottla.broker.config import Config, Listener
from ottla.broker.config.listener_options import TLS_OPTIONS, listener_config
from ottla.broker.config.principals import mapped_name, parse_principal_rules
from ottla.broker.costs import HANDSHAKE_US
from ottla.broker.log_limiter import LogLimiter, describe_repeats
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

    def __init__(self, config: Config, listener: Listener, turns: Turns, clock: Clock, non_kafka: LogLimiter) -> None:
        """Load keys and certificates. Raises TlsError if that fails."""
        self._name = listener.name
        self._turns = turns
        self._clock = clock
        self._non_kafka = non_kafka
        self._limiter = LogLimiter()
        # On a listener with logins, the login determines the principal, not the certificate.
        self._names_clients = not config.has_logins(listener)
        self._config = listener_config(config, self._name)
        self._current = self._made(self._config)
        self._rules = parse_principal_rules(self._config.ssl_principal_mapping_rules)
        self._stamps = _stamps(self._config)
        self._checked_ms = clock.monotonic_ms()

    def current_context(self) -> ssl.SSLContext:
        """Return the context for new connections. Changes of the files are noticed every `CHECK_MS`."""
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._checked_ms >= CHECK_MS:
            self._checked_ms = now_ms
            stamps = _stamps(self._config)
            if stamps != self._stamps:
                self._stamps = stamps
                self._renew(self._config)
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
        changed = listener_config(config, self._name)
        stamps = _stamps(changed)
        if _tls_values(changed) != _tls_values(self._config) or stamps != self._stamps:
            self._stamps = stamps
            self._renew(changed)

    def take(self) -> None:
        """Reload the stores, even if the files seem unchanged."""
        self._stamps = _stamps(self._config)
        self._renew(self._config)

    def problem(self, config: Config) -> str:
        """Return the reason why these options cannot be applied, or an empty string."""
        changed = listener_config(config, self._name)
        if _tls_values(changed) == _tls_values(self._config):
            return ""
        try:
            self._load_renewal(changed)
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
        times = self._limiter.count(None, self._clock.monotonic_ms())
        if times:
            explanation = _explain(reason)
            log.warning("Listener %s: no TLS with %s: %s%s", self._name, peer, explanation, describe_repeats(times))

    def report_non_tls(self, peer: str, first: bytes) -> None:
        """Log a client that does not speak TLS."""
        protocol = describe_non_tls(first)
        if self._non_kafka.count((peer.rpartition(":")[0], protocol), self._clock.monotonic_ms()):
            log.warning("Closing the connection of %s: %s", peer, protocol)

    def _renew(self, config: Config) -> None:
        try:
            self._current = self._load_renewal(config)
        except TlsError as error:
            log.error("%s; the previous certificate stays in use", error)
        else:
            self._config = config
            log.info("Listener %s uses its new keystore", self._name)

    def _load_renewal(self, config: Config) -> ServerTls:
        """Load the TLS context that replaces the current one. Raises TlsError if the certificate may not be replaced
        by this one."""
        made = self._made(config)
        problem = why_not(
            self._current.entry,
            made.entry,
            dn_may_change=config.ssl_allow_dn_changes,
            san_may_change=config.ssl_allow_san_changes,
        )
        if problem:
            raise TlsError(f"Listener {self._name}: {problem}")
        return made

    def _made(self, config: Config) -> ServerTls:
        try:
            return server_tls(config)
        except TlsError as error:
            raise TlsError(f"Listener {self._name}: {error}") from None


def _stamps(config: Config) -> _Stamps:
    """Return the modification time and size of each file."""
    return tuple(map(stamp, filter(None, (config.ssl_keystore_location, config.ssl_truststore_location))))


def _tls_values(config: Config) -> list[Any]:
    return [getattr(config, option.attribute) for option in TLS_OPTIONS.values()]


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
