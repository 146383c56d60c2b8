"""Options of one listener, `listener.name.NAME.OPTION`, or of one of its SASL mechanisms. pure

An option of one mechanism (`listener.name.NAME.MECHANISM.OPTION`, the mechanism in lower case) takes precedence over
one of the listener, and that over one for all. The first letters of the prefix are in lower case, as in Kafka, whatever
case the listener is written in. Source: `SslConfigs`, `SaslConfigs`, `BrokerSecurityConfigs` of Kafka 4.3.1; KIP-226.
"""

import dataclasses
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Final

from ottla.broker.config.broker import BROKER_OPTIONS, Config
from ottla.broker.config.option import LISTENER, MECHANISM, Kind, Option

LISTENER_PREFIX: Final = "listener.name."
MODULES: Final = {
    "PLAIN": "PlainLoginModule",
    "SCRAM-SHA-256": "ScramLoginModule",
    "SCRAM-SHA-512": "ScramLoginModule",
    "OAUTHBEARER": "OAuthBearerLoginModule",
}
"""The mechanisms that are served, and the class of the JAAS entry of each."""
JAAS: Final = "sasl.jaas.config"
_CLIENT_AUTH: Final = "ssl.client.auth"
TLS_OPTIONS: Final = {option.key: option for option in BROKER_OPTIONS if option.key.startswith("ssl.")}
_OF_LISTENER: Final = {option.key: option for option in BROKER_OPTIONS if LISTENER in option.scope}


def _options_of(mechanism: str) -> dict[str, Option]:
    return {f"{mechanism.lower()}.{option.key}": option for option in BROKER_OPTIONS if MECHANISM in option.scope}


def _jaas_option(mechanism: str) -> Option:
    check = partial(_check_jaas, mechanism)
    return Option("sasl_jaas_config", Kind.PASSWORD, "", "The JAAS entry of a mechanism, with its users.", check=check)


def _check_jaas(mechanism: str, text: str) -> None:
    from ottla.protocol.java.jaas import parse_jaas

    if parse_jaas(text).name != MODULES[mechanism]:
        raise ValueError(f"a JAAS entry of {MODULES[mechanism]}")


LISTENER_OPTIONS: Final = {
    **_OF_LISTENER,
    **{key: option for mechanism in MODULES for key, option in _options_of(mechanism).items()},
    **{f"{mechanism.lower()}.{JAAS}": _jaas_option(mechanism) for mechanism in MODULES},
}
"""The options of a listener, by the part of the key after `listener.name.NAME.`"""


def of_listener(key: str) -> tuple[str, str] | None:
    """Return (listener name in upper case, the rest) of `listener.name.NAME.[MECHANISM.]OPTION`; None for another
    key."""
    if not key.startswith(LISTENER_PREFIX):
        return None
    name, _, rest = key.removeprefix(LISTENER_PREFIX).partition(".")
    return name.upper(), rest


def listener_key(name: str, rest: str) -> str:
    """Return the key of an option of a listener. The broker's origins have this key."""
    return f"{LISTENER_PREFIX}{name.lower()}.{rest}"


def listener_config(config: Config, listener_name: str, mechanism: str = "") -> Config:
    """Return the configuration with the values of a listener, or of one of its mechanisms, in place of those for all.

    Dynamic values of TLS take precedence over static ones. An invalid dynamic value, which a log directory of Kafka's
    may hold, is ignored.
    """
    own = {**config.listener_options.get(listener_name, {}), **_dynamic_values(config, listener_name)}
    options = _OF_LISTENER | _options_of(mechanism)
    values = {option.attribute: option.parse(own[key]) for key, option in options.items() if key in own}
    if _CLIENT_AUTH not in own and any(
        listener.name == listener_name and config.has_logins(listener) for listener in config.listeners
    ):
        values["ssl_client_auth"] = "none"  # KIP-684: clients that log in need no certificate
    return dataclasses.replace(config, **values)


def _dynamic_values(config: Config, listener_name: str) -> Mapping[str, str]:
    changed: dict[str, str] = {}
    for _, layer in reversed(config.dynamic):
        for key, text in layer.items():
            named = of_listener(key)
            if named is not None and named[0] == listener_name and named[1] in TLS_OPTIONS:
                with suppress(ValueError):
                    changed[named[1]] = str(TLS_OPTIONS[named[1]].parse(text))
    return changed
