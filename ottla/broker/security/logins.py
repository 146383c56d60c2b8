"""The SASL mechanisms of the listeners, with their settings. pure"""

import logging
from collections.abc import Mapping
from typing import Final

from ottla.broker.config import Config
from ottla.broker.config.oauth import UNSECURED, token_validator, unsecured_settings
from ottla.broker.config.sasl import SaslSettings, sasl_settings
from ottla.broker.security.hashed import HashedPasswords
from ottla.broker.security.jwks import Jwks, KeyFetchContext
from ottla.broker.security.mechanism import LoginCounts, SaslServer
from ottla.broker.security.oauth import NAME as OAUTHBEARER
from ottla.broker.security.oauth import OAuthServer, Tokens
from ottla.broker.security.plain import NAME as PLAIN
from ottla.broker.security.plain import PlainServer
from ottla.broker.security.scram import BY_NAME, ScramServer, ScramUsers
from ottla.broker.security.signed import SignedTokens
from ottla.broker.security.unsecured import UnsecuredTokens

log = logging.getLogger(__name__)

_USER: Final = "user_"
_HASHED: Final = "scram_users"
"""Option of PLAIN's JAAS entry that only Ottla has."""


class Logins:
    """Logins on one listener. Keys of tokens are fetched from `start` to `stop`."""

    def __init__(
        self, listener_name: str, settings: SaslSettings, scram_users: ScramUsers, around: KeyFetchContext
    ) -> None:
        self._settings = settings
        self._scram_users = scram_users
        self._jwks: Jwks | None = None
        if OAUTHBEARER in settings.mechanisms:
            self._tokens = self._tokens_of(listener_name, around)
        self.names = settings.mechanisms
        """The mechanisms that are enabled, in the order of sasl.enabled.mechanisms."""
        self.max_receive_bytes = settings.max_receive_bytes
        """Maximum size of a request from a client that is not logged in."""
        self.counts = LoginCounts()
        self._users = _users(settings)
        self._hashed = HashedPasswords(scram_users, around.turns, around.web) if _has_hashed(settings) else None

    def max_reauth_ms(self, name: str) -> int:
        """Return the longest session of a mechanism; 0 for no limit."""
        return self._settings.configs[name].connections_max_reauth_ms

    def server(self, name: str) -> SaslServer:
        """Begin a login with one of `names`."""
        if name == PLAIN:
            return PlainServer(self._users, self._hashed)
        if name == OAUTHBEARER:
            return OAuthServer(self._tokens)
        return ScramServer(BY_NAME[name], self._scram_users)

    def start(self) -> None:
        """Begin to fetch keys, if the listener needs them."""
        if self._jwks is not None:
            self._jwks.start()

    def stop(self) -> None:
        """Stop fetching keys."""
        if self._jwks is not None:
            self._jwks.stop()

    def _tokens_of(self, listener_name: str, around: KeyFetchContext) -> Tokens:
        oauth = self._settings.configs[OAUTHBEARER]
        if token_validator(oauth) == UNSECURED:
            log.warning(
                "Listener %s accepts unsigned tokens of OAUTHBEARER: a client can log in as any user", listener_name
            )
            return UnsecuredTokens(unsecured_settings(self._settings.modules[OAUTHBEARER].options), around.clock.now_ms)
        self._jwks = Jwks(listener_name, oauth, around)
        return SignedTokens(oauth, self._jwks, around)


def logins_of(config: Config, scram_users: ScramUsers, around: KeyFetchContext) -> dict[str, Logins]:
    """Return the logins of each listener with SASL, by listener name."""
    return {
        listener.name: Logins(listener.name, sasl_settings(config, listener.name), scram_users, around)
        for listener in config.listeners
        if config.has_logins(listener)
    }


def _has_hashed(settings: SaslSettings) -> bool:
    """Return whether PLAIN accepts the users of SCRAM."""
    module = settings.modules.get(PLAIN)
    return module is not None and module.options.get(_HASHED) == "true"


def _users(settings: SaslSettings) -> Mapping[str, str]:
    """Return the password of each user of PLAIN, by name."""
    module = settings.modules.get("PLAIN")
    given = {} if module is None else module.options
    return {key.removeprefix(_USER): text for key, text in given.items() if key.startswith(_USER)}
