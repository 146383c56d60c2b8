"""The options of SASL of one listener: its mechanisms, and the options of each. pure

An option of one mechanism of one listener (`listener.name.NAME.MECHANISM.OPTION`, the mechanism in lower case) takes
precedence over one of the listener (`listener.name.NAME.OPTION`), and that over one for all. Source: `SaslConfigs`,
`BrokerSecurityConfigs`, `SaslChannelBuilder`, `JaasContext` of Kafka 4.3.1.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from ottla.broker.config.broker import BROKER_OPTIONS, Config
from ottla.broker.config.jaas import LoginModule, parse_jaas, parse_jaas_file
from ottla.broker.config.oauth import OAuthSettings, oauth_problem, oauth_settings
from ottla.broker.config.option import Kind, Option

MODULES: Final = {
    "PLAIN": "PlainLoginModule",
    "SCRAM-SHA-256": "ScramLoginModule",
    "SCRAM-SHA-512": "ScramLoginModule",
    "OAUTHBEARER": "OAuthBearerLoginModule",
}
"""The mechanisms that are served, and the class of the JAAS entry of each."""
_PACKAGES: Final = "org.apache.kafka.common.security."
_JAAS: Final = "sasl.jaas.config"
_ENTRY: Final = "KafkaServer"
_JAAS_OPTION: Final = Option("sasl_jaas_config", Kind.PASSWORD, "", "The JAAS entry of a mechanism, with its users.")
_OF_LISTENER: Final = ("sasl.enabled.mechanisms", "connections.max.reauth.ms", "sasl.server.max.receive.size")
_OF_MECHANISM: Final = ("connections.max.reauth.ms", "sasl.server.callback.handler.class")
_OAUTHBEARER: Final = "OAUTHBEARER"
_OAUTH: Final = "sasl.oauthbearer."
_OPTIONS: Final = {option.key: option for option in BROKER_OPTIONS}


class SaslSettings(NamedTuple):
    """Settings of a listener with SASL."""

    mechanisms: tuple[str, ...]
    """In the order of `sasl.enabled.mechanisms`."""
    modules: Mapping[str, LoginModule]
    """The JAAS entry of each mechanism."""
    max_reauth_ms: Mapping[str, int]
    """The duration of a session by mechanism; 0 for no limit."""
    max_receive_bytes: int
    """The largest frame of a client that has not logged in."""
    oauth: OAuthSettings


def sasl_option(key: str) -> Option | None:
    """Return the option of SASL for `key`, which is the part after `listener.name.NAME.`."""
    if key in _OF_LISTENER or key.startswith(_OAUTH):
        return _OPTIONS.get(key)
    mechanism, _, rest = key.partition(".")
    if mechanism.upper() not in MODULES or not mechanism.islower():
        return None
    if rest == _JAAS:
        return _JAAS_OPTION
    return _OPTIONS.get(rest) if rest in _OF_MECHANISM or rest.startswith(_OAUTH) else None


def parse_jaas_of(key: str, text: str) -> LoginModule:
    """Return the JAAS entry of the mechanism in the key, `MECHANISM.sasl.jaas.config`. Raises ValueError."""
    expected = MODULES[key.partition(".")[0].upper()]
    module = parse_jaas(text)
    if module.name != expected:
        raise ValueError(f"a JAAS entry of {expected}")
    return module


def sasl_settings(config: Config, listener_name: str) -> SaslSettings:
    """Return the settings in force for a listener. The ValueError names the missing or invalid option."""
    own = config.listener_options.get(listener_name, {})
    of_listener = _with_own(config, own, "")
    mechanisms = tuple(of_listener.sasl_enabled_mechanisms.split(","))
    strange = [mechanism for mechanism in mechanisms if mechanism not in MODULES]
    prefix = f"listener.name.{listener_name.lower()}"
    if strange:
        raise ValueError(
            f"Listener {listener_name}: sasl.enabled.mechanisms: {', '.join(strange) or 'nothing'} is not supported. "
            f"Set {prefix}.sasl.enabled.mechanisms, or sasl.enabled.mechanisms for all listeners: {', '.join(MODULES)}"
        )
    modules, max_reauth_ms = {}, {}
    for mechanism in mechanisms:
        jaas = own.get(f"{mechanism.lower()}.{_JAAS}")
        module = _of_file(config.jaas_file, listener_name, mechanism) if jaas is None else parse_jaas(jaas)
        if module is None and mechanism == "PLAIN":
            raise ValueError(
                f"Listener {listener_name}: PLAIN has no users. Set {prefix}.plain.{_JAAS} to "
                f'{_PACKAGES}plain.PlainLoginModule required user_NAME="PASSWORD";'
            )
        modules[mechanism] = module or LoginModule(MODULES[mechanism], {})
        max_reauth_ms[mechanism] = _with_own(of_listener, own, mechanism).connections_max_reauth_ms
    oauth = oauth_settings(_with_own(of_listener, own, _OAUTHBEARER))
    if _OAUTHBEARER in mechanisms:
        problem = oauth_problem(oauth, modules[_OAUTHBEARER].options)
        if problem:
            raise ValueError(f"Listener {listener_name}: {problem}")
    return SaslSettings(mechanisms, modules, max_reauth_ms, of_listener.sasl_server_max_receive_size, oauth)


def _of_file(text: str, listener_name: str, mechanism: str) -> LoginModule | None:
    """Return the JAAS entry of a mechanism in a file: that of the listener, or of all. Raises ValueError."""
    try:
        found = parse_jaas_file(text)
    except ValueError as error:
        raise ValueError(f"java.security.auth.login.config: the file must contain {error}") from None
    modules = found.get(f"{listener_name.lower()}.{_ENTRY}", found.get(_ENTRY, []))
    return next((module for module in modules if module.name == MODULES[mechanism]), None)


def _with_own(config: Config, own: Mapping[str, str], mechanism: str) -> Config:
    """Return the configuration with the options of one mechanism of a listener, or of the listener, applied."""
    prefix = f"{mechanism.lower()}." if mechanism else ""
    values: dict[str, Any] = {}
    for key, text in own.items():
        option = _OPTIONS.get(key.removeprefix(prefix)) if key.startswith(prefix) else None
        if option is not None and sasl_option(key) is not None:
            values[option.attribute] = option.parse(text)
    return dataclasses.replace(config, **values)
