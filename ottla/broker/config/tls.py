"""The options of TLS, for all listeners and for one (`listener.name.NAME.ssl...`), and the values in force. pure

Source: `SslConfigs` and `SslConfigs.RECONFIGURABLE_CONFIGS` of Kafka 4.3.1, KIP-226, KIP-651. The first letters of a
listener's prefix are as in Kafka in lower case, whatever case the listener is written in.
"""

from collections.abc import Mapping
from contextlib import suppress
from typing import Final, NamedTuple

from ottla.broker.config.broker import BROKER_OPTIONS, Config
from ottla.broker.config.option import Option

LISTENER_PREFIX: Final = "listener.name."
_PREFIX: Final = "ssl_"
_CLIENT_AUTH: Final = "ssl.client.auth"
TLS_OPTIONS: Final[Mapping[str, Option]] = {
    option.key: option for option in BROKER_OPTIONS if option.attribute.startswith(_PREFIX)
}


class TlsSettings(NamedTuple):
    """Key store, trust store and options of a listener. Empty means not given; lists are comma separated."""

    ssl_keystore_type: str
    ssl_keystore_location: str
    ssl_keystore_password: str
    ssl_key_password: str
    ssl_keystore_key: str
    ssl_keystore_certificate_chain: str
    ssl_truststore_type: str
    ssl_truststore_location: str
    ssl_truststore_password: str
    ssl_truststore_certificates: str
    ssl_client_auth: str
    ssl_principal_mapping_rules: str
    ssl_enabled_protocols: str
    ssl_cipher_suites: str
    ssl_allow_dn_changes: str
    ssl_allow_san_changes: str

    def __repr__(self) -> str:
        return f"TlsSettings(keystore_location={self.ssl_keystore_location!r}, client_auth={self.ssl_client_auth!r})"

    @property
    def allows_dn_changes(self) -> bool:
        """Whether a new certificate of the broker may have another name."""
        return self.ssl_allow_dn_changes == str(True)

    @property
    def allows_san_changes(self) -> bool:
        """Whether a new certificate of the broker may lack alternative names of the previous one."""
        return self.ssl_allow_san_changes == str(True)

    @property
    def files(self) -> tuple[str, ...]:
        """The files that are read, by name."""
        return tuple(filter(None, (self.ssl_keystore_location, self.ssl_truststore_location)))


def of_listener(key: str) -> tuple[str, str] | None:
    """Return (listener name in upper case, option) of `listener.name.NAME.OPTION`; None for another key."""
    if not key.startswith(LISTENER_PREFIX):
        return None
    name, _, option = key.removeprefix(LISTENER_PREFIX).partition(".")
    return name.upper(), option


def tls_settings(config: Config, listener_name: str) -> TlsSettings:
    """Return the settings in force for a listener. Dynamic values take precedence over static ones, and of the static
    ones the listener's own over those for all. An invalid dynamic value, which a log directory of Kafka's may hold, is
    ignored."""
    changed: dict[str, str] = {}
    for _, layer in reversed(config.dynamic):
        for key, text in layer.items():
            named = of_listener(key)
            if named is not None and named[0] == listener_name and named[1] in TLS_OPTIONS:
                with suppress(ValueError):
                    changed[named[1]] = str(TLS_OPTIONS[named[1]].parse(text))
    static = config.listener_options.get(listener_name, {})

    def value(option: Option) -> str:
        own = changed.get(option.key, static.get(option.key))
        return str(getattr(config, option.attribute)) if own is None else own

    settings = TlsSettings(**{option.attribute: value(option) for option in TLS_OPTIONS.values()})
    if _CLIENT_AUTH not in {**static, **changed} and any(
        listener.name == listener_name and config.has_logins(listener) for listener in config.listeners
    ):
        return settings._replace(ssl_client_auth="none")  # KIP-684: clients that log in need no certificate
    return settings
